/* SPDX-License-Identifier: MIT */
/** @file Devices, the thread's own one, versions, and the reach from one device to another. */
#include "current.h"

/* What the runtime says of itself: CUDA 12.9 and 13.0, whose functions it has. */
#if RUNTIME_MAJOR >= 13
#define RUNTIME_VERSION 13000
#else
#define RUNTIME_VERSION 12090
#endif

#define INIT_DEVICE_FLAGS_ARE_VALID 0x1u /* cudaInitDeviceFlagsAreValid */

GPUIPC_EXPORTED int gpuipc_emulated_runtime_mark(void) {
    return RUNTIME_MAJOR;
}

GPUIPC_EXPORTED cudaError_t cudaRuntimeGetVersion(int *version) {
    if (version == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    *version = RUNTIME_VERSION;
    return cudaSuccess;
}

/* cuda_runtime_api.h: 0 where there is no driver, and no error. */
GPUIPC_EXPORTED cudaError_t cudaDriverGetVersion(int *version) {
    if (version == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    if (!libcuda_load()) {
        *version = 0;
        return cudaSuccess;
    }
    return current_end(libcuda.cuDriverGetVersion(version));
}

GPUIPC_EXPORTED cudaError_t cudaGetDeviceCount(int *count) {
    if (count == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    const cudaError_t result = RUN_WITHOUT_CONTEXT(cuDeviceGetCount, count);
    if (result != cudaSuccess) {
        *count = 0;
    }
    return result;
}

/* Of a context that the thread made current by the driver, else the thread's. */
GPUIPC_EXPORTED cudaError_t cudaGetDevice(int *device) {
    CUcontext current = NULL;
    if (device == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    const cudaError_t result = RUN_WITHOUT_CONTEXT(cuCtxGetCurrent, &current);
    if (result != cudaSuccess || current == NULL || current_is_own(current)) {
        *device = current_device();
        return result;
    }
    return RUN_WITHOUT_CONTEXT(cuCtxGetDevice, device);
}

GPUIPC_EXPORTED cudaError_t cudaSetDevice(int device) {
    return current_set_device(device);
}

GPUIPC_EXPORTED cudaError_t cudaInitDevice(int device, unsigned int device_flags,
                                           unsigned int flags) {
    CUcontext primary;
    if ((flags & ~INIT_DEVICE_FLAGS_ARE_VALID) != 0) {
        return current_fail(cudaErrorInvalidValue);
    }
    if ((flags & INIT_DEVICE_FLAGS_ARE_VALID) != 0) {
        const cudaError_t result =
            RUN_WITHOUT_CONTEXT(cuDevicePrimaryCtxSetFlags_v2, device, device_flags);
        if (result != cudaSuccess) {
            return result;
        }
    }
    if (!current_begin_without_context()) {
        return current_refused();
    }
    return current_end(current_primary(device, &primary));
}

GPUIPC_EXPORTED cudaError_t cudaSetDeviceFlags(unsigned int flags) {
    return RUN_WITHOUT_CONTEXT(cuDevicePrimaryCtxSetFlags_v2, current_device(), flags);
}

GPUIPC_EXPORTED cudaError_t cudaGetDeviceFlags(unsigned int *flags) {
    int active;
    return RUN_WITHOUT_CONTEXT(cuDevicePrimaryCtxGetState, current_device(), flags, &active);
}

GPUIPC_EXPORTED cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute,
                                                   int device) {
    return RUN_WITHOUT_CONTEXT(cuDeviceGetAttribute, value, (CUdevice_attribute)attribute, device);
}

GPUIPC_EXPORTED cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device) {
    return RUN_WITHOUT_CONTEXT(cuDeviceGetPCIBusId, text, size, device);
}

GPUIPC_EXPORTED cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text) {
    return RUN_WITHOUT_CONTEXT(cuDeviceGetByPCIBusId, device, text);
}

GPUIPC_EXPORTED cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    return RUN(cuCtxGetStreamPriorityRange, least, greatest);
}

GPUIPC_EXPORTED cudaError_t cudaDeviceSynchronize(void) {
    return current_begin() ? current_end(libcuda.cuCtxSynchronize()) : current_refused();
}

GPUIPC_EXPORTED cudaError_t cudaDeviceReset(void) {
    return current_reset();
}

GPUIPC_EXPORTED cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    return RUN_WITHOUT_CONTEXT(cuDeviceCanAccessPeer, can, device, peer);
}

GPUIPC_EXPORTED cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute,
                                                      int source, int destination) {
    return RUN_WITHOUT_CONTEXT(cuDeviceGetP2PAttribute, value, (CUdevice_P2PAttribute)attribute,
                               source, destination);
}

static cudaError_t primary_of(int device, CUcontext *out) {
    if (!current_begin()) {
        return current_refused();
    }
    return current_end(current_primary(device, out));
}

GPUIPC_EXPORTED cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
    CUcontext primary;
    const cudaError_t result = primary_of(peer, &primary);
    return result != cudaSuccess ? result : RUN(cuCtxEnablePeerAccess, primary, flags);
}

GPUIPC_EXPORTED cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    CUcontext primary;
    const cudaError_t result = primary_of(peer, &primary);
    return result != cudaSuccess ? result : RUN(cuCtxDisablePeerAccess, primary);
}

GPUIPC_EXPORTED cudaError_t cudaGetDriverEntryPointByVersion(
    const char *symbol, void **function, unsigned int version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *status) {
    CUdriverProcAddressQueryResult found;
    const cudaError_t result =
        RUN_WITHOUT_CONTEXT(cuGetProcAddress_v2, symbol, function, (int)version, flags, &found);
    if (result == cudaSuccess && status != NULL) {
        *status = (enum cudaDriverEntryPointQueryResult)found;
    }
    return result;
}

#if RUNTIME_MAJOR < 13
GPUIPC_EXPORTED cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function,
                                                    unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *status) {
    return cudaGetDriverEntryPointByVersion(symbol, function, RUNTIME_VERSION, flags, status);
}
#endif

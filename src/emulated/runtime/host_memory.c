/* SPDX-License-Identifier: MIT */
/** @file Pinned memory of the host. */
#include "current.h"

GPUIPC_EXPORTED cudaError_t cudaMallocHost(void **address, size_t bytes) {
    return RUN(cuMemHostAlloc, address, bytes, 0);
}

GPUIPC_EXPORTED cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned int flags) {
    return RUN(cuMemHostAlloc, address, bytes, flags);
}

GPUIPC_EXPORTED cudaError_t cudaFreeHost(void *address) {
    return address == NULL ? RUN(cuCtxGetCurrent, &(CUcontext){NULL}) : RUN(cuMemFreeHost, address);
}

GPUIPC_EXPORTED cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned int flags) {
    return RUN(cuMemHostRegister_v2, address, bytes, flags);
}

GPUIPC_EXPORTED cudaError_t cudaHostUnregister(void *address) {
    return RUN(cuMemHostUnregister, address);
}

GPUIPC_EXPORTED cudaError_t cudaHostGetDevicePointer(void **device, void *host,
                                                     unsigned int flags) {
    CUdeviceptr found = 0;
    if (device == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    return current_give(RUN(cuMemHostGetDevicePointer_v2, &found, host, flags), &found, device);
}

GPUIPC_EXPORTED cudaError_t cudaHostGetFlags(unsigned int *flags, void *address) {
    return RUN(cuMemHostGetFlags, flags, address);
}

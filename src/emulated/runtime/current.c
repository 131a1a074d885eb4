/* SPDX-License-Identifier: MIT */
/** @file See current.h. */
#include "current.h"

#include <stdatomic.h>

#include "../machine.h"
#include "os.h"

/* The runtime's own copy of what it has retained. */
static struct {
    _Atomic(CUcontext) handle;
    atomic_bool is_retained;
} primaries[MACHINE_DEVICES_MAX];
static os_static_mutex mutex;

static GPUIPC_THREAD_LOCAL int thread_device;
static GPUIPC_THREAD_LOCAL cudaError_t last_error;
static GPUIPC_THREAD_LOCAL cudaError_t refusal;

/* "Not ready" is an answer and not kept (measured on an H200, CUDA 13.0). */
cudaError_t current_fail(cudaError_t error) {
    if (error != cudaSuccess && error != cudaErrorNotReady) {
        last_error = error;
    }
    return error;
}

/* The codes of the two are the same where both have one. */
cudaError_t current_end(CUresult result) {
    return current_fail((cudaError_t)result);
}

cudaError_t current_refused(void) {
    return current_fail(refusal);
}

cudaError_t current_take_error(void) {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t current_see_error(void) {
    return last_error;
}

int current_device(void) {
    return thread_device;
}

bool current_begin_without_context(void) {
    refusal = libcuda_load() ? (cudaError_t)libcuda.cuInit(0) : cudaErrorInsufficientDriver;
    return refusal == cudaSuccess;
}

CUresult current_primary(int device, CUcontext *out) {
    CUresult result = CUDA_SUCCESS;
    if (device < 0 || device >= MACHINE_DEVICES_MAX) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    os_static_mutex_lock(&mutex);
    if (!atomic_load_explicit(&primaries[device].is_retained, memory_order_relaxed)) {
        CUcontext retained;
        result = libcuda.cuDevicePrimaryCtxRetain(&retained, device);
        if (result == CUDA_SUCCESS) {
            atomic_store_explicit(&primaries[device].handle, retained, memory_order_release);
            atomic_store_explicit(&primaries[device].is_retained, true, memory_order_release);
        }
    }
    if (result == CUDA_SUCCESS) {
        *out = atomic_load_explicit(&primaries[device].handle, memory_order_relaxed);
    }
    os_static_mutex_unlock(&mutex);
    return result;
}

static CUresult bind(int device) {
    CUcontext primary;
    const CUresult result = current_primary(device, &primary);
    return result == CUDA_SUCCESS ? libcuda.cuCtxSetCurrent(primary) : result;
}

bool current_is_own(CUcontext context) {
    return atomic_load_explicit(&primaries[thread_device].handle, memory_order_acquire) == context;
}

/* By cudaDeviceReset: the handle is still current, and the same when it is retained again. */
static bool was_reset(CUcontext current) {
    return current_is_own(current) &&
           !atomic_load_explicit(&primaries[thread_device].is_retained, memory_order_acquire);
}

bool current_begin(void) {
    CUcontext current = NULL;
    if (!current_begin_without_context()) {
        return false;
    }
    CUresult result = libcuda.cuCtxGetCurrent(&current);
    if (result == CUDA_SUCCESS && (current == NULL || was_reset(current))) {
        result = bind(thread_device);
    }
    refusal = (cudaError_t)result;
    return result == CUDA_SUCCESS;
}

cudaError_t current_set_device(int device) {
    int count = 0;
    if (!current_begin_without_context()) {
        return current_refused();
    }
    CUresult result = libcuda.cuDeviceGetCount(&count);
    if (result == CUDA_SUCCESS && (device < 0 || device >= count)) {
        result = CUDA_ERROR_INVALID_DEVICE;
    }
    if (result == CUDA_SUCCESS) {
        thread_device = device;
        result = bind(device);
    }
    return current_end(result);
}

cudaError_t current_reset(void) {
    if (!current_begin_without_context()) {
        return current_refused();
    }
    if (libcuda.cuDevicePrimaryCtxReset_v2 == NULL ||
        libcuda.cuDevicePrimaryCtxRelease_v2 == NULL) {
        return current_fail(cudaErrorCallRequiresNewerDriver);
    }
    os_static_mutex_lock(&mutex);
    const bool was_retained = atomic_exchange_explicit(&primaries[thread_device].is_retained, false,
                                                       memory_order_acq_rel);
    CUresult result = libcuda.cuDevicePrimaryCtxReset_v2(thread_device);
    if (was_retained) {
        const CUresult released = libcuda.cuDevicePrimaryCtxRelease_v2(thread_device);
        result = result == CUDA_SUCCESS ? released : result;
    }
    os_static_mutex_unlock(&mutex);
    return current_end(result);
}

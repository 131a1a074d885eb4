/* SPDX-License-Identifier: MIT */
/** @file The entry points that say where managed memory should lie, and which stream uses it. Here it lies in the
 *  host, where every device and every stream reaches it: what is checked is what the caller may ask for. */
#include "capture.h"
#include "entry.h"
#include "pinned.h"
#include "stream.h"

/* cuda.h: a device must have CONCURRENT_MANAGED_ACCESS. */
static CUresult check_location(const CUmemLocation *location) {
    device *at;
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return state_device(location->id, &at) == CUDA_SUCCESS && state_has_concurrent_managed()
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return location->id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* The managed memory at an address, or NULL. */
static const pinned *find_managed(CUdeviceptr address) {
    const pinned *found = pinned_find(address);
    return found != NULL && found->kind == PINNED_MANAGED ? found : NULL;
}

static CUresult prefetch(CUdeviceptr address, uint64_t bytes, CUmemLocation location,
                         unsigned flags, CUstream handle) {
    stream *on;
    const pinned *managed = find_managed(address);
    CUresult result = stream_find(handle, &on);
    if (result == CUDA_SUCCESS) {
        result = check_location(&location);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags != 0 || bytes == 0 || managed == NULL ||
        bytes > managed->at.size - (address - managed->at.base)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return capture_check(on);
}

static CUresult attach(CUstream handle, CUdeviceptr address, uint64_t bytes, unsigned flags) {
    stream *on;
    const pinned *managed = find_managed(address);
    const CUresult result = stream_find(handle, &on);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if ((flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
         flags != CU_MEM_ATTACH_SINGLE) ||
        (flags == CU_MEM_ATTACH_SINGLE && on->kind == STREAM_LEGACY) || managed == NULL ||
        address != managed->at.base || (bytes != 0 && bytes != managed->at.size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return capture_check(on);
}

GPUIPC_EXPORTED CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice ordinal,
                                            CUstream on) {
    const CUresult refused = ENTER(cuMemPrefetchAsync);
    const CUmemLocation location = {ordinal == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST
                                                             : CU_MEM_LOCATION_TYPE_DEVICE,
                                    ordinal};
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(prefetch(address, bytes, location, 0, on));
}

GPUIPC_EXPORTED CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes,
                                               CUmemLocation location, unsigned int flags,
                                               CUstream on) {
    const CUresult refused = ENTER(cuMemPrefetchAsync_v2);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(prefetch(address, bytes, location, flags, on));
}

GPUIPC_EXPORTED CUresult cuStreamAttachMemAsync(CUstream on, CUdeviceptr address, size_t bytes,
                                                unsigned int flags) {
    const CUresult refused = ENTER(cuStreamAttachMemAsync);
    return refused != CUDA_SUCCESS ? refused : entry_leave(attach(on, address, bytes, flags));
}

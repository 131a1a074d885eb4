/* SPDX-License-Identifier: MIT */
/** @file Memory of pools: allocated and freed in the order of a stream. */
#include "capture.h"
#include "entry.h"
#include "plain_memory.h"
#include "pool.h"
#include "stream.h"

/* The pool that cuDeviceSetMemPool has made a device's current one. */
static CUresult pool_of_device(int ordinal, pool **out) {
    device *of = &driver.devices[ordinal];
    if (of->current_pool != NULL) {
        *out = of->current_pool;
        return CUDA_SUCCESS;
    }
    return pool_default(of, out);
}

/* @param handle the pool, or NULL: that of the stream's device */
static CUresult allocate(CUdeviceptr *out, size_t bytes, bool has_pool, CUmemoryPool handle,
                         CUstream stream_handle) {
    stream *on;
    pool *from;
    if (!state_has_pools()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = stream_find(stream_handle, &on);
    if (result == CUDA_SUCCESS) {
        result = has_pool ? pool_find(handle, &from) : pool_of_device(on->owner->device, &from);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL || from->is_imported) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = capture_check(on); /* nodes that allocate are not emulated */
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (bytes == 0) {
        *out = 0; /* measured: no error; freeing 0 is none either */
        return CUDA_SUCCESS;
    }
    return pool_allocate(from, bytes, on, out);
}

/* From the call on the address is invalid; the memory is free when the stream has got there. That of
 * cuMemAlloc may be given, too (measured): what pending work touches of it, that keeps. */
static CUresult free_async(CUdeviceptr address, CUstream stream_handle) {
    stream *on;
    task *point;
    if (!state_has_pools()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = stream_find(stream_handle, &on);
    mapping *mapped = address_mapping(address);
    if (result != CUDA_SUCCESS || address == 0) {
        return result;
    }
    if (mapped == NULL || mapped->at.base != address ||
        (mapped->kind != MAPPING_POOLED && mapped->kind != MAPPING_PLAIN)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (mapped->kind == MAPPING_PLAIN) {
        plain_unmap(mapped);
        return CUDA_SUCCESS;
    }
    result = stream_mark(on, &point);
    if (result == CUDA_SUCCESS) {
        pool_free(mapped, point, on);
        task_release(point);
    }
    return result;
}

GPUIPC_EXPORTED CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream on) {
    const CUresult refused = ENTER(cuMemAllocAsync);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(allocate(address, bytes, false, NULL, on));
}

GPUIPC_EXPORTED CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes,
                                                 CUmemoryPool handle, CUstream on) {
    const CUresult refused = ENTER(cuMemAllocFromPoolAsync);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(allocate(address, bytes, true, handle, on));
}

GPUIPC_EXPORTED CUresult cuMemFreeAsync(CUdeviceptr address, CUstream on) {
    const CUresult refused = ENTER(cuMemFreeAsync);
    return refused != CUDA_SUCCESS ? refused : entry_leave(free_async(address, on));
}

/* SPDX-License-Identifier: MIT */
/** @file Stream-ordered memory and its pools. The structures have the driver's layout. */
#include <string.h>

#include "current.h"

GPUIPC_EXPORTED cudaError_t cudaMallocAsync(void **address, size_t bytes, cudaStream_t stream) {
    CUdeviceptr made = 0;
    if (address == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    return current_give(RUN(cuMemAllocAsync, &made, bytes, stream), &made, address);
}

GPUIPC_EXPORTED cudaError_t cudaMallocFromPoolAsync(void **address, size_t bytes,
                                                    cudaMemPool_t pool, cudaStream_t stream) {
    CUdeviceptr made = 0;
    if (address == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    return current_give(RUN(cuMemAllocFromPoolAsync, &made, bytes, pool, stream), &made, address);
}

GPUIPC_EXPORTED cudaError_t cudaFreeAsync(void *address, cudaStream_t stream) {
    return RUN(cuMemFreeAsync, number_of(address), stream);
}

GPUIPC_EXPORTED cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    return RUN(cuDeviceGetDefaultMemPool, pool, device);
}

GPUIPC_EXPORTED cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
    return RUN(cuDeviceGetMemPool, pool, device);
}

GPUIPC_EXPORTED cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    return RUN(cuDeviceSetMemPool, device, pool);
}

GPUIPC_EXPORTED cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool,
                                              const struct cudaMemPoolProps *props) {
    CUmemPoolProps wanted;
    _Static_assert(sizeof(wanted) == sizeof(*props), "the driver's layout");
    if (props == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    memcpy(&wanted, props, sizeof(wanted));
    return RUN(cuMemPoolCreate, pool, &wanted);
}

GPUIPC_EXPORTED cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    return RUN(cuMemPoolDestroy, pool);
}

GPUIPC_EXPORTED cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes_to_keep) {
    return RUN(cuMemPoolTrimTo, pool, bytes_to_keep);
}

GPUIPC_EXPORTED cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool,
                                                    enum cudaMemPoolAttr attribute, void *value) {
    return RUN(cuMemPoolSetAttribute, pool, (CUmemPool_attribute)attribute, value);
}

GPUIPC_EXPORTED cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool,
                                                    enum cudaMemPoolAttr attribute, void *value) {
    return RUN(cuMemPoolGetAttribute, pool, (CUmemPool_attribute)attribute, value);
}

GPUIPC_EXPORTED cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool,
                                                 const struct cudaMemAccessDesc *list,
                                                 size_t count) {
    _Static_assert(sizeof(CUmemAccessDesc) == sizeof(*list), "the driver's layout");
    return RUN(cuMemPoolSetAccess, pool, (const CUmemAccessDesc *)(const void *)list, count);
}

GPUIPC_EXPORTED cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t pool,
                                                 struct cudaMemLocation *location) {
    CUmemAccess_flags found;
    CUmemLocation where;
    _Static_assert(sizeof(where) == sizeof(*location), "the driver's layout");
    if (flags == NULL || location == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    memcpy(&where, location, sizeof(where));
    const cudaError_t result = RUN(cuMemPoolGetAccess, &found, pool, &where);
    if (result == cudaSuccess) {
        *flags = (enum cudaMemAccessFlags)found;
    }
    return result;
}

GPUIPC_EXPORTED cudaError_t cudaMemPoolExportToShareableHandle(
    void *handle, cudaMemPool_t pool, enum cudaMemAllocationHandleType type, unsigned int flags) {
    return RUN(cuMemPoolExportToShareableHandle, handle, pool, (CUmemAllocationHandleType)type,
               flags);
}

GPUIPC_EXPORTED cudaError_t cudaMemPoolImportFromShareableHandle(
    cudaMemPool_t *pool, void *handle, enum cudaMemAllocationHandleType type, unsigned int flags) {
    return RUN(cuMemPoolImportFromShareableHandle, pool, handle, (CUmemAllocationHandleType)type,
               flags);
}

GPUIPC_EXPORTED cudaError_t cudaMemPoolExportPointer(struct cudaMemPoolPtrExportData *data,
                                                     void *address) {
    CUmemPoolPtrExportData made;
    _Static_assert(sizeof(made) == sizeof(*data), "the driver's layout");
    if (data == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    const cudaError_t result = RUN(cuMemPoolExportPointer, &made, number_of(address));
    if (result == cudaSuccess) {
        memcpy(data, &made, sizeof(*data));
    }
    return result;
}

GPUIPC_EXPORTED cudaError_t cudaMemPoolImportPointer(void **address, cudaMemPool_t pool,
                                                     struct cudaMemPoolPtrExportData *data) {
    CUmemPoolPtrExportData given;
    CUdeviceptr made = 0;
    if (address == NULL || data == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    memcpy(&given, data, sizeof(given));
    return current_give(RUN(cuMemPoolImportPointer, &made, pool, &given), &made, address);
}

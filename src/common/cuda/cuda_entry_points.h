/* SPDX-License-Identifier: MIT */
/**
 * @file The list of CUDA entry points gpuipc uses. It declares nothing, so that
 * tests/unit/cuda_api_theirs.c can expand it behind the real cuda.h as well.
 */
#ifndef GPUIPC_CUDA_ENTRY_POINTS_H
#define GPUIPC_CUDA_ENTRY_POINTS_H

/**
 * The entry points: X(group, name, suffix, version, parameters).
 * suffix: what the symbol in the library has behind the name (nothing, _v2, ...).
 * version: the CUDA version whose signature this is, for cuGetProcAddress (cudaTypedefs.h has
 *          them as PFN_<name>_v<version>).
 * The group "core" must be there; the absence of any other is a capability that is missing.
 */
/* clang-format off */
#define CUDA_API_LIST(X) \
    X(core, cuInit, , 2000, (unsigned int flags)) \
    X(core, cuDriverGetVersion, , 2020, (int *version)) \
    X(core, cuGetErrorName, , 6000, (CUresult error, const char **name)) \
    X(core, cuGetErrorString, , 6000, (CUresult error, const char **text)) \
    X(core, cuDeviceGetCount, , 2000, (int *count)) \
    X(core, cuDeviceGet, , 2000, (CUdevice *device, int ordinal)) \
    X(core, cuDeviceGetName, , 2000, (char *name, int size, CUdevice device)) \
    X(core, cuDeviceGetUuid, _v2, 11040, (CUuuid *uuid, CUdevice device)) \
    X(core, cuDeviceTotalMem, _v2, 3020, (size_t *bytes, CUdevice device)) \
    X(core, cuDeviceGetAttribute, , 2000, (int *value, CUdevice_attribute attribute, CUdevice device)) \
    X(core, cuDevicePrimaryCtxRetain, , 7000, (CUcontext *context, CUdevice device)) \
    X(core, cuDevicePrimaryCtxRelease, _v2, 11000, (CUdevice device)) \
    X(core, cuDevicePrimaryCtxGetState, , 7000, (CUdevice device, unsigned int *flags, int *active)) \
    X(core, cuCtxPushCurrent, _v2, 4000, (CUcontext context)) \
    X(core, cuCtxPopCurrent, _v2, 4000, (CUcontext *context)) \
    X(core, cuCtxGetCurrent, , 4000, (CUcontext *context)) \
    X(core, cuCtxSetCurrent, , 4000, (CUcontext context)) \
    X(core, cuCtxGetDevice, , 2000, (CUdevice *device)) \
    X(core, cuCtxSynchronize, , 2000, (void)) \
    X(core, cuThreadExchangeStreamCaptureMode, , 10010, (CUstreamCaptureMode *mode)) \
    X(core, cuStreamCreate, , 2000, (CUstream *stream, unsigned int flags)) \
    X(core, cuStreamDestroy, _v2, 4000, (CUstream stream)) \
    X(core, cuStreamGetCtx, , 9020, (CUstream stream, CUcontext *context)) \
    X(core, cuStreamIsCapturing, , 10000, (CUstream stream, CUstreamCaptureStatus *status)) \
    X(core, cuStreamQuery, , 2000, (CUstream stream)) \
    X(core, cuStreamSynchronize, , 2000, (CUstream stream)) \
    X(core, cuStreamWaitEvent, , 3020, (CUstream stream, CUevent event, unsigned int flags)) \
    X(core, cuEventCreate, , 2000, (CUevent *event, unsigned int flags)) \
    X(core, cuEventRecord, , 2000, (CUevent event, CUstream stream)) \
    X(core, cuEventQuery, , 2000, (CUevent event)) \
    X(core, cuEventSynchronize, , 2000, (CUevent event)) \
    X(core, cuEventElapsedTime, , 2000, (float *milliseconds, CUevent start, CUevent end)) \
    X(core, cuEventDestroy, _v2, 4000, (CUevent event)) \
    X(core, cuMemGetInfo, _v2, 3020, (size_t *free_bytes, size_t *total_bytes)) \
    X(core, cuMemAlloc, _v2, 3020, (CUdeviceptr *address, size_t bytes)) \
    X(core, cuMemFree, _v2, 3020, (CUdeviceptr address)) \
    X(core, cuMemGetAddressRange, _v2, 3020, (CUdeviceptr *base, size_t *bytes, CUdeviceptr address)) \
    X(core, cuPointerGetAttribute, , 4000, (void *data, CUpointer_attribute attribute, CUdeviceptr address)) \
    X(core, cuMemcpy, , 4000, (CUdeviceptr destination, CUdeviceptr source, size_t bytes)) \
    X(core, cuMemcpyAsync, , 4000, (CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream)) \
    X(core, cuMemcpyHtoD, _v2, 3020, (CUdeviceptr destination, const void *source, size_t bytes)) \
    X(core, cuMemcpyDtoH, _v2, 3020, (void *destination, CUdeviceptr source, size_t bytes)) \
    X(core, cuMemcpyDtoD, _v2, 3020, (CUdeviceptr destination, CUdeviceptr source, size_t bytes)) \
    X(core, cuMemcpyHtoDAsync, _v2, 3020, (CUdeviceptr destination, const void *source, size_t bytes, CUstream stream)) \
    X(core, cuMemcpyDtoHAsync, _v2, 3020, (void *destination, CUdeviceptr source, size_t bytes, CUstream stream)) \
    X(core, cuMemcpyDtoDAsync, _v2, 3020, (CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream)) \
    X(core, cuMemsetD8, _v2, 3020, (CUdeviceptr address, unsigned char value, size_t count)) \
    X(core, cuMemsetD16, _v2, 3020, (CUdeviceptr address, unsigned short value, size_t count)) \
    X(core, cuMemsetD32, _v2, 3020, (CUdeviceptr address, unsigned int value, size_t count)) \
    X(core, cuMemsetD8Async, , 3020, (CUdeviceptr address, unsigned char value, size_t count, CUstream stream)) \
    X(core, cuMemsetD16Async, , 3020, (CUdeviceptr address, unsigned short value, size_t count, CUstream stream)) \
    X(core, cuMemsetD32Async, , 3020, (CUdeviceptr address, unsigned int value, size_t count, CUstream stream)) \
    X(vmm, cuMemGetAllocationGranularity, , 10020, (size_t *bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)) \
    X(vmm, cuMemCreate, , 10020, (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)) \
    X(vmm, cuMemRelease, , 10020, (CUmemGenericAllocationHandle handle)) \
    X(vmm, cuMemAddressReserve, , 10020, (CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags)) \
    X(vmm, cuMemAddressFree, , 10020, (CUdeviceptr address, size_t bytes)) \
    X(vmm, cuMemMap, , 10020, (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)) \
    X(vmm, cuMemUnmap, , 10020, (CUdeviceptr address, size_t bytes)) \
    X(vmm, cuMemSetAccess, , 10020, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t count)) \
    X(vmm, cuMemGetAccess, , 10020, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)) \
    X(vmm, cuMemExportToShareableHandle, , 10020, (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags)) \
    X(vmm, cuMemImportFromShareableHandle, , 10020, (CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type)) \
    X(vmm, cuMemGetAllocationPropertiesFromHandle, , 10020, (CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)) \
    X(vmm, cuMemRetainAllocationHandle, , 11000, (CUmemGenericAllocationHandle *handle, void *address)) \
    X(p2p, cuDeviceCanAccessPeer, , 4000, (int *can, CUdevice device, CUdevice peer)) \
    X(p2p, cuDeviceGetP2PAttribute, , 8000, (int *value, CUdevice_P2PAttribute attribute, CUdevice source, CUdevice destination)) \
    X(p2p, cuCtxEnablePeerAccess, , 4000, (CUcontext peer, unsigned int flags)) \
    X(p2p, cuCtxDisablePeerAccess, , 4000, (CUcontext peer)) \
    X(legacy, cuIpcGetMemHandle, , 4010, (CUipcMemHandle *handle, CUdeviceptr address)) \
    X(legacy, cuIpcOpenMemHandle, _v2, 11000, (CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)) \
    X(legacy, cuIpcCloseMemHandle, , 4010, (CUdeviceptr address)) \
    X(pool, cuDeviceGetDefaultMemPool, , 11020, (CUmemoryPool *pool, CUdevice device)) \
    X(pool, cuMemPoolCreate, , 11020, (CUmemoryPool *pool, const CUmemPoolProps *props)) \
    X(pool, cuMemPoolDestroy, , 11020, (CUmemoryPool pool)) \
    X(pool, cuMemPoolSetAttribute, , 11020, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value)) \
    X(pool, cuMemPoolGetAttribute, , 11020, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value)) \
    X(pool, cuMemPoolSetAccess, , 11020, (CUmemoryPool pool, const CUmemAccessDesc *desc, size_t count)) \
    X(pool, cuMemPoolGetAccess, , 11020, (CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)) \
    X(pool, cuMemPoolTrimTo, , 11020, (CUmemoryPool pool, size_t bytes_to_keep)) \
    X(pool, cuMemPoolExportToShareableHandle, , 11020, (void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags)) \
    X(pool, cuMemPoolImportFromShareableHandle, , 11020, (CUmemoryPool *pool, void *shareable, CUmemAllocationHandleType type, unsigned long long flags)) \
    X(pool, cuMemPoolExportPointer, , 11020, (CUmemPoolPtrExportData *data, CUdeviceptr address)) \
    X(pool, cuMemPoolImportPointer, , 11020, (CUdeviceptr *address, CUmemoryPool pool, CUmemPoolPtrExportData *data)) \
    X(pool, cuMemAllocAsync, , 11020, (CUdeviceptr *address, size_t bytes, CUstream stream)) \
    X(pool, cuMemAllocFromPoolAsync, , 11020, (CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)) \
    X(pool, cuMemFreeAsync, , 11020, (CUdeviceptr address, CUstream stream)) \
    X(pinned, cuMemHostAlloc, , 2020, (void **address, size_t bytes, unsigned int flags)) \
    X(pinned, cuMemFreeHost, , 2000, (void *address)) \
    X(pinned, cuMemHostRegister, _v2, 6050, (void *address, size_t bytes, unsigned int flags)) \
    X(pinned, cuMemHostUnregister, , 4000, (void *address)) \
    X(pinned, cuMemHostGetDevicePointer, _v2, 3020, (CUdeviceptr *device, void *host, unsigned int flags)) \
    X(hostfunc, cuLaunchHostFunc, , 10000, (CUstream stream, CUhostFn function, void *data)) \
    X(word, cuStreamWriteValue64, _v2, 11070, (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)) \
    X(word, cuStreamWaitValue64, _v2, 11070, (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)) \
    X(word, cuStreamBatchMemOp, _v2, 11070, (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations, unsigned int flags)) \
    X(dmabuf, cuMemGetHandleForAddressRange, , 11070, (void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type, unsigned long long flags)) \
    X(ctxevent, cuCtxRecordEvent, , 12050, (CUcontext context, CUevent event)) \
    X(streamid, cuStreamGetId, , 12000, (CUstream stream, unsigned long long *id)) \
    X(kernel, cuModuleLoadData, , 2000, (CUmodule *module, const void *image)) \
    X(kernel, cuModuleUnload, , 2000, (CUmodule module)) \
    X(kernel, cuModuleGetFunction, , 2000, (CUfunction *function, CUmodule module, const char *name)) \
    X(kernel, cuLaunchKernel, , 4000, (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters, void **extra))
/* clang-format on */

#endif

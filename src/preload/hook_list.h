/* SPDX-License-Identifier: MIT */
/** @file The entry points of the driver that this library stands before, and those that it needs itself. */
#ifndef GPUIPC_PRELOAD_HOOK_LIST_H
#define GPUIPC_PRELOAD_HOOK_LIST_H

#include "base/compiler.h"
#include "cuda/cuda_api.h"

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphEdgeData_st CUgraphEdgeData;

/** Attributes of pointers that cuda_api.h leaves out. */
#define CU_POINTER_ATTRIBUTE_BUFFER_ID ((CUpointer_attribute)7)
/** cuda.h: cuCtxDestroy of what is no context, and more. */
#define CUDA_ERROR_MAP_FAILED     ((CUresult)205)
#define CUDA_ERROR_TOO_MANY_PEERS ((CUresult)711)

/**
 * X(name, suffix, version, flags, parameters). The symbol is name and suffix; cuGetProcAddress() gives it for the name,
 * the version and the flags (2: the default stream is the thread's own). Names and signatures are those of cuda.h
 * and cudaTypedefs.h.
 */
/* clang-format off */
#define HOOK_LIST(X) \
    X(cuGetProcAddress, , 11030, 0, (const char *symbol, void **function, int version, cuuint64_t flags)) \
    X(cuGetProcAddress, _v2, 12000, 0, (const char *symbol, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)) \
    X(cuMemAlloc, _v2, 3020, 0, (CUdeviceptr *address, size_t bytes)) \
    X(cuMemAllocPitch, _v2, 3020, 0, (CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element)) \
    X(cuMemFree, _v2, 3020, 0, (CUdeviceptr address)) \
    X(cuMemFreeAsync, , 11020, 0, (CUdeviceptr address, CUstream stream)) \
    X(cuMemFreeAsync, _ptsz, 11020, 2, (CUdeviceptr address, CUstream stream)) \
    X(cuMemcpy, , 4000, 0, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
    X(cuMemcpy, _ptds, 7000, 2, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
    X(cuMemcpyAsync, , 4000, 0, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(cuMemcpyAsync, _ptsz, 7000, 2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(cuMemcpyHtoD, _v2, 3020, 0, (CUdeviceptr to, const void *from, size_t bytes)) \
    X(cuMemcpyHtoD, _v2_ptds, 7000, 2, (CUdeviceptr to, const void *from, size_t bytes)) \
    X(cuMemcpyHtoDAsync, _v2, 3020, 0, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream)) \
    X(cuMemcpyHtoDAsync, _v2_ptsz, 7000, 2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream)) \
    X(cuMemcpyDtoH, _v2, 3020, 0, (void *to, CUdeviceptr from, size_t bytes)) \
    X(cuMemcpyDtoH, _v2_ptds, 7000, 2, (void *to, CUdeviceptr from, size_t bytes)) \
    X(cuMemcpyDtoHAsync, _v2, 3020, 0, (void *to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(cuMemcpyDtoHAsync, _v2_ptsz, 7000, 2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(cuMemcpyDtoD, _v2, 3020, 0, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
    X(cuMemcpyDtoD, _v2_ptds, 7000, 2, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
    X(cuMemcpyDtoDAsync, _v2, 3020, 0, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(cuMemcpyDtoDAsync, _v2_ptsz, 7000, 2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(cuMemGetAddressRange, _v2, 3020, 0, (CUdeviceptr *base, size_t *bytes, CUdeviceptr address)) \
    X(cuPointerGetAttribute, , 4000, 0, (void *data, CUpointer_attribute attribute, CUdeviceptr address)) \
    X(cuPointerGetAttributes, , 7000, 0, (unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr address)) \
    X(cuIpcGetMemHandle, , 4010, 0, (CUipcMemHandle *handle, CUdeviceptr address)) \
    X(cuIpcOpenMemHandle, , 4010, 0, (CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)) \
    X(cuIpcOpenMemHandle, _v2, 11000, 0, (CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)) \
    X(cuIpcCloseMemHandle, , 4010, 0, (CUdeviceptr address)) \
    X(cuCtxEnablePeerAccess, , 4000, 0, (CUcontext peer, unsigned int flags)) \
    X(cuCtxDisablePeerAccess, , 4000, 0, (CUcontext peer)) \
    X(cuCtxDestroy, , 2000, 0, (CUcontext context)) \
    X(cuCtxDestroy, _v2, 4000, 0, (CUcontext context)) \
    X(cuDevicePrimaryCtxRetain, , 7000, 0, (CUcontext *context, CUdevice device)) \
    X(cuDevicePrimaryCtxRelease, , 7000, 0, (CUdevice device)) \
    X(cuDevicePrimaryCtxRelease, _v2, 11000, 0, (CUdevice device)) \
    X(cuDevicePrimaryCtxReset, , 7000, 0, (CUdevice device)) \
    X(cuDevicePrimaryCtxReset, _v2, 11000, 0, (CUdevice device)) \
    X(cuStreamBeginCapture, , 10000, 0, (CUstream stream)) \
    X(cuStreamBeginCapture, _ptsz, 10000, 2, (CUstream stream)) \
    X(cuStreamBeginCapture, _v2, 10010, 0, (CUstream stream, CUstreamCaptureMode mode)) \
    X(cuStreamBeginCapture, _v2_ptsz, 10010, 2, (CUstream stream, CUstreamCaptureMode mode)) \
    X(cuStreamBeginCaptureToGraph, , 12030, 0, (CUstream stream, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)) \
    X(cuStreamBeginCaptureToGraph, _ptsz, 12030, 2, (CUstream stream, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)) \
    X(cuStreamEndCapture, , 10000, 0, (CUstream stream, CUgraph *graph)) \
    X(cuStreamEndCapture, _ptsz, 10000, 2, (CUstream stream, CUgraph *graph)) \
    X(cuStreamDestroy, , 2000, 0, (CUstream stream)) \
    X(cuStreamDestroy, _v2, 4000, 0, (CUstream stream))

/** X(symbol, parameters): what this library calls without standing before it. */
#define NEED_LIST(X) \
    X(cuInit, (unsigned int flags)) \
    X(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device)) \
    X(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int *flags, int *active)) \
    X(cuCtxGetCurrent, (CUcontext *context)) \
    X(cuCtxGetDevice, (CUdevice *device)) \
    X(cuCtxPushCurrent_v2, (CUcontext context)) \
    X(cuCtxPopCurrent_v2, (CUcontext *context)) \
    X(cuCtxSynchronize, (void)) \
    X(cuStreamSynchronize, (CUstream stream)) \
    X(cuMemcpyPeer, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes)) \
    X(cuMemcpyPeerAsync, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream)) \
    X(cuMemGetAllocationGranularity, (size_t *bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)) \
    X(cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)) \
    X(cuMemRelease, (CUmemGenericAllocationHandle handle)) \
    X(cuMemAddressReserve, (CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags)) \
    X(cuMemAddressFree, (CUdeviceptr address, size_t bytes)) \
    X(cuMemMap, (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)) \
    X(cuMemUnmap, (CUdeviceptr address, size_t bytes)) \
    X(cuMemSetAccess, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t count))
/* clang-format on */

#define HOOK_DECLARE(name, suffix, version, flags, parameters)                                     \
    GPUIPC_EXPORTED CUresult name##suffix parameters;
HOOK_LIST(HOOK_DECLARE)
#undef HOOK_DECLARE

#endif

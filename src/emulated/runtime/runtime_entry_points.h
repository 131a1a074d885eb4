/* SPDX-License-Identifier: MIT */
/**
 * @file The list of the CUDA runtime's functions that the emulated runtime has. It declares nothing, so that
 * tests/runtime/theirs.c can expand it behind NVIDIA's cuda_runtime_api.h as well.
 */
#ifndef GPUIPC_RUNTIME_ENTRY_POINTS_H
#define GPUIPC_RUNTIME_ENTRY_POINTS_H

/** X(name, parameters), each of which returns a cudaError_t. The names and the parameters are those of both CUDA 12
 *  and 13; what they have not in common is below. */
/* clang-format off */
#define RUNTIME_API_LIST(X) \
    X(cudaDriverGetVersion, (int *version)) \
    X(cudaRuntimeGetVersion, (int *version)) \
    X(cudaGetLastError, (void)) \
    X(cudaPeekAtLastError, (void)) \
    X(cudaGetDeviceCount, (int *count)) \
    X(cudaGetDevice, (int *device)) \
    X(cudaSetDevice, (int device)) \
    X(cudaInitDevice, (int device, unsigned int device_flags, unsigned int flags)) \
    X(cudaSetDeviceFlags, (unsigned int flags)) \
    X(cudaGetDeviceFlags, (unsigned int *flags)) \
    X(cudaDeviceGetAttribute, (int *value, enum cudaDeviceAttr attribute, int device)) \
    X(cudaDeviceGetPCIBusId, (char *text, int size, int device)) \
    X(cudaDeviceGetByPCIBusId, (int *device, const char *text)) \
    X(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest)) \
    X(cudaDeviceSynchronize, (void)) \
    X(cudaDeviceReset, (void)) \
    X(cudaDeviceCanAccessPeer, (int *can, int device, int peer)) \
    X(cudaDeviceEnablePeerAccess, (int peer, unsigned int flags)) \
    X(cudaDeviceDisablePeerAccess, (int peer)) \
    X(cudaDeviceGetP2PAttribute, (int *value, enum cudaDeviceP2PAttr attribute, int source, int destination)) \
    X(cudaMalloc, (void **address, size_t bytes)) \
    X(cudaMallocPitch, (void **address, size_t *pitch, size_t width, size_t height)) \
    X(cudaMallocManaged, (void **address, size_t bytes, unsigned int flags)) \
    X(cudaFree, (void *address)) \
    X(cudaMemGetInfo, (size_t *free_bytes, size_t *total_bytes)) \
    X(cudaPointerGetAttributes, (struct cudaPointerAttributes *attributes, const void *address)) \
    X(cudaMallocHost, (void **address, size_t bytes)) \
    X(cudaHostAlloc, (void **address, size_t bytes, unsigned int flags)) \
    X(cudaFreeHost, (void *address)) \
    X(cudaHostRegister, (void *address, size_t bytes, unsigned int flags)) \
    X(cudaHostUnregister, (void *address)) \
    X(cudaHostGetDevicePointer, (void **device, void *host, unsigned int flags)) \
    X(cudaHostGetFlags, (unsigned int *flags, void *address)) \
    X(cudaMemcpy, (void *destination, const void *source, size_t bytes, enum cudaMemcpyKind kind)) \
    X(cudaMemcpyAsync, (void *destination, const void *source, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)) \
    X(cudaMemcpy2D, (void *destination, size_t destination_pitch, const void *source, size_t source_pitch, size_t width, size_t height, enum cudaMemcpyKind kind)) \
    X(cudaMemcpy2DAsync, (void *destination, size_t destination_pitch, const void *source, size_t source_pitch, size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)) \
    X(cudaMemcpyPeer, (void *destination, int destination_device, const void *source, int source_device, size_t bytes)) \
    X(cudaMemcpyPeerAsync, (void *destination, int destination_device, const void *source, int source_device, size_t bytes, cudaStream_t stream)) \
    X(cudaMemset, (void *address, int value, size_t bytes)) \
    X(cudaMemsetAsync, (void *address, int value, size_t bytes, cudaStream_t stream)) \
    X(cudaMemset2D, (void *address, size_t pitch, int value, size_t width, size_t height)) \
    X(cudaMemset2DAsync, (void *address, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)) \
    X(cudaStreamCreate, (cudaStream_t *stream)) \
    X(cudaStreamCreateWithFlags, (cudaStream_t *stream, unsigned int flags)) \
    X(cudaStreamCreateWithPriority, (cudaStream_t *stream, unsigned int flags, int priority)) \
    X(cudaStreamDestroy, (cudaStream_t stream)) \
    X(cudaStreamSynchronize, (cudaStream_t stream)) \
    X(cudaStreamQuery, (cudaStream_t stream)) \
    X(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags)) \
    X(cudaStreamGetFlags, (cudaStream_t stream, unsigned int *flags)) \
    X(cudaStreamGetPriority, (cudaStream_t stream, int *priority)) \
    X(cudaStreamAddCallback, (cudaStream_t stream, cudaStreamCallback_t callback, void *data, unsigned int flags)) \
    X(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t function, void *data)) \
    X(cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode)) \
    X(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph)) \
    X(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status)) \
    X(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode *mode)) \
    X(cudaEventCreate, (cudaEvent_t *event)) \
    X(cudaEventCreateWithFlags, (cudaEvent_t *event, unsigned int flags)) \
    X(cudaEventDestroy, (cudaEvent_t event)) \
    X(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream)) \
    X(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned int flags)) \
    X(cudaEventQuery, (cudaEvent_t event)) \
    X(cudaEventSynchronize, (cudaEvent_t event)) \
    X(cudaEventElapsedTime, (float *milliseconds, cudaEvent_t start, cudaEvent_t end)) \
    X(cudaIpcGetMemHandle, (cudaIpcMemHandle_t *handle, void *address)) \
    X(cudaIpcOpenMemHandle, (void **address, cudaIpcMemHandle_t handle, unsigned int flags)) \
    X(cudaIpcCloseMemHandle, (void *address)) \
    X(cudaIpcGetEventHandle, (cudaIpcEventHandle_t *handle, cudaEvent_t event)) \
    X(cudaIpcOpenEventHandle, (cudaEvent_t *event, cudaIpcEventHandle_t handle)) \
    X(cudaMallocAsync, (void **address, size_t bytes, cudaStream_t stream)) \
    X(cudaMallocFromPoolAsync, (void **address, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)) \
    X(cudaFreeAsync, (void *address, cudaStream_t stream)) \
    X(cudaDeviceGetDefaultMemPool, (cudaMemPool_t *pool, int device)) \
    X(cudaDeviceGetMemPool, (cudaMemPool_t *pool, int device)) \
    X(cudaDeviceSetMemPool, (int device, cudaMemPool_t pool)) \
    X(cudaMemPoolCreate, (cudaMemPool_t *pool, const struct cudaMemPoolProps *props)) \
    X(cudaMemPoolDestroy, (cudaMemPool_t pool)) \
    X(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t bytes_to_keep)) \
    X(cudaMemPoolSetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)) \
    X(cudaMemPoolGetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)) \
    X(cudaMemPoolSetAccess, (cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t count)) \
    X(cudaMemPoolGetAccess, (enum cudaMemAccessFlags *flags, cudaMemPool_t pool, struct cudaMemLocation *location)) \
    X(cudaMemPoolExportToShareableHandle, (void *handle, cudaMemPool_t pool, enum cudaMemAllocationHandleType type, unsigned int flags)) \
    X(cudaMemPoolImportFromShareableHandle, (cudaMemPool_t *pool, void *handle, enum cudaMemAllocationHandleType type, unsigned int flags)) \
    X(cudaMemPoolExportPointer, (struct cudaMemPoolPtrExportData *data, void *address)) \
    X(cudaMemPoolImportPointer, (void **address, cudaMemPool_t pool, struct cudaMemPoolPtrExportData *data)) \
    X(cudaGraphInstantiate, (cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)) \
    X(cudaGraphInstantiateWithFlags, (cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)) \
    X(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)) \
    X(cudaGraphUpload, (cudaGraphExec_t exec, cudaStream_t stream)) \
    X(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream)) \
    X(cudaGraphExecDestroy, (cudaGraphExec_t exec)) \
    X(cudaGraphDestroy, (cudaGraph_t graph)) \
    X(cudaLaunchKernel, (const void *function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, cudaStream_t stream)) \
    X(cudaGetDriverEntryPointByVersion, (const char *symbol, void **function, unsigned int version, unsigned long long flags, enum cudaDriverEntryPointQueryResult *status))

/** Those of one version alone: CUDA 12 has the second layout of its properties behind a name of its own, and asks for
 *  entry points of the version that it was built with. */
#define RUNTIME_API_LIST_12(X) \
    X(cudaGetDeviceProperties_v2, (struct cudaDeviceProp *properties, int device)) \
    X(cudaGetDriverEntryPoint, (const char *symbol, void **function, unsigned long long flags, enum cudaDriverEntryPointQueryResult *status))
#define RUNTIME_API_LIST_13(X) \
    X(cudaGetDeviceProperties, (struct cudaDeviceProp *properties, int device))
/* clang-format on */

#endif

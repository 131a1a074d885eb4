/* SPDX-License-Identifier: MIT */
/**
 * @file The entry points that the emulated driver has beyond those gpuipc calls, so that ordinary
 * programs find what they link, and the declarations of all. Names, versions and layouts are those
 * of cuda.h and cudaTypedefs.h of CUDA 13.0.
 */
#ifndef GPUIPC_EMULATED_API_H
#define GPUIPC_EMULATED_API_H

#include "base/compiler.h"
#include "cuda/cuda_api.h"

#define CUDA_ERROR_MAP_FAILED     ((CUresult)205)
#define CUDA_ERROR_TOO_MANY_PEERS ((CUresult)711)

#define CUDA_ERROR_NO_BINARY_FOR_GPU      ((CUresult)209)
#define CUDA_ERROR_JIT_COMPILER_NOT_FOUND ((CUresult)221)
#define CUDA_ERROR_FILE_NOT_FOUND         ((CUresult)301)

#define CUDA_ERROR_ILLEGAL_STATE               ((CUresult)401)
#define CUDA_ERROR_STREAM_CAPTURE_INVALIDATED  ((CUresult)901)
#define CUDA_ERROR_STREAM_CAPTURE_MERGE        ((CUresult)902)
#define CUDA_ERROR_STREAM_CAPTURE_UNMATCHED    ((CUresult)903)
#define CUDA_ERROR_STREAM_CAPTURE_UNJOINED     ((CUresult)904)
#define CUDA_ERROR_STREAM_CAPTURE_ISOLATION    ((CUresult)905)
#define CUDA_ERROR_STREAM_CAPTURE_IMPLICIT     ((CUresult)906)
#define CUDA_ERROR_CAPTURED_EVENT              ((CUresult)907)
#define CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD ((CUresult)908)

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphEdgeData_st CUgraphEdgeData;

typedef enum CUgraphNodeType_enum {
    CU_GRAPH_NODE_TYPE_MEMCPY = 1,
    CU_GRAPH_NODE_TYPE_MEMSET = 2,
    CU_GRAPH_NODE_TYPE_HOST = 3,
    CU_GRAPH_NODE_TYPE_WAIT_EVENT = 6,
    CU_GRAPH_NODE_TYPE_EVENT_RECORD = 7,
    CU_GRAPH_NODE_TYPE_BATCH_MEM_OP = 12
} CUgraphNodeType;

#define CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH 1u
#define CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY   8u

/** A flag of cuMemGetHandleForAddressRange, since CUDA 12.8. */
#define CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE 0x1

/** Flags of cuEventRecordWithFlags and cuStreamWaitEvent. */
#define CU_EVENT_RECORD_EXTERNAL 0x1
#define CU_EVENT_WAIT_EXTERNAL   0x1

typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef enum CUjit_option_enum {
    CU_JIT_MAX_REGISTERS = 0
} CUjit_option;
typedef enum CUlibraryOption_enum {
    CU_LIBRARY_BINARY_IS_PRESERVED = 1
} CUlibraryOption;

typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUexecAffinityParam_st CUexecAffinityParam;
typedef struct CUctxCigParam_st CUctxCigParam;

typedef struct CUctxCreateParams_st {
    CUexecAffinityParam *execAffinityParams;
    int numExecAffinityParams;
    CUctxCigParam *cigParams;
} CUctxCreateParams;

typedef struct CUDA_BATCH_MEM_OP_NODE_PARAMS_st {
    CUcontext ctx;
    unsigned int count;
    CUstreamBatchMemOpParams *paramArray;
    unsigned int flags;
} CUDA_BATCH_MEM_OP_NODE_PARAMS;

#define CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS ((CUdevice_attribute)89)

/** Pointer attributes that cuda_api.h leaves out. */
#define CU_POINTER_ATTRIBUTE_SYNC_MEMOPS                ((CUpointer_attribute)6)
#define CU_POINTER_ATTRIBUTE_BUFFER_ID                  ((CUpointer_attribute)7)
#define CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE ((CUpointer_attribute)15)
#define CU_POINTER_ATTRIBUTE_MAPPING_SIZE               ((CUpointer_attribute)18)
#define CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR          ((CUpointer_attribute)19)
#define CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID            ((CUpointer_attribute)20)

/** Flags that cuda_api.h leaves out. */
#define CU_MEMHOSTALLOC_WRITECOMBINED 0x04
#define CU_MEMHOSTREGISTER_IOMEMORY   0x04
#define CU_MEMHOSTREGISTER_READ_ONLY  0x08
#define CU_MEM_ATTACH_GLOBAL          0x1
#define CU_MEM_ATTACH_HOST            0x2
#define CU_MEM_ATTACH_SINGLE          0x4
#define CU_DEVICE_CPU                 (-1)
#define CU_STREAM_WAIT_VALUE_AND      2
#define CU_STREAM_WAIT_VALUE_NOR      3
#define CU_STREAM_WAIT_VALUE_FLUSH    (1u << 30)

/** As CUDA_API_LIST; one name may stand here with several versions, oldest first. */
/* clang-format off */
#define EMULATED_API_LIST(X) \
    X(more, cuGetProcAddress, , 11030, (const char *symbol, void **function, int version, cuuint64_t flags)) \
    X(more, cuGetProcAddress, _v2, 12000, (const char *symbol, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)) \
    X(more, cuDeviceGetUuid, , 9020, (CUuuid *uuid, CUdevice device)) \
    X(more, cuDeviceComputeCapability, , 2000, (int *major, int *minor, CUdevice device)) \
    X(more, cuDeviceGetPCIBusId, , 4010, (char *text, int size, CUdevice device)) \
    X(more, cuDeviceGetByPCIBusId, , 4010, (CUdevice *device, const char *text)) \
    X(more, cuDevicePrimaryCtxReset, _v2, 11000, (CUdevice device)) \
    X(more, cuDevicePrimaryCtxSetFlags, _v2, 11000, (CUdevice device, unsigned int flags)) \
    X(more, cuCtxCreate, _v2, 3020, (CUcontext *context, unsigned int flags, CUdevice device)) \
    X(more, cuCtxCreate, _v3, 11040, (CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned int flags, CUdevice device)) \
    X(more, cuCtxCreate, _v4, 12050, (CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device)) \
    X(more, cuCtxDestroy, _v2, 4000, (CUcontext context)) \
    X(more, cuCtxGetApiVersion, , 3020, (CUcontext context, unsigned int *version)) \
    X(more, cuCtxGetFlags, , 7000, (unsigned int *flags)) \
    X(more, cuCtxGetDevice, _v2, 13000, (CUdevice *device, CUcontext context)) \
    X(more, cuCtxSynchronize, _v2, 13000, (CUcontext context)) \
    X(more, cuCtxGetStreamPriorityRange, , 5050, (int *least, int *greatest)) \
    X(more, cuStreamCreateWithPriority, , 5050, (CUstream *stream, unsigned int flags, int priority)) \
    X(more, cuStreamGetPriority, , 5050, (CUstream stream, int *priority)) \
    X(more, cuStreamGetFlags, , 5050, (CUstream stream, unsigned int *flags)) \
    X(more, cuStreamGetCtx, _v2, 12050, (CUstream stream, CUcontext *context, CUgreenCtx *green)) \
    X(more, cuStreamBeginCapture, _v2, 10010, (CUstream stream, CUstreamCaptureMode mode)) \
    X(more, cuStreamEndCapture, , 10000, (CUstream stream, CUgraph *graph)) \
    X(more, cuStreamGetCaptureInfo, , 10010, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)) \
    X(more, cuStreamGetCaptureInfo, _v2, 11030, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies, size_t *count)) \
    X(more, cuStreamGetCaptureInfo, _v3, 12030, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count)) \
    X(more, cuGraphInstantiateWithFlags, , 11040, (CUgraphExec *exec, CUgraph graph, unsigned long long flags)) \
    X(more, cuGraphLaunch, , 10000, (CUgraphExec exec, CUstream stream)) \
    X(more, cuGraphUpload, , 11010, (CUgraphExec exec, CUstream stream)) \
    X(more, cuGraphExecDestroy, , 10000, (CUgraphExec exec)) \
    X(more, cuGraphDestroy, , 10000, (CUgraph graph)) \
    X(more, cuGraphGetNodes, , 10000, (CUgraph graph, CUgraphNode *nodes, size_t *count)) \
    X(more, cuGraphNodeGetType, , 10000, (CUgraphNode node, CUgraphNodeType *type)) \
    X(more, cuGraphBatchMemOpNodeGetParams, , 11070, (CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *params)) \
    X(more, cuGraphExecBatchMemOpNodeSetParams, , 11070, (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)) \
    X(more, cuEventRecordWithFlags, , 11010, (CUevent event, CUstream stream, unsigned int flags)) \
    X(more, cuEventElapsedTime, _v2, 12080, (float *milliseconds, CUevent start, CUevent end)) \
    X(more, cuIpcGetEventHandle, , 4010, (CUipcEventHandle *handle, CUevent event)) \
    X(more, cuIpcOpenEventHandle, , 4010, (CUevent *event, CUipcEventHandle handle)) \
    X(more, cuMemAllocPitch, _v2, 3020, (CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element)) \
    X(more, cuMemAllocHost, _v2, 3020, (void **address, size_t bytes)) \
    X(more, cuMemHostGetFlags, , 2030, (unsigned int *flags, void *address)) \
    X(more, cuMemAllocManaged, , 6000, (CUdeviceptr *address, size_t bytes, unsigned int flags)) \
    X(more, cuMemPrefetchAsync, , 8000, (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)) \
    X(more, cuMemPrefetchAsync, _v2, 12020, (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream)) \
    X(more, cuStreamAttachMemAsync, , 6000, (CUstream stream, CUdeviceptr address, size_t bytes, unsigned int flags)) \
    X(more, cuStreamWriteValue32, _v2, 11070, (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)) \
    X(more, cuStreamWaitValue32, _v2, 11070, (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)) \
    X(more, cuMemcpyPeer, , 4000, (CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source, CUcontext source_context, size_t bytes)) \
    X(more, cuMemcpyPeerAsync, , 4000, (CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source, CUcontext source_context, size_t bytes, CUstream stream)) \
    X(more, cuMemsetD2D8, _v2, 3020, (CUdeviceptr address, size_t pitch, unsigned char value, size_t width, size_t height)) \
    X(more, cuMemsetD2D16, _v2, 3020, (CUdeviceptr address, size_t pitch, unsigned short value, size_t width, size_t height)) \
    X(more, cuMemsetD2D32, _v2, 3020, (CUdeviceptr address, size_t pitch, unsigned int value, size_t width, size_t height)) \
    X(more, cuMemsetD2D8Async, , 3020, (CUdeviceptr address, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream)) \
    X(more, cuMemsetD2D16Async, , 3020, (CUdeviceptr address, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream)) \
    X(more, cuMemsetD2D32Async, , 3020, (CUdeviceptr address, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream)) \
    X(more, cuDeviceGetMemPool, , 11020, (CUmemoryPool *pool, CUdevice device)) \
    X(more, cuDeviceSetMemPool, , 11020, (CUdevice device, CUmemoryPool pool)) \
    X(more, cuModuleLoad, , 2000, (CUmodule *module, const char *file)) \
    X(more, cuModuleLoadDataEx, , 2010, (CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values)) \
    X(more, cuModuleLoadFatBinary, , 2000, (CUmodule *module, const void *image)) \
    X(more, cuModuleGetGlobal, _v2, 3020, (CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)) \
    X(more, cuLibraryLoadData, , 12000, (CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values, unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count)) \
    X(more, cuLibraryLoadFromFile, , 12000, (CUlibrary *library, const char *file, CUjit_option *jit_options, void **jit_values, unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count)) \
    X(more, cuLibraryUnload, , 12000, (CUlibrary library)) \
    X(more, cuLibraryGetKernel, , 12000, (CUkernel *kernel, CUlibrary library, const char *name)) \
    X(more, cuPointerGetAttributes, , 7000, (unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr address)) \
    X(more, cuPointerSetAttribute, , 6000, (const void *value, CUpointer_attribute attribute, CUdeviceptr address))
/* clang-format on */

/* All groups of CUDA_API_LIST are here. */
#define EMULATED_HAS_core(...)     __VA_ARGS__
#define EMULATED_HAS_vmm(...)      __VA_ARGS__
#define EMULATED_HAS_p2p(...)      __VA_ARGS__
#define EMULATED_HAS_legacy(...)   __VA_ARGS__
#define EMULATED_HAS_pool(...)     __VA_ARGS__
#define EMULATED_HAS_pinned(...)   __VA_ARGS__
#define EMULATED_HAS_hostfunc(...) __VA_ARGS__
#define EMULATED_HAS_word(...)     __VA_ARGS__
#define EMULATED_HAS_ctxevent(...) __VA_ARGS__
#define EMULATED_HAS_streamid(...) __VA_ARGS__
#define EMULATED_HAS_dmabuf(...)   __VA_ARGS__
#define EMULATED_HAS_more(...)     __VA_ARGS__
#define EMULATED_HAS_kernel(...)   __VA_ARGS__

#define EMULATED_DECLARE(group, name, suffix, version, parameters)                                 \
    EMULATED_HAS_##group(GPUIPC_EXPORTED CUresult name##suffix parameters;)
CUDA_API_LIST(EMULATED_DECLARE)
EMULATED_API_LIST(EMULATED_DECLARE)
#undef EMULATED_DECLARE

#endif

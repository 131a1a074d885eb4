/* SPDX-License-Identifier: MIT */
/**
 * @file The driver as an ordinary program finds it: linked, by dlsym(), or by cuGetProcAddress(). The programs here know
 * nothing of gpuipc but how cuda.h declares things.
 */
#ifndef PRELOAD_CALLS_H
#define PRELOAD_CALLS_H

#include <stdio.h>
#include <stdlib.h>

#include "emulated_api.h"

/** X(name, suffix, version, parameters) */
#define CALLS_LIST(X)                                                                              \
    X(cuInit, , 2000, (unsigned flags))                                                            \
    X(cuDeviceGetCount, , 2000, (int *count))                                                      \
    X(cuDeviceCanAccessPeer, , 4000, (int *can, CUdevice device, CUdevice peer))                   \
    X(cuDevicePrimaryCtxRetain, , 7000, (CUcontext * context, CUdevice device))                    \
    X(cuDevicePrimaryCtxRelease, _v2, 11000, (CUdevice device))                                    \
    X(cuDevicePrimaryCtxReset, _v2, 11000, (CUdevice device))                                      \
    X(cuDevicePrimaryCtxGetState, , 7000, (CUdevice device, unsigned *flags, int *active))         \
    X(cuCtxCreate, _v2, 3020, (CUcontext * context, unsigned flags, CUdevice device))              \
    X(cuCtxDestroy, _v2, 4000, (CUcontext context))                                                \
    X(cuCtxSetCurrent, , 4000, (CUcontext context))                                                \
    X(cuCtxGetCurrent, , 4000, (CUcontext * context))                                              \
    X(cuCtxSynchronize, , 2000, (void))                                                            \
    X(cuCtxEnablePeerAccess, , 4000, (CUcontext peer, unsigned flags))                             \
    X(cuCtxDisablePeerAccess, , 4000, (CUcontext peer))                                            \
    X(cuMemAlloc, _v2, 3020, (CUdeviceptr * address, size_t bytes))                                \
    X(cuMemAllocPitch, _v2, 3020,                                                                  \
      (CUdeviceptr * address, size_t * pitch, size_t width, size_t height, unsigned element))      \
    X(cuMemFree, _v2, 3020, (CUdeviceptr address))                                                 \
    X(cuMemAllocAsync, , 11020, (CUdeviceptr * address, size_t bytes, CUstream stream))            \
    X(cuMemFreeAsync, , 11020, (CUdeviceptr address, CUstream stream))                             \
    X(cuMemAllocManaged, , 6000, (CUdeviceptr * address, size_t bytes, unsigned flags))            \
    X(cuMemGetInfo, _v2, 3020, (size_t * free_bytes, size_t * total_bytes))                        \
    X(cuMemGetAddressRange, _v2, 3020, (CUdeviceptr * base, size_t * bytes, CUdeviceptr address))  \
    X(cuMemRetainAllocationHandle, , 11000,                                                        \
      (CUmemGenericAllocationHandle * handle, void *address))                                      \
    X(cuMemRelease, , 10020, (CUmemGenericAllocationHandle handle))                                \
    X(cuPointerGetAttribute, , 4000,                                                               \
      (void *data, CUpointer_attribute attribute, CUdeviceptr address))                            \
    X(cuPointerGetAttributes, , 7000,                                                              \
      (unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr address))         \
    X(cuMemcpyHtoD, _v2, 3020, (CUdeviceptr to, const void *from, size_t bytes))                   \
    X(cuMemcpyDtoH, _v2, 3020, (void *to, CUdeviceptr from, size_t bytes))                         \
    X(cuMemcpyDtoD, _v2, 3020, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                   \
    X(cuMemcpyDtoDAsync, _v2, 3020,                                                                \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                           \
    X(cuMemcpyPeer, , 4000,                                                                        \
      (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,             \
       size_t bytes))                                                                              \
    X(cuMemsetD8, _v2, 3020, (CUdeviceptr address, unsigned char value, size_t count))             \
    X(cuMemsetD8Async, , 3020,                                                                     \
      (CUdeviceptr address, unsigned char value, size_t count, CUstream stream))                   \
    X(cuStreamCreate, , 2000, (CUstream * stream, unsigned flags))                                 \
    X(cuStreamDestroy, _v2, 4000, (CUstream stream))                                               \
    X(cuStreamSynchronize, , 2000, (CUstream stream))                                              \
    X(cuStreamBeginCapture, _v2, 10010, (CUstream stream, CUstreamCaptureMode mode))               \
    X(cuStreamEndCapture, , 10000, (CUstream stream, CUgraph * graph))                             \
    X(cuGraphDestroy, , 10000, (CUgraph graph))                                                    \
    X(cuIpcGetMemHandle, , 4010, (CUipcMemHandle * handle, CUdeviceptr address))                   \
    X(cuIpcOpenMemHandle, _v2, 11000,                                                              \
      (CUdeviceptr * address, CUipcMemHandle handle, unsigned flags))                              \
    X(cuIpcCloseMemHandle, , 4010, (CUdeviceptr address))

typedef struct calls {
#define CALLS_MEMBER(name, suffix, version, parameters) CUresult(*name) parameters;
    CALLS_LIST(CALLS_MEMBER)
#undef CALLS_MEMBER
} calls;

/** Filled by calls_find(). */
extern calls cuda;

/**
 * Finds the driver and starts it; ends the program where that fails.
 * @param way linked (only where the program is), dlsym or proc
 */
void calls_find(const char *way);

/** Lets go of all primary contexts, with all that is in them. */
void calls_end(void);

/** Ends the program where a call does not answer what it should. */
#define EXPECT(wanted, call)                                                                       \
    do {                                                                                           \
        const int answer_ = (int)(call);                                                           \
        if (answer_ != (int)(wanted)) {                                                            \
            fprintf(stderr, "%s:%d: %s: %d, not %d\n", __FILE__, __LINE__, #call, answer_,         \
                    (int)(wanted));                                                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define MUST(call) EXPECT(CUDA_SUCCESS, call)
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif

/* SPDX-License-Identifier: MIT */
/** @file Streams, and functions of the host in their order. */
#include "current.h"

GPUIPC_EXPORTED cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return RUN(cuStreamCreate, stream, 0);
}

GPUIPC_EXPORTED cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
    return RUN(cuStreamCreate, stream, flags);
}

GPUIPC_EXPORTED cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags,
                                                         int priority) {
    return RUN(cuStreamCreateWithPriority, stream, flags, priority);
}

GPUIPC_EXPORTED cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return RUN(cuStreamDestroy_v2, stream);
}

GPUIPC_EXPORTED cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return RUN(cuStreamSynchronize, stream);
}

GPUIPC_EXPORTED cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return RUN(cuStreamQuery, stream);
}

GPUIPC_EXPORTED cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                                unsigned int flags) {
    return RUN(cuStreamWaitEvent, stream, event, flags);
}

GPUIPC_EXPORTED cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int *flags) {
    return RUN(cuStreamGetFlags, stream, flags);
}

GPUIPC_EXPORTED cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    return RUN(cuStreamGetPriority, stream, priority);
}

GPUIPC_EXPORTED cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function,
                                               void *data) {
    return RUN(cuLaunchHostFunc, stream, function, data);
}

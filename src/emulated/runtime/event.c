/* SPDX-License-Identifier: MIT */
/** @file Events. */
#include "current.h"

GPUIPC_EXPORTED cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return RUN(cuEventCreate, event, 0);
}

GPUIPC_EXPORTED cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    return RUN(cuEventCreate, event, flags);
}

GPUIPC_EXPORTED cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return RUN(cuEventDestroy_v2, event);
}

GPUIPC_EXPORTED cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return RUN(cuEventRecord, event, stream);
}

GPUIPC_EXPORTED cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                                     unsigned int flags) {
    return RUN(cuEventRecordWithFlags, event, stream, flags);
}

GPUIPC_EXPORTED cudaError_t cudaEventQuery(cudaEvent_t event) {
    return RUN(cuEventQuery, event);
}

GPUIPC_EXPORTED cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return RUN(cuEventSynchronize, event);
}

GPUIPC_EXPORTED cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start,
                                                 cudaEvent_t end) {
    return RUN(cuEventElapsedTime, milliseconds, start, end);
}

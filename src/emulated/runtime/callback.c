/* SPDX-License-Identifier: MIT */
/** @file Callbacks of streams: functions of the host that are told their stream. */
#include <stdlib.h>

#include "current.h"

typedef struct callback {
    cudaStreamCallback_t function;
    cudaStream_t stream;
    void *data;
} callback;

/* It runs only where what was before it went well. */
static void call_back(void *argument) {
    callback *const of = argument;
    of->function(of->stream, cudaSuccess, of->data);
    free(of);
}

GPUIPC_EXPORTED cudaError_t cudaStreamAddCallback(cudaStream_t stream,
                                                  cudaStreamCallback_t function, void *data,
                                                  unsigned int flags) {
    if (function == NULL || flags != 0) {
        return current_fail(cudaErrorInvalidValue);
    }
    callback *const made = malloc(sizeof(*made));
    if (made == NULL) {
        return current_fail(cudaErrorMemoryAllocation);
    }
    *made = (callback){function, stream, data};
    const cudaError_t result = cudaLaunchHostFunc(stream, call_back, made);
    if (result != cudaSuccess) {
        free(made);
    }
    return result;
}

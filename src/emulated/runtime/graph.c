/* SPDX-License-Identifier: MIT */
/** @file Captures and the graphs that they make. */
#include "current.h"

GPUIPC_EXPORTED cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                                   enum cudaStreamCaptureMode mode) {
    return RUN(cuStreamBeginCapture_v2, stream, (CUstreamCaptureMode)mode);
}

GPUIPC_EXPORTED cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    return RUN(cuStreamEndCapture, stream, graph);
}

GPUIPC_EXPORTED cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                                  enum cudaStreamCaptureStatus *status) {
    CUstreamCaptureStatus found;
    if (status == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    const cudaError_t result = RUN(cuStreamIsCapturing, stream, &found);
    if (result == cudaSuccess) {
        *status = (enum cudaStreamCaptureStatus)found;
    }
    return result;
}

GPUIPC_EXPORTED cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    if (mode == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    CUstreamCaptureMode exchanged = (CUstreamCaptureMode)*mode;
    const cudaError_t result = RUN_WITHOUT_CONTEXT(cuThreadExchangeStreamCaptureMode, &exchanged);
    if (result == cudaSuccess) {
        *mode = (enum cudaStreamCaptureMode)exchanged;
    }
    return result;
}

GPUIPC_EXPORTED cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                                 unsigned long long flags) {
    return RUN(cuGraphInstantiateWithFlags, exec, graph, flags);
}

GPUIPC_EXPORTED cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                                          unsigned long long flags) {
    return RUN(cuGraphInstantiateWithFlags, exec, graph, flags);
}

GPUIPC_EXPORTED cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes,
                                              size_t *count) {
    return RUN(cuGraphGetNodes, graph, nodes, count);
}

GPUIPC_EXPORTED cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    return RUN(cuGraphUpload, exec, stream);
}

GPUIPC_EXPORTED cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    return RUN(cuGraphLaunch, exec, stream);
}

GPUIPC_EXPORTED cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    return RUN(cuGraphExecDestroy, exec);
}

GPUIPC_EXPORTED cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return RUN(cuGraphDestroy, graph);
}

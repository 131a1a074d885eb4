/* SPDX-License-Identifier: MIT */
/** @file Graphs that come about by capturing streams: the calls of the driver that gpuipc itself does not
 *  make, and what the tests do with them again and again. */
#ifndef GPUIPC_TEST_CONFORMANCE_GRAPH_H
#define GPUIPC_TEST_CONFORMANCE_GRAPH_H

#include "conformance.h"
#include "emulated_api.h"

typedef struct graph_calls {
    CUresult (*begin)(CUstream stream, CUstreamCaptureMode mode);
    CUresult (*end)(CUstream stream, CUgraph *graph);
    CUresult (*info)(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                     const CUgraphNode **dependencies, size_t *count);
    CUresult (*instantiate)(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
    CUresult (*launch)(CUgraphExec exec, CUstream stream);
    CUresult (*exec_destroy)(CUgraphExec exec);
    CUresult (*destroy)(CUgraph graph);
    CUresult (*nodes)(CUgraph graph, CUgraphNode *nodes, size_t *count);
    CUresult (*type)(CUgraphNode node, CUgraphNodeType *type);
    CUresult (*get_words)(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *params);
    CUresult (*set_words)(CUgraphExec exec, CUgraphNode node,
                          const CUDA_BATCH_MEM_OP_NODE_PARAMS *params);
    CUresult (*record)(CUevent event, CUstream stream, unsigned int flags);
    CUresult (*batch)(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations,
                      unsigned int flags);
} graph_calls;

/** The calls of the driver under test, after graph_start. */
extern graph_calls graphs;

/** For TestSuite, as conformance_start(): finds them, and makes two streams. Skips the test where the driver is older than
 *  they are (CUDA 11.7). */
void graph_start(CUstream *out_stream, CUstream *out_other);
/** NULL: the test was skipped. */
void graph_finish(CUstream stream, CUstream other);

/** Begins a capture. */
void graph_begin(CUstream stream, CUstreamCaptureMode mode);
/** Ends it, and makes an executable graph. */
CUgraphExec graph_end(CUstream stream);
/** Launches it and waits for the stream. */
void graph_run(CUgraphExec exec, CUstream stream);

/** The state of a stream's capture. */
CUstreamCaptureStatus graph_status(CUstream stream);
/** Asserts that the capture is invalid, and ends it. @p source as in CHECK */
void graph_check_invalid(const char *source, CUstream stream);
/** Ends a capture that has to be valid still, and throws its graph away. */
void graph_check_valid(const char *source, CUstream stream);

#endif

/* SPDX-License-Identifier: MIT */
/** @file See conformance_graph.h. */
#include "conformance_graph.h"

graph_calls graphs;

void graph_start(CUstream *out_stream, CUstream *out_other) {
    conformance_start();
    if (drv.version < 11070) {
        cr_skip_test("nodes of stream memory operations came with CUDA 11.7");
    }
    conformance_find("cuStreamBeginCapture_v2", &graphs.begin);
    conformance_find("cuStreamEndCapture", &graphs.end);
    conformance_find("cuStreamGetCaptureInfo_v2", &graphs.info);
    conformance_find("cuGraphInstantiateWithFlags", &graphs.instantiate);
    conformance_find("cuGraphLaunch", &graphs.launch);
    conformance_find("cuGraphExecDestroy", &graphs.exec_destroy);
    conformance_find("cuGraphDestroy", &graphs.destroy);
    conformance_find("cuGraphGetNodes", &graphs.nodes);
    conformance_find("cuGraphNodeGetType", &graphs.type);
    conformance_find("cuGraphBatchMemOpNodeGetParams", &graphs.get_words);
    conformance_find("cuGraphExecBatchMemOpNodeSetParams", &graphs.set_words);
    conformance_find("cuEventRecordWithFlags", &graphs.record);
    conformance_find("cuStreamBatchMemOp_v2", &graphs.batch);
    OK(drv.cuStreamCreate(out_stream, CU_STREAM_NON_BLOCKING));
    OK(drv.cuStreamCreate(out_other, CU_STREAM_NON_BLOCKING));
}

void graph_finish(CUstream stream, CUstream other) {
    if (other != NULL) {
        OK(drv.cuStreamDestroy(stream));
        OK(drv.cuStreamDestroy(other));
    }
    conformance_finish();
}

void graph_begin(CUstream stream, CUstreamCaptureMode mode) {
    OK(graphs.begin(stream, mode));
}

CUgraphExec graph_end(CUstream stream) {
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    OK(graphs.end(stream, &graph));
    OK(graphs.instantiate(&exec, graph, 0));
    CHECK("cuda.h: an executable graph does not need the one that it was made of", CUDA_SUCCESS,
          graphs.destroy(graph));
    return exec;
}

void graph_run(CUgraphExec exec, CUstream stream) {
    OK(graphs.launch(exec, stream));
    OK(drv.cuStreamSynchronize(stream));
}

CUstreamCaptureStatus graph_status(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    OK(drv.cuStreamIsCapturing(stream, &status));
    return status;
}

void graph_check_invalid(const char *source, CUstream stream) {
    CUgraph graph = (CUgraph)&graphs;
    cr_assert_eq(graph_status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED, "%s", source);
    CHECK(source, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, graphs.end(stream, &graph));
    cr_assert_null(graph, "cuda.h: of a capture that was made invalid the graph is NULL");
    cr_assert_eq(graph_status(stream), CU_STREAM_CAPTURE_STATUS_NONE, "%s", source);
}

void graph_check_valid(const char *source, CUstream stream) {
    CUgraph graph = NULL;
    cr_assert_eq(graph_status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE, "%s", source);
    CHECK(source, CUDA_SUCCESS, graphs.end(stream, &graph));
    OK(graphs.destroy(graph));
}

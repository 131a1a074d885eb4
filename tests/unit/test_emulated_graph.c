/* SPDX-License-Identifier: MIT */
/** @file What the emulated driver alone promises of graphs: what a launch finds gone, and what is counted. */
#include <string.h>

#include "emulated_api.h"
#include "emulated_test.h"

static struct {
    CUresult (*begin)(CUstream, CUstreamCaptureMode);
    CUresult (*end)(CUstream, CUgraph *);
    CUresult (*instantiate)(CUgraphExec *, CUgraph, unsigned long long);
    CUresult (*launch)(CUgraphExec, CUstream);
    CUresult (*exec_destroy)(CUgraphExec);
    CUresult (*destroy)(CUgraph);
    CUresult (*reset)(CUdevice);
} calls;

static CUstream stream;

static void start(void) {
    emulated_start(NULL);
    emulated_symbol(drv.library, "cuStreamBeginCapture_v2", &calls.begin);
    emulated_symbol(drv.library, "cuStreamEndCapture", &calls.end);
    emulated_symbol(drv.library, "cuGraphInstantiateWithFlags", &calls.instantiate);
    emulated_symbol(drv.library, "cuGraphLaunch", &calls.launch);
    emulated_symbol(drv.library, "cuGraphExecDestroy", &calls.exec_destroy);
    emulated_symbol(drv.library, "cuGraphDestroy", &calls.destroy);
    emulated_symbol(drv.library, "cuDevicePrimaryCtxReset_v2", &calls.reset);
    check_success(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

TestSuite(emulated_graph, .init = start, .timeout = 60);

/* A graph that fills memory. */
static CUgraphExec make_fill(CUdeviceptr address, CUgraph *out_graph) {
    CUgraphExec exec = NULL;
    check_success(calls.begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    check_success(drv.cuMemsetD8Async(address, 1, 64, stream));
    check_success(calls.end(stream, out_graph));
    check_success(calls.instantiate(&exec, *out_graph, 0));
    return exec;
}

Test(emulated_graph, holds_no_memory_and_faults_when_it_is_gone) {
    CUgraph graph;
    gpuipc_emulated_live live;
    const CUdeviceptr address = memory_make(0, GRANULE);
    CUgraphExec exec = make_fill(address, &graph);
    check_success(calls.launch(exec, stream));
    check_success(drv.cuStreamSynchronize(stream));
    memory_unmake(address, GRANULE);
    get_live(&live);
    cr_assert_eq(live.allocations, 0);
    check_success(calls.launch(exec, stream));
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuStreamSynchronize(stream));
}

Test(emulated_graph, is_counted_and_listed) {
    CUgraph graph;
    CUdeviceptr address;
    gpuipc_emulated_live live;
    char text[1000];
    check_success(drv.cuMemAlloc(&address, 64));
    CUgraphExec exec = make_fill(address, &graph);
    get_live(&live);
    cr_assert(live.graphs == 1 && live.graph_execs == 1);
    list_live(text, sizeof(text));
    cr_assert(strstr(text, "graph 0x") != NULL && strstr(text, "graph-exec 0x") != NULL, "%s",
              text);
    check_success(calls.exec_destroy(exec));
    check_success(calls.destroy(graph));
    check_result(CUDA_ERROR_INVALID_VALUE, calls.exec_destroy(exec));
    check_result(CUDA_ERROR_INVALID_VALUE, calls.destroy(graph));
    get_live(&live);
    cr_assert(live.graphs == 0 && live.graph_execs == 0);
}

Test(emulated_graph, ends_with_the_context_of_its_nodes) {
    CUgraph graph;
    CUdeviceptr address;
    gpuipc_emulated_live live;
    check_success(drv.cuMemAlloc(&address, 64));
    CUgraphExec exec = make_fill(address, &graph);
    check_success(calls.launch(exec, stream));
    check_success(calls.reset(0));
    get_live(&live);
    cr_assert_eq(live.graph_execs, 0);
    check_result(CUDA_ERROR_INVALID_VALUE, calls.exec_destroy(exec));
    check_success(calls.destroy(graph));
}

Test(emulated_graph, is_thrown_away_with_the_stream_that_is_captured) {
    CUdeviceptr address;
    gpuipc_emulated_live live;
    check_success(drv.cuMemAlloc(&address, 64));
    check_success(calls.begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    check_success(drv.cuMemsetD8Async(address, 1, 64, stream));
    check_success(drv.cuStreamDestroy(stream));
    get_live(&live);
    cr_assert_eq(live.graphs, 0);
    check_success(drv.cuMemFree(address)); /* nothing is captured any more */
}

/* Not emulated, and said so. */
Test(emulated_graph, has_no_nodes_for_pools_or_other_graphs) {
    CUgraph graph;
    CUdeviceptr address;
    CUgraph other = NULL;
    CUdeviceptr pooled;
    check_success(drv.cuMemAlloc(&address, 64));
    CUgraphExec exec = make_fill(address, &graph);
    check_success(calls.begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    check_result(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, calls.launch(exec, stream));
    check_result(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, calls.end(stream, &other));
    check_success(calls.begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    check_result(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, drv.cuMemAllocAsync(&pooled, 64, stream));
    check_result(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, calls.end(stream, &other));
    cr_assert_null(other);
}

/* SPDX-License-Identifier: MIT */
/** @file What is captured from streams, and runs at each launch of the graph that comes of it. */
#include <stdatomic.h>
#include <string.h>

#include "conformance_graph.h"
#include "conformance_share.h"

static CUstream stream, other;

static void start(void) {
    graph_start(&stream, &other);
}

static void finish(void) {
    graph_finish(stream, other);
}

TestSuite(graph, .init = start, .fini = finish, .timeout = 60);

/* How many nodes of a graph are of one type. */
static size_t count_nodes(CUgraph graph, CUgraphNodeType type) {
    CUgraphNode nodes[16] = {NULL};
    size_t count = 16, found = 0;
    OK(graphs.nodes(graph, nodes, &count));
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType is = CU_GRAPH_NODE_TYPE_MEMCPY;
        OK(graphs.type(nodes[i], &is));
        found += is == type;
    }
    return found;
}

Test(graph, of_fills_and_copies) {
    CUdeviceptr from = 0, to = 0;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    size_t count = 0;
    OK(drv.cuMemAlloc(&from, 4096));
    OK(drv.cuMemAlloc(&to, 4096));
    OK(drv.cuMemsetD8(from, 0, 4096));
    OK(drv.cuMemsetD8(to, 0, 4096));
    OK(drv.cuCtxSynchronize());
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    cr_assert_eq(graph_status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE, "cuda.h");
    cr_assert_eq(graph_status(other), CU_STREAM_CAPTURE_STATUS_NONE, "cuda.h: the others are not");
    CHECK("cuda.h: a fill is captured", CUDA_SUCCESS,
          drv.cuMemsetD32Async(from, 0xABCD, 1024, stream));
    CHECK("cuda.h: a copy is captured", CUDA_SUCCESS,
          drv.cuMemcpyDtoDAsync(to, from, 4096, stream));
    CHECK("cuda.h: cuStreamEndCapture", CUDA_SUCCESS, graphs.end(stream, &graph));
    cr_assert_eq(graph_status(stream), CU_STREAM_CAPTURE_STATUS_NONE, "cuda.h");
    OK(drv.cuStreamSynchronize(stream));
    cr_assert_eq(word_read(from), 0, "cuda.h: what is captured is not done");
    OK(graphs.nodes(graph, NULL, &count));
    cr_assert_eq(count, 2);
    cr_assert_eq(count_nodes(graph, CU_GRAPH_NODE_TYPE_MEMSET), 1);
    cr_assert_eq(count_nodes(graph, CU_GRAPH_NODE_TYPE_MEMCPY), 1);
    CHECK("cuda.h: cuGraphInstantiate", CUDA_SUCCESS, graphs.instantiate(&exec, graph, 0));
    for (unsigned i = 0; i < 3; i++) {
        OK(drv.cuMemsetD8(to, 0, 4096));
        OK(drv.cuCtxSynchronize());
        CHECK("cuda.h: cuGraphLaunch", CUDA_SUCCESS, graphs.launch(exec, stream));
        OK(drv.cuStreamSynchronize(stream));
        cr_assert_eq(word_read(to + 4092), 0xABCD, "cuda.h: it is done at each launch");
    }
    CHECK("cuda.h: cuGraphExecDestroy", CUDA_SUCCESS, graphs.exec_destroy(exec));
    CHECK("cuda.h: cuGraphDestroy", CUDA_SUCCESS, graphs.destroy(graph));
    OK(drv.cuMemFree(from));
    OK(drv.cuMemFree(to));
}

Test(graph, of_fills) {
    const memory made = memory_make(0, GRANULE);
    CUdeviceptr plain = 0;
    OK(drv.cuMemAlloc(&plain, 4096));
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK("measured: a fill of device memory is captured", CUDA_SUCCESS,
          drv.cuMemsetD8Async(plain, 0x5A, 4096, stream));
    CHECK("measured: a fill of device memory is captured", CUDA_SUCCESS,
          drv.cuMemsetD32Async(made.address, 0x5A5A, GRANULE / 4, stream));
    CUgraphExec exec = graph_end(stream);
    graph_run(exec, stream);
    cr_assert_eq(word_read(plain + 4092), 0x5A5A5A5A);
    cr_assert_eq(word_read(made.address + GRANULE - 4), 0x5A5A);
    OK(graphs.exec_destroy(exec));
    OK(drv.cuMemFree(plain));
    memory_undo(&made);
}

/** Captured and never launched. The emulated driver is stricter on purpose: such a graph is a mistake of the program. */
Test(graph, of_a_fill_of_freed_memory) {
    const CUresult expected = drv.is_emulated ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    CUdeviceptr freed = 0;
    CUgraph graph = NULL;
    OK(drv.cuMemAlloc(&freed, GRANULE));
    OK(drv.cuMemFree(freed));
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK("measured: the address is not looked at", expected,
          drv.cuMemsetD8Async(freed, 1, 64, stream));
    OK(graphs.end(stream, &graph));
    OK(graphs.destroy(graph));
}

Test(graph, of_nothing) {
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUgraphExec exec = graph_end(stream);
    graph_run(exec, stream);
    OK(graphs.exec_destroy(exec));
}

Test(graph, with_pinned_memory_sees_it_as_it_is_then) {
    CUdeviceptr device = 0;
    uint32_t *host = NULL;
    OK(drv.cuMemAlloc(&device, 64));
    OK(drv.cuMemHostAlloc((void **)&host, 64, 0));
    host[0] = 1;
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(drv.cuMemcpyHtoDAsync(device, &host[0], 4, stream));
    OK(drv.cuMemcpyDtoHAsync(&host[1], device, 4, stream));
    CUgraphExec exec = graph_end(stream);
    for (uint32_t i = 10; i < 13; i++) {
        host[0] = i;
        graph_run(exec, stream);
        cr_assert_eq(host[1], i, "cuda.h: the launch reads the memory, not the capture");
    }
    OK(graphs.exec_destroy(exec));
    OK(drv.cuMemFreeHost(host));
    OK(drv.cuMemFree(device));
}

static void count_call(void *data) {
    atomic_fetch_add((atomic_int *)data, 1);
}

Test(graph, of_a_host_function) {
    atomic_int calls = 0;
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK("cuda.h: a host function is captured", CUDA_SUCCESS,
          drv.cuLaunchHostFunc(stream, count_call, &calls));
    CUgraphExec exec = graph_end(stream);
    cr_assert_eq(atomic_load(&calls), 0);
    graph_run(exec, stream);
    graph_run(exec, stream);
    cr_assert_eq(atomic_load(&calls), 2, "cuda.h: it is called at each launch");
    OK(graphs.exec_destroy(exec));
}

/* ---- words -------------------------------------------------------------------------------- */

static CUresult wait_word(CUdeviceptr at, uint64_t value) {
    return drv.cuStreamWaitValue64(stream, at, value, CU_STREAM_WAIT_VALUE_GEQ);
}

static CUresult write_word(CUdeviceptr at, uint64_t value) {
    return drv.cuStreamWriteValue64(stream, at, value, CU_STREAM_WRITE_VALUE_DEFAULT);
}

static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                            CU_STREAM_CAPTURE_MODE_RELAXED};

Test(graph, of_words_that_are_set_back) {
    need_words();
    shared_page page = page_make();
    const CUdeviceptr go = page_word(&page, 0), done = page_word(&page, 1);
    for (size_t mode = 0; mode < 3; mode++) {
        CUgraph graph = NULL;
        CUgraphExec exec = NULL;
        graph_begin(stream, modes[mode]);
        CHECK("measured: a wait is captured in every mode", CUDA_SUCCESS, wait_word(go, 1));
        CHECK("measured: a write is captured in every mode", CUDA_SUCCESS, write_word(go, 0));
        CHECK("measured: a write is captured in every mode", CUDA_SUCCESS, write_word(done, 1));
        OK(graphs.end(stream, &graph));
        cr_assert_eq(count_nodes(graph, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP), 3, "measured: type 12");
        OK(graphs.instantiate(&exec, graph, 0));
        for (unsigned i = 0; i < 20; i++) {
            OK(graphs.launch(exec, stream));
            CHECK("measured: it waits for the word", CUDA_ERROR_NOT_READY,
                  drv.cuStreamQuery(stream));
            cr_assert_eq(page_load(&page, 1), 0);
            page_store(&page, 0, 1);
            OK(drv.cuStreamSynchronize(stream));
            cr_assert_eq(page_load(&page, 0), 0, "measured: launched again and again");
            cr_assert_eq(page_load(&page, 1), 1);
            page_store(&page, 1, 0);
        }
        OK(graphs.exec_destroy(exec));
        OK(graphs.destroy(graph));
    }
    page_undo(&page);
}

static CUstreamBatchMemOpParams word_operation(CUstreamBatchMemOpType what, CUdeviceptr at,
                                               uint64_t value) {
    CUstreamBatchMemOpParams made;
    memset(&made, 0, sizeof made);
    made.word.operation = what;
    made.word.address = at;
    made.word.to.value64 = value;
    return made;
}

Test(graph, of_several_words_in_one_node_that_get_new_values) {
    need_words();
    shared_page page = page_make();
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode node = NULL;
    size_t count = 1;
    CUDA_BATCH_MEM_OP_NODE_PARAMS params;
    CUstreamBatchMemOpParams words[2] = {
        word_operation(CU_STREAM_MEM_OP_WRITE_VALUE_64, page_word(&page, 0), 7),
        word_operation(CU_STREAM_MEM_OP_WAIT_VALUE_64, page_word(&page, 0), 7)};
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK("measured: batched words are captured", CUDA_SUCCESS, graphs.batch(stream, 2, words, 0));
    OK(graphs.end(stream, &graph));
    OK(graphs.nodes(graph, &node, &count));
    cr_assert_eq(count, 1, "measured: as one node");
    OK(graphs.instantiate(&exec, graph, 0));
    graph_run(exec, stream);
    cr_assert_eq(page_load(&page, 0), 7);

    OK(graphs.get_words(node, &params));
    cr_assert_eq(params.count, 2);
    cr_assert_eq(params.ctx, conformance_context(0));
    cr_assert_eq(params.paramArray[0].word.to.value64, 7);
    words[0].word.to.value64 = words[1].word.to.value64 = 9;
    params.paramArray = words;
    CHECK("cuda.h: new values", CUDA_SUCCESS, graphs.set_words(exec, node, &params));
    graph_run(exec, stream);
    cr_assert_eq(page_load(&page, 0), 9, "cuda.h: future launches have them");
    OK(graphs.get_words(node, &params));
    cr_assert_eq(params.paramArray[0].word.to.value64, 7,
                 "cuda.h: the node itself is not modified");

    params.paramArray = words;
    params.count = 1;
    CHECK("cuda.h: the count may not be modified", CUDA_ERROR_INVALID_VALUE,
          graphs.set_words(exec, node, &params));
    OK(graphs.exec_destroy(exec));
    OK(graphs.destroy(graph));
    page_undo(&page);
}

/* What one side sets for good in the upper half, graphs of the other do not undo. */
Test(graph, of_the_low_halves_of_words) {
    need_words();
    shared_page page = page_make();
    const uint16_t one = 1;
    const CUdeviceptr low = *(const uint8_t *)&one == 1 ? 0 : 4;
    CUgraphExec exec;
    CUstreamBatchMemOpParams words[2] = {
        word_operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, page_word(&page, 0) + low, 0),
        word_operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, page_word(&page, 1) + low, 0)};
    words[1].word.to.value = 1;
    for (size_t mode = 0; mode < 3; mode++) {
        page_store(&page, 0, 0);
        page_store(&page, 1, 0);
        graph_begin(stream, modes[mode]);
        OK(wait_word(page_word(&page, 0), 1));
        CHECK("cuda.h: writes of 32 bits are captured as well", CUDA_SUCCESS,
              graphs.batch(stream, 2, words, 0));
        exec = graph_end(stream);
        OK(graphs.launch(exec, stream));
        CHECK("cuda.h: a wait is for the whole word", CUDA_ERROR_NOT_READY,
              drv.cuStreamQuery(stream));
        page_store(&page, 0, 1);
        OK(drv.cuStreamSynchronize(stream));
        cr_assert_eq(page_load(&page, 0), 0);
        cr_assert_eq(page_load(&page, 1), 1);
        page_store(&page, 0, UINT64_C(1) << 32);
        for (unsigned i = 0; i < 20; i++) {
            graph_run(exec, stream);
            cr_assert_eq(page_load(&page, 0), UINT64_C(1) << 32, "cuda.h: 32 bits are written");
        }
        OK(graphs.exec_destroy(exec));
    }
    page_undo(&page);
}

/* ---- branches and order ------------------------------------------------------------------- */

Test(graph, of_two_streams_that_events_join) {
    CUdeviceptr plain = 0;
    CUevent forked = NULL, joined = NULL;
    unsigned char bytes[2] = {0, 0};
    OK(drv.cuMemAlloc(&plain, 2));
    OK(drv.cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    OK(drv.cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(drv.cuMemsetD8Async(plain, 1, 1, stream));
    OK(drv.cuEventRecord(forked, stream));
    CHECK("programming guide: the event draws a stream into the capture", CUDA_SUCCESS,
          drv.cuStreamWaitEvent(other, forked, 0));
    cr_assert_eq(graph_status(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(drv.cuMemcpyDtoDAsync(plain + 1, plain, 1, other));
    OK(drv.cuEventRecord(joined, other));
    OK(drv.cuStreamWaitEvent(stream, joined, 0));
    OK(drv.cuMemsetD8Async(plain, 2, 1, stream));
    CUgraphExec exec = graph_end(stream);
    cr_assert_eq(graph_status(other), CU_STREAM_CAPTURE_STATUS_NONE, "its capture has ended too");
    graph_run(exec, stream);
    OK(drv.cuMemcpyDtoH(bytes, plain, 2));
    cr_assert(bytes[0] == 2 && bytes[1] == 1, "the order of the nodes: %d %d", bytes[0], bytes[1]);
    OK(graphs.exec_destroy(exec));
    OK(drv.cuEventDestroy(forked));
    OK(drv.cuEventDestroy(joined));
    OK(drv.cuMemFree(plain));
}

Test(graph, runs_in_the_order_of_its_stream_and_behind_its_own_launch) {
    const busy_work work = busy_start();
    CUdeviceptr copy = 0;
    unsigned char first = 0, second = 0;
    OK(drv.cuMemAlloc(&copy, 1));
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(drv.cuMemcpyDtoDAsync(copy, work.address + work.bytes - 1, 1, stream));
    OK(drv.cuMemsetD8Async(work.address, 0x55, work.bytes, stream));
    CUgraphExec exec = graph_end(stream);
    busy_submit(&work, stream, 0x44);
    OK(graphs.launch(exec, stream));
    OK(drv.cuMemcpyDtoHAsync(&first, copy, 1, stream));
    CHECK("cuda.h: launched on another stream", CUDA_SUCCESS, graphs.launch(exec, other));
    OK(drv.cuMemcpyDtoHAsync(&second, copy, 1, other));
    OK(drv.cuStreamSynchronize(stream));
    OK(drv.cuStreamSynchronize(other));
    cr_assert(first == 0x44 || first == 0x55, "cuda.h: behind the work before it, not %#x", first);
    cr_assert_eq(second, 0x55, "cuda.h: behind the launch before it");
    OK(graphs.exec_destroy(exec));
    OK(drv.cuMemFree(copy));
    busy_end(&work);
}

Test(graph, executable_and_destroyed_while_it_runs) {
    const busy_work work = busy_start();
    unsigned char byte = 0;
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(drv.cuMemsetD8Async(work.address, 0x66, work.bytes, stream));
    CUgraphExec exec = graph_end(stream);
    busy_submit(&work, stream, 0x44);
    OK(graphs.launch(exec, stream));
    CHECK("cuda.h: the launch is still done", CUDA_SUCCESS, graphs.exec_destroy(exec));
    OK(drv.cuStreamSynchronize(stream));
    OK(drv.cuMemcpyDtoH(&byte, work.address + work.bytes - 1, 1));
    cr_assert_eq(byte, 0x66);
    busy_end(&work);
}

/* ---- events that are nodes ---------------------------------------------------------------- */

Test(graph, that_records_an_event_at_each_launch) {
    const busy_work work = busy_start();
    const unsigned flags[] = {CU_EVENT_DISABLE_TIMING,
                              CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS};
    for (size_t i = 0; i < 2; i++) {
        CUevent event = NULL;
        CUgraph graph = NULL;
        CUgraphExec exec = NULL;
        OK(drv.cuEventCreate(&event, flags[i]));
        CHECK("measured: EXTERNAL outside of a capture", CUDA_ERROR_ILLEGAL_STATE,
              graphs.record(event, stream, CU_EVENT_RECORD_EXTERNAL));
        graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
        OK(drv.cuMemsetD8Async(work.address, 1, work.bytes, stream));
        CHECK("measured: EXTERNAL is captured", CUDA_SUCCESS,
              graphs.record(event, stream, CU_EVENT_RECORD_EXTERNAL));
        OK(graphs.end(stream, &graph));
        cr_assert_eq(count_nodes(graph, CU_GRAPH_NODE_TYPE_EVENT_RECORD), 1);
        OK(graphs.instantiate(&exec, graph, 0));
        CHECK("cuda.h: the capture has not recorded it", CUDA_SUCCESS, drv.cuEventQuery(event));
        busy_submit(&work, stream, 2);
        OK(graphs.launch(exec, stream));
        CHECK("cuda.h: the launch has", CUDA_ERROR_NOT_READY, drv.cuEventQuery(event));
        OK(drv.cuEventSynchronize(event));
        OK(drv.cuStreamSynchronize(stream));
        OK(graphs.exec_destroy(exec));
        OK(graphs.destroy(graph));
        OK(drv.cuEventDestroy(event));
    }
    busy_end(&work);
}

Test(graph, that_waits_for_an_event_at_each_launch) {
    const busy_work work = busy_start();
    CUevent event = NULL;
    unsigned char *host = NULL;
    OK(drv.cuMemHostAlloc((void **)&host, 1, 0));
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK("cuda.h: EXTERNAL is captured", CUDA_SUCCESS,
          drv.cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
    OK(drv.cuMemcpyDtoHAsync(host, work.address + work.bytes - 1, 1, stream));
    CUgraphExec exec = graph_end(stream);
    for (unsigned char i = 1; i < 4; i++) {
        busy_submit(&work, other, i);
        OK(drv.cuEventRecord(event, other));
        graph_run(exec, stream);
        cr_assert_eq(*host, i, "cuda.h: it waits for the event as it was at the launch");
    }
    OK(graphs.exec_destroy(exec));
    OK(drv.cuEventDestroy(event));
    OK(drv.cuMemFreeHost(host));
    busy_end(&work);
}

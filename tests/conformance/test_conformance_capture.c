/* SPDX-License-Identifier: MIT */
/** @file What may not be done while a stream is captured, and what is answered. */
#include "conformance_graph.h"

static CUstream stream, other;

static void start(void) {
    graph_start(&stream, &other);
}

static void finish(void) {
    graph_finish(stream, other);
}

TestSuite(capture, .init = start, .fini = finish, .timeout = 60);

static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                            CU_STREAM_CAPTURE_MODE_RELAXED};

static CUstreamCaptureMode set_thread_mode(CUstreamCaptureMode mode) {
    OK(drv.cuThreadExchangeStreamCaptureMode(&mode));
    return mode;
}

static CUresult end_and_forget(CUstream of) {
    CUgraph graph = NULL;
    const CUresult result = graphs.end(of, &graph);
    if (result == CUDA_SUCCESS) {
        OK(graphs.destroy(graph));
    }
    return result;
}

Test(capture, begins_and_ends) {
    CUgraph graph = NULL;
    CHECK("reading: the legacy stream cannot be captured", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          graphs.begin(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK("cuda.h: another mode is not valid", CUDA_ERROR_INVALID_VALUE,
          graphs.begin(stream, (CUstreamCaptureMode)3));
    CHECK("reading: a stream that is not captured", CUDA_ERROR_ILLEGAL_STATE,
          graphs.end(stream, &graph));
    for (size_t i = 0; i < 3; i++) {
        CHECK("cuda.h: cuStreamBeginCapture", CUDA_SUCCESS, graphs.begin(stream, modes[i]));
        graph_check_valid("cuda.h: cuStreamEndCapture", stream);
        CHECK("cuda.h: a thread's default stream too", CUDA_SUCCESS,
              graphs.begin(CU_STREAM_PER_THREAD, modes[i]));
        graph_check_valid("cuda.h: cuStreamEndCapture", CU_STREAM_PER_THREAD);
    }
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK("reading: it is captured already", CUDA_ERROR_ILLEGAL_STATE,
          graphs.begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    (void)end_and_forget(stream);
}

Test(capture, is_told) {
    CUdeviceptr plain = 0;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    cuuint64_t id = 0, next_id = 0;
    CUgraph graph = NULL, ended = NULL;
    const CUgraphNode *after = NULL;
    CUgraphNode node = NULL;
    size_t count = 9, nodes = 1;
    OK(drv.cuMemAlloc(&plain, 64));
    CHECK("cuda.h: of a stream that is not captured", CUDA_SUCCESS,
          graphs.info(stream, &status, NULL, NULL, NULL, NULL));
    cr_assert_eq(status, CU_STREAM_CAPTURE_STATUS_NONE);
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK("cuda.h: cuStreamGetCaptureInfo", CUDA_SUCCESS,
          graphs.info(stream, &status, &id, &graph, &after, &count));
    cr_assert_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    cr_assert_eq(count, 0, "nothing comes before the first node");
    OK(drv.cuMemsetD8Async(plain, 1, 64, stream));
    OK(graphs.info(stream, &status, &next_id, NULL, &after, &count));
    cr_assert_eq(next_id, id, "cuda.h: the id is of the capture");
    cr_assert_eq(count, 1);
    OK(graphs.nodes(graph, &node, &nodes));
    cr_assert_eq(after[0], node, "cuda.h: the next node depends on that one");
    OK(graphs.end(stream, &ended));
    cr_assert_eq(ended, graph, "cuda.h: the graph that is captured into");
    OK(graphs.destroy(ended));
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(graphs.info(stream, &status, &next_id, NULL, NULL, NULL));
    cr_assert_neq(next_id, id, "cuda.h: an id is unique");
    OK(end_and_forget(stream));
    OK(drv.cuMemFree(plain));
}

static void end_in_thread(void *argument) {
    CUresult *answer = argument;
    *answer = drv.cuCtxSetCurrent(conformance_context(0));
    if (*answer == CUDA_SUCCESS) {
        *answer = end_and_forget(stream);
    }
}

Test(capture, ends_where_it_began) {
    CUevent event = NULL;
    CUgraph graph = NULL;
    CUresult answer = CUDA_SUCCESS;
    os_thread *thread;
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(drv.cuEventRecord(event, stream));
    OK(drv.cuStreamWaitEvent(other, event, 0));
    CHECK("cuda.h: on another stream of the capture", CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
          graphs.end(other, &graph));
    (void)end_and_forget(stream);
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    cr_assert_eq(os_thread_start(end_in_thread, &answer, &thread), GPUIPC_OK);
    os_thread_join(thread);
    CHECK("cuda.h: a relaxed one in any thread", CUDA_SUCCESS, answer);
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    cr_assert_eq(os_thread_start(end_in_thread, &answer, &thread), GPUIPC_OK);
    os_thread_join(thread);
    CHECK("cuda.h: another one in the thread that began it", CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
          answer);
    (void)end_and_forget(stream);
    OK(drv.cuEventDestroy(event));
}

/* ---- the stream itself -------------------------------------------------------------------- */

Test(capture, cannot_be_waited_for) {
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK("programming guide: a captured stream cannot be synchronised",
          CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, drv.cuStreamSynchronize(stream));
    graph_check_invalid("programming guide: that makes the capture invalid", stream);
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK("programming guide: nor be queried", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          drv.cuStreamQuery(stream));
    graph_check_invalid("programming guide: that makes the capture invalid", stream);
}

/* Unlike its context, and that of another stream. */
Test(capture, and_the_id_of_its_stream) {
    unsigned long long id = 0;
    CUcontext of = NULL;
    if (!drv.has_streamid) {
        cr_skip("the driver has no cuStreamGetId");
    }
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK("measured: its context may be asked", CUDA_SUCCESS, drv.cuStreamGetCtx(stream, &of));
    CHECK("measured: another one's id, too", CUDA_SUCCESS, drv.cuStreamGetId(other, &id));
    CHECK("measured: not its id", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          drv.cuStreamGetId(stream, &id));
    graph_check_invalid("measured: that makes the capture invalid", stream);
}

Test(capture, that_is_invalid_takes_nothing) {
    CUdeviceptr plain = 0;
    CUevent event = NULL;
    OK(drv.cuMemAlloc(&plain, 64));
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK("programming guide: it cannot be queried", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          drv.cuStreamQuery(stream));
    CHECK("programming guide: it returns an error until it is ended",
          CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, drv.cuMemsetD8Async(plain, 1, 64, stream));
    CHECK("programming guide: it returns an error until it is ended",
          CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, drv.cuEventRecord(event, stream));
    graph_check_invalid("programming guide", stream);
    CHECK("the stream works again", CUDA_SUCCESS, drv.cuMemsetD8Async(plain, 1, 64, stream));
    OK(drv.cuStreamSynchronize(stream));
    OK(drv.cuEventDestroy(event));
    OK(drv.cuMemFree(plain));
}

Test(capture, of_a_context_that_is_waited_for) {
    CUevent event = NULL;
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (size_t i = 0; i < 3; i++) {
        graph_begin(stream, modes[i]);
        const CUstreamCaptureMode before = set_thread_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
        CHECK("measured: cuCtxSynchronize, in every mode", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
              drv.cuCtxSynchronize());
        graph_check_invalid("measured: that makes the capture invalid", stream);
        if (drv.has_ctxevent) {
            graph_begin(stream, modes[i]);
            CHECK("measured: cuCtxRecordEvent, in every mode",
                  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                  drv.cuCtxRecordEvent(conformance_context(0), event));
            graph_check_invalid("measured: that makes the capture invalid", stream);
        }
        set_thread_mode(before);
    }
    OK(drv.cuEventDestroy(event));
}

/* ---- the legacy stream -------------------------------------------------------------------- */

Test(capture, of_a_blocking_stream_and_the_legacy_one) {
    CUstream blocking = NULL;
    CUevent event = NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUstreamCaptureMode before = set_thread_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(drv.cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    graph_begin(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK("measured: cuStreamIsCapturing of it", CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
          drv.cuStreamIsCapturing(CU_STREAM_LEGACY, &status));
    CHECK("cuda.h: cuStreamGetCaptureInfo of it", CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
          graphs.info(CU_STREAM_LEGACY, &status, NULL, NULL, NULL, NULL));
    graph_check_valid("measured: to ask harms nothing", blocking);
    graph_begin(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK("measured: recorded in it", CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
          drv.cuEventRecord(event, CU_STREAM_LEGACY));
    graph_check_invalid("measured: that makes the capture invalid", blocking);
    graph_begin(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK("measured: synchronised", CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
          drv.cuStreamSynchronize(CU_STREAM_LEGACY));
    graph_check_invalid("measured: that makes the capture invalid", blocking);
    set_thread_mode(before);
    OK(drv.cuEventDestroy(event));
    OK(drv.cuStreamDestroy(blocking));
}

Test(capture, of_a_non_blocking_stream_leaves_the_legacy_one_alone) {
    CUevent event = NULL;
    const CUstreamCaptureMode before = set_thread_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    cr_assert_eq(graph_status(CU_STREAM_LEGACY), CU_STREAM_CAPTURE_STATUS_NONE, "measured");
    CHECK("measured: recorded in it", CUDA_SUCCESS, drv.cuEventRecord(event, CU_STREAM_LEGACY));
    CHECK("measured: synchronised", CUDA_SUCCESS, drv.cuStreamSynchronize(CU_STREAM_LEGACY));
    graph_check_valid("measured: that harms nothing", stream);
    set_thread_mode(before);
    OK(drv.cuEventDestroy(event));
}

/* ---- calls that are potentially unsafe ----------------------------------------------------- */

Test(capture, and_calls_that_are_unsafe) {
    CUdeviceptr plain = 0;
    void *host = NULL;
    CUevent event = NULL;
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (size_t i = 0; i < 3; i++) {
        const bool is_relaxed = modes[i] == CU_STREAM_CAPTURE_MODE_RELAXED;
        graph_begin(stream, modes[i]);
        CHECK("cuda.h: cuMemAlloc, unless the capture is relaxed",
              is_relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
              drv.cuMemAlloc(&plain, 64));
        if (is_relaxed) {
            OK(drv.cuMemFree(plain));
            graph_check_valid("cuda.h: it is safe", stream);
        } else {
            graph_check_invalid("programming guide: that makes the capture invalid", stream);
        }
        graph_begin(stream, modes[i]);
        const CUstreamCaptureMode before = set_thread_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
        CHECK("measured: in a relaxed thread", CUDA_SUCCESS, drv.cuMemAlloc(&plain, 64));
        CHECK("measured: in a relaxed thread", CUDA_SUCCESS, drv.cuMemHostAlloc(&host, 64, 0));
        CHECK("measured: in a relaxed thread", CUDA_SUCCESS, drv.cuEventQuery(event));
        CHECK("measured: in a relaxed thread", CUDA_SUCCESS, drv.cuMemFreeHost(host));
        CHECK("measured: in a relaxed thread", CUDA_SUCCESS, drv.cuMemFree(plain));
        const memory made = memory_make(0, GRANULE);
        memory_undo(&made);
        graph_check_valid("measured: that harms nothing", stream);
        set_thread_mode(before);
    }
    OK(drv.cuEventDestroy(event));
}

static void allocate_in_thread(void *argument) {
    CUresult *answer = argument;
    CUdeviceptr plain = 0;
    *answer = drv.cuCtxSetCurrent(conformance_context(0));
    if (*answer == CUDA_SUCCESS) {
        *answer = drv.cuMemAlloc(&plain, 64);
    }
    if (*answer == CUDA_SUCCESS) {
        *answer = drv.cuMemFree(plain);
    }
}

Test(capture, and_calls_of_another_thread_that_are_unsafe) {
    os_thread *thread;
    for (size_t i = 0; i < 3; i++) {
        CUresult answer = CUDA_ERROR_UNKNOWN;
        const bool is_global = modes[i] == CU_STREAM_CAPTURE_MODE_GLOBAL;
        graph_begin(stream, modes[i]);
        cr_assert_eq(os_thread_start(allocate_in_thread, &answer, &thread), GPUIPC_OK);
        os_thread_join(thread);
        CHECK("cuda.h: only a global capture forbids them to others",
              is_global ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS, answer);
        if (is_global) {
            graph_check_invalid("programming guide: that makes the capture invalid", stream);
        } else {
            graph_check_valid("cuda.h: they are ignored", stream);
        }
    }
}

/* ---- events ------------------------------------------------------------------------------- */

Test(capture, of_an_event_that_is_asked) {
    CUevent event = NULL;
    const CUstreamCaptureMode before = set_thread_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(drv.cuEventRecord(event, stream));
    CHECK("measured: cuEventQuery", CUDA_ERROR_CAPTURED_EVENT, drv.cuEventQuery(event));
    graph_check_invalid("programming guide: that makes the capture invalid", stream);
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(drv.cuEventRecord(event, stream));
    CHECK("cuda.h: cuEventSynchronize", CUDA_ERROR_CAPTURED_EVENT, drv.cuEventSynchronize(event));
    graph_check_invalid("programming guide: that makes the capture invalid", stream);
    OK(drv.cuEventRecord(event, other));
    CHECK("cuda.h: recorded again elsewhere", CUDA_SUCCESS, drv.cuEventSynchronize(event));
    set_thread_mode(before);
    OK(drv.cuEventDestroy(event));
}

Test(capture, that_would_depend_on_what_is_outside) {
    CUevent event = NULL;
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(drv.cuEventRecord(event, other));
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK("programming guide: an event that was not captured", CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
          drv.cuStreamWaitEvent(stream, event, 0));
    graph_check_invalid("programming guide: that makes the capture invalid", stream);
    OK(drv.cuEventDestroy(event));
}

Test(capture, of_two_that_would_become_one) {
    CUevent event = NULL;
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    graph_begin(other, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(drv.cuEventRecord(event, stream));
    CHECK("programming guide: an event of another capture", CUDA_ERROR_STREAM_CAPTURE_MERGE,
          drv.cuStreamWaitEvent(other, event, 0));
    graph_check_invalid("programming guide: any associated capture becomes invalid", other);
    (void)end_and_forget(stream);
    OK(drv.cuEventDestroy(event));
}

Test(capture, with_a_branch_that_does_not_come_back) {
    CUdeviceptr plain = 0;
    CUevent event = NULL;
    CUgraph graph = (CUgraph)&graphs;
    OK(drv.cuMemAlloc(&plain, 64));
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    graph_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(drv.cuEventRecord(event, stream));
    OK(drv.cuStreamWaitEvent(other, event, 0));
    OK(drv.cuMemsetD8Async(plain, 1, 64, other));
    CHECK("cuda.h: a fork that was not joined", CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
          graphs.end(stream, &graph));
    cr_assert_null(graph);
    cr_assert_eq(graph_status(stream), CU_STREAM_CAPTURE_STATUS_NONE, "it has ended all the same");
    cr_assert_eq(graph_status(other), CU_STREAM_CAPTURE_STATUS_NONE, "it has ended all the same");
    OK(drv.cuEventDestroy(event));
    OK(drv.cuMemFree(plain));
}

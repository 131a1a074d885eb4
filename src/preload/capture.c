/* SPDX-License-Identifier: MIT */
/** @file See capture.h. */
#include "capture.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "ipc.h"
#include "log.h"
#include "state.h"

/* A thread's own default stream has the same handle in every thread, so one handle may be here several times. */
typedef struct capture {
    list_link link;
    CUstream stream;
    CUcontext context; /* current when it began */
} capture;

static linked_list captures; /* these under the lock of memory.h */
static linked_list waiting;
static atomic_size_t capture_count;
static atomic_size_t waiting_count;

bool capture_is_underway(void) {
    return atomic_load(&capture_count) > 0;
}

static void begin(CUstream stream) {
    capture *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        log_warning("there is no memory to note that a stream is being captured");
        return;
    }
    made->stream = stream;
    if (real_get()->cuCtxGetCurrent(&made->context) != CUDA_SUCCESS) {
        made->context = NULL;
    }
    memory_lock();
    list_append(&captures, &made->link);
    atomic_store(&capture_count, captures.count);
    memory_unlock();
}

static void end_some(bool (*is_one)(const capture *at, const void *wanted), const void *wanted,
                     bool all) {
    memory_lock();
    for (list_link *at = captures.first, *next; at != NULL; at = next) {
        capture *one = LIST_ITEM(at, capture, link);
        next = at->next;
        if (is_one(one, wanted)) {
            list_remove(at);
            free(one);
            next = all ? next : NULL;
        }
    }
    atomic_store(&capture_count, captures.count);
    memory_unlock();
}

static bool is_of_stream(const capture *at, const void *wanted) {
    return at->stream == wanted;
}

static bool is_of_context(const capture *at, const void *wanted) {
    return at->context == wanted;
}

void capture_forget(CUcontext context) {
    end_some(is_of_context, context, true);
}

void capture_hold_back(memory *freed) {
    log_count(COUNT_WAITING);
    memory_lock();
    list_append(&waiting, &freed->waiting);
    atomic_store(&waiting_count, waiting.count);
    memory_unlock();
}

void capture_work_off(void) {
    while (atomic_load(&waiting_count) > 0 && !capture_is_underway()) {
        memory_lock();
        memory *freed = LIST_ITEM(list_take(&waiting), memory, waiting);
        atomic_store(&waiting_count, waiting.count);
        memory_unlock();
        if (freed == NULL) {
            return;
        }
        const CUresult waited = owner_wait(freed->owner);
        if (waited != CUDA_SUCCESS) {
            /* A dead context: what is in it ends when the program ends that. */
            log_line("memory that was freed during a capture stays: CUDA code %d", (int)waited);
            continue;
        }
        ipc_lock();
        (void)memory_end(freed);
        ipc_unlock();
    }
}

/* ---- what stands before the driver's ----------------------------------------------------------- */

static CUresult begun(CUresult result, CUstream stream) {
    if (result == CUDA_SUCCESS && state_is_on()) {
        begin(stream);
    }
    return result;
}

/* Where the wrong thread asks, the capture goes on. */
static CUresult ended(CUresult result, CUstream stream) {
    const CUresult wrong_thread = (CUresult)908;
    if (result != wrong_thread && state_is_on()) {
        end_some(is_of_stream, stream, false);
        capture_work_off();
    }
    return result;
}

static CUresult destroyed(CUresult result, CUstream stream) {
    if (result == CUDA_SUCCESS && capture_is_underway() && state_is_on()) {
        end_some(is_of_stream, stream, true);
    }
    return result;
}

GPUIPC_EXPORTED CUresult cuStreamBeginCapture(CUstream stream) {
    return begun(REAL_CALL(cuStreamBeginCapture, (stream)), stream);
}

GPUIPC_EXPORTED CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
    return begun(REAL_CALL(cuStreamBeginCapture_ptsz, (stream)), stream);
}

GPUIPC_EXPORTED CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    return begun(REAL_CALL(cuStreamBeginCapture_v2, (stream, mode)), stream);
}

GPUIPC_EXPORTED CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
    return begun(REAL_CALL(cuStreamBeginCapture_v2_ptsz, (stream, mode)), stream);
}

GPUIPC_EXPORTED CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                                     const CUgraphNode *after,
                                                     const CUgraphEdgeData *edges, size_t count,
                                                     CUstreamCaptureMode mode) {
    return begun(REAL_CALL(cuStreamBeginCaptureToGraph, (stream, graph, after, edges, count, mode)),
                 stream);
}

GPUIPC_EXPORTED CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                                          const CUgraphNode *after,
                                                          const CUgraphEdgeData *edges,
                                                          size_t count, CUstreamCaptureMode mode) {
    return begun(
        REAL_CALL(cuStreamBeginCaptureToGraph_ptsz, (stream, graph, after, edges, count, mode)),
        stream);
}

GPUIPC_EXPORTED CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    return ended(REAL_CALL(cuStreamEndCapture, (stream, graph)), stream);
}

GPUIPC_EXPORTED CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
    return ended(REAL_CALL(cuStreamEndCapture_ptsz, (stream, graph)), stream);
}

GPUIPC_EXPORTED CUresult cuStreamDestroy(CUstream stream) {
    return destroyed(REAL_CALL(cuStreamDestroy, (stream)), stream);
}

GPUIPC_EXPORTED CUresult cuStreamDestroy_v2(CUstream stream) {
    return destroyed(REAL_CALL(cuStreamDestroy_v2, (stream)), stream);
}

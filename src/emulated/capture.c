/* SPDX-License-Identifier: MIT */
/** @file See capture.h. */
#include "capture.h"

#include <stdlib.h>
#include <string.h>

#include "capture_calls.h"
#include "graph.h"

static capture *active;

static GPUIPC_THREAD_LOCAL CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUstreamCaptureMode capture_exchange_mode(CUstreamCaptureMode mode) {
    const CUstreamCaptureMode before = thread_mode;
    thread_mode = mode;
    return before;
}

static void invalidate(capture *one) {
    one->is_invalid = true;
}

static void capture_release(capture *one) {
    if (one != NULL && --one->references == 0) {
        free(one);
    }
}

static void place_clear(capture_place *at) {
    free(at->after);
    *at = (capture_place){NULL, 0, NULL, 0};
}

/* ---- its beginning and its end ------------------------------------------------------------ */

static CUresult join(capture *one, stream *on, const CUgraphNode *after, size_t after_count) {
    CUgraphNode *copy = malloc((after_count + 1) * sizeof(*copy));
    stream **grown = realloc(one->streams, (one->made->lane_count + 1) * sizeof(stream *));
    if (grown != NULL) {
        one->streams = grown;
    }
    if (copy == NULL || grown == NULL ||
        graph_add_lane(one->made, on->owner->handle) != CUDA_SUCCESS) {
        free(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (after_count > 0) {
        memcpy(copy, after, after_count * sizeof(*copy));
    }
    on->captured = (capture_place){one, one->made->lane_count - 1, copy, after_count};
    one->streams[on->captured.lane] = on;
    return CUDA_SUCCESS;
}

/* Takes all streams out of it; what is left of it is for the events that were recorded in it. */
static void finish(capture *one) {
    for (unsigned i = 0; i < one->made->lane_count; i++) {
        if (one->streams[i] != NULL) {
            place_clear(&one->streams[i]->captured);
        }
    }
    for (capture **link = &active; *link != NULL; link = &(*link)->next) {
        if (*link == one) {
            *link = one->next;
            break;
        }
    }
    free(one->streams);
    one->streams = NULL;
    one->origin = NULL;
    one->made->is_capturing = false;
    one->made = NULL;
    capture_release(one);
}

CUresult capture_begin(stream *on, CUstreamCaptureMode mode) {
    static uint64_t last_id;
    if (on->captured.capture != NULL) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (on->kind == STREAM_LEGACY) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    capture *one = calloc(1, sizeof(*one));
    if (one == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = graph_create(&one->made);
    if (result == CUDA_SUCCESS) {
        result = join(one, on, NULL, 0);
        if (result != CUDA_SUCCESS) {
            graph_free(one->made);
        }
    }
    if (result != CUDA_SUCCESS) {
        free(one->streams);
        free(one);
        return result;
    }
    one->references = 1;
    one->id = ++last_id;
    one->mode = mode;
    one->thread = state_thread();
    one->origin = on;
    one->made->is_capturing = true;
    one->next = active;
    active = one;
    return CUDA_SUCCESS;
}

/* Marks what a set of nodes depends on, and these nodes; all of it stands before them in the graph. */
static void mark_reached(const graph *in, const CUgraphNode *from, size_t count, bool *reached) {
    for (size_t i = in->count; i-- > 0;) {
        const node *one = in->nodes[i];
        for (size_t j = 0; j < count; j++) {
            reached[i] = reached[i] || from[j] == one->handle;
        }
        for (size_t j = 0; reached[i] && j < one->after_count; j++) {
            for (size_t k = 0; k < i; k++) {
                reached[k] = reached[k] || in->nodes[k]->handle == one->after[j];
            }
        }
    }
}

/* Whether the origin depends on all that the other streams have come to. */
static CUresult check_joined(const capture *one) {
    const graph *made = one->made;
    const capture_place *end = &one->origin->captured;
    CUresult result = CUDA_SUCCESS;
    bool *reached = calloc(made->count + 1, sizeof(*reached));
    if (reached == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    mark_reached(made, end->after, end->after_count, reached);
    for (size_t i = 0; i < made->count; i++) {
        if (!reached[i]) {
            result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        }
    }
    free(reached);
    return result;
}

CUresult capture_end(stream *on, graph **out) {
    capture *one = on->captured.capture;
    if (one == NULL) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (one->origin != on) {
        invalidate(one);
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (one->mode != CU_STREAM_CAPTURE_MODE_RELAXED && one->thread != state_thread()) {
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    const CUresult result =
        one->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : check_joined(one);
    graph *made = one->made;
    finish(one);
    if (result == CUDA_SUCCESS) {
        *out = made;
    } else {
        graph_free(made);
    }
    return result;
}

void capture_leave(stream *on) {
    capture *one = on->captured.capture;
    if (one == NULL) {
        return;
    }
    if (one->origin == on) {
        graph *made = one->made;
        finish(one);
        graph_free(made);
        return;
    }
    invalidate(one);
    one->streams[on->captured.lane] = NULL;
    place_clear(&on->captured);
}

/* ---- what is forbidden meanwhile ----------------------------------------------------------- */

/* cuda.h, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: "a disallowed implicit dependency on a current capture
 * sequence from cudaStreamLegacy". */
static bool is_implied(const capture *one, const stream *legacy) {
    for (unsigned i = 0; i < one->made->lane_count; i++) {
        const stream *other = one->streams[i];
        if (other != NULL && other->owner == legacy->owner &&
            (other->flags & CU_STREAM_NON_BLOCKING) == 0) {
            return true;
        }
    }
    return false;
}

CUresult capture_check_legacy(const stream *on) {
    for (const capture *one = active; one != NULL && on->kind == STREAM_LEGACY; one = one->next) {
        if (is_implied(one, on)) {
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult check_valid(const capture *one) {
    return one->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

/* What a call answers that cannot be captured, and makes the capture invalid. */
static CUresult disturb(capture *one, CUresult why) {
    const CUresult result = check_valid(one);
    invalidate(one);
    return result == CUDA_SUCCESS ? why : result;
}

CUresult capture_check(const stream *on) {
    if (on->captured.capture != NULL) {
        return disturb(on->captured.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    CUresult result = CUDA_SUCCESS;
    for (capture *one = active; one != NULL && on->kind == STREAM_LEGACY; one = one->next) {
        if (is_implied(one, on)) {
            invalidate(one);
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    return result;
}

CUresult capture_check_context(const context *all_of) {
    CUresult result = CUDA_SUCCESS;
    for (capture *one = active; one != NULL; one = one->next) {
        for (unsigned i = 0; i < one->made->lane_count; i++) {
            if (one->streams[i] != NULL && one->streams[i]->owner == all_of) {
                invalidate(one);
                result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            }
        }
    }
    return result;
}

/* cuda.h, cuThreadExchangeStreamCaptureMode. */
static bool is_unsafe(const capture *one) {
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return false;
    }
    if (one->thread == state_thread()) {
        return one->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    }
    return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           one->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_check_unsafe(void) {
    CUresult result = CUDA_SUCCESS;
    for (capture *one = active; one != NULL; one = one->next) {
        if (is_unsafe(one)) {
            invalidate(one);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

/* ---- nodes and what they depend on --------------------------------------------------------- */

CUresult capture_add(stream *on, const operation *todo) {
    capture_place *at = &on->captured;
    node *made;
    CUresult result = check_valid(at->capture);
    if (result == CUDA_SUCCESS && todo->type != CU_GRAPH_NODE_TYPE_EVENT_RECORD &&
        todo->type != CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
        result = operation_check(todo);
    }
    CUgraphNode *after = result == CUDA_SUCCESS ? malloc(sizeof(*after)) : NULL;
    if (result == CUDA_SUCCESS && after == NULL) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        result = graph_add(at->capture->made, at->lane, todo, at->after, at->after_count, &made);
    }
    if (result != CUDA_SUCCESS) {
        free(after);
        return result;
    }
    free(at->after);
    *after = made->handle;
    at->after = after;
    at->after_count = 1;
    return CUDA_SUCCESS;
}

CUresult capture_mark(const stream *on, capture_place *event) {
    const capture_place *at = &on->captured;
    const CUresult result = check_valid(at->capture);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUgraphNode *copy = malloc((at->after_count + 1) * sizeof(*copy));
    if (copy == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (at->after_count > 0) {
        memcpy(copy, at->after, at->after_count * sizeof(*copy));
    }
    capture_forget(event);
    at->capture->references++;
    *event = (capture_place){at->capture, at->lane, copy, at->after_count};
    return CUDA_SUCCESS;
}

/* The nodes of an event are added to those that a stream depends on, each once. */
static CUresult depend_on(capture_place *at, const capture_place *event) {
    CUgraphNode *grown =
        realloc(at->after, (at->after_count + event->after_count + 1) * sizeof(*grown));
    if (grown == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    at->after = grown;
    for (size_t i = 0; i < event->after_count; i++) {
        size_t j = 0;
        while (j < at->after_count && grown[j] != event->after[i]) {
            j++;
        }
        if (j == at->after_count) {
            grown[at->after_count++] = event->after[i];
        }
    }
    return CUDA_SUCCESS;
}

CUresult capture_wait(stream *on, const capture_place *event) {
    capture_place *at = &on->captured;
    capture *theirs = event->capture;
    if (theirs == NULL) {
        return disturb(at->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    if (theirs->origin == NULL) { /* its capture has ended */
        return at->capture == NULL ? CUDA_ERROR_CAPTURED_EVENT
                                   : disturb(at->capture, CUDA_ERROR_CAPTURED_EVENT);
    }
    if (at->capture != NULL && at->capture != theirs) {
        invalidate(theirs);
        return disturb(at->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    const CUresult result = check_valid(theirs);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (on->kind == STREAM_LEGACY) {
        return disturb(theirs, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    return at->capture == NULL ? join(theirs, on, event->after, event->after_count)
                               : depend_on(at, event);
}

CUresult capture_check_event(const capture_place *event) {
    if (event->capture == NULL) {
        return CUDA_SUCCESS;
    }
    invalidate(event->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
}

void capture_forget(capture_place *event) {
    capture_release(event->capture);
    place_clear(event);
}

/* SPDX-License-Identifier: MIT */
/** @file See event.h; and the entry points for events. */
#include "event.h"

#include <stdlib.h>

#include "entry.h"
#include "handle_table.h"
#include "pool.h"

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

CUresult event_find(CUevent handle, event **out) {
    event *what = handle_find(HANDLE_EVENT, (uintptr_t)handle);
    if (what == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const CUresult result = context_health(what->owner->handle);
    if (result == CUDA_SUCCESS) {
        *out = what;
    }
    return result;
}

void event_free(event *what) {
    event **link = &what->owner->events;
    while (*link != what) {
        link = &(*link)->next;
    }
    *link = what->next;
    handle_remove((uintptr_t)what->handle);
    task_release(what->recorded);
    capture_forget(&what->captured);
    event_state_close(&what->shared);
    free(what);
    driver.live.events--;
}

CUresult event_create(context *owner, unsigned flags, event_state shared, event **out) {
    event *what = calloc(1, sizeof(*what));
    if (what == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    what->handle = (CUevent)(uintptr_t)handle_add(HANDLE_EVENT, what);
    if (what->handle == NULL) {
        free(what);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    what->flags = flags;
    what->shared = shared;
    what->owner = owner;
    what->next = owner->events;
    owner->events = what;
    driver.live.events++;
    *out = what;
    return CUDA_SUCCESS;
}

static CUresult create(CUevent *out, unsigned flags) {
    context *current;
    event *what;
    event_state shared = {NULL, 0};
    CUresult result = context_current(&current);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    /* cuda.h: an event for other processes must have its timing disabled. */
    if (out == NULL || (flags & ~(unsigned)EVENT_FLAGS) != 0 ||
        (flags & (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING)) == CU_EVENT_INTERPROCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((flags & CU_EVENT_INTERPROCESS) != 0) {
        result = event_state_create(current->device, &shared);
    }
    if (result == CUDA_SUCCESS) {
        result = event_create(current, flags, shared, &what);
    }
    if (result != CUDA_SUCCESS) {
        event_state_close(&shared);
        return result;
    }
    *out = what->handle;
    return CUDA_SUCCESS;
}

/* Other processes learn of it by its number in the page. */
static CUresult mark_shared(event *what, stream *on, task **out) {
    work *todo;
    const uint64_t record = event_state_record(&what->shared);
    CUresult result = event_state_finish_later(&what->shared, record, &todo);
    if (result == CUDA_SUCCESS) {
        result = stream_submit_point(on, todo, out);
    }
    if (result == CUDA_SUCCESS) {
        what->record = record;
    } else {
        event_state_finish(&what->shared, record); /* as if it had not been */
    }
    return result;
}

CUresult event_record_on(event *what, stream *on) {
    task *point;
    const CUresult result =
        what->shared.page == NULL ? stream_mark(on, &point) : mark_shared(what, on, &point);
    if (result == CUDA_SUCCESS) {
        task_release(what->recorded);
        what->recorded = point;
        capture_forget(&what->captured);
    }
    return result;
}

/* As a node, or as what a captured stream has come to. */
static CUresult capture_event(stream *on, event *what, CUgraphNodeType type, unsigned flags) {
    if (flags != 0) {
        return capture_add(
            on, &(operation){.type = type, .by = on->owner->handle, .as.event = what->handle});
    }
    return type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? capture_mark(on, &what->captured)
                                                   : capture_wait(on, &what->captured);
}

/* The only flag there is, EXTERNAL, is for streams that are captured (the answer is an H200's). */
static CUresult check_flags(unsigned flags, bool is_captured) {
    if (flags != 0 && flags != CU_EVENT_RECORD_EXTERNAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return flags == 0 || is_captured ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

static CUresult event_record(CUevent handle, CUstream stream_handle, unsigned flags) {
    event *what;
    stream *on;
    CUresult result = event_find(handle, &what);
    if (result == CUDA_SUCCESS) {
        result = stream_find(stream_handle, &on);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const bool is_captured = on->captured.capture != NULL;
    if ((result = check_flags(flags, is_captured)) != CUDA_SUCCESS) {
        return result;
    }
    if (what->owner != on->owner) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return is_captured ? capture_event(on, what, CU_GRAPH_NODE_TYPE_EVENT_RECORD, flags)
                       : event_record_on(what, on);
}

static CUresult context_record(CUcontext context_handle, CUevent handle) {
    event *what;
    context *ctx;
    stream *on;
    CUresult result = context_find_healthy(context_handle, &ctx);
    if (result == CUDA_SUCCESS) {
        result = event_find(handle, &what);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (what->owner != ctx) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    result = capture_check_context(ctx);
    if (result == CUDA_SUCCESS) {
        result = stream_behind_all(ctx, &on);
    }
    if (result == CUDA_SUCCESS) {
        result = event_record_on(what, on);
        stream_close(on);
    }
    return result;
}

/* For the latest record, whichever process made it. */
static CUresult wait_shared(stream *on, event *what) {
    work *todo;
    const uint64_t record = event_state_recorded(&what->shared);
    if (event_state_is_done(&what->shared, record)) {
        return capture_check(on);
    }
    if (record == what->record) {
        return stream_wait_for(on, what->recorded);
    }
    const CUresult result = event_state_wait(&what->shared, record, &todo);
    return result == CUDA_SUCCESS ? stream_submit(on, todo) : result;
}

CUresult event_wait_on(stream *on, event *what) {
    return what->shared.page == NULL ? stream_wait_for(on, what->recorded) : wait_shared(on, what);
}

static CUresult event_wait(CUstream stream_handle, CUevent handle, unsigned flags) {
    event *what;
    stream *on;
    CUresult result = event_find(handle, &what);
    if (result == CUDA_SUCCESS) {
        result = stream_find(stream_handle, &on);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const bool is_captured = on->captured.capture != NULL;
    if ((result = check_flags(flags, is_captured)) != CUDA_SUCCESS) {
        return result;
    }
    return is_captured || what->captured.capture != NULL
               ? capture_event(on, what, CU_GRAPH_NODE_TYPE_WAIT_EVENT, flags)
               : event_wait_on(on, what);
}

static bool is_done(const event *what) {
    if (what->shared.page != NULL) {
        return event_state_is_done(&what->shared, event_state_recorded(&what->shared));
    }
    return what->recorded == NULL || what->recorded->is_done;
}

/* For calls that ask how far it is, and may wait for it. */
static CUresult find_to_ask(CUevent handle, event **out) {
    CUresult result = event_find(handle, out);
    if (result == CUDA_SUCCESS) {
        result = capture_check_event(&(*out)->captured);
    }
    return result == CUDA_SUCCESS ? capture_check_unsafe() : result;
}

static CUresult event_query(CUevent handle) {
    event *what;
    CUresult result = find_to_ask(handle, &what);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return is_done(what) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* Until the latest record is done, with the lock released meanwhile; or its own context ends. */
static CUresult synchronize_shared(const event *what) {
    const event_state shared = what->shared;
    const CUcontext owner = what->owner->handle;
    const uint64_t record = event_state_recorded(&shared);
    CUresult result = CUDA_SUCCESS;
    allocation_retain(shared.page); /* another thread may destroy the event meanwhile */
    while (!event_state_is_done(&shared, record) && result == CUDA_SUCCESS) {
        context *found;
        state_unlock();
        os_sleep_ms(1);
        state_lock();
        result = context_find(owner, &found) == CUDA_SUCCESS ? context_health(owner)
                                                             : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    allocation_release(shared.page);
    return result;
}

static CUresult event_synchronize(CUevent handle) {
    event *what;
    CUresult result = find_to_ask(handle, &what);
    if (result == CUDA_SUCCESS && what->shared.page != NULL) {
        return synchronize_shared(what);
    }
    if (result == CUDA_SUCCESS && what->recorded != NULL) {
        task *point = what->recorded;
        task_retain(point); /* another thread may destroy or record the event meanwhile */
        task_wait_done(point);
        result = context_health(point->owner);
        task_release(point);
    }
    return result;
}

static CUresult event_elapsed(float *milliseconds, CUevent start_handle, CUevent end_handle) {
    event *start;
    event *end;
    CUresult result = find_to_ask(start_handle, &start);
    if (result == CUDA_SUCCESS) {
        result = find_to_ask(end_handle, &end);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (milliseconds == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0 || start->recorded == NULL ||
        end->recorded == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!start->recorded->is_done || !end->recorded->is_done) {
        return CUDA_ERROR_NOT_READY;
    }
    const int64_t elapsed_ns = (int64_t)(end->recorded->done_ns - start->recorded->done_ns);
    *milliseconds = (float)((double)elapsed_ns / 1e6);
    return CUDA_SUCCESS;
}

GPUIPC_EXPORTED CUresult cuEventCreate(CUevent *out, unsigned int flags) {
    const CUresult refused = ENTER(cuEventCreate);
    return refused != CUDA_SUCCESS ? refused : entry_leave(create(out, flags));
}

static CUresult event_destroy(CUevent handle) {
    event *what;
    CUresult result = event_find(handle, &what);
    if (result == CUDA_SUCCESS) {
        event_free(what);
    }
    return result;
}

GPUIPC_EXPORTED CUresult cuEventDestroy_v2(CUevent handle) {
    const CUresult refused = ENTER(cuEventDestroy_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(event_destroy(handle));
}

GPUIPC_EXPORTED CUresult cuEventRecord(CUevent handle, CUstream on) {
    const CUresult refused = ENTER(cuEventRecord);
    return refused != CUDA_SUCCESS ? refused : entry_leave(event_record(handle, on, 0));
}

GPUIPC_EXPORTED CUresult cuEventRecordWithFlags(CUevent handle, CUstream on, unsigned int flags) {
    const CUresult refused = ENTER(cuEventRecordWithFlags);
    return refused != CUDA_SUCCESS ? refused : entry_leave(event_record(handle, on, flags));
}

GPUIPC_EXPORTED CUresult cuCtxRecordEvent(CUcontext handle, CUevent recorded) {
    const CUresult refused = ENTER(cuCtxRecordEvent);
    return refused != CUDA_SUCCESS ? refused : entry_leave(context_record(handle, recorded));
}

GPUIPC_EXPORTED CUresult cuStreamWaitEvent(CUstream on, CUevent handle, unsigned int flags) {
    const CUresult refused = ENTER(cuStreamWaitEvent);
    return refused != CUDA_SUCCESS ? refused : entry_leave(event_wait(on, handle, flags));
}

GPUIPC_EXPORTED CUresult cuEventQuery(CUevent handle) {
    const CUresult refused = ENTER(cuEventQuery);
    return refused != CUDA_SUCCESS ? refused : entry_leave(event_query(handle));
}

GPUIPC_EXPORTED CUresult cuEventSynchronize(CUevent handle) {
    const CUresult refused = ENTER(cuEventSynchronize);
    if (refused != CUDA_SUCCESS) {
        return refused;
    }
    const CUresult result = event_synchronize(handle);
    pool_synchronized();
    return entry_leave(result);
}

GPUIPC_EXPORTED CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    const CUresult refused = ENTER(cuEventElapsedTime);
    return refused != CUDA_SUCCESS ? refused : entry_leave(event_elapsed(milliseconds, start, end));
}

GPUIPC_EXPORTED CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    const CUresult refused = ENTER(cuEventElapsedTime_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(event_elapsed(milliseconds, start, end));
}

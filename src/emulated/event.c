/* SPDX-License-Identifier: MIT */
/** @file See event.h; and the entry points for events. */
#include "event.h"

#include <stdlib.h>

#include "entry.h"
#include "handle_table.h"

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

static CUresult event_find(CUevent handle, event **out) {
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
    free(what);
    driver.live.events--;
}

static CUresult event_create(CUevent *out, unsigned flags) {
    context *current;
    CUresult result = context_current(&current);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    /* cuda.h: an event for other processes must have its timing disabled. */
    if (out == NULL || (flags & ~(unsigned)EVENT_FLAGS) != 0 ||
        (flags & (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING)) == CU_EVENT_INTERPROCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
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
    what->owner = current;
    what->next = current->events;
    current->events = what;
    driver.live.events++;
    *out = what->handle;
    return CUDA_SUCCESS;
}

/* The only flag there is, EXTERNAL, belongs to stream capture; so here and for waits. */
static CUresult event_record(CUevent handle, CUstream stream_handle, unsigned flags) {
    event *what;
    stream *on;
    task *point;
    CUresult result = event_find(handle, &what);
    if (result == CUDA_SUCCESS) {
        result = stream_find(stream_handle, &on);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (what->owner != on->owner) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    result = stream_mark(on, &point);
    if (result == CUDA_SUCCESS) {
        task_release(what->recorded);
        what->recorded = point;
    }
    return result;
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
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return stream_wait_for(on, what->recorded);
}

static CUresult event_query(CUevent handle) {
    event *what;
    CUresult result = event_find(handle, &what);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return what->recorded == NULL || what->recorded->is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_synchronize(CUevent handle) {
    event *what;
    CUresult result = event_find(handle, &what);
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
    CUresult result = event_find(start_handle, &start);
    if (result == CUDA_SUCCESS) {
        result = event_find(end_handle, &end);
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
    return refused != CUDA_SUCCESS ? refused : entry_leave(event_create(out, flags));
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
    return refused != CUDA_SUCCESS ? refused : entry_leave(event_synchronize(handle));
}

GPUIPC_EXPORTED CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    const CUresult refused = ENTER(cuEventElapsedTime);
    return refused != CUDA_SUCCESS ? refused : entry_leave(event_elapsed(milliseconds, start, end));
}

GPUIPC_EXPORTED CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    const CUresult refused = ENTER(cuEventElapsedTime_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(event_elapsed(milliseconds, start, end));
}

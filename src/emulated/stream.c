/* SPDX-License-Identifier: MIT */
/** @file See stream.h. */
#include "stream.h"

#include <stdlib.h>

#include "capture.h"
#include "handle_table.h"

static void stream_destroy(stream *on) {
    stream **link = &on->owner->streams;
    while (*link != on) {
        link = &(*link)->next;
    }
    *link = on->next;
    if (on->worker != NULL) {
        os_thread_join(on->worker); /* it has said that it ended, and takes the lock no more */
    }
    task_release(on->latest);
    free(on);
}

void stream_free_finished(context *owner) {
    stream *next;
    for (stream *on = owner->streams; on != NULL; on = next) {
        next = on->next;
        if (on->is_finished && !on->is_awaited) {
            stream_destroy(on);
        }
    }
}

static void run_next(stream *on) {
    task *next = on->first;
    task_wait_ready(next);
    const unsigned delay_ms = driver.stream_delay_ms;
    if (next->todo != NULL && delay_ms > 0) {
        state_unlock();
        os_sleep_ms(delay_ms);
        state_lock();
    }
    task_run(next);
    on->first = next->next;
    if (next->ends_call) {
        on->calls--;
        state_announce();
    }
    task_release(next);
}

void stream_count_call(stream *on) {
    if (on->captured.capture == NULL) {
        on->last->ends_call = true;
        on->calls++;
    }
}

static void run_stream(void *argument) {
    stream *on = argument;
    state_lock();
    while (on->first != NULL || !on->is_closed) {
        if (on->first == NULL) {
            state_wait();
        } else {
            run_next(on);
        }
    }
    on->is_finished = true;
    state_announce();
    state_unlock();
}

/* Of all streams that were ever made. The driver's mutex is held. */
static unsigned long long last_id;

static CUresult stream_new(context *owner, stream_kind kind, stream **out) {
    stream_free_finished(owner);
    stream *on = calloc(1, sizeof(*on));
    if (on == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    on->kind = kind;
    on->id = ++last_id;
    on->owner = owner;
    on->next = owner->streams;
    owner->streams = on;
    *out = on;
    return CUDA_SUCCESS;
}

CUresult stream_create(context *owner, unsigned flags, int priority, stream **out) {
    stream *on;
    CUresult result = stream_new(owner, STREAM_MADE, &on);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    on->handle = (CUstream)(uintptr_t)handle_add(HANDLE_STREAM, on);
    if (on->handle == NULL) {
        stream_destroy(on);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    on->flags = flags;
    on->priority = priority;
    driver.live.streams++;
    *out = on;
    return CUDA_SUCCESS;
}

CUresult stream_create_lane(context *owner, stream **out) {
    const CUresult result = stream_new(owner, STREAM_LANE, out);
    if (result == CUDA_SUCCESS) {
        (*out)->flags = CU_STREAM_NON_BLOCKING;
    }
    return result;
}

static CUresult find_default(context *owner, stream_kind kind, stream **out) {
    const void *thread = kind == STREAM_PER_THREAD ? state_thread() : NULL;
    for (stream *on = owner->streams; on != NULL; on = on->next) {
        if (on->kind == kind && on->thread == thread) {
            *out = on;
            return CUDA_SUCCESS;
        }
    }
    CUresult result = stream_new(owner, kind, out);
    if (result == CUDA_SUCCESS) {
        (*out)->thread = thread;
    }
    return result;
}

CUresult stream_legacy(context *owner, stream **out) {
    return find_default(owner, STREAM_LEGACY, out);
}

CUresult stream_behind_all(context *owner, stream **out) {
    const CUresult result = stream_new(owner, STREAM_BEHIND_ALL, out);
    if (result == CUDA_SUCCESS) {
        (*out)->flags = CU_STREAM_NON_BLOCKING; /* nothing waits for it but who has its points */
    }
    return result;
}

CUresult stream_find(CUstream handle, stream **out) {
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        context *current;
        CUresult result = context_current(&current);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        return find_default(
            current, handle == CU_STREAM_PER_THREAD ? STREAM_PER_THREAD : STREAM_LEGACY, out);
    }
    stream *on = handle_find(HANDLE_STREAM, (uintptr_t)handle);
    if (on == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const CUresult result = context_health(on->owner->handle);
    if (result == CUDA_SUCCESS) {
        *out = on;
    }
    return result;
}

/* Whether the legacy default stream waits for another and the other for it: all but those made
 * with CU_STREAM_NON_BLOCKING (CUDA runtime API, "Stream synchronization behavior"). */
static bool is_tied(const stream *one, const stream *other) {
    return one != other && (one->kind == STREAM_LEGACY) != (other->kind == STREAM_LEGACY) &&
           ((one->flags | other->flags) & CU_STREAM_NON_BLOCKING) == 0;
}

/* What a task on a stream must wait for. */
static CUresult wait_for_earlier(stream *on, task *one) {
    if (!task_add_after(one, on->latest)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (const stream *other = on->owner->streams; other != NULL; other = other->next) {
        const bool is_behind = on->kind == STREAM_BEHIND_ALL || is_tied(on, other);
        if (is_behind && !task_add_after(one, other->latest)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return CUDA_SUCCESS;
}

static void set_latest(stream *on, task *one) {
    task_retain(one);
    task_release(on->latest);
    on->latest = one;
}

/* Appends a task; the queue has a reference of its own. */
static CUresult enqueue(stream *on, task *one) {
    if (on->worker == NULL) {
        gpuipc_status status = os_thread_start(run_stream, on, &on->worker);
        if (status != GPUIPC_OK) {
            on->worker = NULL;
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    task_retain(one);
    if (on->first == NULL) {
        on->first = one;
    } else {
        on->last->next = one;
    }
    on->last = one;
    set_latest(on, one);
    state_announce();
    return CUDA_SUCCESS;
}

/* A task with all that it must wait for; the caller's reference. */
static CUresult prepare(stream *on, work *todo, task **out) {
    CUresult result = capture_check(on);
    task *one = result == CUDA_SUCCESS ? task_new(on->owner->handle, todo) : NULL;
    if (one == NULL) {
        work_free(todo);
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    }
    result = wait_for_earlier(on, one);
    if (result != CUDA_SUCCESS) {
        task_release(one);
        return result;
    }
    *out = one;
    return CUDA_SUCCESS;
}

CUresult stream_submit_point(stream *on, work *todo, task **out) {
    task *one;
    CUresult result = prepare(on, todo, &one);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = enqueue(on, one);
    if (result != CUDA_SUCCESS) {
        task_release(one);
        return result;
    }
    *out = one;
    return CUDA_SUCCESS;
}

CUresult stream_submit(stream *on, work *todo) {
    task *one;
    const CUresult result = stream_submit_point(on, todo, &one);
    if (result == CUDA_SUCCESS) {
        task_release(one);
    }
    return result;
}

CUresult stream_run(stream *on, work *todo) {
    task *one;
    CUresult result = prepare(on, todo, &one);
    if (result == CUDA_SUCCESS) {
        /* Done by this thread, not by the worker: what comes later waits for it all the same. */
        set_latest(on, one);
        task_wait_ready(one);
        task_run(one);
        result = context_health(one->owner);
        task_release(one);
    }
    return result;
}

CUresult stream_mark(stream *on, task **out) {
    task *one;
    CUresult result = prepare(on, NULL, &one);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (task_is_ready(one)) {
        set_latest(on, one);
        task_run(one);
    } else {
        result = enqueue(on, one);
    }
    if (result != CUDA_SUCCESS) {
        task_release(one);
        return result;
    }
    *out = one;
    return CUDA_SUCCESS;
}

CUresult stream_wait_for(stream *on, task *point) {
    task *one;
    if (point == NULL || point->is_done) {
        return capture_check(on);
    }
    CUresult result = prepare(on, NULL, &one);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = task_add_after(one, point) ? enqueue(on, one) : CUDA_ERROR_OUT_OF_MEMORY;
    task_release(one);
    return result;
}

/* A point behind all that the stream has, outside of it. */
static CUresult stream_end(stream *on, task **out) {
    CUresult result = capture_check(on);
    task *one = result == CUDA_SUCCESS ? task_new(on->owner->handle, NULL) : NULL;
    if (one == NULL) {
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    }
    if (on->kind == STREAM_LEGACY) {
        result = wait_for_earlier(on, one);
    } else if (!task_add_after(one, on->latest)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        task_release(one);
        return result;
    }
    *out = one;
    return CUDA_SUCCESS;
}

CUresult stream_query(stream *on) {
    task *end;
    CUresult result = stream_end(on, &end);
    if (result == CUDA_SUCCESS) {
        result = task_is_ready(end) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
        task_release(end);
    }
    return result;
}

CUresult stream_synchronize(stream *on) {
    task *end;
    CUresult result = stream_end(on, &end);
    if (result == CUDA_SUCCESS) {
        task_wait_ready(end);
        result = context_health(end->owner);
        task_release(end);
    }
    return result;
}

static task *unfinished(const context *owner) {
    for (stream *on = owner->streams; on != NULL; on = on->next) {
        if (on->latest != NULL && !on->latest->is_done) {
            return on->latest;
        }
    }
    return NULL;
}

/* A point behind all that is queued now. NULL when there is no memory for it. */
static task *point_behind_all(const context *owner) {
    task *point = task_new(owner->handle, NULL);
    for (stream *on = owner->streams; on != NULL && point != NULL; on = on->next) {
        if (on->latest != NULL && !on->latest->is_done && !task_add_after(point, on->latest)) {
            task_release(point);
            point = NULL;
        }
    }
    return point;
}

/* What other threads queue meanwhile is not waited for, and the context may be destroyed meanwhile: it
 * is not looked at again before it has been found once more. */
static void wait_for_all(context *owner) {
    task *latest;
    task *point = point_behind_all(owner);
    if (point != NULL) {
        task_wait_ready(point);
        task_release(point);
        return;
    }
    while ((latest = unfinished(owner)) != NULL) {
        task_retain(latest); /* its stream may be closed meanwhile */
        task_wait_done(latest);
        task_release(latest);
    }
}

void stream_wait_context(context *owner) {
    const CUcontext handle = owner->handle;
    stream_free_finished(owner); /* also of a context that is ending, which is not found any more */
    wait_for_all(owner);
    if (context_find(handle, &owner) == CUDA_SUCCESS) {
        stream_free_finished(owner);
    }
}

void stream_wait_context_alone(context *owner) {
    state_keep_out();
    stream_wait_context(owner);
    state_let_in();
}

void stream_close(stream *on) {
    capture_leave(on);
    if (on->handle != NULL) {
        handle_remove((uintptr_t)on->handle);
        on->handle = NULL;
        driver.live.streams--;
    }
    on->is_closed = true;
    if (on->worker == NULL) {
        stream_destroy(on);
        return;
    }
    state_announce();
    if (on->first == NULL) {
        on->is_awaited = true;
        while (!on->is_finished) {
            state_wait();
        }
        stream_destroy(on);
    }
}

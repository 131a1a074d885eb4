/* SPDX-License-Identifier: MIT */
/** @file Waiting until the contents of a buffer that was received or opened are there. */
#include "memory/buffer.h"
#include "sync/point_wait.h"

/* Whose record it is: a view has what it is over, which is not always this process's own. */
static const buffer *holder_of(const buffer *self) {
    return self->is_view && self->import_record == NULL ? self->over : self;
}

/* NULL: there is nothing to wait for. */
static import_record *record_of(const buffer *self) {
    import_record *of = holder_of(self)->import_record;
    return of != NULL && of->ready.page != NULL ? of : NULL;
}

bool buffer_is_ready(const buffer *self) {
    const import_record *of = record_of(self);
    return of == NULL || point_is_reached(&of->ready);
}

static bool is_lost(const buffer *self) {
    const import_record *of = record_of(self);
    return of != NULL && atomic_load(&of->is_lost);
}

bool buffer_has_contents(const buffer *self) {
    return buffer_is_ready(self) && !is_lost(self);
}

gpuipc_status buffer_check_contents(const buffer *self) {
    return is_lost(self) ? status_fail(GPUIPC_ERR_LOST,
                                       "the other process ended before the contents were ready")
                         : GPUIPC_OK;
}

/* A page is watched in the context that it came to. @param is_alone see point_waiter */
static gpuipc_status await_on_stream(buffer *self, gpuipc_stream stream, bool is_alone,
                                     bool *out_can) {
    import_record *of = record_of(self);
    const point_waiter by = {.context = holder_of(self)->context,
                             .stream = stream,
                             .device = self->access_device,
                             .of = of,
                             .is_alone = is_alone};
    point_word passage;
    gpuipc_status status = point_can_wait(&by, out_can, NULL);
    return status == GPUIPC_OK && *out_can ? point_wait(&by, &of->ready, 1, &passage) : status;
}

static gpuipc_status await_on_host(buffer *self, const atomic_bool *interrupted,
                                   os_deadline deadline) {
    import_record *of = record_of(self);
    gpuipc_status status = point_await(&of->ready, 1, interrupted, deadline);
    if (status == GPUIPC_ERR_LOST) {
        atomic_store(&of->is_lost, true);
    }
    return status;
}

/* The one way to wait for them. @param interrupted NULL: nothing ends it before */
static gpuipc_status await(buffer *self, bool by_stream, gpuipc_stream stream, bool is_alone,
                           const atomic_bool *interrupted, os_deadline deadline) {
    bool can = false;
    gpuipc_status status = GPUIPC_OK;
    if (buffer_is_ready(self)) {
        return GPUIPC_OK;
    }
    if (atomic_exchange(&record_of(self)->is_awaited, true)) {
        is_alone = false;
    }
    if (by_stream) {
        status = await_on_stream(self, stream, is_alone, &can);
    }
    return status != GPUIPC_OK || can ? status : await_on_host(self, interrupted, deadline);
}

gpuipc_status buffer_await_contents(buffer *self, uint32_t flags, gpuipc_stream stream,
                                    os_deadline deadline) {
    const bool by_stream = (flags & GPUIPC_RECEIVE_ASYNC) != 0;
    return await(self, by_stream, stream, atomic_load(&self->handles) <= 1, &self->context->is_over,
                 deadline);
}

/* ---- the calls ----------------------------------------------------------------------------- */

/* The buffer, unless it has been returned, or its contents never come. */
static gpuipc_status acquire(gpuipc_buffer *handle, buffer **out_buffer) {
    buffer *self;
    gpuipc_status status = buffer_acquire(handle, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = buffer_check_range(self, 0, 0);
    if (status == GPUIPC_OK) {
        status = buffer_check_contents(self);
    }
    if (status != GPUIPC_OK) {
        buffer_unwind(self);
        return status;
    }
    *out_buffer = self;
    return GPUIPC_OK;
}

/* Others may begin to wait at any time, so nobody is alone. */
gpuipc_status gpuipc_buffer_await_ready(gpuipc_buffer *handle, int timeout_ms) {
    status_enter(__func__);
    if (timeout_ms < -1) {
        return status_bad_timeout(timeout_ms);
    }
    const os_deadline deadline = os_deadline_after(timeout_ms);
    os_interrupt interrupt;
    buffer *self;
    gpuipc_status status = acquire(handle, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = await(self, false, NULL, false, NULL,
                   context_interruptible(self->context, deadline, &interrupt));
    status = context_answer(self->context, &interrupt, status);
    if (status == GPUIPC_OK) { /* the word may have been stored for a stream that waits as well */
        status = buffer_check_contents(self);
    }
    buffer_unwind(self);
    return status;
}

gpuipc_status gpuipc_buffer_await_ready_async(gpuipc_buffer *handle, gpuipc_stream stream) {
    status_enter(__func__);
    buffer *self;
    gpuipc_status status = acquire(handle, &self);
    if (status == GPUIPC_OK) {
        status = await(self, true, stream, false, NULL, os_deadline_after(-1));
        buffer_unwind(self);
    }
    return status;
}

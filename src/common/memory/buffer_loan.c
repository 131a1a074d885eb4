/* SPDX-License-Identifier: MIT */
/** @file Loans of parts of buffers: lent, taken, returned. */
#include "memory/buffer_mark.h"
#include "sync/loan.h"
#include "sync/loan_taken.h"
#include "sync/point_wait.h"

/* The buffer behind a handle, with a reference for the caller, where there is a loan that it is about. */
static gpuipc_status acquire(gpuipc_buffer *handle, const gpuipc_mark *loan, buffer **out_buffer) {
    return loan != NULL ? buffer_acquire(handle, out_buffer)
                        : status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "loan is NULL");
}

/* ---- lending ----------------------------------------------------------------------------------- */

/* In the stream's CUDA context. A stream that is done has nothing to say, and nobody has to wait for it. */
static gpuipc_status lend(buffer *self, gpuipc_stream stream, mark *out_mark) {
    context *ctx = self->context;
    gpuipc_status status = device_check_capture(ctx, stream);
    if (status != GPUIPC_OK) {
        return status;
    }
    return device_stream_is_idle(ctx, stream) ? loan_lend_ready(ctx, &self->loans, out_mark)
                                              : loan_lend(ctx, &self->loans, stream, out_mark);
}

gpuipc_status gpuipc_buffer_lend(gpuipc_buffer *handle, gpuipc_stream stream,
                                 gpuipc_mark *out_loan) {
    status_enter(__func__);
    return out_loan == NULL ? status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_loan is NULL")
                            : buffer_make_mark(handle, stream, out_loan, lend);
}

gpuipc_status gpuipc_buffer_lend_ready(gpuipc_buffer *handle, gpuipc_mark *out_loan) {
    status_enter(__func__);
    buffer *self = NULL;
    mark made;
    gpuipc_status status = acquire(handle, out_loan, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = loan_lend_ready(self->context, &self->loans, &made);
    if (status == GPUIPC_OK) {
        mark_encode(&made, out_loan);
    }
    buffer_unreference(self);
    return status;
}

gpuipc_status gpuipc_buffer_get_loan_states(gpuipc_buffer *handle, const gpuipc_mark *loans,
                                            size_t count, gpuipc_loan_state *out_states) {
    status_enter(__func__);
    buffer *self = NULL;
    if (count > 0 && (loans == NULL || out_states == NULL)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "%s is NULL",
                           loans == NULL ? "loans" : "out_states");
    }
    gpuipc_status status = buffer_acquire(handle, &self);
    if (status == GPUIPC_OK) {
        status = loan_look(self->context, loans, count, out_states);
        buffer_unreference(self);
    }
    return status;
}

gpuipc_status gpuipc_buffer_cancel_loan(gpuipc_buffer *handle, const gpuipc_mark *loan) {
    status_enter(__func__);
    buffer *self = NULL;
    gpuipc_status status = acquire(handle, loan, &self);
    if (status == GPUIPC_OK) {
        status = loan_cancel(self->context, loan);
        buffer_unreference(self);
    }
    return status;
}

/* ---- waiting ------------------------------------------------------------------------------------ */

/* Until it is in that state or a later one. */
static gpuipc_status await_state(context *ctx, const gpuipc_mark *loan, gpuipc_loan_state wanted,
                                 os_deadline deadline) {
    unsigned pause = 0;
    for (;;) {
        gpuipc_loan_state state = GPUIPC_LOAN_LENT;
        gpuipc_status status = loan_look(ctx, loan, 1, &state);
        if (status != GPUIPC_OK || state >= wanted) {
            return status;
        }
        if (atomic_load(&ctx->is_over)) {
            return status_fail(GPUIPC_ERR_RELEASED, "the context was destroyed");
        }
        if (os_deadline_passed(deadline)) {
            return status_fail(GPUIPC_ERR_TIMEOUT, "the loan %s",
                               state == GPUIPC_LOAN_LENT ? "was taken by nobody"
                                                         : "was taken, and is not returned");
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
}

gpuipc_status gpuipc_buffer_await_loan(gpuipc_buffer *handle, const gpuipc_mark *loan,
                                       int timeout_ms) {
    status_enter(__func__);
    if (timeout_ms < -1) {
        return status_bad_timeout(timeout_ms);
    }
    const os_deadline deadline = os_deadline_after(timeout_ms);
    os_interrupt interrupt;
    buffer *self = NULL;
    gpuipc_status status = acquire(handle, loan, &self);
    if (status == GPUIPC_OK) {
        status = await_state(self->context, loan, GPUIPC_LOAN_OVER,
                             context_interruptible(self->context, deadline, &interrupt));
        status = context_answer(self->context, &interrupt, status);
        buffer_unreference(self);
    }
    return status;
}

static gpuipc_status wait_for_words(buffer *self, const gpuipc_mark *loan, const point_waiter *by) {
    point_words words = {0};
    point_word passage;
    gpuipc_loan_state state;
    gpuipc_status status = loan_copy_awaited(self->context, loan, &words, &state);
    if (status == GPUIPC_OK && words.count > 0) {
        status = point_wait(by, words.words, words.count, &passage);
    }
    point_words_destroy(&words, false);
    return status;
}

/* The stream has to know whose word it waits for, so the host waits until somebody has taken it. */
static gpuipc_status await_on_stream(buffer *self, const gpuipc_mark *loan, gpuipc_stream stream,
                                     os_deadline deadline) {
    const point_waiter by = {
        .context = self->context, .stream = stream, .device = self->access_device};
    bool can = false;
    gpuipc_status status = point_can_wait(&by, &can, NULL);
    if (status == GPUIPC_OK) {
        status =
            await_state(self->context, loan, can ? GPUIPC_LOAN_TAKEN : GPUIPC_LOAN_OVER, deadline);
    }
    return status == GPUIPC_OK && can ? wait_for_words(self, loan, &by) : status;
}

gpuipc_status gpuipc_buffer_await_loan_async(gpuipc_buffer *handle, const gpuipc_mark *loan,
                                             gpuipc_stream stream, int timeout_ms) {
    status_enter(__func__);
    if (timeout_ms < -1) {
        return status_bad_timeout(timeout_ms);
    }
    const os_deadline deadline = os_deadline_after(timeout_ms);
    os_interrupt interrupt;
    buffer *self = NULL;
    gpuipc_status status = acquire(handle, loan, &self);
    if (status == GPUIPC_OK) {
        status = await_on_stream(self, loan, stream,
                                 context_interruptible(self->context, deadline, &interrupt));
        status = context_answer(self->context, &interrupt, status);
        buffer_unreference(self);
    }
    return status;
}

/* ---- borrowing ---------------------------------------------------------------------------------- */

static gpuipc_status find(gpuipc_buffer *handle, const gpuipc_mark *loan, buffer **out_buffer,
                          mark *out_mark) {
    return loan != NULL ? buffer_find_mark(handle, loan, out_buffer, out_mark)
                        : status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "loan is NULL");
}

static gpuipc_status do_with(gpuipc_buffer *handle, const gpuipc_mark *loan,
                             gpuipc_status (*act)(import_record *of, const mark *wanted)) {
    buffer *self = NULL;
    mark wanted;
    gpuipc_status status = find(handle, loan, &self, &wanted);
    if (status == GPUIPC_OK) {
        status = act(self->import_record, &wanted);
        buffer_unreference(self);
    }
    return status;
}

gpuipc_status gpuipc_buffer_take_loan(gpuipc_buffer *handle, const gpuipc_mark *loan) {
    status_enter(__func__);
    return do_with(handle, loan, loan_take);
}

gpuipc_status gpuipc_buffer_return_loan(gpuipc_buffer *handle, const gpuipc_mark *loan) {
    status_enter(__func__);
    return do_with(handle, loan, loan_return);
}

gpuipc_status gpuipc_buffer_drop_loan(gpuipc_buffer *handle, const gpuipc_mark *loan) {
    status_enter(__func__);
    buffer *self = NULL;
    mark wanted;
    gpuipc_status status = find(handle, loan, &self, &wanted);
    if (status == GPUIPC_OK) {
        status = loan_drop(self->import_record, &wanted, &self->object, buffer_users(self));
        buffer_unreference(self);
    }
    return status;
}

static gpuipc_status return_on_stream(buffer *self, const mark *wanted, gpuipc_stream stream) {
    device_scope scope;
    gpuipc_status status =
        device_enter_uncaptured(self->context, stream, self->access_device, &scope);
    if (status == GPUIPC_OK) {
        status = loan_return_async(self->import_record, wanted, stream);
        device_leave(&scope);
    }
    return status;
}

gpuipc_status gpuipc_buffer_return_loan_async(gpuipc_buffer *handle, const gpuipc_mark *loan,
                                              gpuipc_stream stream) {
    status_enter(__func__);
    buffer *self = NULL;
    mark wanted;
    gpuipc_status status = find(handle, loan, &self, &wanted);
    if (status == GPUIPC_OK) {
        status = return_on_stream(self, &wanted, stream);
        buffer_unreference(self);
    }
    return status;
}

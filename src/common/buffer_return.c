/* SPDX-License-Identifier: MIT */
/** @file Returning a buffer that was received, on a stream. */
#include "buffer.h"
#include "opening.h"

#define OPERATION "gpuipc_buffer_return_async"

/* The closing of the memory is told behind the stream's write. */
static void follow(context *ctx, borrow *of, const point_word *passage, gpuipc_stream stream) {
    if (!of->ends_with_owner || point_has_passed(ctx, passage)) {
        return;
    }
    of->passage = *passage;
    const gpuipc_error why = status_save();
    if (watch_add_return(&ctx->watch, of) != GPUIPC_OK) {
        /* No memory, no thread: when the stream has passed, nobody need look. */
        (void)ctx->driver.cuStreamSynchronize(stream);
    }
    status_restore(&why);
}

static gpuipc_status write_point(buffer *self, gpuipc_stream stream) {
    context *ctx = self->context;
    borrow *of = self->borrow;
    /* Where the lender may free at once, this is all that it waits for. */
    const point_word word =
        of->ends_with_owner ? point_returned_word(&of->at) : point_released_word(&of->at);
    point_word passage;
    device_scope scope;
    gpuipc_status status = device_enter_stream(ctx, stream, self->access_device, &scope);
    if (status == GPUIPC_OK) {
        status = device_check_capture(ctx, stream);
        if (status == GPUIPC_OK) {
            status = point_write_async(of->page, &word, 1, stream, &passage);
        }
        if (status == GPUIPC_OK) {
            follow(ctx, of, &passage, stream);
        }
        device_leave(&scope);
    }
    return status;
}

static gpuipc_status give_back(buffer *self, gpuipc_stream stream) {
    if (self->borrow == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, OPERATION,
                           "the buffer was not received over a connection");
    }
    if (atomic_exchange(&self->borrow->is_returned, true)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, OPERATION,
                           "the buffer has been returned already");
    }
    if (!opening_leave_alone(self)) {
        atomic_store(&self->borrow->is_returned, false);
        return status_fail(
            GPUIPC_ERR_INVALID_ARGUMENT, OPERATION,
            "the buffer is open more than once in this process, or just being opened "
            "again; it is returned when all have released it");
    }
    gpuipc_status status = self->borrow->page == NULL ? GPUIPC_OK : write_point(self, stream);
    if (status != GPUIPC_OK) {
        atomic_store(&self->borrow->is_returned, false);
    }
    return status;
}

gpuipc_status gpuipc_buffer_return_async(gpuipc_buffer *handle, gpuipc_stream stream) {
    buffer *self;
    gpuipc_status status = buffer_acquire(handle, OPERATION, &self);
    if (status == GPUIPC_OK) {
        status = give_back(self, stream);
        buffer_unreference(self);
    }
    return status;
}

/* SPDX-License-Identifier: MIT */
/** @file Returning a buffer that was received, and releasing any, on a stream. */
#include "memory/buffer.h"
#include "sync/watch.h"

/* The closing of the memory is told behind the stream's write. */
static void follow(context *ctx, import_record *of, const point_word *passage,
                   gpuipc_stream stream) {
    if (!of->ends_with_owner || point_is_reached(passage)) {
        return;
    }
    of->passage = *passage;
    const gpuipc_error why = status_save();
    if (watch_add_return(ctx, of) != GPUIPC_OK) {
        /* No memory, no thread: when the stream has passed, nobody need look. */
        (void)ctx->driver.cuStreamSynchronize(stream);
    }
    status_restore(&why);
}

static gpuipc_status write_point(buffer *self, gpuipc_stream stream) {
    context *ctx = self->context;
    import_record *of = self->import_record;
    /* Where the exporter may free at once, this is all that it waits for. */
    const point_word word =
        of->ends_with_owner ? point_returned_word(&of->at) : point_released_word(&of->at);
    point_word passage;
    device_scope scope;
    gpuipc_status status = device_enter_uncaptured(ctx, stream, self->access_device, &scope);
    if (status == GPUIPC_OK) {
        status = point_write_async(&word, 1, stream, &passage);
        if (status == GPUIPC_OK) {
            follow(ctx, of, &passage, stream);
        }
        device_leave(&scope);
    }
    return status;
}

gpuipc_status buffer_return(buffer *self, gpuipc_stream stream) {
    if (self->import_record == NULL || (self->is_view && self->import_record->at.page == NULL)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "the buffer was not received, or it was opened by a ticket of this same "
                           "process; release it");
    }
    if (self->finder != NULL && !self->finder->leave_alone(self)) {
        return status_fail(
            GPUIPC_ERR_INVALID_ARGUMENT,
            "the buffer is open more than once in this process, or just being opened "
            "again; it is returned when all have released it");
    }
    /* Not before: another opening of it would be refused in between. */
    if (atomic_exchange(&self->import_record->is_returned, true)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "the buffer has been returned already");
    }
    gpuipc_status status =
        self->import_record->at.page == NULL ? GPUIPC_OK : write_point(self, stream);
    if (status != GPUIPC_OK) {
        atomic_store(&self->import_record->is_returned, false);
    }
    return status;
}

gpuipc_status gpuipc_buffer_return_async(gpuipc_buffer *handle, gpuipc_stream stream) {
    status_enter(__func__);
    buffer *self;
    gpuipc_status status = buffer_acquire(handle, &self);
    if (status == GPUIPC_OK) {
        status = buffer_return(self, stream);
        buffer_unreference(self);
    }
    return status;
}

/* In the stream's CUDA context. Where the return cannot be written now, it is when the memory is unmapped. */
static void return_if_last(buffer *self, gpuipc_stream stream) {
    if (self->import_record != NULL && !atomic_load(&self->import_record->is_returned) &&
        atomic_load(&self->handles) == 1) {
        const gpuipc_error why = status_save();
        (void)buffer_return(self, stream);
        status_restore(&why);
    }
}

void buffer_release_behind(buffer *self, struct drop_passing *passing, gpuipc_stream stream) {
    context *ctx = self->context;
    if (!drop_pass(ctx, passing, self, buffer_unreference_handle, stream)) {
        drop_passing_destroy(ctx, passing);
        drop_add(ctx, &self->dropped, self, buffer_unreference_handle, GPUIPC_DEVICE_NONE);
    }
}

static gpuipc_status release_behind(context *ctx, gpuipc_buffer *handle, gpuipc_stream stream) {
    buffer *self;
    struct drop_passing *passing;
    gpuipc_status status = drop_passing_new(ctx, &passing);
    if (status != GPUIPC_OK) {
        return status;
    }
    if ((status = buffer_take_hold(handle, &self)) != GPUIPC_OK) {
        drop_passing_destroy(ctx, passing);
        return status;
    }
    return_if_last(self, stream);
    buffer_release_behind(self, passing, stream);
    return GPUIPC_OK;
}

/* The call has no reference of its own on the buffer when the thread may give up the last one: a buffer that ended here, behind
 * that, would wait for the next call to be freed (drop.c). */
gpuipc_status gpuipc_buffer_release_async(gpuipc_buffer *handle, gpuipc_stream stream) {
    status_enter(__func__);
    buffer *self;
    device_scope scope;
    if (handle == NULL) {
        return GPUIPC_OK;
    }
    gpuipc_status status = buffer_acquire(handle, &self);
    if (status == GPUIPC_ERR_FORKED) {
        return buffer_release(handle); /* which makes no driver call there */
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    context *ctx = self->context;
    const uint32_t index = self->access_device;
    object_reference(&ctx->object);
    buffer_unreference(self);
    status = device_enter_uncaptured(ctx, stream, index, &scope);
    if (status == GPUIPC_OK) {
        status = release_behind(ctx, handle, stream);
        device_leave(&scope);
    }
    context_unreference(ctx);
    return status;
}

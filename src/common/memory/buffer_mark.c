/* SPDX-License-Identifier: MIT */
/** @file Marks of buffers, made and waited for. */
#include "memory/buffer_mark.h"

/* ---- making ------------------------------------------------------------------------------------ */

static gpuipc_status check_can_capture(const context *ctx) {
    return point_has_stream_waits(ctx)
               ? GPUIPC_OK
               : status_fail(GPUIPC_ERR_NOT_SUPPORTED,
                             "streams of this device do not write words by themselves, so a graph "
                             "cannot");
}

/* In the stream's CUDA context. */
static gpuipc_status write_mark(buffer *self, gpuipc_stream stream, mark *out_mark) {
    context *ctx = self->context;
    gpuipc_status status;
    if (device_is_captured(ctx, stream)) {
        status = check_can_capture(ctx);
        return status == GPUIPC_OK ? mark_capture_write(ctx, stream, &self->captures, out_mark)
                                   : status;
    }
    status = device_check_capture(ctx, stream);
    return status == GPUIPC_OK ? mark_write(ctx, stream, out_mark) : status;
}

gpuipc_status buffer_make_mark(gpuipc_buffer *handle, gpuipc_stream stream, gpuipc_mark *out_mark,
                               gpuipc_status (*make)(buffer *self, gpuipc_stream stream,
                                                     mark *out_mark)) {
    buffer *self;
    mark made;
    device_scope scope;
    gpuipc_status status = buffer_acquire(handle, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = device_enter_stream(self->context, stream, self->access_device, &scope);
    if (status == GPUIPC_OK) {
        status = make(self, stream, &made);
        device_leave(&scope);
    }
    if (status == GPUIPC_OK) {
        mark_encode(&made, out_mark);
    }
    buffer_unreference(self);
    return status;
}

gpuipc_status gpuipc_buffer_mark(gpuipc_buffer *handle, gpuipc_stream stream,
                                 gpuipc_mark *out_mark) {
    status_enter(__func__);
    return out_mark == NULL ? status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_mark is NULL")
                            : buffer_make_mark(handle, stream, out_mark, write_mark);
}

/* ---- waiting ----------------------------------------------------------------------------------- */

gpuipc_status buffer_find_mark(gpuipc_buffer *handle, const gpuipc_mark *bytes, buffer **out_buffer,
                               mark *out_mark) {
    buffer *self;
    gpuipc_status status = buffer_acquire(handle, &self);
    if (status == GPUIPC_OK && (status = mark_decode(bytes, out_mark)) != GPUIPC_OK) {
        buffer_unreference(self);
    }
    if (status == GPUIPC_OK) {
        *out_buffer = self;
    }
    return status;
}

/* The same, and the word of a mark there. */
static gpuipc_status find(gpuipc_buffer *handle, const gpuipc_mark *bytes, buffer **out_buffer,
                          mark *out_mark, point_word *out_word) {
    if (bytes == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "mark is NULL");
    }
    gpuipc_status status = buffer_find_mark(handle, bytes, out_buffer, out_mark);
    if (status == GPUIPC_OK &&
        (status = mark_word((*out_buffer)->import_record, out_mark, out_word)) != GPUIPC_OK) {
        buffer_unreference(*out_buffer);
    }
    return status;
}

static gpuipc_status wait_for(buffer *self, const mark *wanted, const point_word *word,
                              gpuipc_stream stream) {
    const point_waiter by = {.context = self->context,
                             .stream = stream,
                             .device = self->access_device,
                             .of = self->import_record};
    bool can = false;
    gpuipc_status status = point_can_wait(&by, &can, NULL);
    if (status != GPUIPC_OK) {
        return status;
    }
    return can ? mark_wait(&by, wanted, word)
               : mark_await(self->context, wanted, word, os_deadline_after(-1));
}

/* In the stream's CUDA context. */
static gpuipc_status capture_wait(buffer *self, const mark *wanted, const point_word *word,
                                  gpuipc_stream stream) {
    const point_waiter by = {.context = self->context,
                             .stream = stream,
                             .device = self->access_device,
                             .of = self->import_record};
    if (!wanted->repeats) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "the stream is being captured, and the mark was made once: a graph "
                           "waits for marks that a graph makes");
    }
    gpuipc_status status = check_can_capture(self->context);
    return status == GPUIPC_OK ? mark_capture_wait(&by, word) : status;
}

static gpuipc_status await_on_stream(buffer *self, const mark *wanted, const point_word *word,
                                     gpuipc_stream stream) {
    device_scope scope;
    gpuipc_status status = device_enter_stream(self->context, stream, self->access_device, &scope);
    if (status == GPUIPC_OK) {
        status = device_is_captured(self->context, stream)
                     ? capture_wait(self, wanted, word, stream)
                     : wait_for(self, wanted, word, stream);
        device_leave(&scope);
    }
    return status;
}

gpuipc_status gpuipc_buffer_await_mark_async(gpuipc_buffer *handle, const gpuipc_mark *bytes,
                                             gpuipc_stream stream) {
    status_enter(__func__);
    buffer *self = NULL;
    mark wanted;
    point_word word;
    gpuipc_status status = find(handle, bytes, &self, &wanted, &word);
    if (status == GPUIPC_OK) {
        status = await_on_stream(self, &wanted, &word, stream);
        buffer_unreference(self);
    }
    return status;
}

gpuipc_status gpuipc_buffer_await_mark(gpuipc_buffer *handle, const gpuipc_mark *bytes,
                                       int timeout_ms) {
    status_enter(__func__);
    if (timeout_ms < -1) {
        return status_bad_timeout(timeout_ms);
    }
    const os_deadline deadline = os_deadline_after(timeout_ms);
    os_interrupt interrupt;
    buffer *self = NULL;
    mark wanted;
    point_word word;
    gpuipc_status status = find(handle, bytes, &self, &wanted, &word);
    if (status == GPUIPC_OK) {
        status = mark_await(self->context, &wanted, &word,
                            context_interruptible(self->context, deadline, &interrupt));
        status = context_answer(self->context, &interrupt, status);
        buffer_unreference(self);
    }
    return status;
}

/* SPDX-License-Identifier: MIT */
/** @file See receipt.h. */
#include "receipt.h"

#include <stdlib.h>
#include <string.h>

#include "ready_event.h"
#include "transport.h"

#define OPERATION "gpuipc_connection_receive"

static point point_of(const wire_buffer *record) {
    return (point){record->point_index, record->point_value};
}

gpuipc_status receipt_take_page(connection *from, os_handle handle) {
    if (from->points_in != NULL || from->in.started) {
        return status_fail(GPUIPC_ERR_PROTOCOL, OPERATION, "a page of points came %s",
                           from->points_in != NULL ? "twice" : "inside a message");
    }
    gpuipc_status status = point_page_open(from->context, &from->peer, handle, &from->points_in);
    if (status == GPUIPC_OK) {
        point_page_set_connection(from->points_in, from->os);
    }
    return status;
}

gpuipc_status receipt_check(const connection *from, const wire_buffer *record) {
    const point at = point_of(record);
    if (at.index != 0 && (from->points_in == NULL || !point_is_valid(&at))) {
        return status_fail(GPUIPC_ERR_PROTOCOL, OPERATION,
                           from->points_in == NULL
                               ? "a buffer names point %u, but no page of points has come"
                               : "a buffer names point %u, which no page has",
                           at.index);
    }
    return GPUIPC_OK;
}

void receipt_refuse(connection *from) {
    for (uint32_t i = 0; i < from->in.buffer_count; i++) {
        const point at = point_of(&from->in.buffers[i]);
        if (from->points_in != NULL && point_is_valid(&at)) {
            const point_word released = point_released_word(&at);
            point_store(from->points_in, &released);
        }
    }
}

/* ---- ready --------------------------------------------------------------------------------- */

/* The device that will use a buffer; of one that no device here owns, any, since it cannot be opened. */
static uint32_t device_of(const connection *from, const wire_buffer *record, uint32_t wanted) {
    gpuipc_uuid owner;
    memcpy(owner.bytes, record->device_uuid, sizeof(owner.bytes));
    uint32_t index =
        wanted == GPUIPC_DEVICE_OWNER ? device_find(from->context, &owner) : wanted - 1;
    return index < from->context->device_count ? index : 0;
}

static gpuipc_status await_words(connection *from, os_deadline deadline) {
    gpuipc_status status = GPUIPC_OK;
    for (uint32_t i = 0; i < from->in.buffer_count && status == GPUIPC_OK; i++) {
        const wire_buffer *record = &from->in.buffers[i];
        const point at = point_of(record);
        if (record->ready == WIRE_READY_WORD) {
            const point_word word = point_ready_word(&at);
            status = point_await(from->points_in, &word, &from->closed, deadline, OPERATION);
        }
    }
    return status;
}

static gpuipc_status await_events(connection *from, const gpuipc_incoming *wanted,
                                  os_deadline deadline) {
    gpuipc_status status = GPUIPC_OK;
    for (uint32_t i = 0; i < from->in.buffer_count && status == GPUIPC_OK; i++) {
        const wire_buffer *record = &from->in.buffers[i];
        if (record->ready == WIRE_READY_EVENT) {
            status = ready_event_await(from->context, &from->peer,
                                       device_of(from, record, wanted->device), record->event_name,
                                       &from->closed, deadline, OPERATION);
        }
    }
    return status;
}

/* A place in the row for a wait; none where the word is there already. ERR_LIMIT: the stream cannot. */
static gpuipc_status prepare(connection *from, const wire_buffer *record,
                             const gpuipc_incoming *wanted, point_word *out_passage) {
    const point at = point_of(record);
    const point_word word = point_ready_word(&at);
    device_scope scope;
    if (record->ready != WIRE_READY_WORD || point_is_reached(from->points_in, &word)) {
        return GPUIPC_OK;
    }
    gpuipc_status status = device_enter_stream(from->context, wanted->stream,
                                               device_of(from, record, wanted->device), &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = device_check_capture(from->context, wanted->stream);
    bool can = status == GPUIPC_OK && point_has_stream_waits(from->context);
    device_leave(&scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    return can ? point_passage_take(from->points_in, out_passage) : GPUIPC_ERR_LIMIT;
}

gpuipc_status receipt_begin(receipt *self, connection *from, const gpuipc_incoming *wanted,
                            os_deadline deadline) {
    const uint32_t count = from->in.buffer_count;
    *self = (receipt){0};
    gpuipc_status status = await_events(from, wanted, deadline);
    if (status != GPUIPC_OK || count == 0) {
        return status;
    }
    if ((wanted->flags & GPUIPC_RECEIVE_ASYNC) == 0) {
        return await_words(from, deadline);
    }
    self->passages = calloc(count, sizeof(*self->passages));
    if (self->passages == NULL) {
        return status_out_of_memory(OPERATION, count * sizeof(*self->passages));
    }
    for (uint32_t i = 0; i < count && status == GPUIPC_OK; i++) {
        status = prepare(from, &from->in.buffers[i], wanted, &self->passages[i]);
    }
    if (status != GPUIPC_OK) {
        receipt_end(self, from);
    }
    return status == GPUIPC_ERR_LIMIT ? await_words(from, deadline) : status;
}

gpuipc_status receipt_borrow(connection *from, const wire_buffer *record, buffer *opened) {
    const point at = point_of(record);
    gpuipc_status status =
        borrow_begin(from->points_in, &at, opened->transport->ends_with_owner, &opened->borrow);
    if (status == GPUIPC_OK) {
        opened->borrow->has_ready_word = record->ready == WIRE_READY_WORD;
    }
    return status;
}

/* In the stream's CUDA context. Uses the passage up. */
static gpuipc_status wait_for_word(connection *from, buffer *opened, const wire_buffer *record,
                                   gpuipc_stream stream, point_word *passage) {
    context *ctx = from->context;
    const point at = point_of(record);
    const point_word word = point_ready_word(&at);
    gpuipc_status status = watch_add(&ctx->watch, from->points_in, &word, passage, opened->borrow);
    if (status == GPUIPC_OK) {
        status = point_wait_async(from->points_in, &word, 1, stream, passage, true);
        *passage = (point_word){0, 0};
    }
    return status;
}

static gpuipc_status wait_for_one(connection *from, buffer *opened, const wire_buffer *record,
                                  gpuipc_stream stream, point_word *passage) {
    device_scope scope;
    if (passage->value == 0) {
        return GPUIPC_OK; /* it is there already */
    }
    gpuipc_status status =
        device_enter_stream(from->context, stream, opened->access_device, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = wait_for_word(from, opened, record, stream, passage);
    device_leave(&scope);
    return status;
}

gpuipc_status receipt_wait_async(receipt *self, connection *from, gpuipc_buffer *const *opened,
                                 const gpuipc_incoming *wanted) {
    gpuipc_status status = GPUIPC_OK;
    if (self->passages == NULL) {
        return GPUIPC_OK;
    }
    for (uint32_t i = 0; i < from->in.buffer_count && status == GPUIPC_OK; i++) {
        buffer *one;
        status = buffer_acquire(opened[i], OPERATION, &one);
        if (status == GPUIPC_OK) {
            status =
                wait_for_one(from, one, &from->in.buffers[i], wanted->stream, &self->passages[i]);
            buffer_unreference(one);
        }
    }
    return status;
}

/* In the stream's CUDA context. ERR_LIMIT: the stream cannot. */
static gpuipc_status wait_again(buffer *opened, const point_word *word, gpuipc_stream stream) {
    context *ctx = opened->context;
    point_page *page = opened->borrow->page;
    point_word passage = {0, 0};
    gpuipc_status status = device_check_capture(ctx, stream);
    if (status != GPUIPC_OK || !point_has_stream_waits(ctx)) {
        return status == GPUIPC_OK ? GPUIPC_ERR_LIMIT : status;
    }
    if ((status = point_passage_take(page, &passage)) != GPUIPC_OK) {
        return status;
    }
    status = watch_add(&ctx->watch, page, word, &passage, opened->borrow);
    if (status != GPUIPC_OK) {
        point_passage_cancel(ctx, &passage);
        return status;
    }
    return point_wait_async(page, word, 1, stream, &passage, false);
}

bool receipt_is_ready(const buffer *opened) {
    const borrow *of = opened->borrow;
    if (of == NULL || !of->has_ready_word) {
        return true;
    }
    const point_word word = point_ready_word(&of->at);
    return point_is_reached(of->page, &word);
}

gpuipc_status receipt_await(buffer *opened, uint32_t flags, gpuipc_stream stream,
                            os_deadline deadline, const char *operation) {
    borrow *of = opened->borrow;
    device_scope scope;
    if (receipt_is_ready(opened)) {
        return GPUIPC_OK;
    }
    const point_word word = point_ready_word(&of->at);
    if ((flags & GPUIPC_RECEIVE_ASYNC) != 0) {
        gpuipc_status status =
            device_enter_stream(opened->context, stream, opened->access_device, &scope);
        if (status != GPUIPC_OK) {
            return status;
        }
        status = wait_again(opened, &word, stream);
        device_leave(&scope);
        if (status != GPUIPC_ERR_LIMIT) {
            return status;
        }
    }
    return point_await(of->page, &word, &opened->context->is_over, deadline, operation);
}

gpuipc_status receipt_check_contents(const buffer *opened, const char *operation) {
    return opened->borrow != NULL && atomic_load(&opened->borrow->is_lost)
               ? status_fail(GPUIPC_ERR_LOST, operation,
                             "the process that shared it ended before the contents were ready")
               : GPUIPC_OK;
}

void receipt_end(receipt *self, connection *from) {
    for (uint32_t i = 0; self->passages != NULL && i < from->in.buffer_count; i++) {
        if (self->passages[i].value != 0) {
            point_passage_cancel(from->context, &self->passages[i]);
        }
    }
    free(self->passages);
    self->passages = NULL;
}

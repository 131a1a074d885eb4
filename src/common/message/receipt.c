/* SPDX-License-Identifier: MIT */
/** @file See receipt.h. */
#include "message/receipt.h"

#include <string.h>

#include "memory/transport.h"
#include "sync/point_wait.h"

/* Points are numbered from 1 on, through all pages; one that receipt_check() has let pass has its page. */
static point point_of(const connection *from, const wire_buffer *record) {
    const uint32_t number = record->point_index - 1;
    return record->point_index == 0 ? (point){NULL, 0, 0}
                                    : (point){from->points_in[number / POINT_COUNT],
                                              number % POINT_COUNT, record->point_value};
}

gpuipc_status receipt_take_page(connection *from, os_handle handle) {
    const uint32_t count = from->points_in_count;
    if (count == POINT_PAGES_MAX || from->in.started) {
        return status_fail(GPUIPC_ERR_PROTOCOL, "a page of points came %s",
                           from->in.started ? "inside a message"
                                            : "beside as many as there may be");
    }
    gpuipc_status status =
        point_page_open(from->context, from->other_end, handle, &from->points_in[count]);
    from->points_in_count += status == GPUIPC_OK;
    return status;
}

gpuipc_status receipt_check(const connection *from, const wire_buffer *record) {
    if (record->point_index > from->points_in_count * POINT_COUNT) {
        return status_fail(GPUIPC_ERR_PROTOCOL,
                           from->points_in_count == 0
                               ? "a buffer names point %u, but no page of points has come"
                               : "a buffer names point %u, which no page has",
                           record->point_index);
    }
    return GPUIPC_OK;
}

/* One that names a point which is not there ends the connection, and what came with it was not checked. What was opened
 * tells by itself, when it is closed. */
void receipt_refuse(connection *from) {
    for (uint32_t i = from->in.recorded; i < from->in.buffer_count; i++) {
        const wire_buffer *record = &from->in.buffers[i];
        if (record->point_index != 0 &&
            record->point_index <= from->points_in_count * POINT_COUNT) {
            const point at = point_of(from, record);
            const point_word released = point_released_word(&at);
            point_store(&released);
        }
    }
}

/* ---- ready --------------------------------------------------------------------------------- */

/* The device that will use a buffer; of one that no device here owns, any, since it cannot be opened. */
static uint32_t device_of(const connection *from, const wire_buffer *record, uint32_t wanted) {
    gpuipc_uuid owner;
    memcpy(owner.bytes, record->device_uuid, sizeof(owner.bytes));
    uint32_t index = wanted == GPUIPC_DEVICE_OWNER ? device_find(from->context, &owner)
                                                   : device_of_field(wanted, GPUIPC_DEVICE_NONE);
    return index < from->context->device_count ? index : 0;
}

/* Whether the caller's stream waits for a record's word. */
static gpuipc_status stream_waits(connection *from, const wire_buffer *record,
                                  const gpuipc_incoming *wanted, bool *out_waits) {
    const point_waiter by = {.context = from->context,
                             .stream = wanted->stream,
                             .device = device_of(from, record, wanted->device)};
    *out_waits = false;
    return (wanted->flags & GPUIPC_RECEIVE_ASYNC) != 0 ? point_can_wait(&by, out_waits, NULL)
                                                       : GPUIPC_OK;
}

static gpuipc_status await_one(connection *from, const wire_buffer *record,
                               const gpuipc_incoming *wanted, os_deadline deadline) {
    const point at = point_of(from, record);
    const point_word word = point_ready_word(&at);
    bool waits = false;
    gpuipc_status status = GPUIPC_OK;
    if (record->ready == WIRE_READY_WORD && (wanted->flags & GPUIPC_RECEIVE_DEFERRED) == 0 &&
        !point_is_reached(&word)) {
        status = stream_waits(from, record, wanted, &waits);
        if (status == GPUIPC_OK && !waits) {
            status = point_await(&word, 1, &from->ended, deadline);
        }
    }
    return status;
}

gpuipc_status receipt_await_message(connection *from, const gpuipc_incoming *wanted,
                                    os_deadline deadline) {
    gpuipc_status status = GPUIPC_OK;
    for (uint32_t i = 0; i < from->in.buffer_count && status == GPUIPC_OK; i++) {
        status = await_one(from, &from->in.buffers[i], wanted, deadline);
    }
    return status;
}

gpuipc_status receipt_record(connection *from, const wire_buffer *record, buffer *opened) {
    const point at = point_of(from, record);
    gpuipc_status status =
        import_record_new(&at, opened->transport->ends_with_owner, &opened->import_record);
    if (status == GPUIPC_OK) {
        from->in.recorded++;
        if (record->ready == WIRE_READY_WORD) {
            opened->import_record->ready = point_ready_word(&at);
        }
        if (at.page != NULL) {
            opened->import_record->marks = from->points_in[0];
            point_page_reference(from->points_in[0]);
        }
    }
    return status;
}

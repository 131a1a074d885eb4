/* SPDX-License-Identifier: MIT */
/** @file Sending the contents of a range: out of the sender's own memory, or through a ring. */
#include <string.h>

#include "base/struct_size.h"
#include "contents/contents.h"
#include "sync/point_wait.h"
#include "sync/watch.h"
#include "transport/transport.h"

/* ---- out of the sender's memory ----------------------------------------------------------- */

static gpuipc_status await_on_host(const connection *to, const point_word *word) {
    gpuipc_status status = point_await(word, 1, &to->ended, os_deadline_after(-1));
    return status == GPUIPC_ERR_LOST ? GPUIPC_OK : status; /* nobody reads any more */
}

/* The stream goes on when the receiver has returned the buffer: this hand-over of it, not others. */
static gpuipc_status await_return(const connection *to, const buffer *self,
                                  const gpuipc_contents *contents, const point *at) {
    const point_waiter by = {.context = self->context,
                             .stream = contents->stream,
                             .device = self->access_device,
                             .is_alone = true};
    const point_word word = point_returned_word(at);
    point_word passage;
    bool can = false;
    gpuipc_status status = point_can_wait(&by, &can, NULL);
    if (status != GPUIPC_OK) {
        return status;
    }
    return can ? point_wait(&by, &word, 1, &passage) : await_on_host(to, &word);
}

/* The receiver has heard of them. */
static gpuipc_status break_off(connection *to, gpuipc_status status) {
    if (status != GPUIPC_OK && status != GPUIPC_ERR_RELEASED) {
        connection_break(to);
        status_add("; the contents have left, and the connection is broken");
    }
    return connection_answer(to, status);
}

static gpuipc_status send_memory(connection *to, buffer *self, const gpuipc_contents *contents,
                                 os_deadline deadline) {
    const wire_contents record = {.memory = (uint16_t)self->transport->memory,
                                  .offset = contents->offset,
                                  .bytes = contents->bytes};
    uint8_t bytes[WIRE_CONTENTS_BYTES];
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .bytes = bytes,
                                     .bytes_size = sizeof(bytes),
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_ASYNC,
                                     .access = GPUIPC_ACCESS_READ,
                                     .stream = contents->stream};
    wire_encode_contents(&record, bytes);
    point at = {NULL, 0, 0};
    const letter as = {.kind = WIRE_CONTENTS, .buffers = &self, .handed_over = &at};
    gpuipc_status status =
        connection_send_message(to, &message, &as, os_deadline_left_ms(deadline));
    if (status == GPUIPC_OK) {
        status = break_off(to, await_return(to, self, contents, &at));
    }
    point_page_unreference(at.page, false);
    return status;
}

/* ---- through a ring ----------------------------------------------------------------------- */

/* Sends the words of the ring, where the peer has not got them yet. */
static gpuipc_status send_words(connection *to, os_deadline deadline) {
    point_page *words = to->ring_out->words;
    return os_handle_is_valid(words->handle) ? connection_send_page(to, WIRE_RING, words, deadline)
                                             : GPUIPC_OK;
}

static wire_buffer describe_slots(const connection *to) {
    context *ctx = to->context;
    wire_buffer record = {.buffer_id = atomic_fetch_add(&ctx->next_buffer_id, 1u),
                          .bytes = CONTENTS_RING_BYTES,
                          .segment_count = 1,
                          .memory = SEGMENT_MEMORY_HOST,
                          .handle_type = (uint16_t)os_shareable_handle_type,
                          .access = GPUIPC_ACCESS_READ_WRITE,
                          .ready = WIRE_READY_NOW};
    memcpy(record.exporter_id, ctx->instance_id, sizeof(record.exporter_id));
    memcpy(record.device_uuid, ctx->devices[to->ring_out->device].info.uuid.bytes,
           sizeof(record.device_uuid));
    return record;
}

/* One packet; the first has the slots with it. */
static gpuipc_status send_record(connection *to, const gpuipc_contents *contents,
                                 os_deadline deadline) {
    contents_ring *ring = to->ring_out;
    const bool is_first = os_handle_is_valid(ring->handle);
    const wire_contents record = {
        .memory = SEGMENT_MEMORY_HOST, .bytes = contents->bytes, .number = ring->next};
    const wire_header header = {.kind = WIRE_CONTENTS,
                                .number = to->next_out,
                                .total_bytes = WIRE_CONTENTS_BYTES,
                                .total_buffers = is_first,
                                .total_segments = is_first,
                                .bytes = WIRE_CONTENTS_BYTES,
                                .buffers = is_first,
                                .segments = is_first};
    uint8_t *at = to->packet_out;
    wire_encode_header(&header, at);
    at += WIRE_HEADER_BYTES;
    wire_encode_contents(&record, at);
    at += WIRE_CONTENTS_BYTES;
    if (is_first) {
        const wire_buffer slots = describe_slots(to);
        const segment_record piece = {.bytes = CONTENTS_RING_BYTES,
                                      .naming = SEGMENT_NAMED_BY_HANDLE};
        wire_encode_buffer(&slots, at);
        wire_encode_segment(&piece, at + WIRE_BUFFER_BYTES);
    }
    gpuipc_status status = os_connection_send(to->os, to->packet_out, wire_packet_bytes(&header),
                                              &ring->handle, is_first, deadline);
    if (status == GPUIPC_OK) {
        os_handle_close(&ring->handle);
        to->next_out++;
    }
    return status;
}

static gpuipc_status prepare_ring(connection *to, uint32_t index) {
    gpuipc_status status = GPUIPC_OK;
    if (to->ring_out == NULL) {
        status = contents_ring_create(to->context, to->other_end, &to->ring_out);
    }
    return status == GPUIPC_OK ? contents_ring_prepare(to->ring_out, index) : status;
}

static gpuipc_status send_through_ring(connection *to, buffer *self,
                                       const gpuipc_contents *contents, os_deadline deadline) {
    contents_flow flow = contents_flow_of(self, contents, &to->ended, deadline);
    work_place *place = NULL;
    gpuipc_status status = contents_work_begin(self, flow.stream, &place);
    if (status == GPUIPC_OK && (status = contents_ring_leave(to->ring_out, &flow)) != GPUIPC_OK) {
        contents_work_end(self, place, flow.stream);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    if ((status = send_words(to, deadline)) != GPUIPC_OK ||
        (status = send_record(to, contents, deadline)) != GPUIPC_OK) {
        contents_ring_stay(to->ring_out, &flow);
        contents_work_end(self, place, flow.stream);
        return connection_answer(to, status);
    }
    flow.deadline.interrupt = NULL; /* the rest is not kept for another call */
    status = contents_ring_put(to->ring_out, &flow);
    contents_work_end(self, place, flow.stream);
    if (status == GPUIPC_ERR_LOST) {
        return GPUIPC_OK; /* nobody reads any more */
    }
    if (status != GPUIPC_OK) {
        connection_break(to); /* the ring has contents that are not there */
        status_add("; the receiver was told, and the connection is broken");
        if (status == GPUIPC_ERR_TIMEOUT) {
            status = status_change(GPUIPC_ERR_CONNECTION_BROKEN);
        }
    }
    return status;
}

/* ---- the call ----------------------------------------------------------------------------- */

/* @param out_in_host that memory is sent as a way, not as what is there */
static gpuipc_status check_way(const connection *to, const buffer *self,
                               const gpuipc_contents *contents, bool *out_in_host) {
    const transport *by = contents->transport == GPUIPC_TRANSPORT_DEFAULT
                              ? self->transport
                              : transport_find(contents->transport);
    gpuipc_status status = GPUIPC_OK;
    *out_in_host = by->lies_in_host;
    if (!by->lies_in_host && by != self->transport) {
        status = status_fail(GPUIPC_ERR_NO_TRANSPORT,
                             "the buffer's contents go by %s or by host, not by %s",
                             self->transport->name, by->name);
    } else if (!by->lies_in_host && buffer_check_export(self, &to->peer) != GPUIPC_OK) {
        status = status_change(GPUIPC_ERR_NO_TRANSPORT);
        status_add("; GPUIPC_TRANSPORT_HOST carries its contents");
    }
    return status;
}

/* On the ring's own streams. */
static gpuipc_status await_ring(connection *to, const buffer *self, const gpuipc_contents *contents,
                                os_deadline deadline) {
    gpuipc_status status = prepare_ring(to, self->access_device);
    return status == GPUIPC_OK
               ? contents_ring_await_room(to->ring_out, contents->bytes, &to->ended, deadline)
               : status;
}

static gpuipc_status send_on_stream(connection *to, buffer *self, const gpuipc_contents *contents,
                                    os_deadline deadline) {
    contents_turn turn = {.stream = contents->stream, .index = self->access_device};
    bool in_host = false;
    gpuipc_status status = check_way(to, self, contents, &in_host);
    if (status == GPUIPC_OK && in_host) {
        status = await_ring(to, self, contents, deadline);
    }
    if (status == GPUIPC_OK) {
        status = contents_turn_begin(to->context, &turn, &to->ended, deadline);
    }
    if (status != GPUIPC_OK) {
        return connection_answer(to, status);
    }
    status = in_host ? send_through_ring(to, self, contents, deadline)
                     : send_memory(to, self, contents, deadline);
    contents_turn_end(to->context, &turn);
    return status;
}

static gpuipc_status send_contents(connection *to, const gpuipc_contents *contents,
                                   int timeout_ms) {
    const os_deadline deadline = {os_deadline_after(timeout_ms).at_ns, to->send_interrupt};
    buffer *self;
    gpuipc_status status = connection_check(to);
    if (status != GPUIPC_OK || (status = contents_check(to, contents, &self)) != GPUIPC_OK) {
        return status;
    }
    status = send_on_stream(to, self, contents, deadline);
    buffer_unreference(self);
    return status;
}

gpuipc_status gpuipc_connection_send_contents(gpuipc_connection *handle,
                                              const gpuipc_contents *contents, int timeout_ms) {
    status_enter(__func__);
    if (timeout_ms < -1) {
        return status_bad_timeout(timeout_ms);
    }
    gpuipc_contents known;
    connection *to;
    gpuipc_status status = struct_size_read(contents, STRUCT_SIZE_UP_TO(gpuipc_contents, reserved),
                                            &known, sizeof(known));
    if (status != GPUIPC_OK || (status = connection_acquire(handle, &to)) != GPUIPC_OK) {
        return status;
    }
    os_interrupt interrupt;
    status = connection_lock_sending(to, &interrupt);
    if (status == GPUIPC_OK) {
        status = send_contents(to, &known, timeout_ms);
        status = connection_unlock_sending(to, &interrupt, status);
    }
    connection_unreference(to);
    return status;
}

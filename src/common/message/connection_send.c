/* SPDX-License-Identifier: MIT */
/** @file Sending a message: after the GPU work that makes its contents, in as few packets as the
 *  system's limits allow. */
#include <stdlib.h>
#include <string.h>

#include "base/struct_size.h"
#include "memory/buffer.h"
#include "message/connection.h"
#include "message/handover.h"
#include "transport/transport.h"

/* A message on its way out, and how much has left. */
typedef struct outgoing {
    const gpuipc_outgoing *message;
    const letter *as;
    buffer *const *buffers;
    handover handover;
    wire_header sent; /* totals, and what all packets so far carried */
    uint32_t buffers_sent;
    uint32_t segments_sent;
    uint32_t segments_described; /* of the buffers that have left */
    uint32_t segment_buffer;     /* which buffer the next segment is of, */
    uint32_t segment_index;      /* and which of its segments */
} outgoing;

/* What goes with one packet. */
typedef struct packet_handles {
    size_t count;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    bool is_kept[OS_PACKET_HANDLES_MAX]; /* by its buffer */
} packet_handles;

/* What will leave in all, which may leave. */
static gpuipc_status count_all(outgoing *self, const connection *to) {
    const gpuipc_outgoing *message = self->message;
    uint64_t segments = 0;
    for (size_t i = 0; i < message->buffer_count; i++) {
        gpuipc_status status = buffer_check_export(self->buffers[i], &to->peer);
        if (status != GPUIPC_OK) {
            return status;
        }
        segments += self->buffers[i]->segment_count;
    }
    if (segments > UINT32_MAX) {
        return status_fail(GPUIPC_ERR_LIMIT, "the buffers have too many segments");
    }
    self->sent.total_bytes = (uint32_t)message->bytes_size;
    self->sent.total_buffers = (uint32_t)message->buffer_count;
    self->sent.total_segments = (uint32_t)segments;
    return GPUIPC_OK;
}

static uint32_t smaller(size_t a, size_t b) {
    return (uint32_t)(a < b ? a : b);
}

/* Takes as many as fit, and are left, from the room. */
static uint32_t take_room(size_t *room, size_t left, size_t each) {
    const uint32_t count = smaller(left, *room / each);
    *room -= count * each;
    return count;
}

/* How much of what is left goes into the next packet: bytes, then segments whose buffers the peer knows
 * already, then each buffer with its segments, so that every packet but the last is full of handles. */
static wire_header plan_packet(const outgoing *self) {
    wire_header plan = self->sent;
    size_t room = OS_PACKET_BYTES_MAX - WIRE_HEADER_BYTES;
    uint32_t described = self->segments_described;
    uint32_t buffers = 0;
    plan.bytes = take_room(&room, plan.total_bytes - self->sent.bytes, 1);
    uint32_t segments = take_room(
        &room, smaller(described - self->segments_sent, OS_PACKET_HANDLES_MAX), WIRE_SEGMENT_BYTES);
    while (self->buffers_sent + buffers < plan.total_buffers &&
           self->segments_sent + segments == described && segments < OS_PACKET_HANDLES_MAX &&
           room >= WIRE_BUFFER_BYTES + WIRE_SEGMENT_BYTES) {
        const uint32_t more = self->buffers[self->buffers_sent + buffers]->segment_count;
        room -= WIRE_BUFFER_BYTES;
        buffers++;
        described += more;
        segments +=
            take_room(&room, smaller(more, OS_PACKET_HANDLES_MAX - segments), WIRE_SEGMENT_BYTES);
    }
    plan.buffers = (uint16_t)buffers;
    plan.segments = (uint16_t)segments;
    return plan;
}

static wire_buffer describe(const buffer *self, const letter *as, gpuipc_access offered) {
    gpuipc_access most = (gpuipc_access)(self->access_limit & offered);
    wire_buffer record = {.buffer_id = self->buffer_id,
                          .offset = self->offset + (as->is_range ? as->offset : 0),
                          .bytes = as->is_range ? as->bytes : self->bytes,
                          .segment_count = self->segment_count,
                          .memory = (uint16_t)self->transport->memory,
                          .handle_type = (uint16_t)os_shareable_handle_type,
                          .access = (uint16_t)most,
                          .ready = WIRE_READY_NOW};
    memcpy(record.exporter_id, self->exporter_id, sizeof(record.exporter_id));
    memcpy(record.device_uuid, self->owner_uuid.bytes, sizeof(record.device_uuid));
    return record;
}

/* What is kept stays its buffer's. */
static void close_handles(packet_handles *self) {
    const gpuipc_error why = status_save();
    for (size_t i = 0; i < self->count; i++) {
        if (!self->is_kept[i]) {
            os_handle_close(&self->handles[i]);
        }
    }
    status_restore(&why);
}

/* Writes the next @p count segments and makes the handles that they name. Those made before a failure are in
 * @p out as well. */
static gpuipc_status put_segments(outgoing *self, group_set *sent_groups, uint32_t count,
                                  uint8_t *at, packet_handles *out) {
    for (uint32_t i = 0; i < count; i++) {
        while (self->segment_index == self->buffers[self->segment_buffer]->segment_count) {
            self->segment_buffer++;
            self->segment_index = 0;
        }
        const buffer *from = self->buffers[self->segment_buffer];
        segment *of = buffer_segment(from, self->segment_index);
        const bool has_pool = group_set_has(sent_groups, of->group);
        exported_segment leaving;
        gpuipc_status status = from->transport->export_segment(from, of, has_pool, &leaving);
        if (status != GPUIPC_OK) {
            return status;
        }
        if (os_handle_is_valid(leaving.handle)) {
            out->handles[out->count] = leaving.handle;
            out->is_kept[out->count++] = leaving.is_kept;
        }
        if (leaving.record.naming == SEGMENT_NAMED_BY_BOTH &&
            (status = group_set_add(sent_groups, of->group)) != GPUIPC_OK) {
            return status;
        }
        wire_encode_segment(&leaving.record, at + (size_t)i * WIRE_SEGMENT_BYTES);
        self->segment_index++;
    }
    return GPUIPC_OK;
}

/* Writes all but the segments. @return where they go */
static uint8_t *put_records(outgoing *self, const wire_header *plan, uint8_t *at) {
    const gpuipc_outgoing *message = self->message;
    const gpuipc_access offered =
        message->access == GPUIPC_ACCESS_DEFAULT ? GPUIPC_ACCESS_READ_WRITE : message->access;
    wire_encode_header(plan, at);
    at += WIRE_HEADER_BYTES;
    if (plan->bytes > 0) {
        memcpy(at, (const uint8_t *)message->bytes + self->sent.bytes, plan->bytes);
        at += plan->bytes;
    }
    for (uint32_t i = 0; i < plan->buffers; i++, at += WIRE_BUFFER_BYTES) {
        wire_buffer record = describe(self->buffers[self->buffers_sent + i], self->as, offered);
        handover_describe(&self->handover, self->buffers_sent + i, &record);
        wire_encode_buffer(&record, at);
    }
    return at;
}

/* The packet has left. */
static void note_sent(outgoing *self, const wire_header *plan) {
    self->sent.bytes += plan->bytes;
    for (uint32_t i = 0; i < plan->buffers; i++) {
        self->segments_described += self->buffers[self->buffers_sent++]->segment_count;
    }
    self->segments_sent += plan->segments;
}

gpuipc_status connection_send_page(connection *to, wire_kind kind, point_page *page,
                                   os_deadline deadline) {
    const wire_header header = {.kind = kind};
    const os_handle handle = page->handle;
    uint8_t packet[WIRE_HEADER_BYTES];
    wire_encode_header(&header, packet);
    gpuipc_status status = os_connection_send(to->os, packet, sizeof(packet), &handle, 1, deadline);
    if (status == GPUIPC_OK) {
        point_page_sent(page, kind != WIRE_CHANNEL);
    }
    return connection_answer(to, status);
}

static gpuipc_status send_packet(outgoing *self, connection *to, os_deadline deadline) {
    packet_handles with;
    const wire_header plan = plan_packet(self);
    const size_t groups = to->sent_groups.count;
    with.count = 0;
    uint8_t *at = put_records(self, &plan, to->packet_out);
    gpuipc_status status = put_segments(self, &to->sent_groups, plan.segments, at, &with);
    if (status == GPUIPC_OK) {
        status = os_connection_send(to->os, to->packet_out, wire_packet_bytes(&plan), with.handles,
                                    with.count, deadline);
    }
    close_handles(&with);
    if (status == GPUIPC_OK) {
        note_sent(self, &plan);
    } else {
        group_set_truncate(&to->sent_groups, groups); /* they went nowhere */
    }
    return status;
}

static gpuipc_status send_all(outgoing *self, connection *to, os_deadline deadline) {
    bool first = true;
    do {
        gpuipc_status status = connection_answer(to, send_packet(self, to, deadline));
        if (status == GPUIPC_ERR_CONNECTION_BROKEN) {
            return status; /* the receiving side broke it off */
        }
        if (status != GPUIPC_OK) {
            /* Of a peer that closed, what it had sent before can still be received. */
            if (!first && status != GPUIPC_ERR_PEER_CLOSED) {
                /* The receiver waits for the rest of this message and could make nothing of
                 * another. */
                connection_break(to);
                status_add("; part of the message had left, so the connection is broken");
                return status_change(GPUIPC_ERR_CONNECTION_BROKEN);
            }
            return status;
        }
        first = false;
        deadline.interrupt = NULL; /* the rest is not kept for another call */
    } while (self->sent.bytes < self->sent.total_bytes ||
             self->buffers_sent < self->sent.total_buffers ||
             self->segments_sent < self->sent.total_segments);
    to->next_out++;
    return GPUIPC_OK;
}

gpuipc_status connection_send_message(connection *to, const gpuipc_outgoing *message,
                                      const letter *as, int timeout_ms) {
    outgoing self = {.message = message,
                     .as = as,
                     .buffers = as->buffers,
                     .sent = {.kind = as->kind, .number = to->next_out}};
    gpuipc_status status = connection_check(to);
    if (status != GPUIPC_OK || (status = count_all(&self, to)) != GPUIPC_OK) {
        return status;
    }
    status = handover_begin(&self.handover, to, self.buffers, (uint32_t)message->buffer_count,
                            message->flags, message->stream);
    if (status == GPUIPC_OK) {
        const os_deadline deadline = {os_deadline_after(timeout_ms).at_ns, to->send_interrupt};
        status = handover_send_pages(&self.handover, deadline);
        if (status == GPUIPC_OK) {
            status = send_all(&self, to, deadline);
        }
        handover_end(&self.handover, self.buffers_sent, as->handed_over);
    }
    return status;
}

/* ---- the call ------------------------------------------------------------------------------ */

static gpuipc_status check_message(const gpuipc_outgoing *message) {
    if (message->bytes_size > GPUIPC_MESSAGE_BYTES_MAX || message->buffer_count > UINT32_MAX) {
        return status_fail(GPUIPC_ERR_LIMIT,
                           "%zu bytes and %zu buffers; a message carries at most %d bytes",
                           message->bytes_size, message->buffer_count, GPUIPC_MESSAGE_BYTES_MAX);
    }
    if ((message->bytes == NULL && message->bytes_size > 0) ||
        (message->buffers == NULL && message->buffer_count > 0)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "bytes or buffers is NULL although its count is not 0");
    }
    if ((message->flags & ~(GPUIPC_SEND_READY | GPUIPC_SEND_ASYNC | GPUIPC_SEND_STAGED)) != 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "flags has bits that this library does not know: 0x%x", message->flags);
    }
    gpuipc_status status = handover_check_flags(message->flags);
    if (status != GPUIPC_OK) {
        return status;
    }
    return buffer_check_access(message->access);
}

gpuipc_status connection_lock_sending(connection *self, os_interrupt *interrupt) {
    if (!os_mutex_try_lock(&self->send_mutex)) {
        return status_fail(GPUIPC_ERR_BUSY, "another thread is sending on it");
    }
    self->send_interrupt =
        context_interruptible(self->context, (os_deadline){0}, interrupt).interrupt;
    return GPUIPC_OK;
}

gpuipc_status connection_unlock_sending(connection *self, const os_interrupt *interrupt,
                                        gpuipc_status status) {
    status = context_answer(self->context, interrupt, status);
    self->send_interrupt = NULL;
    os_mutex_unlock(&self->send_mutex);
    return status;
}

static void unreference_all(buffer **buffers, size_t count) {
    const gpuipc_error why = status_save(); /* a failure of before stays in the record */
    for (size_t i = 0; i < count; i++) {
        buffer_unreference(buffers[i]);
    }
    free(buffers);
    status_restore(&why);
}

/* Puts a copy in the place of a buffer that no transport carries. The reference on it is given up. */
static gpuipc_status send_a_copy(buffer **of, gpuipc_stream stream) {
    buffer *copy;
    gpuipc_status status = buffer_check_range(*of, 0, 0);
    if (status == GPUIPC_OK) {
        status = transport_staged_copy(*of, stream, &copy);
    }
    if (status == GPUIPC_OK) {
        buffer_unreference(*of);
        *of = copy;
    }
    return status;
}

/* The caller's buffers, or what goes in their place, with a reference each. */
static gpuipc_status acquire_all(const connection *to, const gpuipc_outgoing *message,
                                 buffer ***out_buffers) {
    buffer **buffers = calloc(message->buffer_count + 1, sizeof(buffer *));
    if (buffers == NULL) {
        return status_out_of_memory(message->buffer_count * sizeof(buffer *));
    }
    for (size_t i = 0; i < message->buffer_count; i++) {
        gpuipc_status status =
            message->buffers[i] == NULL
                ? status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "buffers[%zu] is NULL", i)
                : buffer_acquire(message->buffers[i], &buffers[i]);
        if (status != GPUIPC_OK) {
            unreference_all(buffers, i);
            return status;
        }
        if (buffers[i]->context != to->context) {
            status = status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                                 "buffer %zu belongs to another context than the connection", i);
        } else if ((message->flags & GPUIPC_SEND_STAGED) != 0 && buffers[i]->transport->is_copied) {
            status = send_a_copy(&buffers[i], message->stream);
        }
        if (status != GPUIPC_OK) {
            unreference_all(buffers, i + 1);
            return status;
        }
    }
    *out_buffers = buffers;
    return GPUIPC_OK;
}

static gpuipc_status send(connection *to, const gpuipc_outgoing *message, int timeout_ms) {
    buffer **buffers = NULL;                     /* as gcc -O3 wants it */
    gpuipc_status status = connection_check(to); /* before copies are made */
    if (status != GPUIPC_OK || (status = acquire_all(to, message, &buffers)) != GPUIPC_OK) {
        return status;
    }
    const letter as = {.kind = WIRE_MESSAGE, .buffers = buffers};
    status = connection_send_message(to, message, &as, timeout_ms);
    unreference_all(buffers, message->buffer_count);
    return status;
}

gpuipc_status gpuipc_connection_send(gpuipc_connection *handle, const gpuipc_outgoing *message,
                                     int timeout_ms) {
    status_enter(__func__);
    if (timeout_ms < -1) {
        return status_bad_timeout(timeout_ms);
    }
    gpuipc_outgoing known;
    connection *to;
    gpuipc_status status = struct_size_read(message, STRUCT_SIZE_UP_TO(gpuipc_outgoing, stream),
                                            &known, sizeof(known));
    if (status != GPUIPC_OK || (status = check_message(&known)) != GPUIPC_OK ||
        (status = connection_acquire(handle, &to)) != GPUIPC_OK) {
        return status;
    }
    os_interrupt interrupt;
    status = connection_lock_sending(to, &interrupt);
    if (status == GPUIPC_OK) {
        status = send(to, &known, timeout_ms);
        status = connection_unlock_sending(to, &interrupt, status);
    }
    connection_unreference(to);
    return status;
}

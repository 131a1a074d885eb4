/* SPDX-License-Identifier: MIT */
/** @file Sending a message: after the GPU work that makes its contents, in as few packets as the
 *  system's limits allow. */
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "connection.h"
#include "handover.h"
#include "struct_size.h"
#include "transport_staged.h"

#define OPERATION "gpuipc_connection_send"

/* A message on its way out: the buffers with a reference each, and how much has left. */
typedef struct outgoing {
    const gpuipc_outgoing *message;
    buffer **buffers;
    handover lent;
    wire_header sent; /* totals, and what all packets so far carried */
    uint32_t buffers_sent;
    uint32_t segments_sent;
    uint32_t segment_buffer; /* which buffer the next segment is of, */
    uint32_t segment_index;  /* and which of its segments */
} outgoing;

static void unreference_all(outgoing *self, size_t count) {
    for (size_t i = 0; i < count; i++) {
        buffer_unreference(self->buffers[i]);
    }
    free(self->buffers);
}

/* Puts a copy in the place of a buffer that no transport carries. The reference on it is given up. */
static gpuipc_status send_a_copy(buffer **of, gpuipc_stream stream) {
    buffer *copy;
    gpuipc_status status = transport_staged_copy(*of, stream, &copy);
    buffer_drop(*of);
    if (status == GPUIPC_OK) {
        *of = copy;
    }
    return status;
}

static gpuipc_status acquire_all(outgoing *self, const connection *to) {
    const gpuipc_outgoing *message = self->message;
    uint64_t segments = 0;
    self->buffers = calloc(message->buffer_count + 1, sizeof(*self->buffers));
    if (self->buffers == NULL) {
        return status_out_of_memory(OPERATION, message->buffer_count * sizeof(*self->buffers));
    }
    for (size_t i = 0; i < message->buffer_count; i++) {
        gpuipc_status status = buffer_acquire(message->buffers[i], OPERATION, &self->buffers[i]);
        if (status == GPUIPC_OK && self->buffers[i]->context != to->context) {
            buffer_unreference(self->buffers[i]);
            status = status_fail(GPUIPC_ERR_INVALID_ARGUMENT, OPERATION,
                                 "buffer %zu belongs to another context than the connection", i);
        }
        if (status == GPUIPC_OK && (message->flags & GPUIPC_SEND_STAGED) != 0 &&
            self->buffers[i]->transport == &transport_staged) {
            status = send_a_copy(&self->buffers[i], message->stream);
        }
        if (status == GPUIPC_OK &&
            (status = buffer_check_export(self->buffers[i], &to->peer)) != GPUIPC_OK) {
            buffer_unreference(self->buffers[i]);
        }
        if (status != GPUIPC_OK) {
            unreference_all(self, i);
            return status;
        }
        segments += self->buffers[i]->segment_count;
    }
    if (segments > UINT32_MAX) {
        unreference_all(self, message->buffer_count);
        return status_fail(GPUIPC_ERR_LIMIT, OPERATION, "the buffers have too many segments");
    }
    self->sent.total_bytes = (uint32_t)message->bytes_size;
    self->sent.total_buffers = (uint32_t)message->buffer_count;
    self->sent.total_segments = (uint32_t)segments;
    return GPUIPC_OK;
}

static uint32_t smaller(size_t a, size_t b) {
    return (uint32_t)(a < b ? a : b);
}

/* How much of what is left goes into the next packet. */
static wire_header plan_packet(const outgoing *self) {
    wire_header plan = self->sent;
    size_t room = OS_PACKET_BYTES_MAX - WIRE_HEADER_BYTES;
    /* the bytes of a message always fit in its first packet */
    plan.bytes = self->sent.bytes == 0 ? plan.total_bytes : 0;
    room -= plan.bytes;
    plan.buffers = (uint16_t)smaller(plan.total_buffers - self->buffers_sent,
                                     smaller(room / WIRE_BUFFER_BYTES, UINT16_MAX));
    room -= (size_t)plan.buffers * WIRE_BUFFER_BYTES;
    plan.segments = (uint16_t)smaller(plan.total_segments - self->segments_sent,
                                      smaller(room / WIRE_SEGMENT_BYTES, OS_PACKET_HANDLES_MAX));
    return plan;
}

static wire_buffer describe(const buffer *self, gpuipc_access offered) {
    gpuipc_access most = (gpuipc_access)(self->access_limit & offered);
    wire_buffer record = {.buffer_id = self->buffer_id,
                          .offset = self->offset,
                          .bytes = self->bytes,
                          .segment_count = self->segment_count,
                          .memory = (uint16_t)self->transport->memory,
                          .handle_type = (uint16_t)os_shareable_handle_type,
                          .access = (uint16_t)most,
                          .ready = WIRE_READY_NOW};
    memcpy(record.exporter_id, self->exporter_id, sizeof(record.exporter_id));
    memcpy(record.device_uuid, self->owner_uuid.bytes, sizeof(record.device_uuid));
    return record;
}

static void close_handles(os_handle *handles, size_t count) {
    for (size_t i = 0; i < count; i++) {
        os_handle_close(&handles[i]);
    }
}

/* Writes the next @p count segments and makes the handles that they name. */
static gpuipc_status put_segments(outgoing *self, group_set *sent_groups, uint32_t count,
                                  uint8_t *at, os_handle *handles, size_t *out_handles) {
    size_t made = 0;
    for (uint32_t i = 0; i < count; i++) {
        while (self->segment_index == self->buffers[self->segment_buffer]->segment_count) {
            self->segment_buffer++;
            self->segment_index = 0;
        }
        const buffer *from = self->buffers[self->segment_buffer];
        wire_segment record;
        os_handle handle = OS_HANDLE_NONE;
        gpuipc_status status = from->transport->export_segment(from, self->segment_index,
                                                               sent_groups, &record, &handle);
        if (status != GPUIPC_OK) {
            gpuipc_error why = status_save();
            close_handles(handles, made);
            status_restore(&why);
            return status;
        }
        if (os_handle_is_valid(handle)) {
            handles[made++] = handle;
        }
        wire_encode_segment(&record, at + (size_t)i * WIRE_SEGMENT_BYTES);
        self->segment_index++;
    }
    *out_handles = made;
    return GPUIPC_OK;
}

static gpuipc_status send_packet(outgoing *self, connection *to, os_deadline deadline) {
    os_handle handles[OS_PACKET_HANDLES_MAX];
    const gpuipc_outgoing *message = self->message;
    gpuipc_access offered =
        message->access == GPUIPC_ACCESS_DEFAULT ? GPUIPC_ACCESS_READ_WRITE : message->access;
    wire_header plan = plan_packet(self);
    uint8_t *at = to->packet_out;
    wire_encode_header(&plan, at);
    at += WIRE_HEADER_BYTES;
    if (plan.bytes > 0) {
        memcpy(at, message->bytes, plan.bytes);
        at += plan.bytes;
    }
    for (uint32_t i = 0; i < plan.buffers; i++, at += WIRE_BUFFER_BYTES) {
        wire_buffer record = describe(self->buffers[self->buffers_sent + i], offered);
        handover_describe(&self->lent, self->buffers_sent + i, &record);
        wire_encode_buffer(&record, at);
    }
    const size_t groups = to->sent_groups.count;
    size_t handle_count = 0;
    gpuipc_status status =
        put_segments(self, &to->sent_groups, plan.segments, at, handles, &handle_count);
    if (status != GPUIPC_OK) {
        group_set_truncate(&to->sent_groups, groups);
        return status;
    }
    status = os_connection_send(to->os, to->packet_out, wire_packet_bytes(&plan), handles,
                                handle_count, deadline);
    gpuipc_error why = status_save();
    close_handles(handles, handle_count);
    status_restore(&why);
    if (status != GPUIPC_OK) {
        group_set_truncate(&to->sent_groups, groups); /* they went nowhere */
    } else {
        self->sent.bytes += plan.bytes;
        self->buffers_sent += plan.buffers;
        self->segments_sent += plan.segments;
    }
    return status;
}

static gpuipc_status send_all(outgoing *self, connection *to, os_deadline deadline) {
    bool first = true;
    do {
        gpuipc_status status = send_packet(self, to, deadline);
        if (status == GPUIPC_ERR_RELEASED && atomic_load(&to->broken)) {
            return connection_check(to, OPERATION); /* the receiving side broke it off */
        }
        if (status != GPUIPC_OK) {
            /* Of a peer that closed, what it had sent before can still be received. */
            if (!first && status != GPUIPC_ERR_PEER_CLOSED) {
                /* The receiver waits for the rest of this message and could make nothing of
                 * another. */
                connection_break(to);
                status_add("; part of the message had left, so the connection is broken");
            }
            return status;
        }
        first = false;
    } while (self->sent.bytes < self->sent.total_bytes ||
             self->buffers_sent < self->sent.total_buffers ||
             self->segments_sent < self->sent.total_segments);
    to->next_out++;
    return GPUIPC_OK;
}

gpuipc_status connection_send_message(connection *to, const gpuipc_outgoing *message,
                                      wire_kind kind, int timeout_ms) {
    outgoing self = {.message = message, .sent = {.kind = kind, .number = to->next_out}};
    gpuipc_status status = connection_check(to, OPERATION);
    if (status != GPUIPC_OK || (status = acquire_all(&self, to)) != GPUIPC_OK) {
        return status;
    }
    status = handover_begin(&self.lent, to, self.buffers, (uint32_t)message->buffer_count,
                            message->flags, message->stream);
    if (status == GPUIPC_OK) {
        const os_deadline deadline = os_deadline_after(timeout_ms);
        status = handover_send_page(&self.lent, deadline);
        if (status == GPUIPC_OK) {
            status = send_all(&self, to, deadline);
        }
        handover_end(&self.lent, self.buffers_sent);
    }
    unreference_all(&self, message->buffer_count);
    return status;
}

static gpuipc_status check_message(const gpuipc_outgoing *message) {
    if (message->bytes_size > GPUIPC_MESSAGE_BYTES_MAX || message->buffer_count > UINT32_MAX) {
        return status_fail(GPUIPC_ERR_LIMIT, OPERATION,
                           "%zu bytes and %zu buffers; a message carries at most %d bytes",
                           message->bytes_size, message->buffer_count, GPUIPC_MESSAGE_BYTES_MAX);
    }
    if ((message->bytes == NULL && message->bytes_size > 0) ||
        (message->buffers == NULL && message->buffer_count > 0)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, OPERATION,
                           "bytes or buffers is NULL although its count is not 0");
    }
    if ((message->flags &
         ~(GPUIPC_SEND_READY | GPUIPC_SEND_ASYNC | GPUIPC_SEND_EVENT | GPUIPC_SEND_STAGED)) != 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, OPERATION,
                           "flags has bits that this library does not know: 0x%x", message->flags);
    }
    gpuipc_status status = handover_check_flags(message->flags, OPERATION);
    if (status != GPUIPC_OK) {
        return status;
    }
    return buffer_check_access(message->access, OPERATION);
}

gpuipc_status gpuipc_connection_send(gpuipc_connection *handle, const gpuipc_outgoing *message,
                                     int timeout_ms) {
    gpuipc_outgoing known;
    connection *to;
    gpuipc_status status = struct_size_read(message, STRUCT_SIZE_UP_TO(gpuipc_outgoing, stream),
                                            &known, sizeof(known), OPERATION);
    if (status != GPUIPC_OK || (status = check_message(&known)) != GPUIPC_OK ||
        (status = connection_acquire(handle, OPERATION, &to)) != GPUIPC_OK) {
        return status;
    }
    if (os_mutex_try_lock(&to->send_mutex)) {
        status = connection_send_message(to, &known, WIRE_MESSAGE, timeout_ms);
        os_mutex_unlock(&to->send_mutex);
    } else {
        status = status_fail(GPUIPC_ERR_BUSY, OPERATION, "another thread is sending on it");
    }
    connection_unreference(to);
    return status;
}

/* SPDX-License-Identifier: MIT */
/** @file See ticket_server.h. */
#include "ticket_server.h"

#include <string.h>

#include "memory/buffer.h"
#include "message/connection.h"

void ticket_server_open(ticket_server *self, gpuipc_context *within, gpuipc_buffer *of) {
    char name[TICKET_ENDPOINT_SIZE];
    *self = (ticket_server){.context = within,
                            .buffer = of,
                            .flags = GPUIPC_SEND_READY,
                            .names = {.share = 1, .secret = {1, 2, 3}, .boot = ticket_boot()}};
    check_ok(os_random(self->names.server_id, sizeof(self->names.server_id)));
    ticket_endpoint(self->names.server_id, name);
    check_ok(gpuipc_listener_open(within, name, NULL, &self->listener));
}

void ticket_server_close(ticket_server *self) {
    check_ok(gpuipc_connection_close(self->connection));
    check_ok(gpuipc_listener_close(self->listener));
    self->connection = NULL;
    self->listener = NULL;
}

gpuipc_ticket ticket_server_ticket(const ticket_server *self, uint64_t offset, uint64_t bytes) {
    ticket one = self->names;
    gpuipc_ticket made;
    one.offset = offset;
    one.bytes = bytes;
    ticket_encode(&one, &made);
    return made;
}

static gpuipc_status take_request(connection *from, wire_wish wish, ticket *out_ticket) {
    wire_request request;
    gpuipc_ticket bytes;
    gpuipc_status status =
        connection_receive_whole(from, WIRE_REQUEST, false, os_deadline_after(SOON_MS));
    if (status != GPUIPC_OK) {
        return status;
    }
    status = wire_decode_request(from->in.bytes, from->in.byte_count, &request);
    connection_clear_message(from, false);
    if (status == GPUIPC_OK) {
        status = request.wish == wish ? GPUIPC_OK : GPUIPC_ERR_PROTOCOL;
        memcpy(bytes.bytes, request.ticket, sizeof(bytes.bytes));
    }
    return status == GPUIPC_OK ? ticket_decode(&bytes, out_ticket) : status;
}

static gpuipc_status reply(const ticket_server *self, connection *to, wire_answer answer,
                           const ticket *range) {
    uint8_t packed[WIRE_REPLY_BYTES + 64];
    const size_t attached =
        range == NULL || self->attachment == NULL ? 0 : strlen(self->attachment) + 1;
    wire_reply head = {.answer = (uint16_t)answer,
                       .flags = range == NULL ? 0 : self->reply_flags,
                       .attachment_bytes = (uint32_t)attached};
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .bytes = packed,
                                     .bytes_size = WIRE_REPLY_BYTES + attached,
                                     .buffer_count = range == NULL ? 0 : 1,
                                     .flags = range == NULL ? GPUIPC_SEND_READY : self->flags,
                                     .stream = self->stream};
    letter as = {.kind = WIRE_REPLY};
    buffer *sent;
    if (answer == WIRE_BUSY && range == NULL) {
        head.flags = (uint16_t)self->busy;
        head.attachment_bytes = self->limit;
    }
    wire_encode_reply(&head, packed);
    if (attached > 0) {
        memcpy(packed + WIRE_REPLY_BYTES, self->attachment, attached);
    }
    if (range != NULL) {
        as.is_range = true;
        as.offset = range->offset;
        as.bytes = range->bytes;
        check_ok(buffer_acquire(self->buffer, &sent));
        as.buffers = &sent;
    }
    gpuipc_status status = connection_send_message(to, &message, &as, SOON_MS);
    if (range != NULL) {
        buffer_unwind(sent);
    }
    return status;
}

static gpuipc_status send_part(const connection *to) {
    const wire_reply head = {.answer = WIRE_GRANTED, .attachment_bytes = 1};
    const wire_header header = {.kind = WIRE_REPLY,
                                .number = to->next_out,
                                .total_bytes = WIRE_REPLY_BYTES + 1,
                                .bytes = WIRE_REPLY_BYTES};
    uint8_t packet[WIRE_HEADER_BYTES + WIRE_REPLY_BYTES];
    wire_encode_header(&header, packet);
    wire_encode_reply(&head, packet + WIRE_HEADER_BYTES);
    return os_connection_send(to->os, packet, sizeof(packet), NULL, 0, os_deadline_after(SOON_MS));
}

static gpuipc_status answer(ticket_server *self, const ticket_step *step) {
    static const char text[] = "no reply";
    const gpuipc_outgoing other = {
        .struct_size = sizeof(other), .bytes = text, .bytes_size = sizeof(text)};
    connection *of;
    ticket wanted;
    gpuipc_status status = connection_acquire(self->connection, &of);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (step->act == TICKET_CONFIRM) {
        status = take_request(of, WIRE_CONFIRM, &wanted);
    } else if (step->act != TICKET_SAY) {
        status = take_request(of, WIRE_OPEN, &wanted);
        self->requests++;
    }
    if (status == GPUIPC_OK) {
        switch (step->act) {
        case TICKET_GRANT:
            status = reply(self, of, WIRE_GRANTED, &wanted);
            break;
        case TICKET_WRONG:
            status = reply(self, of, step->answer, &wanted);
            break;
        case TICKET_SAY:
        case TICKET_ANSWER:
            status = reply(self, of, step->answer, NULL);
            break;
        case TICKET_PART:
            status = send_part(of);
            break;
        case TICKET_MESSAGE:
            status = gpuipc_connection_send(self->connection, &other, SOON_MS);
            break;
        default:
            break;
        }
    }
    connection_unreference(of);
    return status;
}

static gpuipc_status work(void *argument) {
    ticket_server *self = argument;
    gpuipc_status status = GPUIPC_OK;
    for (; self->steps->act != TICKET_END && status == GPUIPC_OK; self->steps++) {
        if (self->steps->act == TICKET_ACCEPT || self->steps->act == TICKET_HANG_UP) {
            status = gpuipc_connection_close(self->connection);
            self->connection = NULL;
        }
        if (self->steps->act == TICKET_ACCEPT && status == GPUIPC_OK) {
            status = gpuipc_listener_accept(self->listener, SOON_MS, &self->connection);
        } else if (self->steps->act != TICKET_HANG_UP) {
            status = answer(self, self->steps);
        }
    }
    return status;
}

void ticket_server_begin(ticket_server *self, const ticket_step *steps) {
    self->steps = steps;
    core_waiter_begin(&self->thread, work, self);
}

void ticket_server_end(ticket_server *self) {
    const gpuipc_status status = core_waiter_end(&self->thread);
    cr_assert_eq(status, GPUIPC_OK, "the server's step %d answered %s", (int)self->steps->act,
                 gpuipc_status_name(status));
}

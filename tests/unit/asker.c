/* SPDX-License-Identifier: MIT */
/** @file See asker.h. */
#include "asker.h"

#include <string.h>

#include "ticket/server.h"

gpuipc_server *asker_server(uint32_t flags) {
    const gpuipc_server_config config = {.struct_size = sizeof(config), .flags = flags};
    gpuipc_server *made = NULL;
    check_ok(gpuipc_server_create(core_context, &config, &made));
    return made;
}

gpuipc_ticket asker_share(gpuipc_server *by, gpuipc_buffer *of) {
    gpuipc_ticket made;
    check_ok(gpuipc_buffer_share(by, of, NULL, &made));
    return made;
}

ticket asker_decode(const gpuipc_ticket *of) {
    ticket decoded;
    check_ok(ticket_decode(of, &decoded));
    return decoded;
}

gpuipc_ticket asker_forge(const gpuipc_ticket *of) {
    ticket decoded = asker_decode(of);
    gpuipc_ticket made;
    decoded.secret[7] ^= 1;
    ticket_encode(&decoded, &made);
    return made;
}

bool asker_is_here(const gpuipc_ticket *of) {
    const ticket decoded = asker_decode(of);
    server *found = server_find(decoded.server_id);
    if (found != NULL) {
        object_unreference(&found->object);
    }
    return found != NULL;
}

wire_answer asker_answer_here(const gpuipc_ticket *of, offer **out_offer) {
    const ticket decoded = asker_decode(of);
    server *from = server_find(decoded.server_id);
    offer *found = NULL;
    cr_assert_not_null(from);
    const wire_answer answer = share_find(&from->shares, &decoded, &found);
    object_unreference(&from->object);
    cr_assert_eq(found != NULL, answer == WIRE_GRANTED);
    if (out_offer != NULL) {
        *out_offer = found;
    } else {
        offer_unreference(found, false);
    }
    return answer;
}

void asker_set_patience(const gpuipc_ticket *of, uint64_t ns) {
    const ticket decoded = asker_decode(of);
    server *inside = server_find(decoded.server_id);
    cr_assert_not_null(inside);
    os_mutex_lock(&inside->shares.mutex);
    inside->shares.confirm_ns = ns;
    os_mutex_unlock(&inside->shares.mutex);
    object_unreference(&inside->object);
}

gpuipc_status asker_poll_late(gpuipc_server *of) {
    server *inside = NULL;
    check_ok(server_acquire(of, &inside));
    atomic_store(&inside->is_over, true);
    const gpuipc_status status = server_poll(inside, os_deadline_after(-1));
    object_unreference(&inside->object);
    check_ok(gpuipc_server_destroy(of));
    return status;
}

void asker_begin(asker *self, gpuipc_context *from, const gpuipc_ticket *of) {
    const ticket decoded = asker_decode(of);
    char name[TICKET_ENDPOINT_SIZE];
    ticket_endpoint(decoded.server_id, name);
    check_ok(gpuipc_connection_open(from, name, NULL, SOON_MS, &self->handle));
    check_ok(connection_acquire(self->handle, &self->connection));
}

void asker_end(asker *self) {
    if (self->handle != NULL) {
        check_ok(gpuipc_connection_close(self->handle));
        connection_unreference(self->connection);
    }
    *self = (asker){0};
}

gpuipc_status asker_send_bytes(asker *self, wire_kind kind, const void *bytes, size_t size) {
    const letter as = {.kind = kind};
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .bytes = bytes, .bytes_size = size};
    os_mutex_lock(&self->connection->send_mutex);
    gpuipc_status status = connection_send_message(self->connection, &message, &as, SOON_MS);
    os_mutex_unlock(&self->connection->send_mutex);
    return status;
}

static gpuipc_status send_wish(asker *self, wire_wish wish, const gpuipc_ticket *of) {
    wire_request request = {.wish = (uint16_t)wish};
    uint8_t bytes[WIRE_REQUEST_BYTES];
    memcpy(request.ticket, of->bytes, sizeof(request.ticket));
    wire_encode_request(&request, bytes);
    return asker_send_bytes(self, WIRE_REQUEST, bytes, sizeof(bytes));
}

gpuipc_status asker_send(asker *self, const gpuipc_ticket *of) {
    return send_wish(self, WIRE_OPEN, of);
}

gpuipc_status asker_confirm(asker *self, const gpuipc_ticket *of) {
    return send_wish(self, WIRE_CONFIRM, of);
}

static gpuipc_status deliver(connection *from, asker_reply *out_reply) {
    uint8_t bytes[WIRE_REPLY_BYTES + sizeof(out_reply->attachment)] = {0};
    asker_reply reply = {.buffer = NULL};
    wire_reply record;
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .bytes = bytes,
                               .bytes_capacity = sizeof(bytes) - 1,
                               .buffer_capacity = 1};
    if (from->in.buffer_count > 0) {
        reply.ready = from->in.buffers[0].ready;
    }
    const gpuipc_incoming wanted = message;
    buffer *opened = NULL;
    gpuipc_status status =
        connection_deliver(from, &wanted, &opened, &message, os_deadline_after(SOON_MS));
    if (status != GPUIPC_OK) {
        return status;
    }
    if (opened != NULL) {
        check_ok(buffer_publish(opened, &reply.buffer));
    }
    check_ok(wire_decode_reply(bytes, message.bytes_size, &record));
    reply.answer = (wire_answer)record.answer;
    reply.flags = record.flags;
    reply.limit = reply.answer == WIRE_BUSY ? record.attachment_bytes : 0;
    memcpy(reply.attachment, bytes + WIRE_REPLY_BYTES, sizeof(reply.attachment));
    *out_reply = reply;
    return GPUIPC_OK;
}

gpuipc_status asker_receive(asker *self, asker_reply *out_reply) {
    connection *from = self->connection;
    os_mutex_lock(&from->receive_mutex);
    gpuipc_status status =
        connection_receive_whole(from, WIRE_REPLY, false, os_deadline_after(SOON_MS));
    if (status == GPUIPC_OK) {
        status = deliver(from, out_reply);
    }
    os_mutex_unlock(&from->receive_mutex);
    return status;
}

wire_ready asker_peek(asker *self) {
    connection *from = self->connection;
    check_ok(connection_receive_whole(from, WIRE_REPLY, false, os_deadline_after(SOON_MS)));
    cr_assert_eq(from->in.buffer_count, 1);
    return (wire_ready)from->in.buffers[0].ready;
}

asker_reply asker_ask(asker *self, const gpuipc_ticket *of) {
    asker_reply reply;
    check_ok(asker_send(self, of));
    check_ok(asker_receive(self, &reply));
    cr_assert_eq(reply.buffer != NULL, reply.answer == WIRE_GRANTED);
    return reply;
}

wire_answer asker_answer(asker *self, const gpuipc_ticket *of) {
    const asker_reply reply = asker_ask(self, of);
    check_ok(gpuipc_buffer_release(reply.buffer));
    return reply.answer;
}

/* One request is answered after the other. */
void asker_settle(asker *self, const gpuipc_ticket *of) {
    ticket decoded = asker_decode(of);
    gpuipc_ticket beside;
    decoded.offset = UINT64_C(1) << 60;
    decoded.bytes = 1;
    ticket_encode(&decoded, &beside);
    cr_assert_neq(asker_answer(self, &beside), WIRE_GRANTED);
}

void asker_check_ended(asker *self) {
    asker_reply reply;
    gpuipc_status status;
    while ((status = asker_receive(self, &reply)) == GPUIPC_OK) {
        check_ok(gpuipc_buffer_release(reply.buffer)); /* what was answered before */
    }
    cr_assert_eq(status, GPUIPC_ERR_PEER_CLOSED, "%s: %s", gpuipc_status_name(status),
                 gpuipc_error_get()->sentence);
}

/* SPDX-License-Identifier: MIT */
/** @file See ticket_request.h. */
#include "ticket/ticket_request.h"

#include <stdlib.h>
#include <string.h>

#include "message/receipt.h"

gpuipc_status ticket_answer_status(wire_answer answer) {
    static const struct {
        gpuipc_status status;
        const char *sentence;
    } answers[] = {
        [WIRE_EXPIRED] = {GPUIPC_ERR_TICKET_EXPIRED,
                          "the time that its server gave the ticket is over"},
        [WIRE_REVOKED] = {GPUIPC_ERR_TICKET_REVOKED, "its owner has revoked the ticket"},
        [WIRE_USED_UP] = {GPUIPC_ERR_TICKET_USED_UP,
                          "this process is not among those that were admitted"},
        [WIRE_UNKNOWN] = {GPUIPC_ERR_TICKET_UNKNOWN,
                          "its server has no such share, or another secret for it"},
        [WIRE_OUT_OF_RANGE] = {GPUIPC_ERR_OUT_OF_RANGE,
                               "the ticket's range does not lie in what was shared"},
        [WIRE_BUSY] = {GPUIPC_ERR_SERVER_BUSY,
                       "this process or its user has as much open at the server as it may"},
        [WIRE_FAILED] = {GPUIPC_ERR_NOT_SHAREABLE,
                         "the process that made the ticket could not hand the buffer over; the log "
                         "of its context says why"},
        [WIRE_OTHER] = {GPUIPC_ERR_OTHER_KIND,
                        "the ticket of a channel opens a subscription, that of a buffer a buffer"},
        [WIRE_FULL] = {GPUIPC_ERR_LIMIT, "the channel has as many readers as it may"},
        [WIRE_TOO_MANY] = {GPUIPC_ERR_LIMIT,
                           "the channel lets no reader hold so many frames at a time"}};
    return status_fail(answers[answer].status, "%s", answers[answer].sentence);
}

gpuipc_status ticket_reply_status(const wire_reply *reply) {
    const unsigned limit = reply->attachment_bytes;
    if (reply->answer != WIRE_BUSY) {
        return ticket_answer_status((wire_answer)reply->answer);
    }
    switch (reply->flags) {
    case WIRE_BUSY_POLICY:
        return status_fail(GPUIPC_ERR_SERVER_BUSY, "the server's policy refuses this process");
    case WIRE_BUSY_USER:
        return status_fail(GPUIPC_ERR_SERVER_BUSY,
                           "the server has %u connections of this user, and admits no more; raise "
                           "max_connections_per_user where the server is made",
                           limit);
    case WIRE_BUSY_ALL:
        return status_fail(GPUIPC_ERR_SERVER_BUSY,
                           "the server has %u connections, and admits no more; raise "
                           "max_connections where the server is made",
                           limit);
    case WIRE_BUSY_HANDLES:
        return status_fail(GPUIPC_ERR_SERVER_BUSY,
                           "the server's process may open %u descriptors or handles, of which one "
                           "user's processes may use half; raise its "
                           "limit (ulimit -n)",
                           limit);
    case WIRE_BUSY_LATER:
        return status_fail(GPUIPC_ERR_SERVER_BUSY,
                           "the server has sent long replies to this user's processes for as long "
                           "as it does within a second; it has time again in %u ms",
                           limit);
    default:
        return ticket_answer_status(WIRE_BUSY);
    }
}

/* In a reply that is not what it should be there may be more to come that nobody could make sense of. */
static gpuipc_status bad_reply(connection *from, const char *sentence) {
    connection_clear_message(from, true);
    connection_break(from);
    return status_fail(GPUIPC_ERR_PROTOCOL, "%s", sentence);
}

/* The reply that has come is a buffer. */
static gpuipc_status open_reply(connection *from, const wire_reply *reply,
                                const gpuipc_open_config *config, os_deadline deadline,
                                ticket_given *out) {
    const size_t size = reply->attachment_bytes;
    void *attachment = size == 0 ? NULL : malloc(size);
    gpuipc_status status;
    if (size > 0 && attachment == NULL) {
        status = status_out_of_memory(size);
        connection_clear_message(from, true);
        return status;
    }
    if (size > 0) {
        memcpy(attachment, from->in.bytes + WIRE_REPLY_BYTES, size);
    }
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .bytes_capacity = GPUIPC_MESSAGE_BYTES_MAX,
                               .buffer_capacity = 1,
                               .flags = config->flags | GPUIPC_RECEIVE_DEFERRED,
                               .device = config->device,
                               .access = config->access,
                               .stream = config->stream};
    status = connection_deliver(from, &message, &out->buffer, &message, deadline);
    if (status != GPUIPC_OK) {
        free(attachment);
        return status;
    }
    out->is_one_shot = (reply->flags & WIRE_REPLY_ONE_SHOT) != 0;
    out->is_attachment_withheld = (reply->flags & WIRE_REPLY_WITHHELD) != 0;
    out->attachment = attachment;
    out->attachment_bytes = size;
    return GPUIPC_OK;
}

static gpuipc_status take_reply(connection *from, const gpuipc_open_config *config, uint64_t bytes,
                                os_deadline deadline, ticket_given *out) {
    const incoming *in = &from->in;
    wire_reply reply;
    gpuipc_status status = wire_decode_reply(in->bytes, in->byte_count, &reply);
    if (status != GPUIPC_OK) {
        connection_clear_message(from, true);
        connection_break(from);
        return status;
    }
    const bool is_granted = reply.answer == WIRE_GRANTED;
    if (in->buffer_count != (is_granted ? 1u : 0u)) {
        return bad_reply(from, is_granted ? "the server grants a buffer and sends none, or several"
                                          : "the server refuses and sends a buffer");
    }
    if (is_granted && in->buffers[0].bytes != bytes) {
        return bad_reply(from, "the server grants another range than was asked for");
    }
    if (is_granted) {
        return open_reply(from, &reply, config, deadline, out);
    }
    connection_clear_message(from, false);
    if (reply.answer == WIRE_BUSY && reply.flags == WIRE_BUSY_LATER) {
        out->later_ms = reply.attachment_bytes == 0 ? 1 : reply.attachment_bytes;
    }
    return ticket_reply_status(&reply);
}

gpuipc_status ticket_request_send(connection *to, const gpuipc_ticket *bytes,
                                  const wire_request *wish, os_deadline deadline) {
    uint8_t packed[WIRE_REQUEST_BYTES];
    wire_request request = *wish;
    const letter as = {.kind = WIRE_REQUEST};
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .bytes = packed,
                                     .bytes_size = sizeof(packed),
                                     .flags = GPUIPC_SEND_READY};
    memcpy(request.ticket, bytes->bytes, sizeof(request.ticket));
    wire_encode_request(&request, packed);
    os_mutex_lock(&to->send_mutex);
    gpuipc_status status =
        connection_send_message(to, &message, &as, os_deadline_left_ms(deadline));
    os_mutex_unlock(&to->send_mutex);
    return status;
}

void ticket_request_confirm(connection *to, const gpuipc_ticket *bytes) {
    const gpuipc_error why = status_save();
    const wire_request wish = {.wish = WIRE_CONFIRM};
    (void)ticket_request_send(to, bytes, &wish, os_deadline_after(0));
    status_restore(&why);
}

gpuipc_status ticket_request_receive(connection *from, const gpuipc_open_config *config,
                                     uint64_t bytes, os_deadline deadline, ticket_given *out,
                                     bool *out_is_usable) {
    const bool keeps_handles = (config->flags & GPUIPC_RECEIVE_KEEP_HANDLES) != 0;
    *out_is_usable = false;
    os_mutex_lock(&from->receive_mutex);
    gpuipc_status status = connection_receive_whole(from, WIRE_REPLY, keeps_handles, deadline);
    if (status == GPUIPC_OK) {
        status = take_reply(from, config, bytes, deadline, out);
        *out_is_usable =
            (status != GPUIPC_ERR_SERVER_BUSY || out->later_ms != 0) && !atomic_load(&from->broken);
    }
    connection_unlock_receiving(from);
    return status;
}

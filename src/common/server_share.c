/* SPDX-License-Identifier: MIT */
/** @file See server.h: what this process itself asks of its servers. */
#include <stdlib.h>
#include <string.h>

#include "handover.h"
#include "server_internal.h"
#include "struct_size.h"

/* ---- sharing ------------------------------------------------------------------------------- */

static gpuipc_status check_config(const gpuipc_share_config *config, const char *operation) {
    if (config->attachment_bytes > GPUIPC_MESSAGE_BYTES_MAX - 64) {
        return status_fail(GPUIPC_ERR_LIMIT, operation,
                           "the attachment has %zu bytes; the most is %d", config->attachment_bytes,
                           GPUIPC_MESSAGE_BYTES_MAX - 64);
    }
    if (config->reserved != 0 || (config->attachment == NULL && config->attachment_bytes > 0)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, operation,
                           "reserved is not 0, or attachment is NULL although its size is not");
    }
    if ((config->flags & ~(GPUIPC_SEND_READY | GPUIPC_SEND_ASYNC | GPUIPC_SEND_STAGED)) != 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, operation,
                           "flags has bits that a ticket does not know: 0x%x", config->flags);
    }
    gpuipc_status status = handover_check_flags(config->flags, operation);
    return status == GPUIPC_OK ? buffer_check_access(config->access, operation) : status;
}

static gpuipc_status read_config(const gpuipc_share_config *config, gpuipc_share_config *out_known,
                                 const char *operation) {
    gpuipc_share_config known = {0};
    if (config != NULL) {
        gpuipc_status status =
            struct_size_read(config, STRUCT_SIZE_UP_TO(gpuipc_share_config, stream), &known,
                             sizeof(known), operation);
        if (status != GPUIPC_OK || (status = check_config(&known, operation)) != GPUIPC_OK) {
            return status;
        }
    }
    *out_known = known;
    return GPUIPC_OK;
}

/* What was left to the buffer: the rest of it. */
static gpuipc_status settle_range(const buffer *of, gpuipc_share_config *config,
                                  const char *operation) {
    gpuipc_status status = buffer_check_range(of, config->offset, config->bytes, operation);
    if (status == GPUIPC_OK && config->bytes == 0) {
        config->bytes = of->bytes - config->offset;
    }
    return status == GPUIPC_OK && config->bytes == 0
               ? status_fail(GPUIPC_ERR_OUT_OF_RANGE, operation,
                             "the range begins where the buffer ends")
               : status;
}

static gpuipc_status give_out(server *self, buffer *of, gpuipc_share_config *config,
                              const char *operation, gpuipc_ticket *out_ticket) {
    const share_limits limits = {.expires_ms = config->expires_ms,
                                 .max_processes = config->max_processes};
    offer *offered;
    bool is_next = false;
    if (of->context != self->context) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, operation,
                           "the buffer belongs to another context than the server");
    }
    gpuipc_status status = settle_range(of, config, operation);
    if (status != GPUIPC_OK || (status = offer_new(of, config, operation, &offered)) != GPUIPC_OK) {
        return status;
    }
    ticket made = {
        .offset = config->offset, .bytes = config->bytes, .boot = self->boot, .user = self->user};
    memcpy(made.server_id, self->id, sizeof(made.server_id));
    status = share_add(&self->shares, offered, &limits, operation, &made, &is_next);
    if (status != GPUIPC_OK) {
        offer_unreference(offered, false);
        return status;
    }
    share_sweep(&self->shares);
    if (is_next && self->has_thread) {
        os_poller_wake(self->poller); /* which waits for one that expires later */
    }
    ticket_encode(&made, out_ticket);
    return GPUIPC_OK;
}

gpuipc_status gpuipc_buffer_share(gpuipc_server *handle, gpuipc_buffer *buffer_handle,
                                  const gpuipc_share_config *config, gpuipc_ticket *out_ticket) {
    const char *const operation = "gpuipc_buffer_share";
    gpuipc_share_config known;
    server *self;
    buffer *of;
    gpuipc_status status;
    if (out_ticket == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, operation, "out_ticket is NULL");
    }
    if ((status = read_config(config, &known, operation)) != GPUIPC_OK ||
        (status = server_acquire(handle, operation, &self)) != GPUIPC_OK) {
        return status;
    }
    status = buffer_acquire(buffer_handle, operation, &of);
    if (status == GPUIPC_OK) {
        status = give_out(self, of, &known, operation, out_ticket);
        buffer_drop(of);
    }
    object_unreference(&self->object);
    return status;
}

/* ---- looking after tickets ----------------------------------------------------------------- */

/* The server, with a reference, and what the ticket says. */
static gpuipc_status acquire_for(gpuipc_server *handle, const gpuipc_ticket *bytes,
                                 const char *operation, server **out_server, ticket *out_ticket) {
    server *self;
    gpuipc_status status;
    if (bytes == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, operation, "ticket is NULL");
    }
    if ((status = ticket_decode(bytes, operation, out_ticket)) != GPUIPC_OK ||
        (status = server_acquire(handle, operation, &self)) != GPUIPC_OK) {
        return status;
    }
    if (memcmp(out_ticket->server_id, self->id, sizeof(self->id)) != 0) {
        object_unreference(&self->object);
        return status_fail(GPUIPC_ERR_TICKET_UNKNOWN, operation, "it is another server's ticket");
    }
    *out_server = self;
    return GPUIPC_OK;
}

gpuipc_status gpuipc_server_revoke(gpuipc_server *handle, const gpuipc_ticket *bytes) {
    const char *const operation = "gpuipc_server_revoke";
    server *self = NULL;
    ticket decoded;
    gpuipc_status status = acquire_for(handle, bytes, operation, &self, &decoded);
    if (status == GPUIPC_OK) {
        status = share_revoke(&self->shares, &decoded, operation);
        object_unreference(&self->object);
    }
    return status;
}

gpuipc_status gpuipc_server_holders(gpuipc_server *handle, const gpuipc_ticket *bytes,
                                    gpuipc_holder *holders, size_t capacity, size_t *out_count) {
    const char *const operation = "gpuipc_server_holders";
    server *self = NULL;
    ticket decoded;
    if (out_count == NULL || (holders == NULL && capacity > 0)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, operation,
                           "out_count is NULL, or holders although capacity is not 0");
    }
    gpuipc_status status = acquire_for(handle, bytes, operation, &self, &decoded);
    if (status == GPUIPC_OK) {
        status = share_holders(&self->shares, &decoded, holders, capacity, out_count, operation);
        object_unreference(&self->object);
    }
    return status;
}

/* ---- a ticket of this process's own -------------------------------------------------------- */

static gpuipc_status copy_attachment(const offer *of, server_local *out) {
    const void *bytes = offer_attachment(of, &out->attachment_bytes);
    if (bytes == NULL) {
        return GPUIPC_OK;
    }
    out->attachment = malloc(out->attachment_bytes);
    if (out->attachment == NULL) {
        return status_out_of_memory("gpuipc_buffer_open", out->attachment_bytes);
    }
    memcpy(out->attachment, bytes, out->attachment_bytes);
    return GPUIPC_OK;
}

static gpuipc_status take(offer *of, server_local *out) {
    gpuipc_status status = copy_attachment(of, out);
    if (status == GPUIPC_OK) {
        object_reference(&of->of->object);
        out->original = of->of;
        const gpuipc_access offered =
            of->access == GPUIPC_ACCESS_DEFAULT ? GPUIPC_ACCESS_READ_WRITE : of->access;
        out->access = (gpuipc_access)(of->of->access_limit & offered);
    }
    return status;
}

static void settle(server *self, share_grant *grant, bool is_opened) {
    const point none = {0, 0};
    share_settle(&self->shares, grant, NULL, is_opened, NULL, &none);
}

/* @param out_local GRANTED: it has the reference on the server */
static gpuipc_status ask(server *self, const ticket *decoded, server_local *out_local) {
    server_local local = {.is_here = true, .server = self};
    gpuipc_status status = share_ask(&self->shares, decoded, NULL, &local.answer, &local.grant);
    if (status == GPUIPC_OK && local.answer == WIRE_GRANTED) {
        status = take(local.grant.offer, &local);
        if (status != GPUIPC_OK) {
            settle(self, &local.grant, false);
        }
    }
    if (status == GPUIPC_OK) {
        *out_local = local;
    }
    return status;
}

gpuipc_status server_ask_local(const ticket *decoded, server_local *out_local) {
    server *self = server_find(decoded->server_id);
    if (self == NULL) {
        *out_local = (server_local){.is_here = false};
        return GPUIPC_OK;
    }
    gpuipc_status status = ask(self, decoded, out_local);
    if (status != GPUIPC_OK || out_local->answer != WIRE_GRANTED) {
        object_unreference(&self->object);
    }
    return status;
}

gpuipc_status server_local_await(const server_local *self, const buffer *opened, uint32_t flags,
                                 gpuipc_stream stream, os_deadline deadline) {
    return offer_await(self->grant.offer, opened, flags, stream, deadline);
}

void server_local_settle(server_local *self, bool is_opened) {
    const gpuipc_error why = status_save();
    settle(self->server, &self->grant, is_opened);
    object_unreference(&self->server->object);
    status_restore(&why);
}

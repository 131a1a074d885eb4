/* SPDX-License-Identifier: MIT */
/** @file See server.h: what the program asks about tickets that it has given out, and how it takes them back. */
#include <string.h>

#include "ticket/server.h"

/* The server, with a reference, and what the ticket says. */
static gpuipc_status acquire_for(gpuipc_server *handle, const gpuipc_ticket *bytes,
                                 server **out_server, ticket *out_ticket) {
    server *self;
    gpuipc_status status;
    if (bytes == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "ticket is NULL");
    }
    if ((status = ticket_decode(bytes, out_ticket)) != GPUIPC_OK ||
        (status = server_acquire(handle, &self)) != GPUIPC_OK) {
        return status;
    }
    if (memcmp(out_ticket->server_id, self->id, sizeof(self->id)) != 0) {
        object_unreference(&self->object);
        return status_fail(GPUIPC_ERR_TICKET_UNKNOWN, "it is another server's ticket");
    }
    *out_server = self;
    return GPUIPC_OK;
}

/* A server that is destroyed meanwhile has forgotten its tickets, so that it does not know them. Gives the reference back. */
static gpuipc_status settle(server *self, gpuipc_status status) {
    if (status == GPUIPC_ERR_TICKET_UNKNOWN && atomic_load(&self->is_over)) {
        status = status_fail(GPUIPC_ERR_RELEASED, "the server was destroyed meanwhile");
    }
    const gpuipc_error why = status_save();
    object_unreference(&self->object);
    status_restore(&why);
    return status;
}

gpuipc_status gpuipc_server_revoke(gpuipc_server *handle, const gpuipc_ticket *bytes) {
    status_enter(__func__);
    server *self = NULL;
    ticket decoded;
    gpuipc_status status = acquire_for(handle, bytes, &self, &decoded);
    if (status == GPUIPC_OK) {
        status = settle(self, share_revoke(&self->shares, &decoded));
    }
    return status;
}

gpuipc_status gpuipc_server_holders(gpuipc_server *handle, const gpuipc_ticket *bytes,
                                    gpuipc_holder *holders, size_t capacity, size_t *out_count) {
    status_enter(__func__);
    server *self = NULL;
    ticket decoded;
    if (out_count == NULL || (holders == NULL && capacity > 0)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "out_count is NULL, or holders although capacity is not 0");
    }
    gpuipc_status status = acquire_for(handle, bytes, &self, &decoded);
    if (status == GPUIPC_OK) {
        status = share_holders(&self->shares, &decoded, holders, capacity, out_count);
        status = settle(self, status);
    }
    return status;
}

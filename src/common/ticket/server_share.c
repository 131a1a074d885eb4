/* SPDX-License-Identifier: MIT */
/** @file See server.h: how the program gives tickets out. */
#include <string.h>

#include "base/struct_size.h"
#include "message/handover.h"
#include "ticket/server.h"

static gpuipc_status check_config(const gpuipc_share_config *config) {
    if (config->attachment_bytes > GPUIPC_MESSAGE_BYTES_MAX - 64) {
        return status_fail(GPUIPC_ERR_LIMIT, "the attachment has %zu bytes; the most is %d",
                           config->attachment_bytes, GPUIPC_MESSAGE_BYTES_MAX - 64);
    }
    if (config->reserved != 0 || (config->attachment == NULL && config->attachment_bytes > 0)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "reserved is not 0, or attachment is NULL although its size is not");
    }
    if ((config->flags & ~(GPUIPC_SEND_READY | GPUIPC_SEND_ASYNC | GPUIPC_SEND_STAGED |
                           GPUIPC_SHARE_ONE_SHOT)) != 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "flags has bits that a ticket does not know: 0x%x", config->flags);
    }
    gpuipc_status status = handover_check_flags(config->flags);
    return status == GPUIPC_OK ? buffer_check_access(config->access) : status;
}

static gpuipc_status read_config(const gpuipc_share_config *config,
                                 gpuipc_share_config *out_known) {
    gpuipc_share_config known = {0};
    if (config != NULL) {
        gpuipc_status status = struct_size_read(
            config, STRUCT_SIZE_UP_TO(gpuipc_share_config, stream), &known, sizeof(known));
        if (status != GPUIPC_OK || (status = check_config(&known)) != GPUIPC_OK) {
            return status;
        }
    }
    *out_known = known;
    return GPUIPC_OK;
}

/* What was left to the buffer: the rest of it. */
static gpuipc_status settle_range(const buffer *of, gpuipc_share_config *config) {
    gpuipc_status status = buffer_check_range(of, config->offset, config->bytes);
    if (status == GPUIPC_OK && config->bytes == 0) {
        config->bytes = of->bytes - config->offset;
    }
    return status == GPUIPC_OK && config->bytes == 0
               ? status_fail(GPUIPC_ERR_OUT_OF_RANGE, "the range begins where the buffer ends")
               : status;
}

static gpuipc_status give_out(server *self, buffer *of, gpuipc_share_config *config,
                              gpuipc_ticket *out_ticket) {
    const bool is_one_shot = (config->flags & GPUIPC_SHARE_ONE_SHOT) != 0;
    const share_limits limits = {
        .expires_ms = config->expires_ms,
        .max_processes = is_one_shot && config->max_processes == 0 ? 1 : config->max_processes,
        .is_one_shot = is_one_shot};
    offer *offered;
    bool is_next = false;
    if (of->context != self->context) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "the buffer belongs to another context than the server");
    }
    gpuipc_status status = settle_range(of, config);
    if (status != GPUIPC_OK || (status = server_renew_names(self)) != GPUIPC_OK ||
        (status = offer_new(of, config, &self->is_over, &offered)) != GPUIPC_OK) {
        return status;
    }
    ticket made = {
        .offset = config->offset, .bytes = config->bytes, .boot = self->boot, .user = self->user};
    memcpy(made.server_id, self->id, sizeof(made.server_id));
    status = share_add(&self->shares, offered, &limits, &made, &is_next);
    if (status != GPUIPC_OK) {
        offer_unreference(offered, false);
        return status;
    }
    share_sweep(&self->shares);
    if (is_next) {
        os_poller_wake(self->poller); /* which may be waiting for one that expires later */
    }
    if (atomic_load(
            &self->is_over)) { /* which was looked at before the shares were forgotten, or ends this one */
        return status_fail(GPUIPC_ERR_RELEASED, "the server was destroyed meanwhile");
    }
    ticket_encode(&made, out_ticket);
    return GPUIPC_OK;
}

gpuipc_status gpuipc_buffer_share(gpuipc_server *handle, gpuipc_buffer *buffer_handle,
                                  const gpuipc_share_config *config, gpuipc_ticket *out_ticket) {
    status_enter(__func__);
    gpuipc_share_config known;
    server *self;
    buffer *of;
    gpuipc_status status;
    if (out_ticket == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_ticket is NULL");
    }
    if ((status = read_config(config, &known)) != GPUIPC_OK ||
        (status = server_acquire(handle, &self)) != GPUIPC_OK) {
        return status;
    }
    status = buffer_acquire(buffer_handle, &of);
    if (status == GPUIPC_OK) {
        status = give_out(self, of, &known, out_ticket);
        buffer_unwind(of);
    }
    object_unreference(&self->object);
    return status;
}

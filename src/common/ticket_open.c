/* SPDX-License-Identifier: MIT */
/** @file gpuipc_ticket.h: opening what a ticket stands for. */
#include <stdlib.h>

#include "buffer.h"
#include "lease_ask.h"
#include "opening.h"
#include "receipt.h"
#include "server.h"
#include "struct_size.h"

#define OPERATION          "gpuipc_buffer_open"
#define DEFAULT_TIMEOUT_MS 5000

static os_deadline deadline_of(const gpuipc_open_config *config) {
    return os_deadline_after(config->timeout_ms == 0 ? DEFAULT_TIMEOUT_MS : config->timeout_ms);
}

/* ---- open already --------------------------------------------------------------------------- */

/* Lets in whom the caller's policy lets in, and waits for the contents as its first opener does. */
static gpuipc_status check_again(buffer *found, const gpuipc_open_config *config) {
    gpuipc_status status = opening_check_peer(found, config, OPERATION);
    if (status == GPUIPC_OK && !receipt_is_ready(found)) {
        status =
            receipt_await(found, config->flags, config->stream, deadline_of(config), OPERATION);
    }
    return status == GPUIPC_OK && (config->flags & GPUIPC_RECEIVE_ASYNC) == 0
               ? receipt_check_contents(found, OPERATION)
               : status;
}

/* One handle more of a buffer that opening_find() has counted it for. Takes over the reference. */
static gpuipc_status open_again(buffer *found, const gpuipc_open_config *config,
                                gpuipc_buffer **out_buffer) {
    void *handle;
    gpuipc_status status = check_again(found, config);
    if (status == GPUIPC_OK) {
        status = object_publish(&found->object, &handle);
    }
    if (status != GPUIPC_OK) {
        atomic_fetch_sub(&found->handles, 1u);
        buffer_drop(found);
        return status;
    }
    *out_buffer = handle;
    return GPUIPC_OK;
}

/* ---- of this process itself ---------------------------------------------------------------- */

typedef struct own_opened {
    buffer *
        buffer; /* NULL: it is no ticket of this process, or one that only another driver's context could
                       open: another way must be taken */
    void *attachment;
    size_t attachment_bytes;
    bool
        is_ready; /* its contents are there; else a stream waits for them, and nobody else may find it */
} own_opened;

static gpuipc_status open_own(context *ctx, const ticket *decoded, const gpuipc_open_config *config,
                              own_opened *out) {
    server_local local = {.is_here = false};
    buffer *view = NULL;
    gpuipc_status status = server_ask_local(decoded, &local);
    *out = (own_opened){.buffer = NULL};
    if (status != GPUIPC_OK || !local.is_here) {
        return status;
    }
    if (local.answer != WIRE_GRANTED) {
        return lease_status_of(local.answer);
    }
    if (local.original->context->driver.library != ctx->driver.library) {
        status = GPUIPC_OK;
        goto give_back;
    }
    status = buffer_check_range(local.original, decoded->offset, decoded->bytes, OPERATION);
    if (status == GPUIPC_OK) {
        status = buffer_open_view(ctx, local.original, decoded->offset, decoded->bytes,
                                  config->device, config->access, local.access, &view);
    }
    if (status != GPUIPC_OK) {
        goto give_back;
    }
    status = server_local_await(&local, view, config->flags, config->stream, deadline_of(config));
    if (status != GPUIPC_OK) {
        goto drop_view;
    }
    *out = (own_opened){.buffer = view,
                        .attachment = local.attachment,
                        .attachment_bytes = local.attachment_bytes,
                        .is_ready = atomic_load(&local.grant.offer->is_ready)};
    server_local_settle(&local, true);
    return GPUIPC_OK;

drop_view: /* which has the reference on the original */
    buffer_drop(view);
    local.original = NULL;
give_back:
    free(local.attachment);
    server_local_settle(&local, false);
    if (local.original != NULL) {
        buffer_drop(local.original);
    }
    return status;
}

/* ---- asking for it --------------------------------------------------------------------------- */

static gpuipc_status open_of_server(context *ctx, const gpuipc_ticket *bytes, const ticket *decoded,
                                    const gpuipc_open_config *config, gpuipc_buffer **out_buffer) {
    buffer *found;
    gpuipc_status status =
        lease_request(ctx, bytes, decoded, config, deadline_of(config), &found, out_buffer);
    return status == GPUIPC_OK && found != NULL ? open_again(found, config, out_buffer) : status;
}

static gpuipc_status open_first(context *ctx, const gpuipc_ticket *bytes,
                                const gpuipc_open_config *config, gpuipc_buffer **out_buffer) {
    ticket decoded;
    own_opened own;
    gpuipc_status status = ticket_decode(bytes, OPERATION, &decoded);
    if (status != GPUIPC_OK || (status = open_own(ctx, &decoded, config, &own)) != GPUIPC_OK) {
        return status;
    }
    if (own.buffer == NULL) {
        return open_of_server(ctx, bytes, &decoded, config, out_buffer);
    }
    status = opening_add(own.buffer, bytes, config, NULL, own.attachment, own.attachment_bytes,
                         own.is_ready);
    if (status != GPUIPC_OK) {
        free(own.attachment);
        buffer_drop(own.buffer);
        return status;
    }
    return buffer_publish(own.buffer, out_buffer);
}

/* ---- the calls ----------------------------------------------------------------------------- */

static gpuipc_status check_config(const gpuipc_open_config *config) {
    if ((config->flags & ~(GPUIPC_RECEIVE_KEEP_HANDLES | GPUIPC_RECEIVE_ASYNC)) != 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, OPERATION,
                           "flags has bits that this library does not know: 0x%x", config->flags);
    }
    if (config->timeout_ms < -1) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, OPERATION,
                           "timeout_ms is %d; -1 waits for ever, and 0 five seconds",
                           config->timeout_ms);
    }
    return buffer_check_access(config->access, OPERATION);
}

gpuipc_status gpuipc_buffer_open(gpuipc_context *handle, const gpuipc_ticket *bytes,
                                 const gpuipc_open_config *config, gpuipc_buffer **out_buffer) {
    gpuipc_open_config known = {0};
    context *ctx;
    gpuipc_status status = GPUIPC_OK;
    if (bytes == NULL || out_buffer == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, OPERATION, "ticket or out_buffer is NULL");
    }
    if (config != NULL) {
        status = struct_size_read(config, STRUCT_SIZE_UP_TO(gpuipc_open_config, policy_user_data),
                                  &known, sizeof(known), OPERATION);
    }
    if (status != GPUIPC_OK || (status = check_config(&known)) != GPUIPC_OK ||
        (status = context_acquire(handle, OPERATION, &ctx)) != GPUIPC_OK) {
        return status;
    }
    buffer *found = opening_find(ctx, bytes, &known);
    status = found != NULL ? open_again(found, &known, out_buffer)
                           : open_first(ctx, bytes, &known, out_buffer);
    context_unreference(ctx);
    return status;
}

gpuipc_status gpuipc_buffer_get_attachment(gpuipc_buffer *handle, const void **out_bytes,
                                           size_t *out_size) {
    const char *const operation = "gpuipc_buffer_get_attachment";
    buffer *self;
    if (out_bytes == NULL || out_size == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, operation, "out_bytes or out_size is NULL");
    }
    gpuipc_status status = buffer_acquire(handle, operation, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (self->opening == NULL) {
        status = status_fail(GPUIPC_ERR_INVALID_ARGUMENT, operation,
                             "the buffer was not opened by a ticket");
    } else {
        *out_bytes = self->opening->attachment;
        *out_size = self->opening->attachment_bytes;
    }
    buffer_unreference(self);
    return status;
}

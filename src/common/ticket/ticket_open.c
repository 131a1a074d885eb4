/* SPDX-License-Identifier: MIT */
/** @file gpuipc_ticket.h: opening what a ticket stands for. */
#include <stdlib.h>
#include <string.h>

#include "base/struct_size.h"
#include "memory/buffer.h"
#include "sync/deferred.h"
#include "ticket/server.h"
#include "ticket/server_link.h"
#include "ticket/ticket_cache.h"
#include "ticket/ticket_request.h"

#define DEFAULT_TIMEOUT_MS 5000

/* ---- contents ------------------------------------------------------------------------------ */

/* Whoever opens it waits by himself, and holds nothing meanwhile that others need. */
static gpuipc_status await_contents(buffer *opened, const gpuipc_open_config *config,
                                    os_deadline deadline) {
    if ((config->flags & GPUIPC_RECEIVE_DEFERRED) != 0) {
        return GPUIPC_OK;
    }
    gpuipc_status status = buffer_await_contents(opened, config->flags, config->stream, deadline);
    return status == GPUIPC_OK && (config->flags & GPUIPC_RECEIVE_ASYNC) == 0
               ? buffer_check_contents(opened)
               : status;
}

/* What ticket_cache_find() has counted the caller as a handle for. Given up when it fails. */
static gpuipc_status use_found(buffer *found, const gpuipc_open_config *config,
                               os_deadline deadline) {
    gpuipc_status status = ticket_cache_check_peer(found, config);
    if (status == GPUIPC_OK) {
        status = await_contents(found, config, deadline);
    }
    if (status == GPUIPC_OK || status == GPUIPC_ERR_LOST) {
        ticket_cache_settle(found);
    }
    if (status != GPUIPC_OK) {
        ticket_cache_give_up(found, status != GPUIPC_ERR_LOST);
    }
    return status;
}

/* ---- of this process itself ---------------------------------------------------------------- */

static gpuipc_status copy_attachment(const offer *of, const ticket *wanted, ticket_given *out) {
    const uint64_t offset = wanted->offset;
    const void *bytes = offer_attachment(of, offset, wanted->bytes, &out->attachment_bytes);
    out->is_attachment_withheld = offer_withholds(of, offset, wanted->bytes);
    if (bytes == NULL) {
        return GPUIPC_OK;
    }
    out->attachment = malloc(out->attachment_bytes);
    if (out->attachment == NULL) {
        return status_out_of_memory(out->attachment_bytes);
    }
    memcpy(out->attachment, bytes, out->attachment_bytes);
    return GPUIPC_OK;
}

/* The view's readiness is a word, as that of what another process hands over. Of what it is over it would be lost. */
static gpuipc_status await_offer(const server *from, offer *of, buffer *view,
                                 const gpuipc_open_config *config, os_deadline deadline) {
    const point none = {NULL, 0, 0};
    point_word ready;
    if ((config->flags & GPUIPC_RECEIVE_DEFERRED) == 0 || atomic_load(&of->is_ready) ||
        !buffer_is_ready(view)) {
        return offer_await(of, view, &from->is_over, config, deadline);
    }
    gpuipc_status status = offer_promise(of, &ready);
    if (status == GPUIPC_OK) {
        status = import_record_new(&none, false, &view->import_record);
    }
    if (status == GPUIPC_OK) {
        view->import_record->ready = ready;
    }
    return status;
}

/* A view of the buffer, whose contents are there, or awaited by the caller's stream, or by whoever uses it. */
static gpuipc_status view_of(context *ctx, const server *from, offer *of, const ticket *decoded,
                             const gpuipc_open_config *config, os_deadline deadline,
                             buffer **out_view) {
    buffer *view;
    const gpuipc_access most =
        of->access == GPUIPC_ACCESS_DEFAULT ? GPUIPC_ACCESS_READ_WRITE : of->access;
    gpuipc_status status = buffer_check_range(of->of, decoded->offset, decoded->bytes);
    if (status != GPUIPC_OK) {
        return status;
    }
    object_reference(&of->of->object);
    status = buffer_open_view(ctx, of->of, decoded->offset, decoded->bytes, config->device,
                              config->access, most, &view);
    if (status != GPUIPC_OK) {
        buffer_unwind(of->of);
        return status;
    }
    status = await_offer(from, of, view, config, deadline);
    if (status != GPUIPC_OK) {
        buffer_unwind(view);
        return status;
    }
    *out_view = view;
    return GPUIPC_OK;
}

static gpuipc_status open_offer(context *ctx, const server *from, offer *of,
                                const gpuipc_ticket *bytes, const ticket *decoded,
                                const gpuipc_open_config *config, os_deadline deadline,
                                buffer **out_opened) {
    ticket_given of_own = {.buffer = NULL};
    buffer *view;
    gpuipc_status status = copy_attachment(of, decoded, &of_own);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = view_of(ctx, from, of, decoded, config, deadline, &view);
    if (status != GPUIPC_OK) {
        goto free_attachment;
    }
    buffer_hold(view);
    /* Where a stream waits for the contents, nobody else may find it: he would not wait. */
    status = ticket_cache_add(view, bytes, config, NULL, &of_own, atomic_load(&of->is_ready));
    if (status != GPUIPC_OK) {
        goto release_view;
    }
    *out_opened = view;
    return GPUIPC_OK;

release_view:
    buffer_release_later(view);
free_attachment:
    free(of_own.attachment);
    return status;
}

/* A ticket of this very process. *out_is_own is false when it is none, or one that only a context with another driver
 * could open: another way must be taken. */
static gpuipc_status open_own(context *ctx, const gpuipc_ticket *bytes, const ticket *decoded,
                              const gpuipc_open_config *config, os_deadline deadline,
                              buffer **out_opened, bool *out_is_own) {
    server *from = server_find(decoded->server_id);
    offer *of = NULL;
    gpuipc_status status = GPUIPC_OK;
    if (from == NULL) {
        *out_is_own = false;
        return GPUIPC_OK;
    }
    const wire_answer answer = share_find(&from->shares, decoded, &of);
    *out_is_own = of == NULL || of->of->context->driver.library == ctx->driver.library;
    if (answer == WIRE_UNKNOWN && atomic_load(&from->is_over)) { /* it has forgotten them all */
        status = status_fail(GPUIPC_ERR_EXPORTER_GONE,
                             "its server, of this process, was destroyed meanwhile");
    } else if (answer != WIRE_GRANTED) {
        status = ticket_answer_status(answer);
    } else if (of->channel != NULL) {
        status = ticket_answer_status(WIRE_OTHER);
    } else if (*out_is_own) {
        status = open_offer(ctx, from, of, bytes, decoded, config, deadline, out_opened);
    }
    offer_unreference(of, false);
    const gpuipc_error why = status_save();
    object_unreference(&from->object);
    status_restore(&why);
    return status;
}

static gpuipc_status open_first(context *ctx, const gpuipc_ticket *bytes,
                                const gpuipc_open_config *config, os_deadline deadline,
                                buffer **out_opened) {
    ticket decoded;
    bool is_own = false;
    gpuipc_status status = ticket_decode(bytes, &decoded);
    if (status == GPUIPC_OK) {
        status = open_own(ctx, bytes, &decoded, config, deadline, out_opened, &is_own);
    }
    if (status != GPUIPC_OK || is_own) {
        return status;
    }
    status = server_link_open(ctx, bytes, &decoded, config, deadline, out_opened);
    return status == GPUIPC_OK ? use_found(*out_opened, config, deadline) : status;
}

/* Once more where memory that was given up was in the way. */
static gpuipc_status open_in_room(context *ctx, const gpuipc_ticket *bytes,
                                  const gpuipc_open_config *config, os_deadline deadline,
                                  buffer **out_opened) {
    gpuipc_status status = open_first(ctx, bytes, config, deadline, out_opened);
    if (deferred_may_help(status) && deferred_make_room(ctx)) {
        status = open_first(ctx, bytes, config, deadline, out_opened);
    }
    if (status == GPUIPC_OK) {
        deferred_tidy_some(ctx); /* a program that opens and drops may call nothing else */
    }
    return status;
}

/* ---- the calls ----------------------------------------------------------------------------- */

static gpuipc_status check_config(const gpuipc_open_config *config) {
    if ((config->flags &
         ~(GPUIPC_RECEIVE_KEEP_HANDLES | GPUIPC_RECEIVE_ASYNC | GPUIPC_RECEIVE_DEFERRED)) != 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "flags has bits that this library does not know: 0x%x", config->flags);
    }
    if (config->timeout_ms < -1) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "timeout_ms is %d; -1 waits for ever, and 0 five seconds",
                           config->timeout_ms);
    }
    gpuipc_status status = config->info == NULL ? GPUIPC_OK : buffer_check_info(config->info);
    return status == GPUIPC_OK ? buffer_check_access(config->access) : status;
}

/* The handle of what is open, and what the caller wants to know of it. Takes over the reference, which counts as one. */
static gpuipc_status publish(buffer *opened, const gpuipc_open_config *config,
                             gpuipc_buffer **out_buffer) {
    buffer *told = config->info == NULL ? NULL : opened;
    if (told != NULL) {
        object_reference(&told->object); /* another thread may release the handle at once */
    }
    gpuipc_status status = buffer_publish_held(opened, out_buffer);
    if (status != GPUIPC_OK) {
        ticket_cache_give_up(opened, true);
        buffer_unwind(told);
        return status;
    }
    if (told != NULL) {
        buffer_describe(told, config->info);
        buffer_unreference(told);
    }
    return GPUIPC_OK;
}

/* The one deadline of the call. What is open and ready is waited for by nobody, and the clock costs a part of what
 * opening that takes. */
static os_deadline deadline_of(const buffer *found, const gpuipc_open_config *config) {
    if (found != NULL && buffer_is_ready(found)) {
        return (os_deadline){0};
    }
    return os_deadline_after(config->timeout_ms == 0 ? DEFAULT_TIMEOUT_MS : config->timeout_ms);
}

static gpuipc_status open_either_way(context *ctx, const gpuipc_ticket *bytes,
                                     const gpuipc_open_config *config, buffer **out_opened) {
    buffer *found = ticket_cache_find(ctx, bytes, config);
    os_interrupt interrupt;
    const os_deadline deadline = context_interruptible(ctx, deadline_of(found, config), &interrupt);
    gpuipc_status status;
    if (found == NULL) {
        status = open_in_room(ctx, bytes, config, deadline, out_opened);
    } else if ((status = use_found(found, config, deadline)) == GPUIPC_OK) {
        *out_opened = found;
    }
    return context_answer(ctx, &interrupt, status);
}

gpuipc_status gpuipc_buffer_open(gpuipc_context *handle, const gpuipc_ticket *bytes,
                                 const gpuipc_open_config *config, gpuipc_buffer **out_buffer) {
    status_enter(__func__);
    gpuipc_open_config known = {0};
    buffer *opened = NULL; /* as gcc -O3 wants it */
    context *ctx;
    gpuipc_status status = GPUIPC_OK;
    if (bytes == NULL || out_buffer == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "ticket or out_buffer is NULL");
    }
    if (config != NULL) {
        status = struct_size_read(config, STRUCT_SIZE_UP_TO(gpuipc_open_config, policy_user_data),
                                  &known, sizeof(known));
    }
    if (status != GPUIPC_OK || (status = check_config(&known)) != GPUIPC_OK ||
        (status = context_acquire(handle, &ctx)) != GPUIPC_OK) {
        return status;
    }
    if ((status = device_check_field(ctx, known.device)) == GPUIPC_OK) {
        status = open_either_way(ctx, bytes, &known, &opened);
    }
    if (status == GPUIPC_OK) {
        status = publish(opened, &known, out_buffer);
    }
    context_unreference(ctx);
    return status;
}

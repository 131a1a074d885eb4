/* SPDX-License-Identifier: MIT */
/** @file See offer.h. */
#include "ticket/offer.h"

#include <stdlib.h>
#include <string.h>

#include "copy/detour.h"
#include "message/handover.h"
#include "transport/transport.h"

/* So long a ticket waits for contents while streams of this process wait for others: as an opening does. */
#define WAIT_MS 5000

/* ---- the contents -------------------------------------------------------------------------- */

static context *context_of(const offer *self) {
    return self->of->context;
}

static gpuipc_status record_on_stream(offer *self, gpuipc_stream stream) {
    context *ctx = context_of(self);
    const uint32_t index = self->of->access_device;
    device_scope scope;
    if (device_is_default_stream(stream) && !device_is_active(ctx, index)) {
        return GPUIPC_OK; /* there is no work that could be waited for */
    }
    gpuipc_status status = device_enter_uncaptured(ctx, stream, index, &scope);
    if (status == GPUIPC_OK) {
        status = detour_leave(&ctx->driver, stream, &self->event);
        device_leave(&scope);
    }
    return status;
}

static gpuipc_status settle_contents(offer *self, const gpuipc_share_config *config,
                                     const atomic_bool *is_over) {
    const handover_patience patience = {is_over, "server was destroyed",
                                        os_deadline_after(WAIT_MS)};
    gpuipc_status status = GPUIPC_OK;
    if ((config->flags & GPUIPC_SEND_ASYNC) != 0) {
        status = record_on_stream(self, config->stream);
    } else if ((config->flags & GPUIPC_SEND_READY) == 0) {
        status = handover_wait(context_of(self), &self->of, 1, config->stream, &patience);
    }
    atomic_init(&self->is_ready, self->event == NULL);
    return status;
}

/* Asks, in the CUDA context of a device. */
static gpuipc_status look(offer *self) {
    const driver *drv = &context_of(self)->driver;
    const CUresult result = drv->cuEventQuery(self->event);
    if (result == CUDA_ERROR_NOT_READY) {
        return GPUIPC_OK;
    }
    gpuipc_status status =
        driver_status(drv, result, "cuEventQuery", "asking whether contents are ready");
    if (status == GPUIPC_OK) {
        atomic_store(&self->is_ready, true);
    }
    return status;
}

/* Whether whom an opening waits for is still there. */
static gpuipc_status check_is_on(const buffer *opened, const atomic_bool *is_over) {
    if (atomic_load(&opened->context->is_over)) {
        return status_fail(GPUIPC_ERR_RELEASED, "the context was destroyed meanwhile");
    }
    return atomic_load(is_over)
               ? status_fail(GPUIPC_ERR_EXPORTER_GONE, "its server was destroyed meanwhile")
               : GPUIPC_OK;
}

/* Asleep between two looks: cuEventSynchronize spins unless the event was made otherwise, and knows no deadline. */
static gpuipc_status await_on_host(offer *self, const buffer *opened, const atomic_bool *is_over,
                                   os_deadline deadline) {
    device_scope scope;
    unsigned pause = 0;
    gpuipc_status status = device_enter(context_of(self), self->of->access_device, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    while ((status = look(self)) == GPUIPC_OK && !atomic_load(&self->is_ready) &&
           (status = check_is_on(opened, is_over)) == GPUIPC_OK) {
        if (os_deadline_passed(deadline)) {
            status = status_fail(GPUIPC_ERR_TIMEOUT, "the contents were not ready in time");
            break;
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
    device_leave(&scope);
    return status;
}

static gpuipc_status await_on_stream(const offer *self, const buffer *opened,
                                     gpuipc_stream stream) {
    context *ctx = opened->context;
    device_scope scope;
    gpuipc_status status = device_enter_uncaptured(ctx, stream, opened->access_device, &scope);
    if (status == GPUIPC_OK) {
        status = detour_enter(&ctx->driver, self->event, stream);
        device_leave(&scope);
    }
    return status;
}

gpuipc_status offer_await(offer *self, const buffer *opened, const atomic_bool *is_over,
                          const gpuipc_open_config *how, os_deadline deadline) {
    if (atomic_load(&self->is_ready)) {
        return GPUIPC_OK;
    }
    return (how->flags & GPUIPC_RECEIVE_ASYNC) != 0
               ? await_on_stream(self, opened, how->stream)
               : await_on_host(self, opened, is_over, deadline);
}

/* A stream of its own waits, as in send_behind(). */
gpuipc_status offer_promise(offer *self, point_word *out_ready) {
    context *ctx = context_of(self);
    const driver *drv = &ctx->driver;
    device_scope scope;
    CUstream stream;
    point_word ready = {0};
    gpuipc_status status = device_enter(ctx, self->of->access_device, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    if ((status = detour_stream_new(drv, &stream)) == GPUIPC_OK) {
        if ((status = detour_enter(drv, self->event, stream)) == GPUIPC_OK &&
            (status = point_write_begin(ctx, NULL, 0, &ready)) == GPUIPC_OK) {
            status = point_submit_writes(ctx, NULL, 0, stream, &ready);
        }
        detour_stream_destroy(drv, stream);
    }
    device_leave(&scope);
    if (status == GPUIPC_OK) {
        *out_ready = ready;
    }
    return status;
}

static void end_event(const offer *self) {
    context *ctx = context_of(self);
    device_scope scope;
    if (self->event != NULL && device_enter(ctx, self->of->access_device, &scope) == GPUIPC_OK) {
        (void)ctx->driver.cuEventDestroy(self->event);
        device_leave(&scope);
    }
}

/* ---- the offer ----------------------------------------------------------------------------- */

/* A buffer that no transport carries is offered as a copy of what it has now. A reference for the caller. */
static gpuipc_status choose_buffer(buffer *of, const gpuipc_share_config *config,
                                   buffer **out_buffer) {
    if ((config->flags & GPUIPC_SEND_STAGED) != 0 && of->transport->is_copied) {
        return transport_staged_copy(of, config->stream, out_buffer);
    }
    object_reference(&of->object);
    *out_buffer = of;
    return GPUIPC_OK;
}

static gpuipc_status make_reply(offer *self, const gpuipc_share_config *config) {
    const bool is_one_shot = (config->flags & GPUIPC_SHARE_ONE_SHOT) != 0;
    wire_reply reply = {.answer = WIRE_GRANTED,
                        .flags = is_one_shot ? WIRE_REPLY_ONE_SHOT : 0,
                        .attachment_bytes = (uint32_t)config->attachment_bytes};
    self->reply_bytes = WIRE_REPLY_BYTES + config->attachment_bytes;
    self->reply = malloc(self->reply_bytes);
    if (self->reply == NULL) {
        return status_out_of_memory(self->reply_bytes);
    }
    wire_encode_reply(&reply, self->reply);
    if (config->attachment_bytes > 0) {
        memcpy(self->reply + WIRE_REPLY_BYTES, config->attachment, config->attachment_bytes);
        reply.flags |= WIRE_REPLY_WITHHELD;
        reply.attachment_bytes = 0;
    }
    wire_encode_reply(&reply, self->reply_of_part);
    return GPUIPC_OK;
}

gpuipc_status offer_new(buffer *of, const gpuipc_share_config *config, const atomic_bool *is_over,
                        offer **out_offer) {
    offer *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    atomic_init(&self->references, 1u);
    self->offset = config->offset;
    self->bytes = config->bytes;
    self->access = config->access;
    gpuipc_status status = make_reply(self, config);
    if (status != GPUIPC_OK || (status = choose_buffer(of, config, &self->of)) != GPUIPC_OK) {
        goto free_self;
    }
    if ((status = buffer_check_export(self->of, NULL)) != GPUIPC_OK ||
        (status = settle_contents(self, config, is_over)) != GPUIPC_OK) {
        goto drop_buffer;
    }
    buffer_hold(self->of);
    *out_offer = self;
    return GPUIPC_OK;

drop_buffer:
    buffer_unwind(self->of);
free_self:
    free(self->reply);
    free(self);
    return status;
}

void offer_reference(offer *self) {
    atomic_fetch_add_explicit(&self->references, 1u, memory_order_relaxed);
}

void offer_unreference(offer *self, bool forked) {
    if (self == NULL ||
        atomic_fetch_sub_explicit(&self->references, 1u, memory_order_acq_rel) != 1u) {
        return;
    }
    const gpuipc_error why = status_save();
    if (!forked) {
        end_event(self);
    }
    if (self->channel != NULL) {
        self->channel->leave(self->channel, forked);
    }
    buffer_release_later(self->of);
    free(self->reply);
    free(self);
    status_restore(&why);
}

bool offer_has(const offer *self, uint64_t offset, uint64_t bytes) {
    return offset >= self->offset && offset - self->offset <= self->bytes &&
           bytes <= self->bytes - (offset - self->offset);
}

static bool is_all(const offer *self, uint64_t offset, uint64_t bytes) {
    return offset == self->offset && bytes == self->bytes;
}

bool offer_withholds(const offer *self, uint64_t offset, uint64_t bytes) {
    return self->reply_bytes > WIRE_REPLY_BYTES && !is_all(self, offset, bytes);
}

const void *offer_attachment(const offer *self, uint64_t offset, uint64_t bytes, size_t *out_size) {
    *out_size = is_all(self, offset, bytes) ? self->reply_bytes - WIRE_REPLY_BYTES : 0;
    return *out_size == 0 ? NULL : self->reply + WIRE_REPLY_BYTES;
}

/* ---- sending it ---------------------------------------------------------------------------- */

/* A stream of its own waits for the contents and marks the point of the hand-over, so that none of the
 * caller's is touched. It ends when it has done so (cuda.h, cuStreamDestroy). */
static gpuipc_status send_behind(offer *self, connection *to, gpuipc_outgoing *message,
                                 const letter *as, int timeout_ms) {
    const driver *drv = &context_of(self)->driver;
    CUstream stream;
    gpuipc_status status = detour_stream_new(drv, &stream);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = detour_enter(drv, self->event, stream);
    if (status == GPUIPC_OK) {
        message->flags = GPUIPC_SEND_ASYNC;
        message->stream = stream;
        status = connection_send_message(to, message, as, timeout_ms);
    }
    detour_stream_destroy(drv, stream);
    return status;
}

gpuipc_status offer_send(offer *self, connection *to, uint64_t offset, uint64_t bytes,
                         int timeout_ms, point *out_point) {
    const letter as = {.kind = WIRE_REPLY,
                       .is_range = true,
                       .offset = offset,
                       .bytes = bytes,
                       .buffers = &self->of,
                       .handed_over = out_point};
    const bool whole = is_all(self, offset, bytes);
    gpuipc_outgoing message = {.struct_size = sizeof(message),
                               .bytes = whole ? self->reply : self->reply_of_part,
                               .bytes_size = whole ? self->reply_bytes : WIRE_REPLY_BYTES,
                               .buffer_count = 1,
                               .flags = GPUIPC_SEND_READY,
                               .access = self->access};
    device_scope scope;
    if (atomic_load(&self->is_ready)) {
        return connection_send_message(to, &message, &as, timeout_ms);
    }
    gpuipc_status status = device_enter(context_of(self), self->of->access_device, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = look(self);
    if (status == GPUIPC_OK) {
        status = atomic_load(&self->is_ready)
                     ? connection_send_message(to, &message, &as, timeout_ms)
                     : send_behind(self, to, &message, &as, timeout_ms);
    }
    device_leave(&scope);
    return status;
}

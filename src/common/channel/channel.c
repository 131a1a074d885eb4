/* SPDX-License-Identifier: MIT */
/** @file See channel.h: making a channel, and its end. */
#include "channel/channel.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/struct_size.h"

/* How often the mutex of a writer is tried that is in its calls all the time: some ten microseconds. */
#define LOCK_TRIES 1000u

/* ---- what is asked for ------------------------------------------------------------------------ */

static gpuipc_status check_limits(const gpuipc_channel_config *config) {
    if (config->slots == 0 || config->slots > GPUIPC_CHANNEL_SLOTS_MAX ||
        config->max_readers > GPUIPC_CHANNEL_READERS_MAX ||
        config->header_bytes > GPUIPC_FRAME_HEADER_MAX || config->max_held > config->slots) {
        return status_fail(
            GPUIPC_ERR_LIMIT,
            "%u slots, %u readers, headers of %u bytes, %u frames for a reader; there "
            "are 1 to %d, up to %d, up to %d, and no more than slots",
            config->slots, config->max_readers, config->header_bytes, config->max_held,
            GPUIPC_CHANNEL_SLOTS_MAX, GPUIPC_CHANNEL_READERS_MAX, GPUIPC_FRAME_HEADER_MAX);
    }
    if (config->full > GPUIPC_FULL_DROP || config->slot_bytes == 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "full is no policy that there is, or slot_bytes is 0");
    }
    return GPUIPC_OK;
}

/* A frame of a turn is a slot, and nothing beside it: what a graph repeats is the same each time. */
static gpuipc_status check_turns(const gpuipc_channel_config *config) {
    if (config->turns > 1 || config->reserved != 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "turns is 0 or 1, and reserved is 0");
    }
    return config->turns == 1 && (config->slots != 1 || config->header_bytes != 0 ||
                                  config->full != GPUIPC_FULL_WAIT)
               ? status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                             "a channel of turns has one slot and no headers, and its streams wait")
               : GPUIPC_OK;
}

static gpuipc_status read_config(const gpuipc_channel_config *config,
                                 gpuipc_channel_config *out_known) {
    gpuipc_channel_config known = {0};
    if (config == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "config is NULL");
    }
    gpuipc_status status = struct_size_read(config, STRUCT_SIZE_UP_TO(gpuipc_channel_config, name),
                                            &known, sizeof(known));
    if (status != GPUIPC_OK || (status = check_limits(&known)) != GPUIPC_OK ||
        (status = check_turns(&known)) != GPUIPC_OK) {
        return status;
    }
    if (known.name != NULL && (status = ticket_name_check(known.name)) != GPUIPC_OK) {
        return status;
    }
    known.max_readers = known.max_readers == 0 ? GPUIPC_CHANNEL_READERS_MAX : known.max_readers;
    if (known.max_held == 0) {
        known.max_held = known.slots > 1 ? known.slots - 1 : 1;
    }
    *out_known = known;
    return GPUIPC_OK;
}

static gpuipc_status check_buffer(const buffer *of, const server *from,
                                  const gpuipc_channel_config *config) {
    if (of->context != from->context) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "the buffer belongs to another context than the server");
    }
    if (config->slot_bytes > of->bytes / config->slots) {
        return status_fail(GPUIPC_ERR_OUT_OF_RANGE,
                           "%u slots of %" PRIu64 " bytes do not lie in a buffer of %" PRIu64,
                           config->slots, config->slot_bytes, of->bytes);
    }
    return GPUIPC_OK;
}

/* ---- making and ending ------------------------------------------------------------------------ */

static void destroy(object *base) {
    channel *self = (channel *)base;
    const bool forked = object_is_forked(base);
    monitor_end(&self->monitored);
    ticket_name_remove(self->name);
    channel_readers_end(self, forked);
    channel_turns_clear(self, forked);
    trail_unreference(self->trail, forked);
    if (forked) {
        buffer_unreference(self->buffer);
    } else {
        buffer_unwind(self->buffer);
    }
    object_unreference(&self->server->object);
    context_unreference(self->context);
    free(self);
}

/* @param of the caller's reference passes on success, as that of the server does */
static gpuipc_status make(server *from, buffer *of, const gpuipc_channel_config *config,
                          channel **out_channel) {
    channel *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    gpuipc_status status = trail_new(of->context, &self->trail);
    if (status != GPUIPC_OK) {
        free(self);
        return status;
    }
    self->offered = channel_offered;
    self->context = of->context;
    self->server = from;
    self->buffer = of;
    self->config = *config;
    self->config.name = NULL; /* the caller's */
    for (uint32_t i = 0; i < config->slots; i++) {
        list_append(&self->by_age, &self->slots[i].by_age);
    }
    object_init(&self->object, OBJECT_CHANNEL, destroy);
    object_reference(&self->context->object);
    *out_channel = self;
    return GPUIPC_OK;
}

/* The slots are offered like a buffer that is shared; whoever asks becomes a reader. */
static gpuipc_status give_out(channel *self, gpuipc_ticket *out_ticket) {
    const gpuipc_share_config config = {.struct_size = sizeof(config),
                                        .bytes = self->config.slots * self->config.slot_bytes,
                                        .access = GPUIPC_ACCESS_READ,
                                        .flags = GPUIPC_SEND_READY};
    const share_limits limits = {0};
    offer *offered;
    bool is_next = false;
    gpuipc_status status = server_renew_names(self->server);
    if (status != GPUIPC_OK || (status = offer_new(self->buffer, &config, &self->server->is_over,
                                                   &offered)) != GPUIPC_OK) {
        return status;
    }
    object_reference(&self->object);
    offered->channel = &self->offered;
    self->share =
        (ticket){.bytes = config.bytes, .boot = self->server->boot, .user = self->server->user};
    memcpy(self->share.server_id, self->server->id, sizeof(self->share.server_id));
    status = share_add(&self->server->shares, offered, &limits, &self->share, &is_next);
    if (status != GPUIPC_OK) {
        offer_unreference(offered, false);
        return status;
    }
    ticket_encode(&self->share, out_ticket);
    return GPUIPC_OK;
}

static void end(channel *self) {
    const gpuipc_error why = status_save();
    os_mutex_lock(&self->mutex);
    self->has_ended = true;
    os_mutex_unlock(&self->mutex);
    ticket_name_remove(self->name);
    self->name = NULL;
    (void)share_revoke(&self->server->shares, &self->share);
    monitor_end(&self->monitored);
    monitor_dismiss(MONITOR_FREES); /* nothing of it is left behind */
    os_mutex_lock(&self->mutex);
    channel_kernels_end(self);
    channel_turns_end_left(self);
    channel_readers_end(self, false);
    channel_turns_end(self);
    os_mutex_unlock(&self->mutex);
    status_restore(&why);
}

static gpuipc_status create(server *from, const gpuipc_channel_config *config,
                            gpuipc_channel **out_channel, gpuipc_ticket *out_ticket) {
    buffer *of;
    channel *self = NULL; /* as gcc -O1 wants it */
    void *handle;
    gpuipc_ticket given;
    gpuipc_status status = buffer_acquire(config->buffer, &of);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = check_buffer(of, from, config);
    if (status != GPUIPC_OK || (status = make(from, of, config, &self)) != GPUIPC_OK) {
        buffer_unwind(of);
        return status;
    }
    object_reference(&from->object);
    status = give_out(self, &given);
    if (status == GPUIPC_OK && config->name != NULL) {
        status = ticket_name_add(from, config->name, &given, &self->name);
    }
    if (status == GPUIPC_OK && (status = object_publish(&self->object, &handle)) == GPUIPC_OK) {
        *out_channel = handle;
        *out_ticket = given;
        return GPUIPC_OK;
    }
    end(self);
    object_unreference(&self->object);
    return status;
}

gpuipc_status gpuipc_channel_create(gpuipc_server *handle, const gpuipc_channel_config *config,
                                    gpuipc_channel **out_channel, gpuipc_ticket *out_ticket) {
    status_enter(__func__);
    gpuipc_channel_config known;
    server *from;
    gpuipc_status status;
    if (out_channel == NULL || out_ticket == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_channel or out_ticket is NULL");
    }
    if ((status = read_config(config, &known)) != GPUIPC_OK ||
        (status = server_acquire(handle, &from)) != GPUIPC_OK) {
        return status;
    }
    status = create(from, &known, out_channel, out_ticket);
    object_unreference(&from->object);
    return status;
}

gpuipc_status gpuipc_channel_destroy(gpuipc_channel *handle) {
    status_enter(__func__);
    object *last = NULL;
    if (handle == NULL) {
        return GPUIPC_OK;
    }
    gpuipc_status status = object_remove_hold(OBJECT_CHANNEL, handle, &last);
    channel *self = (channel *)last;
    context *ctx = NULL;
    if (self != NULL && object_is_forked(last)) {
        share_abandon(&self->server->shares, &self->share); /* it refers to the channel */
    } else if (self != NULL) {
        ctx = self->context;
        object_reference(&ctx->object);
        end(self);
    }
    object_unreference(last);
    if (ctx != NULL) {
        deferred_tidy(ctx);
        context_unreference(ctx);
    }
    return status;
}

bool channel_try_lock_again(channel *self) {
    for (unsigned tries = 1; tries < LOCK_TRIES; tries++) {
        if (os_mutex_try_lock(&self->mutex)) {
            return true;
        }
    }
    return false;
}

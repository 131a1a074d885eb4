/* SPDX-License-Identifier: MIT */
/** @file Buffers of memory that the library allocates. */
#include "base/struct_size.h"
#include "memory/buffer_table.h"
#include "memory/registry.h"
#include "transport/transports.h"

static gpuipc_status fill_in(buffer *self, const gpuipc_buffer_config *config) {
    self->owner = device_of_field(config->device, 0);
    self->owner_uuid = self->context->devices[self->owner].info.uuid;
    self->access_device = self->owner;
    self->bytes = config->bytes;
    gpuipc_status status = self->transport->allocate(self, config);
    if (status == GPUIPC_OK) {
        atomic_store(&self->access, (int)GPUIPC_ACCESS_READ_WRITE);
        registry_add(self);
        buffer_table_enter(self);
    }
    return status;
}

/* To the devices that are named beside the owner. */
static gpuipc_status give_access(buffer *self, const gpuipc_buffer_config *config) {
    gpuipc_status status = GPUIPC_OK;
    for (uint32_t i = 0; i < config->access_device_count && status == GPUIPC_OK; i++) {
        const uint32_t index = device_of_field(config->access_devices[i], self->owner);
        status = device_check_field(self->context, config->access_devices[i]);
        if (status == GPUIPC_OK && index != self->owner) {
            status = buffer_set_access(self, index, GPUIPC_ACCESS_READ_WRITE);
        }
    }
    return status;
}

static gpuipc_status create_once(context *ctx, const transport *carrier,
                                 const gpuipc_buffer_config *config, buffer **out_buffer) {
    buffer *self;
    gpuipc_status status = buffer_new(ctx, GPUIPC_BUFFER_CREATED, carrier, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = fill_in(self, config);
    if (status == GPUIPC_OK) {
        status = give_access(self, config);
    }
    if (status != GPUIPC_OK) {
        buffer_unwind(self);
        return status;
    }
    *out_buffer = self;
    return GPUIPC_OK;
}

/* Frees memory that had lingered, or whose end was deferred: also what the failure itself has left. */
static bool make_room(context *ctx, bool was_some_deferred) {
    const gpuipc_error why = status_save();
    const bool had_lingered = registry_sweep();
    status_restore(&why);
    return (deferred_make_room(ctx) && was_some_deferred) || had_lingered;
}

static gpuipc_status create(context *ctx, const gpuipc_buffer_config *config, buffer **out_buffer) {
    const transport *carrier = transport_find(config->transport);
    if (carrier == NULL) {
        return status_fail(GPUIPC_ERR_NOT_SUPPORTED, "this library has no transport %d",
                           (int)config->transport);
    }
    gpuipc_status status = device_check_field(ctx, config->device);
    if (status == GPUIPC_OK) {
        deferred_tidy_some(ctx); /* a program that makes and drops may call nothing else */
    }
    const bool are_some_deferred = !deferred_is_empty(ctx->deferred) || !drop_is_empty(ctx);
    if (status == GPUIPC_OK) {
        status = create_once(ctx, carrier, config, out_buffer);
    }
    if (deferred_may_help(status) && make_room(ctx, are_some_deferred)) {
        status = create_once(ctx, carrier, config, out_buffer);
    }
    return status;
}

gpuipc_status gpuipc_buffer_create(gpuipc_context *handle, const gpuipc_buffer_config *config,
                                   gpuipc_buffer **out_buffer) {
    status_enter(__func__);
    gpuipc_buffer_config known;
    context *ctx;
    buffer *self;
    gpuipc_status status = struct_size_read(
        config, STRUCT_SIZE_UP_TO(gpuipc_buffer_config, segment_bytes), &known, sizeof(known));
    if (status != GPUIPC_OK) {
        return status;
    }
    if (out_buffer == NULL || known.bytes == 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "%s",
                           out_buffer == NULL ? "out_buffer is NULL" : "bytes is 0");
    }
    if ((known.openers == NULL && known.opener_count > 0) ||
        (known.access_devices == NULL && known.access_device_count > 0)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "openers or access_devices is NULL although its count is not 0");
    }
    status = context_acquire(handle, &ctx);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = create(ctx, &known, &self);
    if (status == GPUIPC_OK) {
        status = buffer_publish(self, out_buffer);
    }
    context_unreference(ctx);
    return status;
}

/* SPDX-License-Identifier: MIT */
/** @file Buffers of memory that the library allocates. */
#include <inttypes.h>
#include <stdlib.h>

#include "buffer_internal.h"
#include "struct_size.h"

#define OPERATION "gpuipc_buffer_create"

/* More segments than this in one buffer is a mistake in segment_bytes: opening costs ~50 us each. */
#define SEGMENTS_MAX 65536u

static gpuipc_status round_up(uint64_t bytes, uint64_t unit, uint64_t *out_rounded) {
    if (bytes > UINT64_MAX - (unit - 1)) {
        return status_fail(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, OPERATION,
                           "%" PRIu64 " bytes is more than any device has", bytes);
    }
    *out_rounded = (bytes + unit - 1) / unit * unit;
    return GPUIPC_OK;
}

/* Allocates the segments; those made so far are in the buffer when it fails. */
static gpuipc_status allocate(buffer *self, const CUmemAllocationProp *prop, uint64_t total,
                              uint64_t segment_bytes) {
    uint64_t count = total / segment_bytes + (total % segment_bytes != 0);
    if (count > SEGMENTS_MAX) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, OPERATION,
                           "segment_bytes makes %" PRIu64 " segments; the most is %u", count,
                           SEGMENTS_MAX);
    }
    self->segments = calloc((size_t)count, sizeof(*self->segments));
    if (self->segments == NULL) {
        return status_out_of_memory(OPERATION, count * sizeof(*self->segments));
    }
    for (uint64_t left = total; left > 0; left -= self->segments[self->segment_count++].bytes) {
        uint64_t bytes = left < segment_bytes ? left : segment_bytes;
        gpuipc_status status = segment_create(&self->context->driver, prop, bytes,
                                              &self->segments[self->segment_count]);
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    return GPUIPC_OK;
}

static gpuipc_status fill_in(buffer *self, const gpuipc_buffer_config *config) {
    const device *owner = &self->context->devices[config->device];
    CUmemAllocationProp prop;
    uint64_t total = 0;
    uint64_t segment_bytes = 0;
    gpuipc_status status;
    self->owner = config->device;
    self->owner_uuid = owner->info.uuid;
    self->access_device = config->device;
    self->bytes = config->bytes;
    if ((status = device_allocation_prop(owner, OPERATION, &prop)) != GPUIPC_OK ||
        (status = round_up(config->bytes, owner->info.granularity_bytes, &total)) != GPUIPC_OK ||
        (status = round_up(config->segment_bytes == 0 || config->segment_bytes > total
                               ? total
                               : config->segment_bytes,
                           owner->info.granularity_bytes, &segment_bytes)) != GPUIPC_OK ||
        (status = allocate(self, &prop, total, segment_bytes)) != GPUIPC_OK ||
        (status = mapping_create(&self->context->driver, self->segments, self->segment_count,
                                 &self->mapping)) != GPUIPC_OK ||
        (status = buffer_give_access(self, config->device, GPUIPC_ACCESS_READ_WRITE)) !=
            GPUIPC_OK) {
        return status;
    }
    atomic_store(&self->access, (int)GPUIPC_ACCESS_READ_WRITE);
    return GPUIPC_OK;
}

static gpuipc_status create(context *ctx, const gpuipc_buffer_config *config,
                            gpuipc_buffer **out_buffer) {
    buffer *self;
    gpuipc_status status = device_check(ctx, config->device, OPERATION);
    if (status != GPUIPC_OK ||
        (status = buffer_new(ctx, GPUIPC_BUFFER_CREATED, &self)) != GPUIPC_OK) {
        return status;
    }
    status = fill_in(self, config);
    if (status != GPUIPC_OK) {
        buffer_unreference(self);
        return status;
    }
    return buffer_publish(self, out_buffer);
}

gpuipc_status gpuipc_buffer_create(gpuipc_context *handle, const gpuipc_buffer_config *config,
                                   gpuipc_buffer **out_buffer) {
    gpuipc_buffer_config known;
    context *ctx;
    gpuipc_status status =
        struct_size_read(config, STRUCT_SIZE_UP_TO(gpuipc_buffer_config, segment_bytes), &known,
                         sizeof(known), OPERATION);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (out_buffer == NULL || known.bytes == 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, OPERATION, "%s",
                           out_buffer == NULL ? "out_buffer is NULL" : "bytes is 0");
    }
    if (known.transport != GPUIPC_TRANSPORT_DEFAULT && known.transport != GPUIPC_TRANSPORT_VMM) {
        return status_fail(GPUIPC_ERR_NOT_SUPPORTED, OPERATION,
                           "memory of transport %d cannot be made", (int)known.transport);
    }
    status = context_acquire(handle, OPERATION, &ctx);
    if (status == GPUIPC_OK) {
        status = create(ctx, &known, out_buffer);
        context_unreference(ctx);
    }
    return status;
}

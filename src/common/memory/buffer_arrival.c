/* SPDX-License-Identifier: MIT */
/** @file Buffers that arrive: of memory that another process allocated, that comes home, or that a view is over. The public
 *  gpuipc_buffer_open() is in ticket/ticket_open.c. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "memory/buffer.h"
#include "memory/buffer_table.h"
#include "memory/registry.h"
#include "memory/transport.h"

/* Which device will use it: the owner, or the one asked for, which device_check_field() has let pass. */
static gpuipc_status choose_device(const buffer *self, uint32_t wanted, uint32_t *out_device) {
    if (wanted != GPUIPC_DEVICE_OWNER) {
        *out_device = device_of_field(wanted, self->owner);
        return GPUIPC_OK;
    }
    if (self->owner == GPUIPC_DEVICE_NONE) {
        return status_fail(
            GPUIPC_ERR_DEVICE_NOT_VISIBLE,
            "the memory is on a GPU that is not among the %u this process sees; make "
            "it visible, or receive for a device that can reach it",
            self->context->device_count);
    }
    *out_device = self->owner;
    return GPUIPC_OK;
}

/* The range must lie in what the segments are said to have, and no segment is larger than its device,
 * before anything is mapped: the driver's answer to such a size is that it has too little memory. */
static gpuipc_status check_source(const buffer *self, const buffer_source *source) {
    const segment *segments = self->segments;
    uint64_t total = 0;
    uint64_t most = self->owner == GPUIPC_DEVICE_NONE || self->transport->lies_in_host
                        ? UINT64_MAX
                        : self->context->devices[self->owner].info.memory_bytes;
    for (uint32_t i = 0; i < self->segment_count; i++) {
        if (segments[i].bytes > most) {
            return status_fail(GPUIPC_ERR_SIZE_MISMATCH,
                               "a segment is said to have %" PRIu64
                               " bytes, on a device of %" PRIu64,
                               segments[i].bytes, most);
        }
        if (segments[i].bytes > UINT64_MAX - total) {
            return status_fail(GPUIPC_ERR_SIZE_MISMATCH,
                               "the sizes of the segments are beyond 64 bits");
        }
        total += segments[i].bytes;
    }
    if (source->bytes == 0 || source->offset > total || source->bytes > total - source->offset) {
        return status_fail(GPUIPC_ERR_SIZE_MISMATCH,
                           "the range does not lie in the segments that came with it");
    }
    return GPUIPC_OK;
}

static gpuipc_status fill_in(buffer *self, const buffer_source *source, uint32_t wanted,
                             gpuipc_access access) {
    gpuipc_status status;
    self->owner_uuid = source->owner_uuid;
    self->owner = device_find(self->context, &source->owner_uuid);
    self->access_limit = source->access_limit;
    self->offset = source->offset;
    self->bytes = source->bytes;
    self->keeps_handles = source->keeps_handles;
    self->kind = self->transport->shares_imports ? GPUIPC_MEMORY_VMM : GPUIPC_MEMORY_UNKNOWN;
    self->buffer_id = source->buffer_id;
    memcpy(self->exporter_id, source->exporter_id, sizeof(self->exporter_id));
    access = buffer_settle_access(self, access);
    if ((status = check_source(self, source)) != GPUIPC_OK ||
        (status = choose_device(self, wanted, &self->access_device)) != GPUIPC_OK ||
        (status = self->transport->open(self, source, access)) != GPUIPC_OK) {
        return status;
    }
    atomic_store(&self->access, (int)access);
    buffer_table_enter(self);
    return GPUIPC_OK;
}

gpuipc_status buffer_open_original(buffer *self) {
    buffer *original = registry_find(self->exporter_id, self->buffer_id);
    if (original == NULL) {
        return GPUIPC_OK;
    }
    /* Only who got it knows its name. */
    if (original->transport != self->transport || self->segment_count != 1 ||
        original->segments[0].bytes != self->segments[0].bytes ||
        memcmp(original->segments[0].name, self->segments[0].name, SEGMENT_NAME_BYTES) != 0 ||
        original->context->driver.library != self->context->driver.library) {
        buffer_unreference(original);
        return status_fail(GPUIPC_ERR_NOT_GPU_MEMORY,
                           "the peer names a buffer of this process that it does not have");
    }
    self->original = original;
    self->exports.original = &original->exports;
    self->owner = original->owner;
    self->mapping = original->mapping;
    return GPUIPC_OK;
}

/* Takes over what is to be mapped, for as long as it succeeds. */
static void set_memory(buffer *self, const buffer_source *source, segment *segments,
                       uint32_t segment_count) {
    self->import = source->import;
    self->segments = segments;
    self->segment_count = segment_count;
    if (self->import != NULL) {
        self->segments = import_segments(self->import, &self->segment_count);
    }
}

gpuipc_status buffer_open(context *ctx, const buffer_source *source, segment *segments,
                          uint32_t segment_count, uint32_t wanted, gpuipc_access access,
                          buffer **out_buffer) {
    buffer *self;
    gpuipc_status status = buffer_new(ctx, GPUIPC_BUFFER_OPENED, source->transport, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    set_memory(self, source, segments, segment_count);
    status = fill_in(self, source, wanted, access);
    if (status != GPUIPC_OK) {
        gpuipc_error why = status_save();
        self->transport->release(self); /* while it has its memory, which stays the caller's */
        self->import = NULL;
        self->segments = NULL;
        self->segment_count = 0;
        buffer_unreference(self);
        status_restore(&why);
        return status;
    }
    *out_buffer = self;
    return GPUIPC_OK;
}

/* ---- what is this process's own -------------------------------------------------------------- */

static gpuipc_status fill_in_view(buffer *self, uint32_t wanted) {
    const buffer *over = self->over;
    self->kind = over->kind;
    self->owner_uuid = over->owner_uuid;
    self->owner = over->owner;
    self->mapping = over->mapping;
    self->segments = over->segments;
    self->segment_count = over->segment_count;
    self->buffer_id = over->buffer_id;
    memcpy(self->exporter_id, over->exporter_id, sizeof(self->exporter_id));
    gpuipc_status status = choose_device(self, wanted, &self->access_device);
    if (status != GPUIPC_OK || self->access_device == over->access_device) {
        return status;
    }
    /* All that may be had, whatever the view may do: it could have that already, for the others. */
    return self->transport->set_access(self, self->access_device, over->access_limit);
}

/* What is exported of it is counted on the original, so a view has that and no other view between. What has come
 * home stays unreturned as long as there are views over it. */
static void set_over(buffer *self, buffer *of) {
    self->is_view = true;
    self->over = of->is_view ? of->over : of;
    self->original = self->over->original != NULL ? self->over->original : self->over;
    object_reference(&self->over->object);
    self->exports.original = &self->original->exports;
    object_reference(&self->original->object);
}

gpuipc_status buffer_open_view(context *ctx, buffer *of, uint64_t offset, uint64_t bytes,
                               uint32_t wanted, gpuipc_access access, gpuipc_access access_limit,
                               buffer **out_buffer) {
    buffer *self;
    gpuipc_status status = buffer_new(ctx, GPUIPC_BUFFER_OPENED, of->transport, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    set_over(self, of);
    self->offset = of->offset + offset;
    self->bytes = bytes;
    self->access_limit = (gpuipc_access)(access_limit & of->access_limit);
    atomic_store(&self->access, (int)buffer_settle_access(self, access));
    status = fill_in_view(self, wanted);
    if (status != GPUIPC_OK) {
        buffer_unwind(self);
        return status;
    }
    buffer_unreference(of);
    *out_buffer = self;
    return GPUIPC_OK;
}

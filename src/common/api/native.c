/* SPDX-License-Identifier: MIT */
/** @file Handles for programs with a courier of their own: gpuipc_native.h. */
#include <gpuipc/gpuipc_native.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/struct_size.h"
#include "memory/buffer.h"
#include "memory/keep_alive.h"
#include "memory/kept_handles.h"
#include "transport/transport.h"

/* Makes all handles, or none: the caller's array is written only when there is one for each. */
static gpuipc_status export_all(const buffer *self, gpuipc_native_segment *segments) {
    uint32_t made = 0;
    gpuipc_status status = GPUIPC_OK;
    os_handle *handles = malloc(self->segment_count * sizeof(*handles));
    if (handles == NULL) {
        return status_out_of_memory(self->segment_count * sizeof(*handles));
    }
    context *ctx = self->original == NULL ? self->context : self->original->context;
    if (self->import == NULL) {
        keep_alive_for_export(ctx, self->owner);
    }
    while (made < self->segment_count && status == GPUIPC_OK) {
        status = kept_handles_copy(ctx, &self->segments[made], &handles[made]);
        made += status == GPUIPC_OK;
    }
    for (uint32_t i = 0; i < made; i++) {
        if (status == GPUIPC_OK) {
            segments[i].handle.value = os_handle_give_up(&handles[i]);
            segments[i].bytes = self->segments[i].bytes;
        } else {
            os_handle_close(&handles[i]);
        }
    }
    free(handles);
    return status;
}

static gpuipc_status export_buffer(const buffer *self, gpuipc_native_segment *segments,
                                   size_t capacity, gpuipc_native_layout *out_layout,
                                   size_t *out_count) {
    if (!self->transport->is_native) {
        return status_fail(GPUIPC_ERR_NOT_SHAREABLE,
                           "memory of transport %s has no handle of its own; make it with "
                           "GPUIPC_TRANSPORT_VMM",
                           self->transport->name);
    }
    if (capacity < self->segment_count) {
        *out_count = self->segment_count;
        return status_fail(GPUIPC_ERR_TOO_SMALL,
                           "the buffer has %u segments; there is room for %zu", self->segment_count,
                           capacity);
    }
    gpuipc_status status = self->transport->check_export(self, NULL);
    if (status != GPUIPC_OK || (status = export_all(self, segments)) != GPUIPC_OK) {
        return status;
    }
    gpuipc_native_layout layout = {
        .device_uuid = self->owner_uuid, .offset = self->offset, .bytes = self->bytes};
    struct_size_write(out_layout, &layout, sizeof(layout));
    *out_count = self->segment_count;
    return GPUIPC_OK;
}

gpuipc_status gpuipc_native_export(gpuipc_buffer *handle, gpuipc_native_segment *segments,
                                   size_t capacity, gpuipc_native_layout *out_layout,
                                   size_t *out_count) {
    status_enter(__func__);
    buffer *self;
    gpuipc_status status =
        struct_size_check(out_layout, STRUCT_SIZE_UP_TO(gpuipc_native_layout, bytes));
    if (status != GPUIPC_OK) {
        return status;
    }
    if (out_count == NULL || (segments == NULL && capacity > 0)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "segments or out_count is NULL");
    }
    status = buffer_acquire(handle, &self);
    if (status == GPUIPC_OK) {
        status = export_buffer(self, segments, capacity, out_layout, out_count);
        buffer_unreference(self);
    }
    return status;
}

/* Its courier has no names for memory, so each import is its own. */
static gpuipc_status import_buffer(context *ctx, const gpuipc_native_segment *from, uint32_t count,
                                   buffer_source *source, uint32_t wanted, gpuipc_access access,
                                   gpuipc_buffer **out_buffer) {
    buffer *self = NULL;
    gpuipc_status status = import_new(NULL, count, false, &source->import);
    if (status != GPUIPC_OK) {
        return status;
    }
    segment *segments = import_segments(source->import, &count);
    for (uint32_t i = 0; i < count && status == GPUIPC_OK; i++) {
        status = segment_import(&ctx->driver, from[i].handle.value, from[i].bytes, &segments[i]);
    }
    if (status == GPUIPC_OK) {
        status = buffer_open(ctx, source, NULL, 0, wanted, access, &self);
    }
    if (status != GPUIPC_OK) {
        const gpuipc_error why = status_save();
        import_unreference(ctx, source->import, false);
        status_restore(&why);
        return status;
    }
    return buffer_publish(self, out_buffer);
}

/* Here the range is the caller's own word, not a peer's. Whether the segments have the sizes that are
 * said of them, only mapping them shows. */
static gpuipc_status check_layout(const gpuipc_native_layout *layout,
                                  const gpuipc_native_segment *segments, size_t segment_count) {
    uint64_t total = 0;
    for (size_t i = 0; i < segment_count; i++) {
        total = segments[i].bytes > UINT64_MAX - total ? UINT64_MAX : total + segments[i].bytes;
    }
    if (layout->bytes == 0 || layout->offset > total || layout->bytes > total - layout->offset) {
        return status_fail(GPUIPC_ERR_OUT_OF_RANGE,
                           "%" PRIu64 " bytes from %" PRIu64
                           " on do not lie in segments of %" PRIu64 " bytes",
                           layout->bytes, layout->offset, total);
    }
    return GPUIPC_OK;
}

gpuipc_status gpuipc_native_import(gpuipc_context *handle, const gpuipc_native_segment *segments,
                                   size_t segment_count, const gpuipc_native_layout *layout,
                                   uint32_t wanted, gpuipc_access access,
                                   gpuipc_buffer **out_buffer) {
    status_enter(__func__);
    gpuipc_native_layout known;
    context *ctx;
    gpuipc_status status = struct_size_read(layout, STRUCT_SIZE_UP_TO(gpuipc_native_layout, bytes),
                                            &known, sizeof(known));
    if (status != GPUIPC_OK || (status = buffer_check_access(access)) != GPUIPC_OK) {
        return status;
    }
    if (segments == NULL || out_buffer == NULL || segment_count == 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "segments or out_buffer is NULL, or there are no segments");
    }
    if (segment_count > UINT32_MAX) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "%zu segments are more than a buffer can have, %" PRIu32, segment_count,
                           UINT32_MAX);
    }
    if ((status = check_layout(&known, segments, segment_count)) != GPUIPC_OK ||
        (status = context_acquire(handle, &ctx)) != GPUIPC_OK) {
        return status;
    }
    status = device_check_field(ctx, wanted);
    if (status == GPUIPC_OK && !ctx->driver.has_vmm) {
        status = status_fail(GPUIPC_ERR_VMM_UNSUPPORTED,
                             "the driver has no virtual memory management calls");
    }
    if (status == GPUIPC_OK) {
        /* A courier of the caller's own carries no identity: this buffer gets one of ours. */
        buffer_source source = {.transport = transport_find(GPUIPC_TRANSPORT_VMM),
                                .owner_uuid = known.device_uuid,
                                .offset = known.offset,
                                .bytes = known.bytes,
                                .access_limit = GPUIPC_ACCESS_READ_WRITE,
                                .buffer_id = atomic_fetch_add(&ctx->next_buffer_id, 1u)};
        memcpy(source.exporter_id, ctx->instance_id, sizeof(source.exporter_id));
        status = import_buffer(ctx, segments, (uint32_t)segment_count, &source, wanted, access,
                               out_buffer);
    }
    context_unreference(ctx);
    return status;
}

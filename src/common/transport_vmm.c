/* SPDX-License-Identifier: MIT */
/** @file Virtual memory management: allocations that other processes open by an OS handle each. */
#include <inttypes.h>
#include <stdlib.h>

#include "buffer_internal.h"
#include "transport.h"
#include "transport_vmm.h"

#define CREATE "gpuipc_buffer_create"

/* More segments than this in one buffer is a mistake in segment_bytes: opening costs ~50 us each. */
#define SEGMENTS_MAX 65536u

static gpuipc_status round_up(uint64_t bytes, uint64_t unit, uint64_t *out_rounded) {
    if (bytes > UINT64_MAX - (unit - 1)) {
        return status_fail(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, CREATE,
                           "%" PRIu64 " bytes is more than any device has", bytes);
    }
    *out_rounded = (bytes + unit - 1) / unit * unit;
    return GPUIPC_OK;
}

/* Allocates the segments; those made so far are in the buffer when it fails. */
static gpuipc_status allocate_segments(buffer *self, const CUmemAllocationProp *prop,
                                       uint64_t total, uint64_t segment_bytes) {
    uint64_t count = total / segment_bytes + (total % segment_bytes != 0);
    if (count > SEGMENTS_MAX) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, CREATE,
                           "segment_bytes makes %" PRIu64 " segments; the most is %u", count,
                           SEGMENTS_MAX);
    }
    self->segments = calloc((size_t)count, sizeof(*self->segments));
    if (self->segments == NULL) {
        return status_out_of_memory(CREATE, count * sizeof(*self->segments));
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

gpuipc_status transport_vmm_make(buffer *self, const gpuipc_buffer_config *config,
                                 const CUmemAllocationProp *prop) {
    const uint64_t unit = self->context->devices[self->owner].info.granularity_bytes;
    uint64_t total = 0;
    uint64_t segment_bytes = 0;
    gpuipc_status status;
    if ((status = round_up(config->bytes, unit, &total)) != GPUIPC_OK ||
        (status = round_up(config->segment_bytes == 0 || config->segment_bytes > total
                               ? total
                               : config->segment_bytes,
                           unit, &segment_bytes)) != GPUIPC_OK ||
        (status = allocate_segments(self, prop, total, segment_bytes)) != GPUIPC_OK ||
        (status = mapping_create(&self->context->driver, self->segments, self->segment_count,
                                 &self->mapping)) != GPUIPC_OK) {
        return status;
    }
    return transport_vmm_set_access(self, self->owner, GPUIPC_ACCESS_READ_WRITE);
}

static gpuipc_status allocate(buffer *self, const gpuipc_buffer_config *config) {
    CUmemAllocationProp prop;
    gpuipc_status status =
        device_allocation_prop(&self->context->devices[self->owner], CREATE, &prop);
    return status == GPUIPC_OK ? transport_vmm_make(self, config, &prop) : status;
}

static gpuipc_status check_export(const buffer *self, const os_peer *peer) {
    gpuipc_status status = GPUIPC_OK;
    (void)peer;
    for (uint32_t i = 0; i < self->segment_count && status == GPUIPC_OK; i++) {
        status = segment_check_export(&self->segments[i], self->origin == GPUIPC_BUFFER_OPENED);
    }
    return status;
}

static gpuipc_status export_segment(const buffer *self, uint32_t index, group_set *sent_groups,
                                    wire_segment *out_record, os_handle *out_handle) {
    (void)sent_groups;
    const segment *of = &self->segments[index];
    *out_record = (wire_segment){.bytes = of->bytes, .naming = WIRE_NAMED_BY_HANDLE};
    return segment_export(&self->context->driver, of, self->origin == GPUIPC_BUFFER_OPENED,
                          out_handle);
}

gpuipc_status transport_vmm_check_driver(const context *ctx, const char *operation) {
    return ctx->driver.has_vmm ? GPUIPC_OK
                               : status_fail(GPUIPC_ERR_VMM_UNSUPPORTED, operation,
                                             "the driver has no virtual memory management calls");
}

static gpuipc_status import_segment(sender *from, const wire_segment *record, os_handle *handle,
                                    bool keep_handle, segment *out_segment) {
    segment opened = SEGMENT_NONE;
    gpuipc_status status = transport_vmm_check_driver(from->context, "gpuipc_connection_receive");
    if (status != GPUIPC_OK || (status = segment_import(&from->context->driver, handle->value,
                                                        record->bytes, &opened)) != GPUIPC_OK) {
        return status;
    }
    if (keep_handle) {
        opened.kept = *handle;
        *handle = OS_HANDLE_NONE;
    }
    *out_segment = opened;
    return GPUIPC_OK;
}

gpuipc_status transport_vmm_open(buffer *self, const buffer_source *source, gpuipc_access access) {
    (void)source;
    gpuipc_status status =
        mapping_create(&self->context->driver, self->segments, self->segment_count, &self->mapping);
    return status == GPUIPC_OK ? transport_vmm_set_access(self, self->access_device, access)
                               : status;
}

gpuipc_status transport_vmm_set_access(buffer *self, uint32_t index, gpuipc_access access) {
    const context *ctx = self->context;
    gpuipc_status status = buffer_check_peer(self, index);
    return status != GPUIPC_OK
               ? status
               : mapping_set_access(&ctx->driver, &self->mapping, ctx->devices[index].ordinal,
                                    access == GPUIPC_ACCESS_READ
                                        ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                        : CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

void transport_vmm_release(buffer *self) {
    if (self->origin != GPUIPC_BUFFER_WRAPPED) {
        mapping_destroy(&self->context->driver, &self->mapping);
    }
}

void transport_vmm_release_segment(context *ctx, segment *of, bool forked) {
    segment_release(&ctx->driver, of, forked);
}

const transport transport_vmm = {
    .id = GPUIPC_TRANSPORT_VMM,
    .name = "vmm",
    .is_zero_copy = true,
    .guards_access = true,
    .memory = WIRE_MEMORY_VMM,
    .naming = WIRE_NAMED_BY_HANDLE,
    .allocate = allocate,
    .check_export = check_export,
    .export_segment = export_segment,
    .import_segment = import_segment,
    .open = transport_vmm_open,
    .set_access = transport_vmm_set_access,
    .release = transport_vmm_release,
    .release_segment = transport_vmm_release_segment,
};

/* SPDX-License-Identifier: MIT */
/** @file Virtual memory management: allocations that other processes open by an OS handle each. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "memory/keep_alive.h"
#include "memory/kept_handles.h"
#include "transport/transports.h"

/* More segments than this in one buffer is a mistake in segment_bytes: opening costs ~50 us each. */
#define SEGMENTS_MAX 65536u

/* cuMemSetAccess for another device than the owner takes 8.5 ms for an allocation of 512 MiB or more, and 69 us
 * for one of 510 (measured on H200s, driver 580). Below that, the fewer there are the better, since each costs
 * some 85 us to open: 8 GiB in 17 pieces 1.6 ms, in 32 of 256 MiB 2.4 ms. For the owner itself one allocation is
 * the fastest. */
#define PEER_WHOLE_BELOW (UINT64_C(512) << 20)

static gpuipc_status round_up(uint64_t bytes, uint64_t unit, uint64_t *out_rounded) {
    if (bytes > UINT64_MAX - (unit - 1)) {
        return status_fail(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY,
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
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "segment_bytes makes %" PRIu64 " segments; the most is %u", count,
                           SEGMENTS_MAX);
    }
    self->segments = calloc((size_t)count, sizeof(*self->segments));
    if (self->segments == NULL) {
        return status_out_of_memory(count * sizeof(*self->segments));
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

static bool has_peer_opener(const buffer *self, const gpuipc_buffer_config *config) {
    for (uint32_t i = 0; i < config->opener_count; i++) {
        if (memcmp(&config->openers[i], &self->owner_uuid, sizeof(self->owner_uuid)) != 0) {
            return true;
        }
    }
    return false;
}

/* The largest that is below the step, made even: 1 GiB is three times 342 MiB. */
static uint64_t peer_segment_bytes(uint64_t total, uint64_t unit) {
    const uint64_t most = (PEER_WHOLE_BELOW - 1) / unit * unit;
    const uint64_t count = most == 0 ? 1 : total / most + (total % most != 0);
    return total / count + (total % count != 0);
}

/* How large one allocation is to be; not rounded. */
static uint64_t choose_segment_bytes(const buffer *self, const gpuipc_buffer_config *config,
                                     uint64_t total, uint64_t unit) {
    uint64_t wanted = config->segment_bytes;
    if (wanted == 0 && total >= PEER_WHOLE_BELOW && has_peer_opener(self, config)) {
        wanted = peer_segment_bytes(total, unit);
    }
    return wanted == 0 || wanted > total ? total : wanted;
}

gpuipc_status transport_vmm_make(buffer *self, const gpuipc_buffer_config *config,
                                 const CUmemAllocationProp *prop) {
    const uint64_t unit = self->context->devices[self->owner].info.granularity_bytes;
    uint64_t total = 0;
    uint64_t segment_bytes = 0;
    gpuipc_status status;
    if ((status = round_up(config->bytes, unit, &total)) != GPUIPC_OK ||
        (status = round_up(choose_segment_bytes(self, config, total, unit), unit,
                           &segment_bytes)) != GPUIPC_OK ||
        (status = allocate_segments(self, prop, total, segment_bytes)) != GPUIPC_OK) {
        return status;
    }
    status =
        mapping_create(&self->context->driver, self->segments, self->segment_count, &self->mapping);
    if (status != GPUIPC_OK) { /* nobody else said how large own memory is */
        return status == GPUIPC_ERR_SIZE_MISMATCH ? status_change(GPUIPC_ERR_CUDA) : status;
    }
    return transport_vmm_set_access(self, self->owner, GPUIPC_ACCESS_READ_WRITE);
}

static gpuipc_status allocate(buffer *self, const gpuipc_buffer_config *config) {
    CUmemAllocationProp prop;
    gpuipc_status status = device_allocation_prop(&self->context->devices[self->owner], &prop);
    if (status != GPUIPC_OK || (status = transport_vmm_make(self, config, &prop)) != GPUIPC_OK) {
        return status;
    }
    if (config->opener_count > 0) { /* it will be handed over */
        keep_alive_for_export(self->context, self->owner);
        for (uint32_t i = 0; i < self->segment_count; i++) {
            kept_handles_prepare(self->context, &self->segments[i]);
        }
    }
    return GPUIPC_OK;
}

static gpuipc_status check_export(const buffer *self, const os_peer *peer) {
    gpuipc_status status = GPUIPC_OK;
    (void)peer;
    /* Who has the same memory open may have asked for the handles; this one has not. */
    const segment none = SEGMENT_NONE;
    for (uint32_t i = 0; i < self->segment_count && status == GPUIPC_OK && self->import != NULL;
         i++) {
        status = segment_check_export(self->keeps_handles ? &self->segments[i] : &none, true);
    }
    return status;
}

static gpuipc_status export_segment(const buffer *self, segment *of, bool has_pool,
                                    exported_segment *out_export) {
    const bool is_imported = self->import != NULL;
    (void)has_pool;
    if (!is_imported) {
        keep_alive_for_export(self->context, self->owner);
    }
    *out_export =
        (exported_segment){.record = {.bytes = of->bytes, .naming = SEGMENT_NAMED_BY_HANDLE}};
    return kept_handles_export(self->context, of, is_imported, &out_export->handle,
                               &out_export->is_kept);
}

gpuipc_status transport_vmm_check_driver(const context *ctx) {
    return ctx->driver.has_vmm ? GPUIPC_OK
                               : status_fail(GPUIPC_ERR_VMM_UNSUPPORTED,
                                             "the driver has no virtual memory management calls");
}

static gpuipc_status import_segment(import_source *from, const segment_record *record,
                                    os_handle *handle, bool keep_handle, segment *out_segment) {
    segment opened = SEGMENT_NONE;
    gpuipc_status status = transport_vmm_check_driver(from->context);
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

static CUmemAccess_flags flags_of(gpuipc_access access) {
    return access == GPUIPC_ACCESS_READ ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                        : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

gpuipc_status transport_vmm_open(buffer *self, const buffer_source *source, gpuipc_access access) {
    context *ctx = self->context;
    const uint32_t index = self->access_device;
    const CUdevice owner = self->owner < ctx->device_count ? ctx->devices[self->owner].ordinal : -1;
    (void)source;
    gpuipc_status status = buffer_check_peer(self, index);
    if (status != GPUIPC_OK) {
        return status;
    }
    keep_alive_for_peer(ctx, self->owner, index);
    status = import_map(ctx, self->import, owner, ctx->devices[index].ordinal, flags_of(access),
                        &self->view);
    if (status == GPUIPC_OK) {
        self->mapping = *import_view_mapping(self->view);
    }
    return status;
}

gpuipc_status transport_vmm_set_access(buffer *self, uint32_t index, gpuipc_access access) {
    context *ctx = self->context;
    const CUdevice ordinal = ctx->devices[index].ordinal;
    gpuipc_status status = buffer_check_peer(self, index);
    if (status != GPUIPC_OK) {
        return status;
    }
    keep_alive_for_peer(ctx, self->owner, index);
    return self->view == NULL
               ? mapping_set_access(&ctx->driver, &self->mapping, ordinal, flags_of(access))
               : import_set_access(ctx, self->import, self->view, ordinal, flags_of(access));
}

void transport_vmm_release(buffer *self) {
    if (self->import != NULL) {
        import_unmap(self->context, self->import, self->view);
        self->view = NULL;
        self->mapping = (mapping){0};
    } else if (self->origin != GPUIPC_BUFFER_WRAPPED) {
        mapping_destroy(&self->context->driver, &self->mapping);
    }
}

void transport_vmm_release_segment(context *ctx, segment *of, bool forked) {
    if (!forked) { /* else another thread may have had the mutex */
        kept_handles_remove(ctx, of);
    }
    segment_release(&ctx->driver, of, forked);
}

const transport transport_vmm = {
    .id = GPUIPC_TRANSPORT_VMM,
    .name = "vmm",
    .is_zero_copy = true,
    .guards_access = true,
    .shares_imports = true,
    .is_native = true,
    .memory = SEGMENT_MEMORY_VMM,
    .naming = SEGMENT_NAMED_BY_HANDLE,
    .allocate = allocate,
    .check_export = check_export,
    .export_segment = export_segment,
    .import_segment = import_segment,
    .open = transport_vmm_open,
    .set_access = transport_vmm_set_access,
    .release = transport_vmm_release,
    .release_segment = transport_vmm_release_segment,
};

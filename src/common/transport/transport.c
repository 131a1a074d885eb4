/* SPDX-License-Identifier: MIT */
/** @file See transport.h: finding one. */
#include "transport/transports.h"

#include <string.h>

static const transport *const all[] = {&transport_vmm, &transport_pool, &transport_legacy,
                                       &transport_p2p, &transport_host, &transport_fabric};

_Static_assert(sizeof(all) / sizeof(all[0]) == GPUIPC_TRANSPORT_COUNT, "one entry each");

const transport *transport_find(gpuipc_transport id) {
    if (id == GPUIPC_TRANSPORT_DEFAULT) {
        return &transport_vmm;
    }
    for (size_t i = 0; i < GPUIPC_TRANSPORT_COUNT; i++) {
        if (all[i]->id == id) {
            return all[i];
        }
    }
    return NULL;
}

const transport *transport_of_memory(uint16_t memory) {
    for (size_t i = 0; memory != 0 && i < GPUIPC_TRANSPORT_COUNT; i++) {
        if (all[i]->memory == memory) {
            return all[i];
        }
    }
    return NULL;
}

gpuipc_status transport_check_attribute(const context *ctx, uint32_t device_index,
                                        CUdevice_attribute which, int mask, const char *call,
                                        const char *sentence) {
    const device *of = &ctx->devices[device_index];
    int value = 0;
    CUresult result = ctx->driver.cuDeviceGetAttribute(&value, which, of->ordinal);
    if (result != CUDA_SUCCESS) {
        return status_fail_cuda(GPUIPC_ERR_NOT_SUPPORTED, result, call, "%s: %s", of->info.name,
                                sentence);
    }
    return (value & mask) != 0
               ? GPUIPC_OK
               : status_fail(GPUIPC_ERR_NOT_SUPPORTED, "%s: %s", of->info.name, sentence);
}

gpuipc_status transport_export_name(const buffer *self, segment *of, bool has_pool,
                                    exported_segment *out_export) {
    (void)self;
    (void)has_pool;
    *out_export = (exported_segment){
        .record = {.bytes = of->bytes, .naming = SEGMENT_NAMED_BY_NAME, .group = of->group},
        .handle = OS_HANDLE_NONE};
    memcpy(out_export->record.name, of->name, sizeof(of->name));
    return GPUIPC_OK;
}

gpuipc_status transport_check_owned(const buffer *self, const char *what) {
    return self->origin == GPUIPC_BUFFER_OPENED && self->original == NULL
               ? status_fail(
                     GPUIPC_ERR_NOT_SHAREABLE,
                     "the buffer is %s of another process, which only its owner can send on", what)
               : GPUIPC_OK;
}

gpuipc_status transport_check_single(const import_source *from, const char *what) {
    return from->segment_count != 1 ? status_fail(GPUIPC_ERR_SIZE_MISMATCH,
                                                  "a buffer of %s is said to have %u allocations",
                                                  what, from->segment_count)
                                    : GPUIPC_OK;
}

segment transport_named_segment(const segment_record *record) {
    segment taken = SEGMENT_NONE;
    taken.bytes = record->bytes;
    taken.group = record->group;
    memcpy(taken.name, record->name, sizeof(taken.name));
    return taken;
}

const char *gpuipc_transport_name(gpuipc_transport which) {
    const transport *found = transport_find(which);
    return which == GPUIPC_TRANSPORT_DEFAULT ? "default" : found == NULL ? "unknown" : found->name;
}

gpuipc_status gpuipc_transport_count(uint32_t *out_count) {
    status_enter(__func__);
    if (out_count == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_count is NULL");
    }
    *out_count = GPUIPC_TRANSPORT_COUNT;
    return GPUIPC_OK;
}

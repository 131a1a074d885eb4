/* SPDX-License-Identifier: MIT */
/** @file See mapping.h. */
#include "memory/mapping.h"

#include <inttypes.h>
#include <stdio.h>

static gpuipc_status total_of(const segment *segments, size_t count, uint64_t *out_total) {
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        if (segments[i].bytes == 0 || segments[i].bytes > UINT64_MAX - total) {
            return status_fail(GPUIPC_ERR_SIZE_MISMATCH,
                               "segment %zu is said to have %" PRIu64 " bytes", i,
                               segments[i].bytes);
        }
        total += segments[i].bytes;
    }
    *out_total = total;
    return GPUIPC_OK;
}

static gpuipc_status map_segment(const driver *drv, CUdeviceptr at, const segment *self) {
    CUresult result = drv->cuMemMap(at, self->bytes, 0, self->allocation, 0);
    /* NOT_SUPPORTED is the driver's answer to any size but the allocation's own (tests/conformance). */
    if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE) {
        return status_fail_cuda(GPUIPC_ERR_SIZE_MISMATCH, result, "cuMemMap",
                                "the allocation has not the %" PRIu64 " bytes it is said to have",
                                self->bytes);
    }
    return driver_status(drv, result, "cuMemMap", "mapping memory");
}

gpuipc_status mapping_create(const driver *drv, const segment *segments, size_t count,
                             mapping *out_mapping) {
    mapping made = {0};
    uint64_t mapped = 0;
    gpuipc_status status = total_of(segments, count, &made.bytes);
    if (status != GPUIPC_OK) {
        return status;
    }
    CUresult result = drv->cuMemAddressReserve(&made.base, made.bytes, 0, 0, 0);
    if (result == CUDA_ERROR_INVALID_VALUE) {
        return status_fail_cuda(GPUIPC_ERR_SIZE_MISMATCH, result, "cuMemAddressReserve",
                                "%" PRIu64 " bytes is no size that device memory can have",
                                made.bytes);
    }
    if (result != CUDA_SUCCESS) {
        return driver_status(drv, result, "cuMemAddressReserve", "reserving device addresses");
    }
    for (size_t i = 0; i < count; i++) {
        status = map_segment(drv, made.base + mapped, &segments[i]);
        if (status != GPUIPC_OK) {
            goto undo;
        }
        mapped += segments[i].bytes;
    }
    *out_mapping = made;
    return GPUIPC_OK;

undo:
    if (mapped > 0) {
        (void)drv->cuMemUnmap(made.base, mapped);
    }
    (void)drv->cuMemAddressFree(made.base, made.bytes);
    return status;
}

gpuipc_status mapping_set_access(const driver *drv, const mapping *self, CUdevice ordinal,
                                 CUmemAccess_flags flags) {
    CUmemAccessDesc desc = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal}, .flags = flags};
    char what[64];
    CUresult result = drv->cuMemSetAccess(self->base, self->bytes, &desc, 1);
    (void)snprintf(what, sizeof(what), "giving device %d access", ordinal);
    /* The device exists, so it is the way from it to the memory that does not. */
    if (result == CUDA_ERROR_INVALID_DEVICE) {
        return status_fail_cuda(GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED, result, "cuMemSetAccess",
                                "device %d cannot reach the memory", ordinal);
    }
    return driver_status(drv, result, "cuMemSetAccess", what);
}

void mapping_destroy(const driver *drv, mapping *self) {
    if (self->base != 0) {
        (void)drv->cuMemUnmap(self->base, self->bytes);
        (void)drv->cuMemAddressFree(self->base, self->bytes);
    }
    *self = (mapping){0};
}

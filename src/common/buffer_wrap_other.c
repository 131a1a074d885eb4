/* SPDX-License-Identifier: MIT */
/** @file Buffers around memory of the caller's that is none of virtual memory management. */
#include <inttypes.h>

#include "buffer_internal.h"
#include "pointer.h"
#include "registry.h"
#include "transport_legacy.h"
#include "transport_pool.h"

#define OPERATION "gpuipc_buffer_wrap"

static gpuipc_status check(const pointer *found, uint64_t address, uint64_t bytes) {
    if (found->kind == GPUIPC_MEMORY_UNKNOWN) {
        return status_fail(GPUIPC_ERR_NOT_DEVICE_MEMORY, OPERATION,
                           "0x%" PRIx64
                           " is not mapped GPU memory of this process, nor host memory "
                           "that CUDA knows",
                           address);
    }
    if (found->kind == GPUIPC_MEMORY_IMPORTED) {
        return status_fail_cuda(
            GPUIPC_ERR_NOT_SHAREABLE, CUDA_ERROR_INVALID_VALUE, "cuMemRetainAllocationHandle",
            "0x%" PRIx64 " was opened from another process, and only its owner can "
            "send it on",
            address);
    }
    if (bytes > found->base + found->bytes - address) {
        return status_fail(GPUIPC_ERR_OUT_OF_RANGE, OPERATION,
                           "the memory from 0x%" PRIx64 " on ends at 0x%" PRIx64
                           ", before the %" PRIu64 " bytes asked for",
                           address, found->base + found->bytes, bytes);
    }
    if (found->device == GPUIPC_DEVICE_NONE) {
        return status_fail(GPUIPC_ERR_DEVICE_NOT_FOUND, OPERATION,
                           "the memory is on device %d, which this process does not see",
                           found->ordinal);
    }
    return GPUIPC_OK;
}

/* Where its own transport does not work, a copy still does. */
static gpuipc_status name(buffer *self, const pointer *found) {
    if (found->kind == GPUIPC_MEMORY_DEVICE) {
        self->transport = &transport_legacy;
        gpuipc_status status = transport_legacy_name(self);
        if (status != GPUIPC_ERR_NOT_SUPPORTED) {
            return status;
        }
        self->transport = &transport_staged;
    } else if (found->kind == GPUIPC_MEMORY_POOL &&
               os_shareable_handle_type != CU_MEM_HANDLE_TYPE_WIN32 &&
               (found->handle_types & os_shareable_handle_type) != 0) {
        self->transport = &transport_pool;
        return transport_pool_name(self, found->pool);
    }
    return GPUIPC_OK;
}

gpuipc_status buffer_wrap_other(buffer *self, uint64_t address, uint64_t bytes) {
    pointer found;
    gpuipc_status status = pointer_look_other(self->context, address, &found);
    self->transport = &transport_staged;
    if (status != GPUIPC_OK || (status = check(&found, address, bytes)) != GPUIPC_OK ||
        (status = buffer_grow(self, OPERATION)) != GPUIPC_OK) {
        return status;
    }
    self->kind = found.kind;
    self->owner = found.device;
    self->access_device = found.device;
    self->owner_uuid = self->context->devices[found.device].info.uuid;
    self->mapping = (mapping){.base = found.base, .bytes = found.bytes};
    self->offset = address - found.base;
    self->bytes = bytes;
    self->segments[self->segment_count++].bytes = found.bytes;
    atomic_store(&self->access, (int)GPUIPC_ACCESS_READ_WRITE);
    status = name(self, &found);
    if (status == GPUIPC_OK && self->transport != &transport_staged) {
        registry_add(self);
    }
    return status;
}

gpuipc_status buffer_wrap_check_next(const buffer *self, uint64_t address) {
    pointer found;
    gpuipc_status status = pointer_look_other(self->context, address, &found);
    if (status != GPUIPC_OK) {
        return status;
    }
    return found.kind == GPUIPC_MEMORY_UNKNOWN
               ? status_fail(GPUIPC_ERR_NOT_DEVICE_MEMORY, OPERATION,
                             "nothing is mapped at 0x%" PRIx64, address)
               : status_fail_cuda(GPUIPC_ERR_NOT_SHAREABLE, CUDA_ERROR_INVALID_VALUE,
                                  "cuMemRetainAllocationHandle",
                                  "at 0x%" PRIx64 " begins memory that was not made with "
                                  "cuMemCreate; wrap each part on its own",
                                  address);
}

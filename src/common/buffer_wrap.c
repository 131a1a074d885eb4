/* SPDX-License-Identifier: MIT */
/** @file Buffers around memory that the caller mapped itself. */
#include <inttypes.h>
#include <stdlib.h>

#include "buffer_internal.h"
#include "transport_vmm.h"

#define OPERATION "gpuipc_buffer_wrap"

/* Which device's it is. in_out_types keeps the handle types that all allocations have; the properties of
 * imported memory name none. */
static gpuipc_status check_allocation(const driver *drv, CUmemGenericAllocationHandle allocation,
                                      CUdeviceptr address, int *in_out_types, int *out_ordinal) {
    CUmemAllocationProp prop;
    gpuipc_status status =
        driver_status(drv, drv->cuMemGetAllocationPropertiesFromHandle(&prop, allocation),
                      "cuMemGetAllocationPropertiesFromHandle", "asking how memory was allocated");
    if (status != GPUIPC_OK) {
        return status;
    }
    *in_out_types &= (int)prop.requestedHandleTypes;
    if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return status_fail(GPUIPC_ERR_NOT_DEVICE_MEMORY, OPERATION,
                           "0x%llx lies in host memory, not on a device", address);
    }
    *out_ordinal = prop.location.id;
    return GPUIPC_OK;
}

static gpuipc_status set_owner(buffer *self, int ordinal) {
    const context *ctx = self->context;
    for (uint32_t i = 0; i < ctx->device_count; i++) {
        if (ctx->devices[i].ordinal == ordinal) {
            self->owner = i;
            self->owner_uuid = ctx->devices[i].info.uuid;
            self->access_device = i;
            return GPUIPC_OK;
        }
    }
    return status_fail(GPUIPC_ERR_DEVICE_NOT_FOUND, OPERATION,
                       "the memory is on device %d, which this process does not see", ordinal);
}

/* Takes in the mapping that holds @p address: cuMemGetAddressRange tells each mapping on its own,
 * also where several touch (measured on driver 580), and needs a current context. */
static gpuipc_status take_mapping(buffer *self, CUdeviceptr address, int *in_out_types,
                                  CUdeviceptr *out_base, bool *out_is_other) {
    const driver *drv = &self->context->driver;
    segment taken = SEGMENT_NONE;
    device_scope scope;
    int ordinal = -1;
    size_t bytes = 0;
    gpuipc_status status = buffer_grow(self, OPERATION);
    if (status != GPUIPC_OK) {
        return status;
    }
    /* the argument is a device address in the form of a pointer: cuda.h has it so */
    CUresult result =
        drv->cuMemRetainAllocationHandle(&taken.allocation, (void *)(uintptr_t)address);
    if (result ==
        CUDA_ERROR_INVALID_VALUE) { /* the one answer for what is no VMM memory: measured */
        *out_is_other = true;
        return GPUIPC_OK;
    }
    if (result != CUDA_SUCCESS) {
        return driver_status(drv, result, "cuMemRetainAllocationHandle",
                             "asking which allocation an address belongs to");
    }
    if ((status = check_allocation(drv, taken.allocation, address, in_out_types, &ordinal)) !=
            GPUIPC_OK ||
        (self->segment_count == 0 && (status = set_owner(self, ordinal)) != GPUIPC_OK)) {
        goto release;
    }
    if (ordinal != self->context->devices[self->owner].ordinal) {
        status = status_fail(GPUIPC_ERR_NOT_SHAREABLE, OPERATION,
                             "the range spans devices %d and %d; wrap each part on its own",
                             self->context->devices[self->owner].ordinal, ordinal);
        goto release;
    }
    if ((status = device_enter(self->context, self->owner, &scope)) != GPUIPC_OK) {
        goto release;
    }
    result = drv->cuMemGetAddressRange(out_base, &bytes, address);
    device_leave(&scope);
    /* It is mapped, as the retain has shown, but the driver does not find a mapping that no device may
     * use (measured on an H200, driver 580). */
    status = result == CUDA_ERROR_NOT_FOUND
                 ? status_fail_cuda(GPUIPC_ERR_NOT_DEVICE_MEMORY, result, "cuMemGetAddressRange",
                                    "the memory at 0x%llx is mapped, but no device has access to "
                                    "it; call cuMemSetAccess first",
                                    address)
                 : driver_status(drv, result, "cuMemGetAddressRange",
                                 "asking how far a mapping reaches");
    if (status != GPUIPC_OK) {
        goto release;
    }
    taken.bytes = bytes;
    self->segments[self->segment_count++] = taken;
    return GPUIPC_OK;

release:
    segment_release(drv, &taken, false);
    return status;
}

/* What the caller has given the owner: the values of both types are the same, 0 for nothing. */
static gpuipc_status note_access(buffer *self) {
    const driver *drv = &self->context->driver;
    const CUmemLocation owner = {CU_MEM_LOCATION_TYPE_DEVICE,
                                 self->context->devices[self->owner].ordinal};
    unsigned long long flags = 0;
    gpuipc_status status =
        driver_status(drv, drv->cuMemGetAccess(&flags, &owner, buffer_address(self, 0)),
                      "cuMemGetAccess", "asking what the owner may do with its memory");
    if (status == GPUIPC_OK) {
        atomic_store(&self->access, (int)flags);
    }
    return status;
}

/* Takes in the mappings side by side that the range lies in. */
static gpuipc_status take_all(buffer *self, uint64_t address, uint64_t bytes, int *in_out_types,
                              bool *out_is_other) {
    CUdeviceptr next = address;
    CUdeviceptr base;
    do {
        bool is_other = false;
        gpuipc_status status = take_mapping(self, next, in_out_types, &base, &is_other);
        if (is_other && self->segment_count == 0) {
            *out_is_other = true;
            return GPUIPC_OK;
        }
        if (is_other) {
            status = buffer_wrap_check_next(self, next);
        }
        if (status == GPUIPC_ERR_NOT_DEVICE_MEMORY && self->segment_count > 0) {
            return status_fail(GPUIPC_ERR_OUT_OF_RANGE, OPERATION,
                               "the memory from 0x%" PRIx64
                               " on ends at 0x%llx, before the %" PRIu64 " bytes asked for",
                               address, next, bytes);
        }
        if (status != GPUIPC_OK) {
            return status;
        }
        if (self->segment_count == 1) {
            self->mapping.base = base;
            self->offset = address - base;
        }
        self->mapping.bytes += self->segments[self->segment_count - 1].bytes;
        next = self->mapping.base + self->mapping.bytes;
    } while (next - address < bytes);
    return GPUIPC_OK;
}

static gpuipc_status fill_in(buffer *self, uint64_t address, uint64_t bytes) {
    int types = os_shareable_handle_type | CU_MEM_HANDLE_TYPE_FABRIC;
    bool is_other = !self->context->driver.has_vmm;
    gpuipc_status status = GPUIPC_OK;
    if (!is_other) {
        status = take_all(self, address, bytes, &types, &is_other);
    }
    if (is_other) {
        return buffer_wrap_other(self, address, bytes);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    self->bytes = bytes;
    self->kind = GPUIPC_MEMORY_VMM;
    if (types == 0) {
        self->transport = &transport_staged;
    } else if ((types & os_shareable_handle_type) == 0 &&
               (status = transport_fabric_name(self)) != GPUIPC_OK) {
        return status;
    }
    return note_access(self);
}

gpuipc_status gpuipc_buffer_wrap(gpuipc_context *handle, uint64_t address, uint64_t bytes,
                                 gpuipc_buffer **out_buffer) {
    context *ctx;
    buffer *self = NULL;
    if (out_buffer == NULL || bytes == 0 || bytes > UINT64_MAX - address) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, OPERATION, "%s",
                           out_buffer == NULL ? "out_buffer is NULL"
                           : bytes == 0       ? "bytes is 0"
                                              : "address and bytes reach beyond 64 bits");
    }
    gpuipc_status status = context_acquire(handle, OPERATION, &ctx);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = buffer_new(ctx, GPUIPC_BUFFER_WRAPPED, &transport_vmm, &self);
    if (status == GPUIPC_OK) {
        status = fill_in(self, address, bytes);
        if (status == GPUIPC_OK) {
            status = buffer_publish(self, out_buffer);
        } else {
            buffer_drop(self);
        }
    }
    context_unreference(ctx);
    return status;
}

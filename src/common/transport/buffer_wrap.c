/* SPDX-License-Identifier: MIT */
/** @file Buffers around memory that the caller allocated: of virtual memory management, or of any other kind. */
#include <inttypes.h>
#include <stdlib.h>

#include "memory/buffer_table.h"
#include "memory/pointer.h"
#include "memory/registry.h"
#include "transport/transports.h"

static gpuipc_status check(const pointer *found, uint64_t address, uint64_t bytes) {
    if (found->kind == GPUIPC_MEMORY_UNKNOWN) {
        return status_fail(GPUIPC_ERR_NOT_DEVICE_MEMORY,
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
        return status_fail(GPUIPC_ERR_OUT_OF_RANGE,
                           "the memory from 0x%" PRIx64 " on ends at 0x%" PRIx64
                           ", before the %" PRIu64 " bytes asked for",
                           address, found->base + found->bytes, bytes);
    }
    return GPUIPC_OK;
}

/* All of it is one device's: the first one's. */
static gpuipc_status set_owner(buffer *self, const pointer *found, uint64_t address) {
    const context *ctx = self->context;
    if (found->is_host) {
        return status_fail(GPUIPC_ERR_NOT_DEVICE_MEMORY,
                           "0x%" PRIx64 " lies in host memory, not on a device", address);
    }
    if (self->segment_count > 0 && found->ordinal != ctx->devices[self->owner].ordinal) {
        return status_fail(GPUIPC_ERR_NOT_SHAREABLE,
                           "the range spans devices %d and %d; wrap each part on its own",
                           ctx->devices[self->owner].ordinal, found->ordinal);
    }
    if (found->device == GPUIPC_DEVICE_NONE) {
        return status_fail(GPUIPC_ERR_DEVICE_NOT_FOUND,
                           "the memory is on device %d, which this process does not see",
                           found->ordinal);
    }
    self->owner = found->device;
    self->owner_uuid = ctx->devices[found->device].info.uuid;
    self->access_device = found->device;
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

static gpuipc_status wrap_other(buffer *self, uint64_t address, uint64_t bytes) {
    pointer found;
    gpuipc_status status = pointer_look_other(self->context, address, &found);
    self->transport = &transport_staged;
    if (status != GPUIPC_OK || (status = check(&found, address, bytes)) != GPUIPC_OK ||
        (status = set_owner(self, &found, address)) != GPUIPC_OK ||
        (status = buffer_grow(self)) != GPUIPC_OK) {
        return status;
    }
    self->kind = found.kind;
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

/* What stands behind the mappings of a range that goes on, when it is none. */
static gpuipc_status check_next(const buffer *self, uint64_t address) {
    pointer found;
    gpuipc_status status = pointer_look_other(self->context, address, &found);
    if (status != GPUIPC_OK) {
        return status;
    }
    return found.kind == GPUIPC_MEMORY_UNKNOWN
               ? status_fail(GPUIPC_ERR_NOT_DEVICE_MEMORY, "nothing is mapped at 0x%" PRIx64,
                             address)
               : status_fail_cuda(GPUIPC_ERR_NOT_SHAREABLE, CUDA_ERROR_INVALID_VALUE,
                                  "cuMemRetainAllocationHandle",
                                  "at 0x%" PRIx64 " begins memory that was not made with "
                                  "cuMemCreate; wrap each part on its own",
                                  address);
}

/* ---- memory of virtual memory management ---------------------------------------------------- */

/* Takes in the mapping that holds @p address: cuMemGetAddressRange tells each mapping on its own, also where several
 * touch (measured on driver 580).
 * @param in_out_types keeps the handle types that all allocations have; the properties of imported memory name none */
static gpuipc_status take_mapping(buffer *self, uint64_t address, int *in_out_types,
                                  CUdeviceptr *out_base, bool *out_is_other) {
    context *ctx = self->context;
    segment taken = SEGMENT_NONE;
    pointer found;
    gpuipc_status status = buffer_grow(self);
    if (status != GPUIPC_OK) {
        return status;
    }
    /* the argument is a device address in the form of a pointer: cuda.h has it so */
    CUresult result =
        ctx->driver.cuMemRetainAllocationHandle(&taken.allocation, (void *)(uintptr_t)address);
    if (result ==
        CUDA_ERROR_INVALID_VALUE) { /* the one answer for what is no VMM memory: measured */
        *out_is_other = true;
        return GPUIPC_OK;
    }
    if (result != CUDA_SUCCESS) {
        return driver_status(&ctx->driver, result, "cuMemRetainAllocationHandle",
                             "asking which allocation an address belongs to");
    }
    if ((status = pointer_look_allocation(ctx, taken.allocation, &found)) != GPUIPC_OK ||
        (status = set_owner(self, &found, address)) != GPUIPC_OK ||
        (status = pointer_find_mapping(ctx, address, &found)) != GPUIPC_OK) {
        segment_release(&ctx->driver, &taken, false);
        return status;
    }
    *in_out_types &= found.handle_types;
    *out_base = found.base;
    taken.bytes = found.bytes;
    self->segments[self->segment_count++] = taken;
    return GPUIPC_OK;
}

/* What the caller has given the owner: the values of both types are the same, 0 for nothing. */
static gpuipc_status note_access(buffer *self) {
    const driver *drv = &self->context->driver;
    const CUmemLocation owner = {CU_MEM_LOCATION_TYPE_DEVICE,
                                 self->context->devices[self->owner].ordinal};
    unsigned long long flags = 0;
    gpuipc_status status =
        DRIVER_CALL(drv, cuMemGetAccess, (&flags, &owner, buffer_address(self, 0)),
                    "asking what the owner may do with its memory");
    if (status == GPUIPC_OK) {
        atomic_store(&self->access, (int)flags);
    }
    return status;
}

/* Takes in the mappings side by side that the range lies in. */
static gpuipc_status take_all(buffer *self, uint64_t address, uint64_t bytes, int *in_out_types,
                              bool *out_is_other) {
    CUdeviceptr next = address;
    CUdeviceptr base = 0;
    do {
        bool is_other = false;
        gpuipc_status status = take_mapping(self, next, in_out_types, &base, &is_other);
        if (is_other && self->segment_count == 0) {
            *out_is_other = true;
            return GPUIPC_OK;
        }
        if (is_other) {
            status = check_next(self, next);
        }
        if (status == GPUIPC_ERR_NOT_DEVICE_MEMORY && self->segment_count > 0) {
            return status_fail(GPUIPC_ERR_OUT_OF_RANGE,
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
        return wrap_other(self, address, bytes);
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

/* Whether it travels as it is, or at least as a copy. What was opened by other means than mapping is its owner's to send. */
static bool can_be_wrapped(const buffer *over, bool travels) {
    return travels || over->kind == GPUIPC_MEMORY_VMM;
}

/* Over memory that a buffer of this context has already, that is: then it is a view of that, and whoever opens it finds
 * it by the name that it has there. What was opened without its handles cannot be sent on: a copy of it can. */
static gpuipc_status wrap_own(context *ctx, uint64_t address, uint64_t bytes, buffer **out_view) {
    buffer *over = buffer_table_find(ctx, address);
    *out_view = NULL;
    if (over == NULL) {
        return GPUIPC_OK;
    }
    gpuipc_status status = GPUIPC_OK;
    const bool travels = over->origin == GPUIPC_BUFFER_CREATED ||
                         over->transport->check_export(over, NULL) == GPUIPC_OK;
    if (bytes <= over->mapping.base + over->mapping.bytes - address &&
        can_be_wrapped(over, travels)) {
        status = buffer_open_view(ctx, over, address - buffer_address(over, 0), bytes,
                                  GPUIPC_DEVICE(over->access_device), GPUIPC_ACCESS_DEFAULT,
                                  over->access_limit, out_view);
        if (status == GPUIPC_OK) {
            (*out_view)->origin = GPUIPC_BUFFER_WRAPPED;
            (*out_view)->transport = travels ? over->transport : &transport_staged;
            return GPUIPC_OK;
        }
    }
    buffer_unwind(over);
    return status;
}

static gpuipc_status wrap(context *ctx, uint64_t address, uint64_t bytes, buffer **out_buffer) {
    gpuipc_status status = wrap_own(ctx, address, bytes, out_buffer);
    if (status != GPUIPC_OK || *out_buffer != NULL) {
        return status;
    }
    status = buffer_new(ctx, GPUIPC_BUFFER_WRAPPED, &transport_vmm, out_buffer);
    if (status == GPUIPC_OK && (status = fill_in(*out_buffer, address, bytes)) != GPUIPC_OK) {
        buffer_unwind(*out_buffer);
    }
    return status;
}

gpuipc_status gpuipc_buffer_wrap(gpuipc_context *handle, uint64_t address, uint64_t bytes,
                                 gpuipc_buffer **out_buffer) {
    status_enter(__func__);
    context *ctx;
    buffer *self = NULL;
    if (out_buffer == NULL || bytes == 0 || bytes > UINT64_MAX - address) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "%s",
                           out_buffer == NULL ? "out_buffer is NULL"
                           : bytes == 0       ? "bytes is 0"
                                              : "address and bytes reach beyond 64 bits");
    }
    gpuipc_status status = context_acquire(handle, &ctx);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = wrap(ctx, address, bytes, &self);
    if (status == GPUIPC_OK) {
        status = buffer_publish(self, out_buffer);
    }
    context_unreference(ctx);
    return status;
}

/* SPDX-License-Identifier: MIT */
/** @file See pointer.h; gpuipc_pointer_classify: what memory is, and what carries it. */
#include "memory/pointer.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/struct_size.h"

/* The attributes answer without a current context, and one that is unknown to an older driver says no. */
static bool attribute(const driver *drv, void *out_value, CUpointer_attribute which,
                      CUdeviceptr address) {
    return drv->cuPointerGetAttribute(out_value, which, address) == CUDA_SUCCESS;
}

static uint32_t device_of(const context *ctx, int ordinal) {
    for (uint32_t i = 0; i < ctx->device_count; i++) {
        if (ctx->devices[i].ordinal == ordinal) {
            return i;
        }
    }
    return GPUIPC_DEVICE_NONE;
}

/* How far one mapping reaches: where several touch, this tells each on its own. It needs a context of a
 * device that has access; the owner's is the likeliest. */
gpuipc_status pointer_find_mapping(context *ctx, uint64_t address, pointer *self) {
    const driver *drv = &ctx->driver;
    device_scope scope;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    gpuipc_status status =
        device_enter(ctx, self->device == GPUIPC_DEVICE_NONE ? 0 : self->device, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    CUresult result = drv->cuMemGetAddressRange(&base, &bytes, address);
    device_leave(&scope);
    if (result == CUDA_ERROR_NOT_FOUND) {
        return status_fail_cuda(GPUIPC_ERR_NOT_DEVICE_MEMORY, result, "cuMemGetAddressRange",
                                "the memory at 0x%" PRIx64 " is mapped, but no device has access "
                                "to it; call cuMemSetAccess first",
                                address);
    }
    self->base = base;
    self->bytes = bytes;
    return driver_status(drv, result, "cuMemGetAddressRange", "asking how far a mapping reaches");
}

gpuipc_status pointer_look_allocation(const context *ctx, CUmemGenericAllocationHandle allocation,
                                      pointer *self) {
    CUmemAllocationProp prop;
    gpuipc_status status = DRIVER_CALL(&ctx->driver, cuMemGetAllocationPropertiesFromHandle,
                                       (&prop, allocation), "asking how memory was allocated");
    if (status == GPUIPC_OK) {
        *self = (pointer){.kind = GPUIPC_MEMORY_VMM,
                          .is_host = prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE,
                          .handle_types = (int)prop.requestedHandleTypes};
        self->ordinal = self->is_host ? -1 : prop.location.id;
        self->device = device_of(ctx, self->ordinal);
    }
    return status;
}

/* Memory of a pool: one of our own answers what its threshold is, an imported one does not. */
static gpuipc_memory_kind kind_of_pool(const driver *drv, CUmemoryPool pool, int handle_types) {
    uint64_t threshold;
    return handle_types == 0 && drv->has_pool &&
                   drv->cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                              &threshold) != CUDA_SUCCESS
               ? GPUIPC_MEMORY_IMPORTED
               : GPUIPC_MEMORY_POOL;
}

/* Where there is no legacy IPC, no memory is capable of it, but none can have been imported either. */
static gpuipc_memory_kind kind_of_plain(const context *ctx, const pointer *self) {
    int has_ipc = 0;
    if (self->is_legacy_capable || !ctx->driver.has_legacy || self->device == GPUIPC_DEVICE_NONE ||
        ctx->driver.cuDeviceGetAttribute(&has_ipc, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,
                                         self->ordinal) != CUDA_SUCCESS ||
        has_ipc == 0) {
        return GPUIPC_MEMORY_DEVICE;
    }
    return GPUIPC_MEMORY_IMPORTED;
}

static gpuipc_status look_at_range(const context *ctx, CUdeviceptr address, pointer *self) {
    const driver *drv = &ctx->driver;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    gpuipc_status status = DRIVER_CALL(drv, cuPointerGetAttribute,
                                       (&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address),
                                       "asking where memory begins");
    if (status == GPUIPC_OK) {
        status = DRIVER_CALL(drv, cuPointerGetAttribute,
                             (&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address),
                             "asking how far memory reaches");
    }
    self->base = base;
    self->bytes = bytes;
    return status;
}

/* Anything but VMM memory. */
static gpuipc_status look_at_other(const context *ctx, CUdeviceptr address, pointer *self) {
    const driver *drv = &ctx->driver;
    unsigned int type = 0;
    unsigned int flag = 0;
    unsigned long long types = 0;
    CUresult result = drv->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    if (result == CUDA_ERROR_INVALID_VALUE) {
        return GPUIPC_OK; /* its answer to what it does not know */
    }
    if (result != CUDA_SUCCESS) {
        return driver_status(drv, result, "cuPointerGetAttribute", "asking what an address is");
    }
    if (attribute(drv, &self->ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)) {
        self->device = device_of(ctx, self->ordinal);
    }
    if (attribute(drv, &types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address)) {
        self->handle_types = (int)types;
    }
    if (attribute(drv, &flag, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address)) {
        self->is_legacy_capable = flag != 0;
    }
    (void)attribute(drv, &self->pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address);
    if (attribute(drv, &flag, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) && flag != 0) {
        self->kind = GPUIPC_MEMORY_MANAGED;
    } else if (type == CU_MEMORYTYPE_HOST) {
        self->kind = GPUIPC_MEMORY_PINNED;
    } else if (self->pool != NULL) {
        self->kind = kind_of_pool(drv, self->pool, self->handle_types);
    } else {
        self->kind = kind_of_plain(ctx, self);
    }
    return look_at_range(ctx, address, self);
}

static const pointer unknown = {
    .kind = GPUIPC_MEMORY_UNKNOWN, .device = GPUIPC_DEVICE_NONE, .ordinal = -1};

gpuipc_status pointer_look_other(const context *ctx, uint64_t address, pointer *out_pointer) {
    pointer found = unknown;
    gpuipc_status status = look_at_other(ctx, address, &found);
    if (status == GPUIPC_OK) {
        *out_pointer = found;
    }
    return status;
}

static gpuipc_status look(context *ctx, uint64_t address, pointer *out_pointer) {
    const driver *drv = &ctx->driver;
    pointer found = unknown;
    CUmemGenericAllocationHandle allocation = 0;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    gpuipc_status status;
    if (drv->has_vmm) {
        /* the argument is a device address in the form of a pointer: cuda.h has it so */
        result = drv->cuMemRetainAllocationHandle(&allocation, (void *)(uintptr_t)address);
    }
    if (result == CUDA_SUCCESS) {
        status = pointer_look_allocation(ctx, allocation, &found);
        if (status == GPUIPC_OK) {
            status = pointer_find_mapping(ctx, address, &found);
        }
        (void)drv->cuMemRelease(allocation);
    } else if (result == CUDA_ERROR_INVALID_VALUE) { /* the one answer for other memory */
        status = look_at_other(ctx, address, &found);
    } else {
        status = driver_status(drv, result, "cuMemRetainAllocationHandle",
                               "asking which allocation an address belongs to");
    }
    if (status == GPUIPC_OK) {
        *out_pointer = found;
    }
    return status;
}

/* ---- gpuipc_pointer_classify ---------------------------------------------------------------- */

const char *gpuipc_memory_kind_name(gpuipc_memory_kind kind) {
    static const char *const names[] = {
        [GPUIPC_MEMORY_UNKNOWN] = "unknown",  [GPUIPC_MEMORY_VMM] = "vmm",
        [GPUIPC_MEMORY_DEVICE] = "device",    [GPUIPC_MEMORY_POOL] = "pool",
        [GPUIPC_MEMORY_MANAGED] = "managed",  [GPUIPC_MEMORY_PINNED] = "pinned",
        [GPUIPC_MEMORY_IMPORTED] = "imported"};
    const size_t number = (size_t)kind;
    return number < sizeof(names) / sizeof(names[0]) ? names[number] : names[0];
}

static void allow(gpuipc_pointer_info *info, gpuipc_transport transport) {
    info->transports |= 1u << transport;
    info->why_not[transport] = GPUIPC_REASON_NONE;
}

static void say(gpuipc_pointer_info *info, const char *sentence) {
    (void)snprintf(info->sentence, sizeof(info->sentence), "%s", sentence);
}

static void judge_vmm(const pointer *first, gpuipc_pointer_info *info) {
    if ((first->handle_types & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && !first->is_host) {
        allow(info, GPUIPC_TRANSPORT_FABRIC);
    }
    if (first->is_host) {
        say(info,
            "memory of cuMemCreate that lies in the host; allocate it on a device to share it");
    } else if ((first->handle_types & os_shareable_handle_type) == 0) {
        info->why_not[GPUIPC_TRANSPORT_VMM] = GPUIPC_REASON_NOT_SHAREABLE_ALLOCATION;
        say(info, "memory of cuMemCreate without this system's handle type, or opened from another "
                  "process, which is sent as a copy; name the type in "
                  "CUmemAllocationProp::requestedHandleTypes, or let its owner send it");
    } else {
        allow(info, GPUIPC_TRANSPORT_VMM);
        say(info, "memory of cuMemCreate that other processes can open");
    }
}

static void judge_plain(const pointer *first, gpuipc_pointer_info *info) {
    allow(info, GPUIPC_TRANSPORT_P2P);
    if (first->is_legacy_capable) {
        allow(info, GPUIPC_TRANSPORT_LEGACY);
        say(info, "memory of cuMemAlloc or cudaMalloc, which travels by legacy IPC");
    } else {
        info->why_not[GPUIPC_TRANSPORT_LEGACY] = GPUIPC_REASON_NOT_SUPPORTED;
        say(info,
            "memory of cuMemAlloc or cudaMalloc, on a machine without legacy IPC; allocate it "
            "with gpuipc_buffer_create to share it without a copy");
    }
}

static void judge_pool(const pointer *first, gpuipc_pointer_info *info) {
    if (os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32) {
        info->why_not[GPUIPC_TRANSPORT_POOL] = GPUIPC_REASON_OPERATING_SYSTEM;
        say(info, "memory of a pool, which Windows shares with no process; allocate it with "
                  "gpuipc_buffer_create to share it without a copy");
    } else if ((first->handle_types & os_shareable_handle_type) == 0) {
        info->why_not[GPUIPC_TRANSPORT_POOL] = GPUIPC_REASON_NOT_SHAREABLE_ALLOCATION;
        say(info, "memory of a pool without this system's handle type (the default pool has none); "
                  "allocate from one made with CUmemPoolProps::handleTypes to share it without a "
                  "copy");
    } else {
        allow(info, GPUIPC_TRANSPORT_POOL);
        say(info, "memory of a pool that other processes can open");
    }
}

static void judge(const pointer *first, gpuipc_pointer_info *info) {
    for (uint32_t i = 1; i < GPUIPC_TRANSPORT_ROOM; i++) {
        info->why_not[i] = GPUIPC_REASON_WRONG_MEMORY;
    }
    if (first->kind != GPUIPC_MEMORY_UNKNOWN && first->kind != GPUIPC_MEMORY_IMPORTED &&
        !first->is_host) {
        allow(info, GPUIPC_TRANSPORT_HOST); /* as a copy */
    }
    switch (first->kind) {
    case GPUIPC_MEMORY_VMM:
        judge_vmm(first, info);
        break;
    case GPUIPC_MEMORY_DEVICE:
        judge_plain(first, info);
        break;
    case GPUIPC_MEMORY_POOL:
        judge_pool(first, info);
        break;
    case GPUIPC_MEMORY_MANAGED:
        say(info, "managed memory, which moves between host and devices and is sent as a copy; "
                  "allocate it with gpuipc_buffer_create to share it without one");
        break;
    case GPUIPC_MEMORY_PINNED:
        say(info, "pinned host memory, which is sent as a copy; GPUIPC_TRANSPORT_HOST makes some "
                  "that processes share");
        break;
    case GPUIPC_MEMORY_IMPORTED:
        say(info, "memory opened from another process, which only its owner can share");
        break;
    default:
        say(info, "nothing that CUDA knows of: unmapped, or ordinary host memory");
        break;
    }
}

/* What the range has beyond its first allocation: mappings side by side, of one kind. */
static gpuipc_status walk(context *ctx, uint64_t address, uint64_t bytes, const pointer *first,
                          gpuipc_pointer_info *info) {
    uint64_t end = first->base + first->bytes;
    pointer next;
    info->allocation_count = 1;
    while (end - address < bytes) {
        gpuipc_status status = look(ctx, end, &next);
        if (status != GPUIPC_OK) {
            return status;
        }
        if (next.kind != first->kind || next.kind != GPUIPC_MEMORY_VMM ||
            next.device != first->device) {
            return status_fail(GPUIPC_ERR_OUT_OF_RANGE,
                               "the %" PRIu64 " bytes from 0x%" PRIx64
                               " on reach beyond their memory, which ends at 0x%" PRIx64,
                               bytes, address, end);
        }
        if ((next.handle_types & os_shareable_handle_type) == 0) {
            info->transports &= ~(1u << GPUIPC_TRANSPORT_VMM);
            info->why_not[GPUIPC_TRANSPORT_VMM] = GPUIPC_REASON_NOT_SHAREABLE_ALLOCATION;
            say(info, "allocations of cuMemCreate, of which one has not this system's handle type");
        }
        if ((next.handle_types & (int)CU_MEM_HANDLE_TYPE_FABRIC) == 0) {
            info->transports &= ~(1u << GPUIPC_TRANSPORT_FABRIC);
            info->why_not[GPUIPC_TRANSPORT_FABRIC] = GPUIPC_REASON_NOT_SHAREABLE_ALLOCATION;
        }
        end = next.base + next.bytes;
        info->allocation_count++;
    }
    info->allocated_bytes = end - first->base;
    return GPUIPC_OK;
}

static gpuipc_status classify(context *ctx, uint64_t address, uint64_t bytes,
                              gpuipc_pointer_info *out_info) {
    pointer first;
    gpuipc_status status = look(ctx, address, &first);
    if (status != GPUIPC_OK) {
        return status;
    }
    gpuipc_pointer_info info = {.kind = first.kind, .base = first.base, .device = first.device};
    judge(&first, &info);
    if (first.kind != GPUIPC_MEMORY_UNKNOWN) {
        status = walk(ctx, address, bytes, &first, &info);
    }
    if (status == GPUIPC_OK) {
        struct_size_write(out_info, &info, sizeof(info));
    }
    return status;
}

gpuipc_status gpuipc_pointer_classify(gpuipc_context *handle, uint64_t address, uint64_t bytes,
                                      gpuipc_pointer_info *out_info) {
    status_enter(__func__);
    context *ctx;
    gpuipc_status status =
        struct_size_check(out_info, STRUCT_SIZE_UP_TO(gpuipc_pointer_info, sentence));
    if (status != GPUIPC_OK) {
        return status;
    }
    if (bytes == 0 || bytes > UINT64_MAX - address) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "%s",
                           bytes == 0 ? "bytes is 0" : "address and bytes reach beyond 64 bits");
    }
    status = context_acquire(handle, &ctx);
    if (status == GPUIPC_OK) {
        status = classify(ctx, address, bytes, out_info);
        context_unreference(ctx);
    }
    return status;
}

/* SPDX-License-Identifier: MIT */
/** @file See pointer.h. The answers of each attribute for each kind of memory were measured on an H200,
 *  driver 580 (tests/conformance). */
#include "pointer.h"

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
static gpuipc_status find_mapping(context *ctx, CUdeviceptr address, pointer *self) {
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
                                "the memory at 0x%llx is mapped, but its device has no access to "
                                "it; call cuMemSetAccess first",
                                address);
    }
    self->base = base;
    self->bytes = bytes;
    return driver_status(drv, result, "cuMemGetAddressRange", "asking how far a mapping reaches");
}

static gpuipc_status look_at_mapping(context *ctx, CUmemGenericAllocationHandle allocation,
                                     CUdeviceptr address, pointer *self) {
    CUmemAllocationProp prop;
    gpuipc_status status = driver_status(
        &ctx->driver, ctx->driver.cuMemGetAllocationPropertiesFromHandle(&prop, allocation),
        "cuMemGetAllocationPropertiesFromHandle", "asking how memory was allocated");
    if (status != GPUIPC_OK) {
        return status;
    }
    self->kind = GPUIPC_MEMORY_VMM;
    self->is_host = prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE;
    self->handle_types = (int)prop.requestedHandleTypes;
    self->ordinal = self->is_host ? -1 : prop.location.id;
    self->device = device_of(ctx, self->ordinal);
    return find_mapping(ctx, address, self);
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
    gpuipc_status status = driver_status(
        drv, drv->cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address),
        "cuPointerGetAttribute", "asking where memory begins");
    if (status == GPUIPC_OK) {
        status = driver_status(
            drv, drv->cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address),
            "cuPointerGetAttribute", "asking how far memory reaches");
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

gpuipc_status pointer_look(context *ctx, uint64_t address, pointer *out_pointer) {
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
        status = look_at_mapping(ctx, allocation, address, &found);
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

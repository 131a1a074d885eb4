/* SPDX-License-Identifier: MIT */
/** @file See device.h. */
#include "cuda/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/struct_size.h"
#include "cuda/context.h"
#include "cuda/driver_reference.h"

static gpuipc_status attribute(const driver *drv, CUdevice ordinal, CUdevice_attribute which,
                               int *out_value) {
    return DRIVER_CALL(drv, cuDeviceGetAttribute, (out_value, which, ordinal),
                       "asking what a device can do");
}

/* An attribute that an older driver does not know means that the device cannot do it. */
static bool has(const driver *drv, CUdevice ordinal, CUdevice_attribute which) {
    int value = 0;
    return drv->cuDeviceGetAttribute(&value, which, ordinal) == CUDA_SUCCESS && value != 0;
}

static gpuipc_driver_model model_of(const driver *drv, CUdevice ordinal) {
    if (os_shareable_handle_type != CU_MEM_HANDLE_TYPE_WIN32) {
        return GPUIPC_DRIVER_MODEL_NOT_WINDOWS;
    }
    return has(drv, ordinal, CU_DEVICE_ATTRIBUTE_TCC_DRIVER) ? GPUIPC_DRIVER_MODEL_TCC
                                                             : GPUIPC_DRIVER_MODEL_WDDM;
}

/* Can memory of this device be shared as this system's handles? If not, says why. */
static void find_sharing(const driver *drv, device *self) {
    gpuipc_device_info *info = &self->info;
    CUdevice_attribute handles =
        os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32
            ? CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED
            : CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
    const char *sentence = "";
    if (!drv->has_vmm) {
        self->why_not = GPUIPC_ERR_VMM_UNSUPPORTED;
        sentence = "the driver has no virtual memory management calls (CUDA 11.0 has them)";
    } else if (!has(drv, self->ordinal, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        self->why_not = GPUIPC_ERR_VMM_UNSUPPORTED;
        sentence = info->driver_model == GPUIPC_DRIVER_MODEL_TCC
                       ? "the TCC driver model has no virtual memory management; use WDDM"
                       : "the device has no virtual memory management";
    } else if (!has(drv, self->ordinal, handles)) {
        self->why_not = GPUIPC_ERR_HANDLE_TYPE_UNSUPPORTED;
        sentence = "the device cannot export memory as this system's kind of handle";
    } else {
        self->handle_type = (CUmemAllocationHandleType)os_shareable_handle_type;
        info->can_share = 1;
    }
    (void)snprintf(info->why_not, sizeof(info->why_not), "%s", sentence);
}

static gpuipc_status find_granularity(const driver *drv, device *self) {
    CUmemAllocationProp prop;
    size_t granularity = 0;
    if (!self->info.can_share) {
        return GPUIPC_OK;
    }
    gpuipc_status status = device_allocation_prop(self, &prop);
    if (status == GPUIPC_OK) {
        status = DRIVER_CALL(drv, cuMemGetAllocationGranularity,
                             (&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                             "asking for the unit of allocation");
    }
    if (status == GPUIPC_OK && granularity == 0) {
        status = status_fail(GPUIPC_ERR_CUDA,
                             "the driver says that allocations come in units of 0 bytes");
    }
    self->info.granularity_bytes = granularity;
    return status;
}

static gpuipc_status describe(const driver *drv, int number, device *self) {
    gpuipc_device_info *info = &self->info;
    CUuuid uuid;
    size_t memory = 0;
    gpuipc_status status;
    if ((status = DRIVER_CALL(drv, cuDeviceGet, (&self->ordinal, number), "looking at a device")) !=
            GPUIPC_OK ||
        (status = DRIVER_CALL(drv, cuDeviceGetUuid, (&uuid, self->ordinal),
                              "asking for a device's UUID")) != GPUIPC_OK ||
        (status =
             DRIVER_CALL(drv, cuDeviceGetName, (info->name, (int)sizeof(info->name), self->ordinal),
                         "asking for a device's name")) != GPUIPC_OK ||
        (status = DRIVER_CALL(drv, cuDeviceTotalMem, (&memory, self->ordinal),
                              "asking for a device's memory")) != GPUIPC_OK ||
        (status = attribute(drv, self->ordinal, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                            &info->compute_major)) != GPUIPC_OK ||
        (status = attribute(drv, self->ordinal, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                            &info->compute_minor)) != GPUIPC_OK) {
        return status;
    }
    memcpy(info->uuid.bytes, uuid.bytes, sizeof(info->uuid.bytes));
    info->memory_bytes = memory;
    info->driver_model = model_of(drv, self->ordinal);
    /* The driver has no attribute for it; the name of a slice is "NVIDIA ... MIG 1g.5gb". */
    info->is_mig = strstr(info->name, " MIG ") != NULL;
    self->rdma_capable =
        has(drv, self->ordinal, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    find_sharing(drv, self);
    return find_granularity(drv, self);
}

gpuipc_status device_list_create(struct context *ctx) {
    const driver *drv = &ctx->driver;
    int count = 0;
    gpuipc_status status = DRIVER_CALL(drv, cuDeviceGetCount, (&count), "counting devices");
    if (status != GPUIPC_OK) {
        return gpuipc_error_get()->native_code == CUDA_ERROR_NO_DEVICE
                   ? status_change(GPUIPC_ERR_NO_DEVICE)
                   : status;
    }
    if (count <= 0) {
        return status_fail(GPUIPC_ERR_NO_DEVICE, "the driver finds no device");
    }
    device *devices = calloc((size_t)count, sizeof(*devices));
    if (devices == NULL) {
        return status_out_of_memory((size_t)count * sizeof(*devices));
    }
    for (int i = 0; i < count; i++) {
        status = describe(drv, i, &devices[i]);
        if (status != GPUIPC_OK) {
            free(devices);
            return status;
        }
    }
    ctx->devices = devices;
    ctx->device_count = (uint32_t)count;
    return GPUIPC_OK;
}

static void end(context *ctx, device *self, bool is_forked) {
    while (self->access_count > 0) {
        driver_reference_release(ctx, self->accesses[--self->access_count], is_forked);
    }
    free(self->accesses);
    driver_reference_release(ctx, self->pool_group, is_forked);
    driver_reference_release(ctx, self->pool, is_forked);
    if (!is_forked && self->primary != NULL) {
        /* Fails only when the driver is shutting down, which releases it as well. */
        (void)ctx->driver.cuDevicePrimaryCtxRelease(self->ordinal);
    }
}

void device_list_destroy(struct context *ctx, bool is_forked) {
    for (uint32_t i = 0; i < ctx->device_count; i++) {
        end(ctx, &ctx->devices[i], is_forked);
    }
    free(ctx->devices);
}

#define FIELD_TAG GPUIPC_DEVICE(0)

gpuipc_status device_check(const struct context *ctx, uint32_t index) {
    if (index >= FIELD_TAG && index < 2 * FIELD_TAG) {
        return status_fail(GPUIPC_ERR_DEVICE_NOT_FOUND,
                           "GPUIPC_DEVICE() is for a field called device of a struct that is "
                           "passed in; here write %u, the plain number",
                           index - FIELD_TAG);
    }
    if (index >= ctx->device_count) {
        return status_fail(GPUIPC_ERR_DEVICE_NOT_FOUND,
                           "there is no device %u; this process sees %u", index, ctx->device_count);
    }
    return GPUIPC_OK;
}

gpuipc_status device_check_field(const struct context *ctx, uint32_t field) {
    if (field == 0) {
        return GPUIPC_OK;
    }
    if (field >= FIELD_TAG && field < 2 * FIELD_TAG) {
        return device_check(ctx, field - FIELD_TAG);
    }
    return field < FIELD_TAG
               ? status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                             "device is %u, a plain number; write GPUIPC_DEVICE(%u)", field, field)
               : status_fail(
                     GPUIPC_ERR_INVALID_ARGUMENT,
                     "device is 0x%x, which names no device; write GPUIPC_DEVICE(1) for device 1",
                     field);
}

uint32_t device_of_field(uint32_t field, uint32_t fallback) {
    return field == 0 ? fallback : field - FIELD_TAG;
}

uint32_t device_find(const struct context *ctx, const gpuipc_uuid *uuid) {
    for (uint32_t i = 0; i < ctx->device_count; i++) {
        if (memcmp(&ctx->devices[i].info.uuid, uuid, sizeof(*uuid)) == 0) {
            return i;
        }
    }
    return GPUIPC_DEVICE_NONE;
}

gpuipc_status device_allocation_prop(const device *self, CUmemAllocationProp *out_prop) {
    if (!self->info.can_share) {
        return status_fail(self->why_not, "%s: %s", self->info.name, self->info.why_not);
    }
    const void *rights;
    gpuipc_status status = os_handle_attributes(&rights);
    if (status != GPUIPC_OK) {
        return status;
    }
    CUmemAllocationProp prop = {0};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = self->handle_type;
    /* cuda.h: an OBJECT_ATTRIBUTES where the type is WIN32, and zero in all other cases. The member is
     * not const, and the driver has no reason to write there. */
    prop.win32HandleMetaData = (void *)(uintptr_t)rights;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = self->ordinal;
    prop.allocFlags.gpuDirectRDMACapable = self->rdma_capable ? 1 : 0;
    *out_prop = prop;
    return GPUIPC_OK;
}

/* ---- what the program asks ------------------------------------------------------------------ */

gpuipc_status gpuipc_device_count(gpuipc_context *handle, uint32_t *out_count) {
    status_enter(__func__);
    context *self;
    gpuipc_status status;
    if (out_count == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_count is NULL");
    }
    status = context_acquire(handle, &self);
    if (status == GPUIPC_OK) {
        *out_count = self->device_count;
        context_unreference(self);
    }
    return status;
}

gpuipc_status gpuipc_device_get_info(gpuipc_context *handle, uint32_t index,
                                     gpuipc_device_info *out_info) {
    status_enter(__func__);
    context *self;
    gpuipc_status status =
        struct_size_check(out_info, STRUCT_SIZE_UP_TO(gpuipc_device_info, why_not));
    if (status != GPUIPC_OK || (status = context_acquire(handle, &self)) != GPUIPC_OK) {
        return status;
    }
    status = device_check(self, index);
    if (status == GPUIPC_OK) {
        struct_size_write(out_info, &self->devices[index].info, sizeof(gpuipc_device_info));
    }
    context_unreference(self);
    return status;
}

gpuipc_status gpuipc_device_find(gpuipc_context *handle, const gpuipc_uuid *uuid,
                                 uint32_t *out_device) {
    status_enter(__func__);
    context *self;
    if (uuid == NULL || out_device == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "uuid or out_device is NULL");
    }
    gpuipc_status status = context_acquire(handle, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    uint32_t index = device_find(self, uuid);
    if (index == GPUIPC_DEVICE_NONE) {
        status = status_fail(GPUIPC_ERR_DEVICE_NOT_FOUND,
                             "no device that this process sees has this UUID");
    } else {
        *out_device = index;
    }
    context_unreference(self);
    return status;
}

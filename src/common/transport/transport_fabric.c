/* SPDX-License-Identifier: MIT */
/** @file Fabric memory: virtual memory management whose allocations have names of 64 bytes, which hosts of
 *  one NVLink domain open. */
#include <string.h>

#include "transport/transports.h"

#define REMEDY                                                                                      \
    "there is no IMEX channel: load one (nvidia-modprobe, /dev/nvidia-caps-imex-channels) and run " \
    "nvidia-imex, or use vmm"

_Static_assert(sizeof(CUmemFabricHandle) == SEGMENT_NAME_BYTES,
               "a name is what the driver makes it");

/* The attribute promises it where it does not work (measured on an H200, driver 580): the answer to the
 * first allocation decides. */
static gpuipc_status allocation_prop(const context *ctx, uint32_t index,
                                     CUmemAllocationProp *out_prop) {
    const device *owner = &ctx->devices[index];
    gpuipc_status status = device_allocation_prop(owner, out_prop);
    if (status != GPUIPC_OK) {
        return status;
    }
    status =
        transport_check_attribute(ctx, index, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, ~0,
                                  "gpuipc_buffer_create", "it has no fabric memory; use vmm");
    if (status != GPUIPC_OK) {
        return status;
    }
    out_prop->requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    out_prop->win32HandleMetaData = NULL; /* cuda.h: zero but for WIN32 */
    return GPUIPC_OK;
}

/* The code that the driver answers where there is no IMEX channel, wherever it came from. */
static gpuipc_status explain(gpuipc_status status) {
    const gpuipc_error why = *gpuipc_error_get();
    if (status == GPUIPC_ERR_CUDA && (why.native_code == CUDA_ERROR_NOT_PERMITTED ||
                                      why.native_code == CUDA_ERROR_NOT_SUPPORTED)) {
        return status_fail_cuda(GPUIPC_ERR_NOT_SUPPORTED, why.native_code, why.native_call, "%s",
                                REMEDY);
    }
    return status;
}

gpuipc_status transport_fabric_name(buffer *self) {
    const driver *drv = &self->context->driver;
    self->transport = &transport_fabric;
    for (uint32_t i = 0; i < self->segment_count; i++) {
        CUmemFabricHandle name = {{0}}; /* the driver need not write all of it */
        gpuipc_status status =
            DRIVER_CALL(drv, cuMemExportToShareableHandle,
                        (&name, self->segments[i].allocation, CU_MEM_HANDLE_TYPE_FABRIC, 0),
                        "naming fabric memory");
        if (status != GPUIPC_OK) {
            return status;
        }
        memcpy(self->segments[i].name, name.data, sizeof(name.data));
    }
    return GPUIPC_OK;
}

static gpuipc_status allocate(buffer *self, const gpuipc_buffer_config *config) {
    CUmemAllocationProp prop;
    gpuipc_status status = allocation_prop(self->context, self->owner, &prop);
    if (status == GPUIPC_OK && (status = transport_vmm_make(self, config, &prop)) == GPUIPC_OK) {
        status = transport_fabric_name(self);
    }
    return explain(status);
}

/* A name may be passed on: it is the owner who must stay. */
static gpuipc_status check_export(const buffer *self, const os_peer *peer) {
    (void)self;
    (void)peer;
    return GPUIPC_OK;
}

static gpuipc_status import_segment(import_source *from, const segment_record *record,
                                    os_handle *handle, bool keep_handle, segment *out_segment) {
    const driver *drv = &from->context->driver;
    CUmemFabricHandle name;
    segment opened = SEGMENT_NONE;
    (void)handle;
    (void)keep_handle;
    gpuipc_status status = transport_vmm_check_driver(from->context);
    if (status != GPUIPC_OK || (status = transport_check_trusted(from)) != GPUIPC_OK) {
        return status;
    }
    memcpy(name.data, record->name, sizeof(name.data));
    CUresult result =
        drv->cuMemImportFromShareableHandle(&opened.allocation, &name, CU_MEM_HANDLE_TYPE_FABRIC);
    if (result == CUDA_ERROR_UNKNOWN || result == CUDA_ERROR_INVALID_VALUE ||
        result == CUDA_ERROR_INVALID_HANDLE) {
        return status_fail_cuda(GPUIPC_ERR_NOT_GPU_MEMORY, result, "cuMemImportFromShareableHandle",
                                "the bytes name no fabric memory that can be opened");
    }
    if (result != CUDA_SUCCESS) {
        return explain(
            driver_status(drv, result, "cuMemImportFromShareableHandle", "opening fabric memory"));
    }
    opened.bytes = record->bytes;
    memcpy(opened.name, record->name, sizeof(opened.name));
    *out_segment = opened;
    return GPUIPC_OK;
}

const transport transport_fabric = {
    .id = GPUIPC_TRANSPORT_FABRIC,
    .name = "fabric",
    .is_zero_copy = true,
    .ends_with_owner = true,
    .guards_access = true,
    .shares_imports = true,
    .memory = SEGMENT_MEMORY_FABRIC,
    .naming = SEGMENT_NAMED_BY_NAME,
    .allocate = allocate,
    .check_export = check_export,
    .export_segment = transport_export_name,
    .import_segment = import_segment,
    .open = transport_vmm_open,
    .set_access = transport_vmm_set_access,
    .release = transport_vmm_release,
    .release_segment = transport_vmm_release_segment,
};

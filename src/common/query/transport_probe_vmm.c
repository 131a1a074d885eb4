/* SPDX-License-Identifier: MIT */
/**
 * @file Trials of the transports vmm and fabric: memory made for one kind of handle, exported, imported
 * again in the same process (which the driver allows: measured on an H200, driver 580), and mapped
 * twice, for the owner and for the user.
 */
#include "query/transport_probe.h"

/* Both members that a device lacks when it has no VMM say so in device.c, which asked the driver. */
static bool check_device(probe *self, unsigned end) {
    const device *of = &self->ctx->devices[self->devices[end]];
    const uint32_t index = self->devices[end];
    if (!self->ctx->driver.has_vmm) {
        return probe_refuse(self, GPUIPC_REASON_DRIVER_TOO_OLD,
                            "it has no calls for virtual memory management");
    }
    if (of->why_not == GPUIPC_ERR_VMM_UNSUPPORTED) {
        return probe_refuse(self,
                            of->info.driver_model == GPUIPC_DRIVER_MODEL_TCC ? GPUIPC_REASON_TCC
                                                                             : GPUIPC_REASON_NO_VMM,
                            "device %u", index);
    }
    return true;
}

static bool map(probe *self, unsigned end) {
    const driver *drv = &self->ctx->driver;
    mapping *made = &self->mappings[end];
    const bool is_mapped = probe_done(self, mapping_create(drv, &self->segments[end], 1, made));
    self->at[end] = made->base;
    return is_mapped &&
           probe_done(self,
                      mapping_set_access(drv, made, self->ctx->devices[self->devices[end]].ordinal,
                                         CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

static bool map_both(probe *self) {
    return map(self, PROBE_OWNER) && map(self, PROBE_USER);
}

static void close_both(probe *self) {
    for (unsigned end = 0; end < PROBE_ENDS; end++) {
        mapping_destroy(&self->ctx->driver, &self->mappings[end]);
        segment_release(&self->ctx->driver, &self->segments[end], false);
    }
    os_handle_close(&self->handle);
}

/* Makes the owner's memory, in whole units. */
static bool create(probe *self, const CUmemAllocationProp *prop) {
    size_t unit = 0;
    if (!PROBE_CALL(self, cuMemGetAllocationGranularity,
                    (&unit, prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM))) {
        return false;
    }
    if (unit == 0) {
        return probe_refuse(self, GPUIPC_REASON_DRIVER_REFUSED, "it allocates in units of 0 bytes");
    }
    const gpuipc_status status =
        segment_create(&self->ctx->driver, prop, (self->bytes + unit - 1) / unit * unit,
                       &self->segments[PROBE_OWNER]);
    /* Measured on an H200, driver 580: the attribute promises fabric handles also without a channel. */
    if (prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_FABRIC && status != GPUIPC_OK &&
        gpuipc_error_get()->native_code == CUDA_ERROR_NOT_PERMITTED) {
        return probe_refuse(self, GPUIPC_REASON_NO_IMEX_CHANNEL,
                            "cuMemCreate answered CUDA_ERROR_NOT_PERMITTED");
    }
    return probe_done(self, status);
}

static bool open_vmm(probe *self) {
    const driver *drv = &self->ctx->driver;
    const device *owner = &self->ctx->devices[self->devices[PROBE_OWNER]];
    segment *made = &self->segments[PROBE_OWNER];
    CUmemAllocationProp prop;
    if (!check_device(self, PROBE_OWNER) || !check_device(self, PROBE_USER)) {
        return false;
    }
    if (owner->why_not == GPUIPC_ERR_HANDLE_TYPE_UNSUPPORTED) {
        return probe_refuse(self, GPUIPC_REASON_HANDLE_TYPE, "device %u",
                            self->devices[PROBE_OWNER]);
    }
    return probe_reaches(self) && probe_done(self, device_allocation_prop(owner, &prop)) &&
           create(self, &prop) && probe_done(self, segment_export(drv, made, &self->handle)) &&
           probe_done(self, segment_import(drv, self->handle.value, made->bytes,
                                           &self->segments[PROBE_USER])) &&
           map_both(self);
}

static bool open_fabric(probe *self) {
    const driver *drv = &self->ctx->driver;
    const device *owner = &self->ctx->devices[self->devices[PROBE_OWNER]];
    segment *made = &self->segments[PROBE_OWNER];
    segment *opened = &self->segments[PROBE_USER];
    CUmemFabricHandle handle;
    int can = 0;
    if (!check_device(self, PROBE_OWNER) || !check_device(self, PROBE_USER)) {
        return false;
    }
    /* An older driver that does not know the attribute has no fabric handles either. */
    if (drv->cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
                                  owner->ordinal) != CUDA_SUCCESS ||
        can == 0) {
        return probe_refuse(self,
                            os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32
                                ? GPUIPC_REASON_OPERATING_SYSTEM
                                : GPUIPC_REASON_NOT_SUPPORTED,
                            "device %u has no fabric handles", self->devices[PROBE_OWNER]);
    }
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, owner->ordinal},
        .allocFlags = {.gpuDirectRDMACapable = owner->rdma_capable ? 1 : 0}};
    if (!probe_reaches(self) || !create(self, &prop)) {
        return false;
    }
    opened->bytes = made->bytes;
    return PROBE_CALL(self, cuMemExportToShareableHandle,
                      (&handle, made->allocation, CU_MEM_HANDLE_TYPE_FABRIC, 0)) &&
           PROBE_CALL(self, cuMemImportFromShareableHandle,
                      (&opened->allocation, &handle, CU_MEM_HANDLE_TYPE_FABRIC)) &&
           map_both(self);
}

const probe_way probe_way_vmm = {open_vmm, close_both, NULL};
const probe_way probe_way_fabric = {open_fabric, close_both, NULL};

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

static bool range_map(probe *self, unsigned end, probe_range *range) {
    const CUmemAccessDesc desc = {
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, self->ctx->devices[self->devices[end]].ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (!PROBE_CALL(self, cuMemAddressReserve, (&range->at, range->bytes, 0, 0, 0)) ||
        !PROBE_CALL(self, cuMemMap, (range->at, range->bytes, 0, range->allocation, 0))) {
        return false;
    }
    range->is_mapped = true;
    self->at[end] = range->at;
    return PROBE_CALL(self, cuMemSetAccess, (range->at, range->bytes, &desc, 1));
}

static void range_end(const driver *drv, probe_range *range) {
    if (range->is_mapped) {
        (void)drv->cuMemUnmap(range->at, range->bytes);
    }
    if (range->at != 0) {
        (void)drv->cuMemAddressFree(range->at, range->bytes);
    }
    if (range->allocation != 0) {
        (void)drv->cuMemRelease(range->allocation);
    }
}

static void close_both(probe *self) {
    for (unsigned end = 0; end < PROBE_ENDS; end++) {
        range_end(&self->ctx->driver, &self->ranges[end]);
    }
    os_handle_close(&self->handle);
}

/* Makes the owner's memory, in whole units. */
static bool create(probe *self, const CUmemAllocationProp *prop) {
    const driver *drv = &self->ctx->driver;
    probe_range *range = &self->ranges[PROBE_OWNER];
    size_t unit = 0;
    if (!PROBE_CALL(self, cuMemGetAllocationGranularity,
                    (&unit, prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM))) {
        return false;
    }
    if (unit == 0) {
        return probe_refuse(self, GPUIPC_REASON_DRIVER_REFUSED, "it allocates in units of 0 bytes");
    }
    range->bytes = (self->bytes + unit - 1) / unit * unit;
    const CUresult result = drv->cuMemCreate(&range->allocation, range->bytes, prop, 0);
    /* Measured on an H200, driver 580: the attribute promises fabric handles also without a channel. */
    if (prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_FABRIC &&
        result == CUDA_ERROR_NOT_PERMITTED) {
        return probe_refuse(self, GPUIPC_REASON_NO_IMEX_CHANNEL,
                            "cuMemCreate answered CUDA_ERROR_NOT_PERMITTED");
    }
    return probe_passed(self, result, "cuMemCreate");
}

static bool map_both(probe *self) {
    self->ranges[PROBE_USER].bytes = self->ranges[PROBE_OWNER].bytes;
    return range_map(self, PROBE_OWNER, &self->ranges[PROBE_OWNER]) &&
           range_map(self, PROBE_USER, &self->ranges[PROBE_USER]);
}

static bool open_vmm(probe *self) {
    const device *owner = &self->ctx->devices[self->devices[PROBE_OWNER]];
    const CUmemAllocationHandleType type = (CUmemAllocationHandleType)os_shareable_handle_type;
    CUmemAllocationProp prop;
    uint64_t written = 0; /* an int or a HANDLE, as the system has it */
    if (!check_device(self, PROBE_OWNER) || !check_device(self, PROBE_USER)) {
        return false;
    }
    if (owner->why_not == GPUIPC_ERR_HANDLE_TYPE_UNSUPPORTED) {
        return probe_refuse(self, GPUIPC_REASON_HANDLE_TYPE, "device %u",
                            self->devices[PROBE_OWNER]);
    }
    return probe_reaches(self) && probe_done(self, device_allocation_prop(owner, &prop)) &&
           create(self, &prop) &&
           PROBE_CALL(self, cuMemExportToShareableHandle,
                      (&written, self->ranges[PROBE_OWNER].allocation, type, 0)) &&
           probe_done(self, os_handle_adopt_exported(&written, &self->handle)) &&
           PROBE_CALL(self, cuMemImportFromShareableHandle,
                      (&self->ranges[PROBE_USER].allocation, (void *)self->handle.value, type)) &&
           map_both(self);
}

static bool open_fabric(probe *self) {
    const driver *drv = &self->ctx->driver;
    const device *owner = &self->ctx->devices[self->devices[PROBE_OWNER]];
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
    return probe_reaches(self) && create(self, &prop) &&
           PROBE_CALL(
               self, cuMemExportToShareableHandle,
               (&handle, self->ranges[PROBE_OWNER].allocation, CU_MEM_HANDLE_TYPE_FABRIC, 0)) &&
           PROBE_CALL(self, cuMemImportFromShareableHandle,
                      (&self->ranges[PROBE_USER].allocation, &handle, CU_MEM_HANDLE_TYPE_FABRIC)) &&
           map_both(self);
}

const probe_way probe_way_vmm = {open_vmm, close_both, NULL};
const probe_way probe_way_fabric = {open_fabric, close_both, NULL};

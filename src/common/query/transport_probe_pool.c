/* SPDX-License-Identifier: MIT */
/**
 * @file Trial of the transport pool: a pool made to be shared, some of its memory, and both exported and
 * imported.
 */
#include "query/transport_probe.h"

static bool check_devices(probe *self) {
    const driver *drv = &self->ctx->driver;
    const device *owner = &self->ctx->devices[self->devices[PROBE_OWNER]];
    int types = 0;
    if (os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32) {
        /* CUDA programming guide, "IPC Memory Pools": on Linux only. */
        return probe_refuse(self, GPUIPC_REASON_OPERATING_SYSTEM,
                            "pools are not shared on Windows");
    }
    if (!drv->has_pool) {
        return probe_refuse(self, GPUIPC_REASON_DRIVER_TOO_OLD,
                            "it has no calls for stream-ordered memory");
    }
    /* An older driver that does not know the attribute has no such pools either. */
    if (drv->cuDeviceGetAttribute(&types, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
                                  owner->ordinal) != CUDA_SUCCESS ||
        (types & os_shareable_handle_type) == 0) {
        return probe_refuse(self, GPUIPC_REASON_NOT_SUPPORTED,
                            "device %u has no pools that can be shared",
                            self->devices[PROBE_OWNER]);
    }
    return true;
}

static bool make_pools(probe *self) {
    const CUmemAllocationHandleType type = (CUmemAllocationHandleType)os_shareable_handle_type;
    const CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = type,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE,
                     self->ctx->devices[self->devices[PROBE_OWNER]].ordinal}};
    uint64_t written = 0;
    return PROBE_CALL(self, cuMemPoolCreate, (&self->pools[PROBE_OWNER], &props)) &&
           PROBE_CALL(self, cuMemPoolExportToShareableHandle,
                      (&written, self->pools[PROBE_OWNER], type, 0)) &&
           probe_done(self, os_handle_adopt_exported(&written, &self->handle)) &&
           PROBE_CALL(self, cuMemPoolImportFromShareableHandle,
                      (&self->pools[PROBE_USER], (void *)self->handle.value, type, 0));
}

/* Lets the user's device reach what a pool has; its own device does anyhow. */
static bool give_access(probe *self, CUmemoryPool pool) {
    const CUmemAccessDesc desc = {
        .location = {CU_MEM_LOCATION_TYPE_DEVICE,
                     self->ctx->devices[self->devices[PROBE_USER]].ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return self->devices[PROBE_OWNER] == self->devices[PROBE_USER] ||
           PROBE_CALL(self, cuMemPoolSetAccess, (pool, &desc, 1));
}

static bool allocate(probe *self) {
    return PROBE_CALL(self, cuStreamCreate, (&self->stream, CU_STREAM_NON_BLOCKING)) &&
           PROBE_CALL(self, cuMemAllocFromPoolAsync,
                      (&self->pooled[PROBE_OWNER], (size_t)self->bytes, self->pools[PROBE_OWNER],
                       self->stream)) &&
           PROBE_CALL(self, cuStreamSynchronize, (self->stream));
}

static bool import_pool(probe *self) {
    CUmemPoolPtrExportData data = {{0}}; /* the driver does not write all of it (measured on 580) */
    return give_access(self, self->pools[PROBE_USER]) &&
           PROBE_CALL(self, cuMemPoolExportPointer, (&data, self->pooled[PROBE_OWNER])) &&
           PROBE_CALL(self, cuMemPoolImportPointer,
                      (&self->pooled[PROBE_USER], self->pools[PROBE_USER], &data));
}

static bool open_pool(probe *self) {
    device_scope scope;
    if (!check_devices(self) || !probe_reaches(self) || !probe_enter(self, PROBE_OWNER, &scope)) {
        return false;
    }
    const bool passed = make_pools(self) && allocate(self) && import_pool(self);
    device_leave(&scope);
    self->at[PROBE_OWNER] = self->pooled[PROBE_OWNER];
    self->at[PROBE_USER] = self->pooled[PROBE_USER];
    return passed;
}

/* cuda.h, cuMemPoolImportPointer: the importer frees first. */
static void end_memory(probe *self) {
    const driver *drv = &self->ctx->driver;
    for (unsigned end = PROBE_ENDS; end-- > 0;) {
        if (self->pooled[end] != 0) {
            (void)drv->cuMemFreeAsync(self->pooled[end], self->stream);
            (void)drv->cuStreamSynchronize(self->stream);
        }
    }
    if (self->stream != NULL) {
        (void)drv->cuStreamDestroy(self->stream);
    }
    for (unsigned end = PROBE_ENDS; end-- > 0;) {
        if (self->pools[end] != NULL) {
            (void)drv->cuMemPoolDestroy(self->pools[end]);
        }
    }
}

static void close_pool(probe *self) {
    device_scope scope;
    if (self->pools[PROBE_OWNER] != NULL && /* the first that is made */
        device_enter(self->ctx, self->devices[PROBE_OWNER], &scope) == GPUIPC_OK) {
        end_memory(self);
        device_leave(&scope);
    }
    os_handle_close(&self->handle);
}

const probe_way probe_way_pool = {open_pool, close_pool, NULL};

/* SPDX-License-Identifier: MIT */
/** @file Pools of other processes: each imported once, kept as long as the connection that brought it or
 *  a buffer of it lasts, and the pointers that are named in it. */
#include "transport_pool_open.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "buffer_internal.h"
#include "transport_plain.h"

#define RECEIVE "gpuipc_connection_receive"
#define TYPE    ((CUmemAllocationHandleType)os_shareable_handle_type)

/* Exporter and group are the peer's own word, so they are qualified by the process that the operating
 * system says it is: no process can pass its pool off as another's. */
static counted_key key_of(const sender *from, uint32_t group) {
    counted_key key = {.kind = COUNTED_POOL,
                       .device = GPUIPC_DEVICE_NONE,
                       .number = from->peer == NULL ? 0 : from->peer->process_id,
                       .group = group};
    memcpy(key.exporter_id, from->record->exporter_id, sizeof(key.exporter_id));
    return key;
}

static gpuipc_status import_pool(context *ctx, const counted_key *key, void *argument,
                                 uint64_t *out_value) {
    const os_handle *handle = argument;
    CUmemoryPool pool = NULL;
    (void)key;
    CUresult result =
        ctx->driver.cuMemPoolImportFromShareableHandle(&pool, (void *)handle->value, TYPE, 0);
    /* UNKNOWN for what is no handle of the driver, NOT_SUPPORTED for one of other memory: measured on an
     * H200, driver 580. */
    if (result == CUDA_ERROR_UNKNOWN || result == CUDA_ERROR_INVALID_VALUE ||
        result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_NOT_SUPPORTED) {
        return status_fail_cuda(
            GPUIPC_ERR_NOT_GPU_MEMORY, result, "cuMemPoolImportFromShareableHandle",
            "handle %" PRIdPTR " is no pool that this driver can open", handle->value);
    }
    *out_value = (uint64_t)(uintptr_t)pool;
    return driver_status(&ctx->driver, result, "cuMemPoolImportFromShareableHandle",
                         "opening a pool of another process");
}

static void destroy_pool(context *ctx, const counted_key *key, uint64_t value) {
    (void)key;
    (void)ctx->driver.cuMemPoolDestroy((CUmemoryPool)(uintptr_t)value);
}

static counted *known_pool(const sender *from, const counted_key *key) {
    for (uint32_t i = 0; i < from->pool_count; i++) {
        if (memcmp(counted_key_of(from->pools[i]), key, sizeof(*key)) == 0) {
            return from->pools[i];
        }
    }
    return NULL;
}

/* Takes in the pool whose handle has come, for as long as the connection lasts. */
static gpuipc_status add_pool(sender *from, const counted_key *key, os_handle *handle) {
    /* The driver gives one handle however often a pool is imported, and counts (measured on an H200, driver
     * 580): two contexts of a sender share its pool, and each has a name of its own for it. It cannot be
     * destroyed before the last pointer is freed, whichever name that came under. */
    static const counted_maker maker = {
        .make = import_pool, .undo = destroy_pool, .value_tells = true, .undo_each = true};
    if (known_pool(from, key) != NULL) {
        return GPUIPC_OK;
    }
    if (from->pool_count == SENDER_POOLS_MAX) {
        return status_fail(GPUIPC_ERR_LIMIT, RECEIVE,
                           "the connection has brought more than %u pools", SENDER_POOLS_MAX);
    }
    const size_t size = ((size_t)from->pool_count + 1) * sizeof(counted *);
    counted **pools = realloc(from->pools, size);
    if (pools == NULL) {
        return status_out_of_memory(RECEIVE, size);
    }
    from->pools = pools;
    gpuipc_status status =
        counted_take(from->context, key, &maker, handle, &pools[from->pool_count]);
    from->pool_count += status == GPUIPC_OK;
    return status;
}

static gpuipc_status check_record(const sender *from) {
    gpuipc_status status = transport_check_trusted(from);
    if (status == GPUIPC_OK && !from->context->driver.has_pool) {
        status = status_fail(GPUIPC_ERR_NOT_SUPPORTED, RECEIVE,
                             "the driver has no calls for stream-ordered memory");
    }
    if (status == GPUIPC_OK && from->record->segment_count != 1) {
        status = status_fail(GPUIPC_ERR_SIZE_MISMATCH, RECEIVE,
                             "a buffer of a pool is said to have %u allocations",
                             from->record->segment_count);
    }
    return status;
}

gpuipc_status transport_pool_import(sender *from, const wire_segment *record, os_handle *handle,
                                    bool keep_handle, segment *out_segment) {
    const counted_key key = key_of(from, record->group);
    (void)keep_handle;
    gpuipc_status status = check_record(from);
    if (status == GPUIPC_OK && os_handle_is_valid(*handle)) {
        status = add_pool(from, &key, handle);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    segment taken = SEGMENT_NONE;
    taken.bytes = record->bytes;
    taken.group = record->group;
    taken.pool = known_pool(from, &key) == NULL ? NULL : counted_find(from->context, &key);
    memcpy(taken.name, record->name, sizeof(taken.name));
    if (taken.pool == NULL) {
        return status_fail(GPUIPC_ERR_NOT_GPU_MEMORY, RECEIVE,
                           "the buffer lies in pool %u of the peer, whose handle has not come or "
                           "could not be opened",
                           record->group);
    }
    *out_segment = taken;
    return GPUIPC_OK;
}

static gpuipc_status import_pointer(context *ctx, const counted_key *key, void *argument,
                                    uint64_t *out_value) {
    CUdeviceptr address = 0;
    CUmemPoolPtrExportData name;
    (void)argument;
    memcpy(name.reserved, key->name, sizeof(name.reserved));
    CUresult result =
        ctx->driver.cuMemPoolImportPointer(&address, (CUmemoryPool)(uintptr_t)key->number, &name);
    if (result == CUDA_ERROR_INVALID_VALUE) {
        return status_fail_cuda(GPUIPC_ERR_NOT_GPU_MEMORY, result, "cuMemPoolImportPointer",
                                "the bytes name no memory of the peer's pool");
    }
    *out_value = address;
    return driver_status(&ctx->driver, result, "cuMemPoolImportPointer",
                         "opening memory of another process's pool");
}

/* The driver does not count: the first free ends an imported pointer (measured on an H200, driver 580). */
static void free_pointer(context *ctx, const counted_key *key, uint64_t value) {
    (void)key;
    (void)ctx->driver.cuMemFree(value);
}

/* The sender's word for the size is checked: work beyond the end would end the CUDA context. */
static gpuipc_status check_size(const buffer *self) {
    const driver *drv = &self->context->driver;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    gpuipc_status status;
    if ((status =
             driver_status(drv,
                           drv->cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                                      self->mapping.base),
                           "cuPointerGetAttribute", "asking where memory begins")) != GPUIPC_OK ||
        (status = driver_status(drv,
                                drv->cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                                           self->mapping.base),
                                "cuPointerGetAttribute", "asking for the size of opened memory")) !=
            GPUIPC_OK) {
        return status;
    }
    if (base != self->mapping.base || bytes < self->mapping.bytes) {
        return status_fail(GPUIPC_ERR_SIZE_MISMATCH, "cuPointerGetAttribute",
                           "the allocation has %zu bytes, not the %" PRIu64
                           " that it is said to have",
                           bytes, self->mapping.bytes);
    }
    return GPUIPC_OK;
}

/* A pool is open to its owner's device from the start, and access is to all of it. */
static gpuipc_status give_access(const buffer *self, uint32_t index, CUmemoryPool pool) {
    const context *ctx = self->context;
    const CUmemAccessDesc desc = {
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, ctx->devices[index].ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (index == self->owner) {
        return GPUIPC_OK;
    }
    gpuipc_status status = buffer_check_peer(self, index);
    if (status != GPUIPC_OK) {
        return status;
    }
    CUresult result = ctx->driver.cuMemPoolSetAccess(pool, &desc, 1);
    if (result == CUDA_ERROR_INVALID_DEVICE || result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED) {
        return status_fail_cuda(GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED, result, "cuMemPoolSetAccess",
                                "device %u cannot reach the memory", index);
    }
    return driver_status(&ctx->driver, result, "cuMemPoolSetAccess", "giving a device access");
}

static CUmemoryPool pool_of(const buffer *self) {
    const buffer *owner = self->original == NULL ? self : self->original;
    const segment *of = &owner->segments[0];
    return (CUmemoryPool)(uintptr_t)(of->pool != NULL ? counted_value(of->pool)
                                                      : counted_key_of(of->made)->number);
}

static gpuipc_status open_pointer(buffer *self) {
    /* The bytes need not be the same each time: the driver leaves some as they were. */
    static const counted_maker maker = {
        .make = import_pointer, .undo = free_pointer, .value_tells = true};
    segment *of = &self->segments[0];
    counted_key key = {
        .kind = COUNTED_POINTER, .device = GPUIPC_DEVICE_NONE, .number = counted_value(of->pool)};
    memcpy(key.name, of->name, sizeof(key.name));
    gpuipc_status status = counted_take(self->context, &key, &maker, NULL, &of->made);
    if (status != GPUIPC_OK) {
        return status;
    }
    self->mapping = (mapping){.base = counted_value(of->made), .bytes = of->bytes};
    return check_size(self);
}

gpuipc_status transport_pool_open(buffer *self, const buffer_source *source, gpuipc_access access) {
    device_scope scope;
    (void)access;
    gpuipc_status status = buffer_open_original(self);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (self->original != NULL) {
        return give_access(self, self->access_device, pool_of(self));
    }
    if (source->from != NULL && source->from->peer != NULL &&
        source->from->peer->process_id == os_process_id()) {
        return status_fail(GPUIPC_ERR_LOST, RECEIVE,
                           "the buffer was this process's own and has been released");
    }
    if ((status = give_access(self, self->access_device, pool_of(self))) != GPUIPC_OK ||
        (status = device_enter(self->context, self->access_device, &scope)) != GPUIPC_OK) {
        return status;
    }
    status = open_pointer(self);
    device_leave(&scope);
    return status;
}

gpuipc_status transport_pool_set_access(buffer *self, uint32_t index, gpuipc_access access) {
    (void)access;
    return give_access(self, index, pool_of(self));
}

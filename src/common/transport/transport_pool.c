/* SPDX-License-Identifier: MIT */
/** @file Stream-ordered memory: a pool's handle once for each connection, then a name of 64 bytes for each
 *  allocation. Of other processes, a pool is imported once and kept as long as the connection that brought it or
 *  a buffer of it lasts. */
#include "transport/transports.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "copy/detour.h"

#define CREATE "gpuipc_buffer_create"
#define TYPE   ((CUmemAllocationHandleType)os_shareable_handle_type)

_Static_assert(sizeof(CUmemPoolPtrExportData) == SEGMENT_NAME_BYTES,
               "a name is what the driver makes it");

/* Whether pools of this device can be shared at all. */
static gpuipc_status check_device(const context *ctx, uint32_t index) {
    static const char sentence[] =
        "it has no stream-ordered memory that can be shared as this system's handles; use vmm";
    if (!ctx->driver.has_pool) {
        return status_fail(
            GPUIPC_ERR_NOT_SUPPORTED,
            "the driver has no calls for stream-ordered memory (CUDA 11.2 has them)");
    }
    if (os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32) {
        return status_fail(GPUIPC_ERR_NOT_SUPPORTED, "%s: %s", ctx->devices[index].info.name,
                           sentence);
    }
    return transport_check_attribute(ctx, index, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
                                     os_shareable_handle_type, CREATE, sentence);
}

static gpuipc_status make_pool(context *ctx, const driver_reference_key *key, void *argument,
                               uint64_t *out_value) {
    CUmemoryPool pool = NULL;
    (void)argument;
    const CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = TYPE,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, ctx->devices[key->device].ordinal}};
    gpuipc_status status = DRIVER_CALL(&ctx->driver, cuMemPoolCreate, (&pool, &props),
                                       "making a pool that can be shared");
    *out_value = (uint64_t)(uintptr_t)pool;
    return status;
}

static void destroy_pool(context *ctx, const driver_reference_key *key, uint64_t value) {
    (void)key;
    (void)ctx->driver.cuMemPoolDestroy((CUmemoryPool)(uintptr_t)value);
}

static gpuipc_status export_pool(const context *ctx, CUmemoryPool pool, os_handle *out_handle) {
    uint64_t written = 0; /* an int or a HANDLE, as the system has it */
    CUresult result = ctx->driver.cuMemPoolExportToShareableHandle(&written, pool, TYPE, 0);
    if (result == CUDA_ERROR_INVALID_VALUE) {
        return status_fail_cuda(GPUIPC_ERR_NOT_SHAREABLE, result,
                                "cuMemPoolExportToShareableHandle",
                                "the pool was made without this system's handle type, or has been "
                                "destroyed; name the type in CUmemPoolProps::handleTypes");
    }
    if (result != CUDA_SUCCESS) {
        return driver_failed(&ctx->driver, result, "cuMemPoolExportToShareableHandle",
                             "making a handle of a pool");
    }
    return os_handle_adopt_exported(&written, out_handle);
}

/* Groups are numbered in the process and never twice, since a pool's address may be used again. */
static gpuipc_status make_group(context *ctx, const driver_reference_key *key, void *argument,
                                uint64_t *out_value) {
    static atomic_uint next = 1;
    os_handle exported = OS_HANDLE_NONE;
    (void)argument;
    /* The driver names no pointer of a pool that was never exported (measured on an H200, driver 580). */
    gpuipc_status status = export_pool(ctx, (CUmemoryPool)(uintptr_t)key->number, &exported);
    if (status == GPUIPC_OK) {
        os_handle_close(&exported);
        *out_value = atomic_fetch_add(&next, 1u);
    }
    return status;
}

static void forget_group(context *ctx, const driver_reference_key *key, uint64_t value) {
    (void)ctx;
    (void)key;
    (void)value;
}

static gpuipc_status take_group(context *ctx, CUmemoryPool pool, driver_reference **out_group) {
    static const driver_reference_maker maker = {.make = make_group, .undo = forget_group};
    const driver_reference_key key = {
        .kind = REFERENCE_GROUP, .device = GPUIPC_DEVICE_NONE, .number = (uint64_t)(uintptr_t)pool};
    return driver_reference_take(ctx, &key, &maker, NULL, out_group);
}

gpuipc_status transport_pool_name(buffer *self, CUmemoryPool pool) {
    context *ctx = self->context;
    segment *of = &self->segments[0];
    /* The driver leaves the tail as it was (measured on an H200, driver 580). */
    CUmemPoolPtrExportData name = {{0}};
    gpuipc_status status = take_group(ctx, pool, &of->made);
    if (status != GPUIPC_OK) {
        return status;
    }
    of->group = (uint32_t)driver_reference_value(of->made);
    CUresult result = ctx->driver.cuMemPoolExportPointer(&name, self->mapping.base);
    if (result == CUDA_ERROR_INVALID_VALUE) {
        return status_fail_cuda(
            GPUIPC_ERR_NOT_SHAREABLE, result, "cuMemPoolExportPointer",
            "the memory is of a pool that was opened from another process; only "
            "its owner can send it");
    }
    if (result == CUDA_SUCCESS) {
        memcpy(of->name, name.reserved, sizeof(of->name));
    }
    return driver_status(&ctx->driver, result, "cuMemPoolExportPointer", "naming memory of a pool");
}

/* The context keeps the pool of a device that was used, and its group, so that both travel once. */
static gpuipc_status own_pool(context *ctx, uint32_t index, CUmemoryPool *out_pool) {
    static const driver_reference_maker maker = {.make = make_pool, .undo = destroy_pool};
    const driver_reference_key key = {.kind = REFERENCE_OWN_POOL, .device = index};
    device *of = &ctx->devices[index];
    driver_reference *pool = NULL;
    driver_reference *group = NULL;
    gpuipc_status status = driver_reference_take(ctx, &key, &maker, NULL, &pool);
    if (status != GPUIPC_OK) {
        return status;
    }
    const CUmemoryPool made = (CUmemoryPool)(uintptr_t)driver_reference_value(pool);
    status = take_group(ctx, made, &group);
    os_mutex_lock(&ctx->device_mutex);
    if (status == GPUIPC_OK && of->pool == NULL) {
        of->pool = pool;
        of->pool_group = group;
        pool = group = NULL;
    }
    os_mutex_unlock(&ctx->device_mutex);
    driver_reference_release(ctx, group, false);
    driver_reference_release(ctx, pool, false);
    if (status == GPUIPC_OK) {
        *out_pool = made;
    }
    return status;
}

/* On a stream of its own, which ends no capture, and ready for every other. */
static gpuipc_status allocate_from(buffer *self, CUmemoryPool pool, uint64_t bytes,
                                   CUdeviceptr *out_address) {
    const driver *drv = &self->context->driver;
    CUstream stream;
    device_scope scope;
    gpuipc_status status = device_enter(self->context, self->owner, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = detour_stream_new(drv, &stream);
    if (status == GPUIPC_OK) {
        CUdeviceptr address = 0;
        status = DRIVER_CALL(drv, cuMemAllocFromPoolAsync, (&address, bytes, pool, stream),
                             "allocating from a pool");
        if (status == GPUIPC_OK) {
            *out_address = address;
            status = DRIVER_CALL(drv, cuStreamSynchronize, (stream), "waiting for an allocation");
        }
        detour_stream_destroy(drv, stream);
    }
    device_leave(&scope);
    return status;
}

static gpuipc_status allocate(buffer *self, const gpuipc_buffer_config *config) {
    CUmemoryPool pool;
    gpuipc_status status = check_device(self->context, self->owner);
    if (status != GPUIPC_OK ||
        (status = own_pool(self->context, self->owner, &pool)) != GPUIPC_OK ||
        (status = buffer_grow(self)) != GPUIPC_OK ||
        (status = allocate_from(self, pool, config->bytes, &self->mapping.base)) != GPUIPC_OK) {
        return status;
    }
    self->mapping.bytes = config->bytes;
    self->segments[self->segment_count++].bytes = config->bytes;
    return transport_pool_name(self, pool);
}

static gpuipc_status check_export(const buffer *self, const os_peer *peer) {
    (void)peer;
    return transport_check_owned(self, "memory of a pool");
}

static gpuipc_status export_segment(const buffer *self, segment *of, bool has_pool,
                                    exported_segment *out_export) {
    gpuipc_status status = transport_export_name(self, of, has_pool, out_export);
    if (!has_pool) {
        out_export->record.naming = SEGMENT_NAMED_BY_BOTH;
        status = export_pool(self->context,
                             (CUmemoryPool)(uintptr_t)driver_reference_key_of(of->made)->number,
                             &out_export->handle);
    }
    return status;
}

/* ---- pools of other processes --------------------------------------------------------------- */

/* Exporter and group are the peer's own word, so they are qualified by the process that the operating
 * system says it is: no process can pass its pool off as another's. */
static driver_reference_key key_of(const import_source *from, uint32_t group) {
    driver_reference_key key = {.kind = REFERENCE_POOL,
                                .device = GPUIPC_DEVICE_NONE,
                                .number = from->peer == NULL ? 0 : from->peer->process_id,
                                .group = group};
    memcpy(key.exporter_id, from->exporter_id, sizeof(key.exporter_id));
    return key;
}

static gpuipc_status import_pool(context *ctx, const driver_reference_key *key, void *argument,
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

static driver_reference *known_pool(const import_source *from, const driver_reference_key *key) {
    for (uint32_t i = 0; i < from->pool_count; i++) {
        if (memcmp(driver_reference_key_of(from->pools[i]), key, sizeof(*key)) == 0) {
            return from->pools[i];
        }
    }
    return NULL;
}

/* Takes in the pool whose handle has come, for as long as the connection lasts. */
static gpuipc_status add_pool(import_source *from, const driver_reference_key *key,
                              os_handle *handle) {
    /* The driver gives one handle however often a pool is imported, and counts (measured on an H200, driver
     * 580): two contexts of a sender share its pool, and each has a name of its own for it. It cannot be
     * destroyed before the last pointer is freed, whichever name that came under. */
    static const driver_reference_maker maker = {
        .make = import_pool, .undo = destroy_pool, .value_tells = true, .undo_each = true};
    if (known_pool(from, key) != NULL) {
        return GPUIPC_OK;
    }
    if (from->pool_count == IMPORT_SOURCE_POOLS_MAX) {
        return status_fail(GPUIPC_ERR_LIMIT, "the connection has brought more than %u pools",
                           IMPORT_SOURCE_POOLS_MAX);
    }
    const size_t size = ((size_t)from->pool_count + 1) * sizeof(driver_reference *);
    driver_reference **pools = realloc(from->pools, size);
    if (pools == NULL) {
        return status_out_of_memory(size);
    }
    from->pools = pools;
    gpuipc_status status =
        driver_reference_take(from->context, key, &maker, handle, &pools[from->pool_count]);
    from->pool_count += status == GPUIPC_OK;
    return status;
}

static gpuipc_status check_record(const import_source *from) {
    gpuipc_status status = transport_check_trusted(from);
    if (status == GPUIPC_OK && !from->context->driver.has_pool) {
        status = status_fail(GPUIPC_ERR_NOT_SUPPORTED,
                             "the driver has no calls for stream-ordered memory");
    }
    return status == GPUIPC_OK ? transport_check_single(from, "a pool") : status;
}

static gpuipc_status import_segment(import_source *from, const segment_record *record,
                                    os_handle *handle, bool keep_handle, segment *out_segment) {
    const driver_reference_key key = key_of(from, record->group);
    (void)keep_handle;
    gpuipc_status status = check_record(from);
    if (status == GPUIPC_OK && os_handle_is_valid(*handle)) {
        status = add_pool(from, &key, handle);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    segment taken = transport_named_segment(record);
    taken.pool = known_pool(from, &key) == NULL ? NULL : driver_reference_find(from->context, &key);
    if (taken.pool == NULL) {
        return status_fail(GPUIPC_ERR_NOT_GPU_MEMORY,
                           "the buffer lies in pool %u of the peer, whose handle has not come or "
                           "could not be opened",
                           record->group);
    }
    *out_segment = taken;
    return GPUIPC_OK;
}

static gpuipc_status import_pointer(context *ctx, const driver_reference_key *key, void *argument,
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
static void pointer_release(context *ctx, const driver_reference_key *key, uint64_t value) {
    (void)key;
    (void)ctx->driver.cuMemFree(value);
}

/* The sender's word for the size is checked: work beyond the end would end the CUDA context. */
static gpuipc_status check_size(const buffer *self) {
    const driver *drv = &self->context->driver;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    gpuipc_status status;
    if ((status = DRIVER_CALL(drv, cuPointerGetAttribute,
                              (&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, self->mapping.base),
                              "asking where memory begins")) != GPUIPC_OK ||
        (status = DRIVER_CALL(drv, cuPointerGetAttribute,
                              (&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, self->mapping.base),
                              "asking for the size of opened memory")) != GPUIPC_OK) {
        return status;
    }
    if (base != self->mapping.base || bytes < self->mapping.bytes) {
        return status_fail(GPUIPC_ERR_SIZE_MISMATCH,
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
    return (CUmemoryPool)(uintptr_t)(of->pool != NULL ? driver_reference_value(of->pool)
                                                      : driver_reference_key_of(of->made)->number);
}

static gpuipc_status open_pointer(buffer *self) {
    /* The bytes need not be the same each time: the driver leaves some as they were. */
    static const driver_reference_maker maker = {
        .make = import_pointer, .undo = pointer_release, .value_tells = true};
    segment *of = &self->segments[0];
    driver_reference_key key = {.kind = REFERENCE_POINTER,
                                .device = GPUIPC_DEVICE_NONE,
                                .number = driver_reference_value(of->pool)};
    memcpy(key.name, of->name, sizeof(key.name));
    gpuipc_status status = driver_reference_take(self->context, &key, &maker, NULL, &of->made);
    if (status != GPUIPC_OK) {
        return status;
    }
    self->mapping = (mapping){.base = driver_reference_value(of->made), .bytes = of->bytes};
    return check_size(self);
}

static gpuipc_status open_buffer(buffer *self, const buffer_source *source, gpuipc_access access) {
    device_scope scope;
    (void)access;
    gpuipc_status status = buffer_open_original(self);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (self->original != NULL) {
        return give_access(self, self->access_device, pool_of(self));
    }
    if (source->from->peer != NULL && source->from->peer->process_id == os_process_id()) {
        return status_fail(GPUIPC_ERR_LOST,
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

static gpuipc_status set_access(buffer *self, uint32_t index, gpuipc_access access) {
    (void)access;
    return give_access(self, index, pool_of(self));
}

/* ---- both ----------------------------------------------------------------------------------- */

static void release(buffer *self) {
    const driver *drv = &self->context->driver;
    device_scope scope;
    if (self->original == NULL && self->mapping.base != 0 &&
        self->origin != GPUIPC_BUFFER_WRAPPED &&
        device_enter(self->context, self->access_device, &scope) == GPUIPC_OK) {
        if (self->origin == GPUIPC_BUFFER_CREATED) {
            (void)drv->cuMemFree(self->mapping.base); /* of a pool: it waits for nothing */
        } else {
            driver_reference_release(self->context, self->segments[0].made, false);
            self->segments[0].made = NULL;
        }
        device_leave(&scope);
    }
    self->mapping = (mapping){0};
}

const transport transport_pool = {
    .id = GPUIPC_TRANSPORT_POOL,
    .name = "pool",
    .is_zero_copy = true,
    .ends_with_owner = true,
    .needs_owner = true,
    .endangers_peers = true, /* measured: docs/transports.md */
    .memory = SEGMENT_MEMORY_POOL,
    .naming = SEGMENT_NAMED_BY_BOTH,
    .allocate = allocate,
    .check_export = check_export,
    .export_segment = export_segment,
    .import_segment = import_segment,
    .open = open_buffer,
    .set_access = set_access,
    .release = release,
    .release_segment = transport_plain_release_segment,
};

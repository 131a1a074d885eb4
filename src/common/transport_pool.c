/* SPDX-License-Identifier: MIT */
/** @file Stream-ordered memory: a pool's handle once for each connection, then a name of 64 bytes for each
 *  allocation. Sending; transport_pool_open.c has the other side. */
#include "transport_pool.h"

#include <string.h>

#include "buffer_internal.h"
#include "transport_plain.h"
#include "transport_pool_open.h"

#define CREATE "gpuipc_buffer_create"
#define TYPE   ((CUmemAllocationHandleType)os_shareable_handle_type)

_Static_assert(sizeof(CUmemPoolPtrExportData) == WIRE_NAME_BYTES,
               "a name is what the driver makes it");

/* Whether pools of this device can be shared at all. */
static gpuipc_status check_device(const context *ctx, uint32_t index) {
    static const char sentence[] =
        "it has no stream-ordered memory that can be shared as this system's handles; use vmm";
    if (!ctx->driver.has_pool) {
        return status_fail(
            GPUIPC_ERR_NOT_SUPPORTED, CREATE,
            "the driver has no calls for stream-ordered memory (CUDA 11.2 has them)");
    }
    if (os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32) {
        return status_fail(GPUIPC_ERR_NOT_SUPPORTED, CREATE, "%s: %s",
                           ctx->devices[index].info.name, sentence);
    }
    return transport_check_attribute(ctx, index, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
                                     os_shareable_handle_type, CREATE, sentence);
}

static gpuipc_status make_pool(context *ctx, const counted_key *key, void *argument,
                               uint64_t *out_value) {
    CUmemoryPool pool = NULL;
    (void)argument;
    const CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = TYPE,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, ctx->devices[key->device].ordinal}};
    gpuipc_status status = driver_status(&ctx->driver, ctx->driver.cuMemPoolCreate(&pool, &props),
                                         "cuMemPoolCreate", "making a pool that can be shared");
    *out_value = (uint64_t)(uintptr_t)pool;
    return status;
}

static void destroy_pool(context *ctx, const counted_key *key, uint64_t value) {
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
        return segment_export_failure(&ctx->driver, result, "cuMemPoolExportToShareableHandle");
    }
    return os_handle_adopt_exported(&written, out_handle);
}

/* Groups are numbered in the process and never twice, since a pool's address may be used again. */
static gpuipc_status make_group(context *ctx, const counted_key *key, void *argument,
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

static void forget_group(context *ctx, const counted_key *key, uint64_t value) {
    (void)ctx;
    (void)key;
    (void)value;
}

static gpuipc_status take_group(context *ctx, CUmemoryPool pool, counted **out_group) {
    static const counted_maker maker = {.make = make_group, .undo = forget_group};
    const counted_key key = {
        .kind = COUNTED_GROUP, .device = GPUIPC_DEVICE_NONE, .number = (uint64_t)(uintptr_t)pool};
    return counted_take(ctx, &key, &maker, NULL, out_group);
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
    of->group = (uint32_t)counted_value(of->made);
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
    static const counted_maker maker = {.make = make_pool, .undo = destroy_pool};
    const counted_key key = {.kind = COUNTED_OWN_POOL, .device = index};
    device *of = &ctx->devices[index];
    counted *pool = NULL;
    counted *group = NULL;
    gpuipc_status status = counted_take(ctx, &key, &maker, NULL, &pool);
    if (status != GPUIPC_OK) {
        return status;
    }
    const CUmemoryPool made = (CUmemoryPool)(uintptr_t)counted_value(pool);
    status = take_group(ctx, made, &group);
    os_mutex_lock(&ctx->device_mutex);
    if (status == GPUIPC_OK && of->pool == NULL) {
        of->pool = pool;
        of->pool_group = group;
        pool = group = NULL;
    }
    os_mutex_unlock(&ctx->device_mutex);
    counted_give(ctx, group, false);
    counted_give(ctx, pool, false);
    if (status == GPUIPC_OK) {
        *out_pool = made;
    }
    return status;
}

void transport_pool_end(context *ctx, device *of, bool forked) {
    counted_give(ctx, of->pool_group, forked);
    counted_give(ctx, of->pool, forked);
    of->pool = of->pool_group = NULL;
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
    status = driver_status(drv, drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
                           "cuStreamCreate", "making a stream to allocate on");
    if (status == GPUIPC_OK) {
        CUdeviceptr address = 0;
        status = driver_status(drv, drv->cuMemAllocFromPoolAsync(&address, bytes, pool, stream),
                               "cuMemAllocFromPoolAsync", "allocating from a pool");
        if (status == GPUIPC_OK) {
            *out_address = address;
            status = driver_status(drv, drv->cuStreamSynchronize(stream), "cuStreamSynchronize",
                                   "waiting for an allocation");
        }
        (void)drv->cuStreamDestroy(stream);
    }
    device_leave(&scope);
    return status;
}

static gpuipc_status allocate(buffer *self, const gpuipc_buffer_config *config) {
    CUmemoryPool pool;
    gpuipc_status status = check_device(self->context, self->owner);
    if (status != GPUIPC_OK ||
        (status = own_pool(self->context, self->owner, &pool)) != GPUIPC_OK ||
        (status = buffer_grow(self, CREATE)) != GPUIPC_OK ||
        (status = allocate_from(self, pool, config->bytes, &self->mapping.base)) != GPUIPC_OK) {
        return status;
    }
    self->mapping.bytes = config->bytes;
    self->segments[self->segment_count++].bytes = config->bytes;
    return transport_pool_name(self, pool);
}

static gpuipc_status check_export(const buffer *self, const os_peer *peer) {
    (void)peer;
    if (self->origin == GPUIPC_BUFFER_OPENED && self->original == NULL) {
        return status_fail(GPUIPC_ERR_NOT_SHAREABLE, "gpuipc_connection_send",
                           "the buffer is of another process's pool, which only its owner can send "
                           "on");
    }
    return GPUIPC_OK;
}

static gpuipc_status export_segment(const buffer *self, uint32_t index, group_set *sent_groups,
                                    wire_segment *out_record, os_handle *out_handle,
                                    bool *out_is_kept) {
    const buffer *owner = self->original == NULL ? self : self->original;
    const segment *of = &owner->segments[index];
    const bool is_sent = group_set_has(sent_groups, of->group);
    wire_segment record = {.bytes = of->bytes,
                           .naming = is_sent ? WIRE_NAMED_BY_NAME : WIRE_NAMED_BY_BOTH,
                           .group = of->group};
    memcpy(record.name, of->name, sizeof(record.name));
    (void)out_is_kept;
    if (!is_sent) {
        gpuipc_status status = group_set_add(sent_groups, of->group);
        if (status != GPUIPC_OK ||
            (status = export_pool(self->context,
                                  (CUmemoryPool)(uintptr_t)counted_key_of(of->made)->number,
                                  out_handle)) != GPUIPC_OK) {
            return status;
        }
    }
    *out_record = record;
    return GPUIPC_OK;
}

static void release(buffer *self) {
    const driver *drv = &self->context->driver;
    device_scope scope;
    if (self->original == NULL && self->mapping.base != 0 &&
        self->origin != GPUIPC_BUFFER_WRAPPED &&
        device_enter(self->context, self->access_device, &scope) == GPUIPC_OK) {
        if (self->origin == GPUIPC_BUFFER_CREATED) {
            (void)drv->cuMemFree(self->mapping.base); /* of a pool: it waits for nothing */
        } else {
            counted_give(self->context, self->segments[0].made, false);
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
    .memory = WIRE_MEMORY_POOL,
    .naming = WIRE_NAMED_BY_BOTH,
    .allocate = allocate,
    .check_export = check_export,
    .export_segment = export_segment,
    .import_segment = transport_pool_import,
    .open = transport_pool_open,
    .set_access = transport_pool_set_access,
    .release = release,
    .release_segment = transport_plain_release_segment,
};

/* SPDX-License-Identifier: MIT */
/** @file See buffer.h: what all buffers have in common. */
#include "memory/buffer.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/struct_size.h"
#include "memory/buffer_table.h"
#include "memory/registry.h"
#include "memory/transport.h"
#include "sync/loan.h"
#include "sync/mark.h"

/* All but the reference on the context. */
static void end(buffer *self, bool forked) {
    if (!forked && !self->is_view) {
        self->transport->release(self);
    }
    if (self->import == NULL && !self->is_view) {
        for (uint32_t i = 0; i < self->segment_count; i++) {
            self->transport->release_segment(self->context, &self->segments[i], forked);
        }
        free(self->segments);
    }
    import_unreference(self->context, self->import, forked);
    if (!forked) {
        import_record_end(self->import_record);
    }
    import_record_unreference(self->import_record, forked);
    import_record_unreference(self->arrived, forked);
    export_forget(&self->exports, forked);
    mark_captures_end(self->context, &self->captures, forked);
    loan_forget(self->context, &self->loans, forked);
    buffer_work_clear(self, forked);
    if (self->finder != NULL) {
        self->finder->end(self, forked);
    }
    buffer_unreference(self->over);
    buffer_unreference(self->original);
    wait_handle_destroy(&self->returned);
    free(self);
}

static void end_deferred(deferred *item, bool forked) {
    end((buffer *)((char *)item - offsetof(buffer, deferred)), forked);
}

/* Nobody asks for them any more, and to close them waits for nothing. Handles of own memory that others count
 * (kept_handles.h) stay. */
static void close_handles(const buffer *self) {
    for (uint32_t i = 0; self->import == NULL && i < self->segment_count; i++) {
        if (!self->segments[i].has_place) {
            os_handle_close(&self->segments[i].kept);
        }
    }
}

/* What waits for the devices is left to calls that may: gpuipc_buffer_release() is one. */
static void destroy(object *base) {
    buffer *self = (buffer *)base;
    context *ctx = self->context;
    bool forked = object_is_forked(base);
    if (!registry_leave(self, forked)) {
        return;
    }
    if (!forked && self->finder != NULL) {
        self->finder->leave(self);
    }
    if (!forked) {
        buffer_table_leave(self);
        import_record_return(self->import_record);
    }
    if (self->returned.poller != NULL) {
        monitor_end(&self->returns);
    }
    if (!forked && !self->is_view && self->transport->release_waits != NULL &&
        self->transport->release_waits(self)) {
        close_handles(self);
        self->deferred = (deferred){.bytes = self->mapping.bytes, .run = end_deferred};
        deferred_add(ctx->deferred, &self->deferred);
    } else {
        end(self, forked);
    }
    context_unreference(ctx);
}

gpuipc_status buffer_new(context *ctx, gpuipc_buffer_origin origin, const transport *carrier,
                         buffer **out_buffer) {
    buffer *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    object_init(&self->object, OBJECT_BUFFER, destroy);
    object_reference(&ctx->object);
    self->context = ctx;
    self->exports.context = ctx;
    self->origin = origin;
    self->transport = carrier;
    self->owner = GPUIPC_DEVICE_NONE;
    self->access_device = GPUIPC_DEVICE_NONE;
    self->access_limit = GPUIPC_ACCESS_READ_WRITE;
    memcpy(self->exporter_id, ctx->instance_id, sizeof(self->exporter_id));
    self->buffer_id = atomic_fetch_add(&ctx->next_buffer_id, 1u);
    *out_buffer = self;
    return GPUIPC_OK;
}

void buffer_unwind(buffer *self) {
    gpuipc_error why = status_save();
    buffer_unreference(self);
    status_restore(&why);
}

/* A yes is remembered: it does not change while the process lives (cuda.h, cuDeviceCanAccessPeer speaks of
 * the devices alone). */
static gpuipc_status can_reach(const context *ctx, uint32_t index, uint32_t owner, int *out_can) {
    device *asked = &ctx->devices[index];
    const uint64_t bit = owner < DEVICE_REMEMBERED_MAX ? UINT64_C(1) << owner : 0;
    int can = 1;
    if ((atomic_load_explicit(&asked->reaches, memory_order_relaxed) & bit) == 0) {
        gpuipc_status status = DRIVER_CALL(&ctx->driver, cuDeviceCanAccessPeer,
                                           (&can, asked->ordinal, ctx->devices[owner].ordinal),
                                           "asking whether one device reaches another");
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    if (can) {
        atomic_fetch_or_explicit(&asked->reaches, bit, memory_order_relaxed);
    }
    *out_can = can;
    return GPUIPC_OK;
}

gpuipc_status buffer_check_peer(const buffer *self, uint32_t index) {
    const context *ctx = self->context;
    int can = 1;
    if (self->owner != GPUIPC_DEVICE_NONE && self->owner != index && ctx->driver.has_p2p) {
        gpuipc_status status = can_reach(ctx, index, self->owner, &can);
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    if (!can) {
        return status_fail(GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED,
                           "device %u cannot reach memory of device %u (no P2P between them)",
                           index, self->owner);
    }
    return GPUIPC_OK;
}

gpuipc_status buffer_grow(buffer *self) {
    size_t size = ((size_t)self->segment_count + 1) * sizeof(*self->segments);
    segment *segments = realloc(self->segments, size);
    if (segments == NULL) {
        return status_out_of_memory(size);
    }
    segments[self->segment_count] = SEGMENT_NONE;
    self->segments = segments;
    return GPUIPC_OK;
}

segment *buffer_segment(const buffer *self, uint32_t index) {
    return &(self->original == NULL ? self : self->original)->segments[index];
}

gpuipc_status buffer_acquire(gpuipc_buffer *handle, buffer **out_buffer) {
    object *base;
    gpuipc_status status = object_acquire(OBJECT_BUFFER, handle, &base);
    if (status == GPUIPC_OK) {
        *out_buffer = (buffer *)base;
    }
    return status;
}

void buffer_unreference(buffer *self) {
    if (self != NULL) {
        object_unreference(&self->object);
    }
}

void buffer_hold(buffer *self) {
    atomic_fetch_add(&self->handles, 1u);
}

gpuipc_status buffer_publish_held(buffer *self, gpuipc_buffer **out_handle) {
    gpuipc_buffer *none = NULL;
    void *handle;
    gpuipc_status status = object_publish(&self->object, &handle);
    if (status == GPUIPC_OK) {
        if (atomic_load(&self->handle) == NULL) {
            (void)atomic_compare_exchange_strong(&self->handle, &none, (gpuipc_buffer *)handle);
        }
        *out_handle = handle;
    }
    return status;
}

gpuipc_status buffer_publish(buffer *self, gpuipc_buffer **out_handle) {
    buffer_hold(self);
    gpuipc_status status = buffer_publish_held(self, out_handle);
    if (status != GPUIPC_OK) {
        buffer_unreference_handle(self);
    }
    return status;
}

gpuipc_access buffer_settle_access(const buffer *self, gpuipc_access wanted) {
    return wanted == GPUIPC_ACCESS_DEFAULT || (wanted & ~self->access_limit) != 0
               ? self->access_limit
               : wanted;
}

gpuipc_access buffer_access(const buffer *self) {
    if (self->is_view && self->access_device == self->over->access_device) {
        return (gpuipc_access)(atomic_load(&self->access) & (int)buffer_access(self->over));
    }
    if (self->view == NULL) {
        return (gpuipc_access)atomic_load(&self->access);
    }
    return import_view_access(self->view) == CU_MEM_ACCESS_FLAGS_PROT_READ
               ? GPUIPC_ACCESS_READ
               : GPUIPC_ACCESS_READ_WRITE;
}

gpuipc_status buffer_check_export(const buffer *self, const os_peer *peer) {
    /* A view has what it is over, handles that were kept among it. */
    gpuipc_status status = self->transport->check_export(self->is_view ? self->over : self, peer);
    return status == GPUIPC_OK ? export_check(&self->exports) : status;
}

gpuipc_status buffer_check_writable(const buffer *self) {
    /* What another device may do is the driver's to say, where it guards that. */
    const bool others = self->transport->guards_access && atomic_load(&self->others_may_write);
    if (!others && buffer_access(self) == GPUIPC_ACCESS_READ) {
        return status_fail(GPUIPC_ERR_ACCESS_DENIED,
                           "the buffer may only be read by the device it was opened for");
    }
    return GPUIPC_OK;
}

gpuipc_status buffer_check_access(gpuipc_access access) {
    if (access != GPUIPC_ACCESS_DEFAULT && access != GPUIPC_ACCESS_READ &&
        access != GPUIPC_ACCESS_READ_WRITE) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "%d is no gpuipc_access", (int)access);
    }
    return GPUIPC_OK;
}

static bool has_returned(const buffer *of) {
    return of->import_record != NULL && atomic_load(&of->import_record->is_returned);
}

gpuipc_status buffer_check_range(const buffer *self, uint64_t offset, uint64_t bytes) {
    /* What is wrapped over it is not this process's any more either. */
    if (has_returned(self) || (self->over != NULL && has_returned(self->over))) {
        return status_fail(
            GPUIPC_ERR_INVALID_ARGUMENT,
            "the buffer has been returned to its exporter (gpuipc_buffer_return_async)");
    }
    if (offset > self->bytes || bytes > self->bytes - offset) {
        return status_fail(GPUIPC_ERR_OUT_OF_RANGE,
                           "%" PRIu64 " bytes from %" PRIu64
                           " on do not lie in a buffer of %" PRIu64 " bytes",
                           bytes, offset, self->bytes);
    }
    return GPUIPC_OK;
}

CUdeviceptr buffer_address(const buffer *self, uint64_t offset) {
    return self->mapping.base + self->offset + offset;
}

gpuipc_status gpuipc_buffer_retain(gpuipc_buffer *handle) {
    status_enter(__func__);
    buffer *self;
    gpuipc_status status = buffer_acquire(handle, &self);
    if (status == GPUIPC_OK) {
        status = object_add_hold(OBJECT_BUFFER, handle);
        buffer_unreference(self);
    }
    return status;
}

gpuipc_status buffer_release(gpuipc_buffer *handle) {
    object *last = NULL;
    gpuipc_status status = object_remove_hold(OBJECT_BUFFER, handle, &last);
    if (last == NULL || object_is_forked(last)) {
        object_unreference(last);
        return status;
    }
    context *ctx = ((buffer *)last)->context;
    const bool may_wait = ((buffer *)last)->transport->release_waits != NULL;
    const uint64_t before = may_wait ? deferred_additions(ctx->deferred) : 0;
    atomic_fetch_sub(&((buffer *)last)->handles, 1u);
    object_reference(&ctx->object);
    object_unreference(last);
    registry_sweep_some(ctx, false);
    if (may_wait && deferred_additions(ctx->deferred) != before) {
        (void)deferred_work_off(ctx);
    }
    context_unreference(ctx);
    return status;
}

gpuipc_status gpuipc_buffer_release(gpuipc_buffer *handle) {
    status_enter(__func__);
    return handle == NULL ? GPUIPC_OK : buffer_release(handle);
}

void buffer_unreference_handle(void *self) {
    buffer *of = self;
    atomic_fetch_sub(&of->handles, 1u);
    object_unreference(&of->object);
}

gpuipc_status buffer_take_hold(gpuipc_buffer *handle, buffer **out_buffer) {
    object *base;
    bool is_last;
    gpuipc_status status = object_take_hold(OBJECT_BUFFER, handle, &base, &is_last);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (!is_last) {
        buffer_hold((buffer *)base); /* the reference stands for one */
    }
    *out_buffer = (buffer *)base;
    return GPUIPC_OK;
}

uint32_t buffer_users(buffer *self) {
    return atomic_load(&self->others_may_use) ? GPUIPC_DEVICE_NONE : self->access_device;
}

/* Until then it counts as a handle: what is opened again meanwhile is not alone. */
gpuipc_status gpuipc_buffer_drop(gpuipc_buffer *handle) {
    status_enter(__func__);
    buffer *self;
    if (handle == NULL) {
        return GPUIPC_OK;
    }
    gpuipc_status status = buffer_take_hold(handle, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (object_is_forked(&self->object)) {
        buffer_unreference(self); /* which makes no driver call there */
        return GPUIPC_OK;
    }
    drop_add(self->context, &self->dropped, self, buffer_unreference_handle, buffer_users(self));
    return GPUIPC_OK;
}

void buffer_release_later(buffer *self) {
    const gpuipc_error why = status_save();
    buffer_unreference_handle(self);
    status_restore(&why);
}

static bool is_lost(buffer *self) {
    os_mutex *mutex = &self->context->points->mutex;
    os_mutex_lock(mutex);
    const bool lost = import_record_is_lost(self->import_record) ||
                      import_record_is_lost(self->arrived) ||
                      (self->is_view && import_record_is_lost(self->over->import_record));
    os_mutex_unlock(mutex);
    return lost;
}

void buffer_set_arrived(buffer *self, import_record *of) {
    os_mutex *mutex = &self->context->points->mutex;
    import_record_reference(of);
    os_mutex_lock(mutex);
    import_record *before = self->arrived;
    self->arrived = of;
    os_mutex_unlock(mutex);
    import_record_unreference(before, false);
}

gpuipc_status buffer_check_info(const gpuipc_buffer_info *info) {
    return struct_size_check(info, STRUCT_SIZE_UP_TO(gpuipc_buffer_info, buffer_id));
}

void buffer_describe(buffer *self, gpuipc_buffer_info *out_info) {
    gpuipc_buffer_info info;
    memset(&info, 0, sizeof(info)); /* also between the members: bytes are compared */
    info.address = buffer_address(self, 0);
    info.bytes = self->bytes;
    info.allocated_bytes = self->mapping.bytes;
    info.segment_count = self->segment_count;
    info.device = self->owner;
    info.device_uuid = self->owner_uuid;
    info.access_device = self->access_device;
    info.access = buffer_access(self);
    info.origin = self->origin;
    info.lent_count = export_count(&self->exports);
    info.is_lost = is_lost(self);
    info.is_ready = buffer_has_contents(self);
    info.buffer_id = self->buffer_id;
    info.transport = self->transport->id;
    info.attachment = self->attachment;
    info.attachment_bytes = self->attachment_bytes;
    info.is_attachment_withheld = self->is_attachment_withheld;
    memcpy(info.exporter_id, self->exporter_id, sizeof(info.exporter_id));
    struct_size_write(out_info, &info, sizeof(info));
}

gpuipc_status gpuipc_buffer_get_info(gpuipc_buffer *handle, gpuipc_buffer_info *out_info) {
    status_enter(__func__);
    buffer *self;
    gpuipc_status status = buffer_check_info(out_info);
    if (status == GPUIPC_OK && (status = buffer_acquire(handle, &self)) == GPUIPC_OK) {
        buffer_describe(self, out_info);
        buffer_unreference(self);
    }
    return status;
}

/* What a view may do is the library's to guard: nothing is taken away from what it is over, and nothing given that
 * its owner took away. */
static gpuipc_status give_access(buffer *self, uint32_t index, gpuipc_access access) {
    const buffer *over = self->over;
    if (!self->is_view) {
        return self->transport->set_access(self, index, access);
    }
    if (index != over->access_device) {
        return self->transport->set_access(self, index, over->access_limit);
    }
    return (access & ~buffer_access(over)) == 0
               ? GPUIPC_OK
               : status_fail(GPUIPC_ERR_ACCESS_DENIED,
                             "the buffer that was shared may itself only be read by this device");
}

/* What the library knows of it changes with what the driver does. */
static gpuipc_status change_access(buffer *self, uint32_t index, gpuipc_access access) {
    buffer_table_lock_access(self->context);
    gpuipc_status status = give_access(self, index, access);
    if (status == GPUIPC_OK && index == self->access_device) {
        atomic_store(&self->access, (int)access);
    } else if (status == GPUIPC_OK) {
        atomic_store(&self->others_may_use, true);
        if (access == GPUIPC_ACCESS_READ_WRITE) {
            atomic_store(&self->others_may_write, true);
        }
    }
    buffer_table_unlock_access(self->context);
    return status;
}

gpuipc_status buffer_set_access(buffer *self, uint32_t index, gpuipc_access access) {
    if (access == GPUIPC_ACCESS_DEFAULT) {
        access = self->access_limit;
    }
    if ((access & ~self->access_limit) != 0) {
        return status_fail(GPUIPC_ERR_ACCESS_DENIED,
                           "the sender offered this buffer for reading only");
    }
    if (access == GPUIPC_ACCESS_READ && index != self->access_device &&
        !self->transport->guards_access) {
        return status_fail(GPUIPC_ERR_NOT_SUPPORTED,
                           "where another device reaches memory of transport %s, it can write "
                           "there too",
                           self->transport->name);
    }
    gpuipc_status status = device_check(self->context, index);
    return status == GPUIPC_OK ? change_access(self, index, access) : status;
}

gpuipc_status gpuipc_buffer_set_access(gpuipc_buffer *handle, uint32_t index,
                                       gpuipc_access access) {
    status_enter(__func__);
    buffer *self;
    gpuipc_status status = buffer_check_access(access);
    if (status != GPUIPC_OK || (status = buffer_acquire(handle, &self)) != GPUIPC_OK) {
        return status;
    }
    status = buffer_set_access(self, index, access);
    buffer_unreference(self);
    return status;
}

/* SPDX-License-Identifier: MIT */
/** @file Peer access: memory of cuMemAlloc reached by other devices of the same process. */
#include <stdlib.h>

#include "buffer_internal.h"
#include "transport_plain.h"

/* In whole units nothing of somebody else lies in the block that the driver shares. */
#define UNIT_BYTES (UINT64_C(2) << 20)

gpuipc_status transport_plain_make(buffer *self, const gpuipc_buffer_config *config) {
    const driver *drv = &self->context->driver;
    device_scope scope;
    const uint64_t memory = self->context->devices[self->owner].info.memory_bytes;
    if (config->bytes > memory) {
        return status_fail(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, "gpuipc_buffer_create",
                           "%llu bytes is more than the device has",
                           (unsigned long long)config->bytes);
    }
    const uint64_t bytes = (config->bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
    gpuipc_status status = buffer_grow(self, "gpuipc_buffer_create");
    if (status != GPUIPC_OK ||
        (status = device_enter(self->context, self->owner, &scope)) != GPUIPC_OK) {
        return status;
    }
    CUdeviceptr address = 0;
    status = driver_status(drv, drv->cuMemAlloc(&address, bytes), "cuMemAlloc",
                           "allocating device memory");
    device_leave(&scope);
    if (status == GPUIPC_OK) {
        self->mapping = (mapping){.base = address, .bytes = bytes};
        self->segments[self->segment_count++].bytes = bytes;
    }
    return status;
}

/* Access that the user of the library has enabled himself is not ours to disable. */
static gpuipc_status enable(context *ctx, const counted_key *key, void *argument,
                            uint64_t *out_value) {
    CUcontext reached = argument;
    (void)key;
    CUresult result = ctx->driver.cuCtxEnablePeerAccess(reached, 0);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
        return driver_status(&ctx->driver, result, "cuCtxEnablePeerAccess",
                             "letting one device reach another's memory");
    }
    *out_value = result == CUDA_SUCCESS;
    return GPUIPC_OK;
}

static void disable(context *ctx, const counted_key *key, uint64_t value) {
    if (value != 0) {
        (void)ctx->driver.cuCtxDisablePeerAccess((CUcontext)(uintptr_t)key->number);
    }
}

/* Whether the buffer has this access already; else notes it. */
static gpuipc_status note_peer(buffer *self, counted *item, bool *out_has) {
    gpuipc_status status = GPUIPC_OK;
    bool has = false;
    os_mutex_lock(&self->context->device_mutex);
    for (uint32_t i = 0; i < self->peer_count && !has; i++) {
        has = self->peers[i] == item;
    }
    if (!has) {
        const size_t size = (self->peer_count + (size_t)1) * sizeof(*self->peers);
        counted **peers = realloc(self->peers, size);
        if (peers == NULL) {
            status = status_out_of_memory("gpuipc_buffer_set_access", size);
        } else {
            peers[self->peer_count++] = item;
            self->peers = peers;
        }
    }
    os_mutex_unlock(&self->context->device_mutex);
    *out_has = has;
    return status;
}

gpuipc_status transport_plain_reach(buffer *self, uint32_t index) {
    static const counted_maker maker = {enable, disable, false};
    context *ctx = self->context;
    CUcontext reached = NULL;
    counted *item;
    bool has = false;
    if (!ctx->driver.has_p2p) {
        return status_fail(GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED, "cuCtxEnablePeerAccess",
                           "the driver has no calls for peer access");
    }
    gpuipc_status status = buffer_check_peer(self, index);
    if (status != GPUIPC_OK ||
        (status = driver_status(&ctx->driver,
                                ctx->driver.cuPointerGetAttribute(
                                    &reached, CU_POINTER_ATTRIBUTE_CONTEXT, self->mapping.base),
                                "cuPointerGetAttribute", "asking for the context of memory")) !=
            GPUIPC_OK) {
        return status;
    }
    const counted_key key = {
        .kind = COUNTED_PEER, .device = index, .number = (uint64_t)(uintptr_t)reached};
    status = counted_take(ctx, &key, &maker, reached, &item);
    if (status == GPUIPC_OK) {
        status = note_peer(self, item, &has);
        if (status != GPUIPC_OK || has) {
            counted_give(ctx, item, false);
        }
    }
    return status;
}

gpuipc_status transport_plain_set_access(buffer *self, uint32_t index, gpuipc_access access) {
    (void)access; /* peer access is always to read and write */
    return index == self->owner ? GPUIPC_OK : transport_plain_reach(self, index);
}

void transport_plain_release(buffer *self) {
    const driver *drv = &self->context->driver;
    device_scope scope;
    while (self->peer_count > 0) {
        counted_give(self->context, self->peers[--self->peer_count], false);
    }
    if (self->origin == GPUIPC_BUFFER_CREATED && self->mapping.base != 0 &&
        device_enter(self->context, self->owner, &scope) == GPUIPC_OK) {
        (void)drv->cuMemFree(self->mapping.base);
        device_leave(&scope);
    }
    self->mapping = (mapping){0};
}

void transport_plain_release_segment(context *ctx, segment *of, bool forked) {
    counted_give(ctx, of->made, forked);
    counted_give(ctx, of->pool, forked);
    *of = SEGMENT_NONE;
}

gpuipc_status transport_check_trusted(const sender *from) {
    if (from->peer != NULL && !from->peer->same_user) {
        return status_fail(GPUIPC_ERR_ACCESS_DENIED, "gpuipc_connection_receive",
                           "the buffer is named by bytes that the driver does not check, which are "
                           "not taken from another user's process; let it send vmm memory");
    }
    return GPUIPC_OK;
}

static gpuipc_status check_export(const buffer *self, const os_peer *peer) {
    (void)self;
    (void)peer;
    return status_fail(GPUIPC_ERR_NOT_SHAREABLE, "gpuipc_connection_send",
                       "memory of transport p2p stays in its process; make it with "
                       "GPUIPC_TRANSPORT_VMM or GPUIPC_TRANSPORT_LEGACY");
}

static gpuipc_status export_segment(const buffer *self, uint32_t index, group_set *sent_groups,
                                    wire_segment *out_record, os_handle *out_handle) {
    (void)index;
    (void)sent_groups;
    (void)out_record;
    (void)out_handle;
    return check_export(self, NULL);
}

static gpuipc_status import_segment(sender *from, const wire_segment *record, os_handle *handle,
                                    bool keep_handle, segment *out_segment) {
    (void)from;
    (void)record;
    (void)handle;
    (void)keep_handle;
    (void)out_segment;
    return status_fail(GPUIPC_ERR_NOT_SUPPORTED, "gpuipc_connection_receive",
                       "peer access does not leave its process");
}

static gpuipc_status open_buffer(buffer *self, const buffer_source *source, gpuipc_access access) {
    (void)self;
    (void)source;
    (void)access;
    return import_segment(NULL, NULL, NULL, false, NULL);
}

const transport transport_p2p = {
    .id = GPUIPC_TRANSPORT_P2P,
    .name = "p2p",
    .is_zero_copy = true,
    .ends_with_owner = true,
    .allocate = transport_plain_make,
    .check_export = check_export,
    .export_segment = export_segment,
    .import_segment = import_segment,
    .open = open_buffer,
    .set_access = transport_plain_set_access,
    .release = transport_plain_release,
    .release_segment = transport_plain_release_segment,
};

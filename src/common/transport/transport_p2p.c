/* SPDX-License-Identifier: MIT */
/** @file Peer access: memory of cuMemAlloc reached by other devices of the same process. */
#include <stdlib.h>

#include "transport/transports.h"

/* In whole units nothing of somebody else lies in the block that the driver shares. */
#define UNIT_BYTES (UINT64_C(2) << 20)

gpuipc_status transport_plain_make(buffer *self, const gpuipc_buffer_config *config) {
    const driver *drv = &self->context->driver;
    device_scope scope;
    const uint64_t memory = self->context->devices[self->owner].info.memory_bytes;
    if (config->bytes > memory) {
        return status_fail(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY,
                           "%llu bytes is more than the device has",
                           (unsigned long long)config->bytes);
    }
    const uint64_t bytes = (config->bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
    gpuipc_status status = buffer_grow(self);
    if (status != GPUIPC_OK ||
        (status = device_enter(self->context, self->owner, &scope)) != GPUIPC_OK) {
        return status;
    }
    CUdeviceptr address = 0;
    status = DRIVER_CALL(drv, cuMemAlloc, (&address, bytes), "allocating device memory");
    device_leave(&scope);
    if (status == GPUIPC_OK) {
        self->mapping = (mapping){.base = address, .bytes = bytes};
        self->segments[self->segment_count++].bytes = bytes;
    }
    return status;
}

static gpuipc_status enable(context *ctx, CUcontext reached, bool *out_is_ours) {
    CUresult result = ctx->driver.cuCtxEnablePeerAccess(reached, 0);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
        return driver_status(&ctx->driver, result, "cuCtxEnablePeerAccess",
                             "letting one device reach another's memory");
    }
    *out_is_ours = result == CUDA_SUCCESS;
    return GPUIPC_OK;
}

/* Access that the user of the library has enabled himself is not ours to disable. */
static gpuipc_status make_access(context *ctx, const driver_reference_key *key, void *argument,
                                 uint64_t *out_value) {
    bool is_ours = false;
    (void)key;
    gpuipc_status status = enable(ctx, argument, &is_ours);
    *out_value = is_ours;
    return status;
}

static void disable(context *ctx, const driver_reference_key *key, uint64_t value) {
    if (value != 0) {
        (void)ctx->driver.cuCtxDisablePeerAccess((CUcontext)(uintptr_t)key->number);
    }
}

gpuipc_status transport_plain_enable(context *ctx, uint32_t user, CUcontext reached,
                                     driver_reference **out_access) {
    static const driver_reference_maker maker = {.make = make_access, .undo = disable};
    const driver_reference_key key = {
        .kind = REFERENCE_PEER, .device = user, .number = (uint64_t)(uintptr_t)reached};
    return driver_reference_take(ctx, &key, &maker, reached, out_access);
}

/* Whether the device has this access already; else it has it from now on, until its context ends. */
static gpuipc_status keep(context *ctx, device *user, driver_reference *access, bool *out_has) {
    gpuipc_status status = GPUIPC_OK;
    bool has = false;
    os_mutex_lock(&ctx->device_mutex);
    for (uint32_t i = 0; i < user->access_count && !has; i++) {
        has = user->accesses[i] == access;
    }
    if (!has) {
        const size_t size = (user->access_count + (size_t)1) * sizeof(driver_reference *);
        driver_reference **accesses = realloc(user->accesses, size);
        if (accesses == NULL) {
            status = status_out_of_memory(size);
        } else {
            accesses[user->access_count++] = access;
            user->accesses = accesses;
        }
    }
    os_mutex_unlock(&ctx->device_mutex);
    *out_has = has;
    return status;
}

/* It may have ended since: a context of the caller's was destroyed, and another is at its address. */
static gpuipc_status enable_again(context *ctx, uint32_t user, CUcontext reached) {
    device_scope scope;
    bool is_ours = false;
    gpuipc_status status = device_enter(ctx, user, &scope);
    if (status == GPUIPC_OK) {
        status = enable(ctx, reached, &is_ours);
        device_leave(&scope);
    }
    return status;
}

/* By peer access, until the buffer's context ends: the application, too, may have come to rely on that, since it can no
 * longer enable it (CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED). */
static gpuipc_status reach(buffer *self, uint32_t index) {
    context *ctx = self->context;
    CUcontext reached = NULL;
    driver_reference *access;
    bool has = false;
    if (!ctx->driver.has_p2p) {
        return status_fail(GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED,
                           "the driver has no calls for peer access");
    }
    gpuipc_status status = buffer_check_peer(self, index);
    if (status != GPUIPC_OK ||
        (status = DRIVER_CALL(&ctx->driver, cuPointerGetAttribute,
                              (&reached, CU_POINTER_ATTRIBUTE_CONTEXT, self->mapping.base),
                              "asking for the context of memory")) != GPUIPC_OK) {
        return status;
    }
    status = transport_plain_enable(ctx, index, reached, &access);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = keep(ctx, &ctx->devices[index], access, &has);
    if (status != GPUIPC_OK || has) {
        driver_reference_release(ctx, access, false);
    }
    return status == GPUIPC_OK && has ? enable_again(ctx, index, reached) : status;
}

gpuipc_status transport_plain_set_access(buffer *self, uint32_t index, gpuipc_access access) {
    (void)access; /* peer access is always to read and write */
    return index == self->owner ? GPUIPC_OK : reach(self, index);
}

bool transport_plain_release_waits(buffer *self) {
    return self->origin == GPUIPC_BUFFER_CREATED && self->mapping.base != 0;
}

void transport_plain_release(buffer *self) {
    const driver *drv = &self->context->driver;
    device_scope scope;
    if (self->origin == GPUIPC_BUFFER_CREATED && self->mapping.base != 0 &&
        device_enter(self->context, self->owner, &scope) == GPUIPC_OK) {
        (void)drv->cuMemFree(self->mapping.base);
        device_leave(&scope);
    }
    self->mapping = (mapping){0};
}

void transport_plain_release_segment(context *ctx, segment *of, bool forked) {
    driver_reference_release(ctx, of->made, forked);
    driver_reference_release(ctx, of->pool, forked);
    quota_return(&of->charge);
    *of = SEGMENT_NONE;
}

gpuipc_status transport_check_trusted(const import_source *from) {
    if (from->peer != NULL && !from->peer->same_user) {
        return status_fail(GPUIPC_ERR_ACCESS_DENIED,
                           "the buffer is named by bytes that the driver does not check, which are "
                           "not taken from another user's process; let it send vmm memory");
    }
    return GPUIPC_OK;
}

static gpuipc_status check_export(const buffer *self, const os_peer *peer) {
    (void)self;
    (void)peer;
    return status_fail(GPUIPC_ERR_NOT_SHAREABLE,
                       "memory of transport p2p stays in its process; make it with "
                       "GPUIPC_TRANSPORT_VMM or GPUIPC_TRANSPORT_LEGACY");
}

const transport transport_p2p = {
    .id = GPUIPC_TRANSPORT_P2P,
    .name = "p2p",
    .is_zero_copy = true,
    .ends_with_owner = true,
    .is_plain = true,
    .needs_owner = true,
    .allocate = transport_plain_make,
    .check_export = check_export,
    .set_access = transport_plain_set_access,
    .release = transport_plain_release,
    .release_waits = transport_plain_release_waits,
    .release_segment = transport_plain_release_segment,
};

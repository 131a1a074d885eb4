/* SPDX-License-Identifier: MIT */
/** @file See contents_ring.h: rings and what they are made of. contents_flow.c puts contents on them. */
#include <stdlib.h>

#include "contents/contents_lane.h"
#include "copy/detour.h"

/* Beyond every number of a piece; the comparison is cyclic (cuda.h, CU_STREAM_WAIT_VALUE_GEQ). */
#define FOR_EVER (UINT64_C(1) << 62)

/* ---- lanes -------------------------------------------------------------------------------- */

static void lane_destroy(context *ctx, contents_lane *self, bool forked) {
    const driver *drv = &ctx->driver;
    device_scope scope;
    if (self != NULL && !forked && device_enter(ctx, self->device, &scope) == GPUIPC_OK) {
        for (uint32_t i = 0; i < STAGING_SLOTS; i++) {
            detour_event_destroy(drv, self->came[i]);
            detour_event_destroy(drv, self->done[i]);
        }
        detour_event_destroy(drv, self->end);
        detour_stream_destroy(drv, self->copies);
        detour_stream_destroy(drv, self->waits);
        detour_stream_destroy(drv, self->signals);
        device_leave(&scope);
    }
    free(self);
}

/* In the device's primary context. */
static gpuipc_status lane_fill(const driver *drv, contents_lane *self) {
    gpuipc_status status;
    if ((status = detour_stream_new(drv, &self->copies)) != GPUIPC_OK ||
        (status = detour_stream_new(drv, &self->waits)) != GPUIPC_OK ||
        (status = detour_stream_new(drv, &self->signals)) != GPUIPC_OK ||
        (status = detour_event_new(drv, &self->end)) != GPUIPC_OK) {
        return status;
    }
    for (uint32_t i = 0; i < STAGING_SLOTS; i++) {
        if ((status = detour_event_new(drv, &self->came[i])) != GPUIPC_OK ||
            (status = detour_event_new(drv, &self->done[i])) != GPUIPC_OK) {
            return status;
        }
    }
    return GPUIPC_OK;
}

static gpuipc_status lane_make(context *ctx, uint32_t index, contents_lane **out_lane) {
    contents_lane *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    self->device = index;
    gpuipc_status status = lane_fill(&ctx->driver, self);
    if (status != GPUIPC_OK) {
        gpuipc_error why = status_save();
        lane_destroy(ctx, self, false);
        status_restore(&why);
        return status;
    }
    *out_lane = self;
    return GPUIPC_OK;
}

static bool stream_is_idle(const driver *drv, CUstream stream) {
    return drv->cuStreamQuery(stream) !=
           CUDA_ERROR_NOT_READY; /* a dead context does nothing more */
}

static bool lane_is_idle(context *ctx, const contents_lane *self) {
    const driver *drv = &ctx->driver;
    device_scope scope;
    if (self == NULL || device_enter(ctx, self->device, &scope) != GPUIPC_OK) {
        return true;
    }
    bool is_idle = stream_is_idle(drv, self->copies) && stream_is_idle(drv, self->waits) &&
                   stream_is_idle(drv, self->signals);
    device_leave(&scope);
    return is_idle;
}

/* ---- rings -------------------------------------------------------------------------------- */

static gpuipc_status ring_new(context *ctx, bool sends, contents_ring **out_ring) {
    contents_ring *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    self->lanes = calloc(ctx->device_count, sizeof(*self->lanes));
    if (self->lanes == NULL) {
        free(self);
        return status_out_of_memory(ctx->device_count * sizeof(*self->lanes));
    }
    self->context = ctx;
    self->sends = sends;
    self->handle = OS_HANDLE_NONE;
    self->device = GPUIPC_DEVICE_NONE;
    *out_ring = self;
    return GPUIPC_OK;
}

static void ring_destroy(contents_ring *self, bool forked) {
    context *ctx = self->context;
    device_scope scope;
    for (uint32_t i = 0; i < ctx->device_count; i++) {
        lane_destroy(ctx, self->lanes[i], forked);
    }
    if (self->device != GPUIPC_DEVICE_NONE && !forked &&
        device_enter(ctx, self->device, &scope) == GPUIPC_OK) {
        /* Fails only where its CUDA context is gone or dead, and the registration with it. */
        (void)ctx->driver.cuMemHostUnregister(self->slots);
        device_leave(&scope);
    }
    if (self->slots != NULL) {
        os_memory_unmap(self->slots, CONTENTS_RING_BYTES);
    }
    if (!forked) { /* in a child it is closed already */
        os_handle_close(&self->handle);
    }
    quota_return(&self->charge);
    point_page_unreference(self->words, forked);
    free(self->lanes);
    free(self);
}

gpuipc_status contents_ring_create(struct context *ctx, point_peer *peer,
                                   contents_ring **out_ring) {
    contents_ring *self = NULL;
    gpuipc_status status = ring_new(ctx, true, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    if ((status = point_page_create(ctx, peer, &self->words)) != GPUIPC_OK ||
        (status = os_memory_create("gpuipc-ring", CONTENTS_RING_BYTES, &self->handle)) !=
            GPUIPC_OK ||
        (status = os_memory_map(self->handle, CONTENTS_RING_BYTES, true, &self->slots)) !=
            GPUIPC_OK) {
        gpuipc_error why = status_save();
        ring_destroy(self, false);
        status_restore(&why);
        return status;
    }
    *out_ring = self;
    return GPUIPC_OK;
}

gpuipc_status contents_ring_open(struct context *ctx, void *slots, point_page *words,
                                 contents_ring **out_ring) {
    contents_ring *self = NULL;
    gpuipc_status status = ring_new(ctx, false, &self);
    if (status == GPUIPC_OK) {
        self->slots = slots;
        self->words = words;
        *out_ring = self;
    }
    return status;
}

static gpuipc_status register_slots(contents_ring *self, uint32_t index) {
    const driver *drv = &self->context->driver;
    CUdeviceptr address = 0;
    gpuipc_status status = GPUIPC_OK;
    if (!drv->has_pinned) {
        return status_fail(GPUIPC_ERR_DRIVER_TOO_OLD,
                           "the driver has no calls for pinned host memory");
    }
    if (self->device == GPUIPC_DEVICE_NONE) {
        status = DRIVER_CALL(drv, cuMemHostRegister,
                             (self->slots, CONTENTS_RING_BYTES, CU_MEMHOSTREGISTER_PORTABLE),
                             "pinning the host memory that contents go through");
        if (status != GPUIPC_OK) {
            return status;
        }
        self->device = index;
    }
    status = DRIVER_CALL(drv, cuMemHostGetDevicePointer, (&address, self->slots, 0),
                         "asking where a device has host memory");
    if (status == GPUIPC_OK && address != (CUdeviceptr)(uintptr_t)self->slots) {
        status = status_fail(GPUIPC_ERR_NOT_SUPPORTED,
                             "device %u has host memory at other addresses than the host", index);
    }
    return status;
}

gpuipc_status contents_ring_prepare(contents_ring *self, uint32_t index) {
    context *ctx = self->context;
    CUdeviceptr address;
    device_scope scope;
    gpuipc_status status = device_enter(ctx, index, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = register_slots(self, index);
    if (status == GPUIPC_OK && point_has_stream_waits(ctx)) {
        status = point_page_address(self->words, &address);
    }
    if (status == GPUIPC_OK && self->lanes[index] == NULL) {
        status = lane_make(ctx, index, &self->lanes[index]);
    }
    device_leave(&scope);
    return status;
}

/* The word is the first piece that was given up, and 1: no contents come after those. */
void contents_ring_note(const contents_ring *self, uint64_t end, import_record *of) {
    point_page_reference(self->words);
    of->given_up = (point_word){self->words, CONTENTS_FAILED, 1};
    of->later = (point_word){self->words, CONTENTS_FAILED, end + 1};
}

/* ---- their end ---------------------------------------------------------------------------- */

static bool ring_is_idle(const contents_ring *self) {
    for (uint32_t i = 0; i < self->context->device_count; i++) {
        if (!lane_is_idle(self->context, self->lanes[i])) {
            return false;
        }
    }
    return true;
}

static bool is_ready(deferred *item) {
    return ring_is_idle((const contents_ring *)item);
}

static void end_deferred(deferred *item, bool forked) {
    ring_destroy((contents_ring *)item, forked);
}

void contents_words_destroy(point_page *words) {
    for (uint32_t i = 0; i < STAGING_SLOTS; i++) {
        const point_word word = {words, CONTENTS_EMPTIED(i), FOR_EVER};
        point_store(&word);
    }
}

void contents_ring_destroy(contents_ring *self, bool forked) {
    if (self == NULL) {
        return;
    }
    if (forked) {
        ring_destroy(self, true);
        return;
    }
    if (!self->sends && ring_is_idle(self)) {
        contents_words_destroy(self->words);
    } else if (!self->sends) {
        contents_tell_end(self, FOR_EVER, STAGING_SLOTS);
    }
    if (self->device == GPUIPC_DEVICE_NONE && ring_is_idle(self)) {
        ring_destroy(self, false); /* which makes no call that waits */
        return;
    }
    self->deferred =
        (deferred){.bytes = CONTENTS_RING_BYTES, .is_ready = is_ready, .run = end_deferred};
    deferred_add(self->context->deferred, &self->deferred);
}

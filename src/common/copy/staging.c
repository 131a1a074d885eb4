/* SPDX-License-Identifier: MIT */
/** @file See staging.h. */
#include "copy/staging.h"

#include <stdlib.h>

#include "copy/detour.h"
#include "cuda/context.h"
#include "sync/deferred.h"

/* One device's side of a ring: a stream, and after each of its copies an event. */
typedef struct half {
    uint32_t device;
    CUstream stream; /* NULL: not made */
    CUevent done[STAGING_SLOTS];
} half;

struct staging_ring {
    os_mutex mutex;     /* held while a copy is put on its streams; guards the rest */
    half reader;        /* fills slots from the source */
    half writer;        /* empties them into the destination */
    uint8_t *slots;     /* pinned; NULL: not made */
    gpuipc_stream last; /* whose copy was put on it last */
    uint32_t last_slot; /* and where that ends */
    list_link link;
};

/* One copy. */
typedef struct job {
    context *ctx;
    staging_ring *ring;
    CUdeviceptr destination;
    CUdeviceptr source;
    uint64_t bytes;
    uint64_t piece;
} job;

uint64_t staging_piece_bytes(uint64_t bytes) {
    uint64_t piece = UINT64_C(1) << 20;
    while (piece < STAGING_SLOT_BYTES && bytes > piece * 16) {
        piece *= 2;
    }
    return piece;
}

/* ---- rings -------------------------------------------------------------------------------- */

static gpuipc_status half_make(context *ctx, half *self) {
    const driver *drv = &ctx->driver;
    device_scope scope;
    gpuipc_status status = device_enter(ctx, self->device, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = detour_stream_new(drv, &self->stream);
    for (uint32_t i = 0; i < STAGING_SLOTS && status == GPUIPC_OK; i++) {
        status = detour_event_new(drv, &self->done[i]);
    }
    device_leave(&scope);
    return status;
}

static void half_end(context *ctx, half *self) {
    const driver *drv = &ctx->driver;
    device_scope scope;
    if (self->stream == NULL || device_enter(ctx, self->device, &scope) != GPUIPC_OK) {
        return;
    }
    for (uint32_t i = 0; i < STAGING_SLOTS; i++) {
        detour_event_destroy(drv, self->done[i]);
    }
    detour_stream_destroy(drv, self->stream);
    device_leave(&scope);
}

/* Whether its stream is through in time with what it has: it may be behind one that waits for another process. */
static bool is_through(context *ctx, const half *self, os_deadline deadline) {
    unsigned pause = 0;
    device_scope scope;
    CUresult result;
    if (self->stream == NULL) {
        return true;
    }
    if (device_enter(ctx, self->device, &scope) != GPUIPC_OK) {
        return false;
    }
    while ((result = ctx->driver.cuStreamQuery(self->stream)) == CUDA_ERROR_NOT_READY &&
           !os_deadline_passed(deadline)) {
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
    device_leave(&scope);
    return result != CUDA_ERROR_NOT_READY;
}

/* Freeing waits for all streams, so it would wait for another process with one that does. */
static void slots_release(context *ctx, const staging_ring *self) {
    device_scope scope;
    if (self->slots == NULL || !deferred_free_begins()) {
        return;
    }
    if (device_enter(ctx, self->reader.device, &scope) == GPUIPC_OK) {
        (void)ctx->driver.cuMemFreeHost(self->slots);
        device_leave(&scope);
    }
    deferred_free_ends();
}

/* Slots that a copy may still use are left to the end of the process; streams end when they are through. */
static void ring_destroy(context *ctx, staging_ring *self, os_deadline deadline, bool forked) {
    if (!forked) {
        if (is_through(ctx, &self->reader, deadline) && is_through(ctx, &self->writer, deadline)) {
            slots_release(ctx, self);
        }
        half_end(ctx, &self->reader);
        half_end(ctx, &self->writer);
    }
    free(self);
}

static gpuipc_status slots_make(context *ctx, staging_ring *self) {
    const driver *drv = &ctx->driver;
    device_scope scope;
    void *slots = NULL;
    if (!drv->has_pinned) {
        return status_fail(GPUIPC_ERR_DRIVER_TOO_OLD,
                           "the driver has no calls for pinned host memory, which a copy between "
                           "devices without peer access needs");
    }
    gpuipc_status status = device_enter(ctx, self->reader.device, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = DRIVER_CALL(drv, cuMemHostAlloc,
                         (&slots, STAGING_SLOTS * STAGING_SLOT_BYTES, CU_MEMHOSTALLOC_PORTABLE),
                         "allocating pinned host memory for staged copies");
    device_leave(&scope);
    if (status == GPUIPC_OK) {
        self->slots = slots;
    }
    return status;
}

static gpuipc_status ring_make(context *ctx, uint32_t writer, uint32_t reader,
                               staging_ring **out_ring) {
    staging_ring *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    gpuipc_status status;
    self->reader.device = reader;
    self->writer.device = writer;
    if ((status = slots_make(ctx, self)) != GPUIPC_OK ||
        (status = half_make(ctx, &self->reader)) != GPUIPC_OK ||
        (status = half_make(ctx, &self->writer)) != GPUIPC_OK) {
        gpuipc_error why = status_save();
        ring_destroy(ctx, self, os_deadline_after(0), false); /* nothing was put on its streams */
        status_restore(&why);
        return status;
    }
    *out_ring = self;
    return GPUIPC_OK;
}

/* Whether nothing is on its streams any more; when the driver does not say: no. */
static bool is_idle(const driver *drv, const staging_ring *self) {
    return drv->cuEventQuery(self->writer.done[self->last_slot]) == CUDA_SUCCESS;
}

/* A ring between these devices, locked. The list is locked. NULL: all that there may be are busy. */
static staging_ring *find_free(context *ctx, uint32_t writer, uint32_t reader, gpuipc_stream stream,
                               uint32_t *out_count, staging_ring **out_oldest) {
    staging_ring *idle = NULL;
    *out_count = 0;
    *out_oldest = NULL;
    for (list_link *at = ctx->staging->rings.first; at != NULL; at = at->next) {
        staging_ring *ring = LIST_ITEM(at, staging_ring, link);
        if (ring->writer.device != writer || ring->reader.device != reader) {
            continue;
        }
        ++*out_count;
        *out_oldest = ring; /* new ones go to the front */
        if (!os_mutex_try_lock(&ring->mutex)) {
            continue;
        }
        if (ring->last == stream) {
            if (idle != NULL) {
                os_mutex_unlock(&idle->mutex);
            }
            return ring;
        }
        if (idle == NULL && is_idle(&ctx->driver, ring)) {
            idle = ring;
        } else {
            os_mutex_unlock(&ring->mutex);
        }
    }
    return idle;
}

static gpuipc_status ring_take(context *ctx, uint32_t writer, uint32_t reader, gpuipc_stream stream,
                               staging_ring **out_ring) {
    staging_list *list = ctx->staging;
    staging_ring *oldest;
    uint32_t count;
    gpuipc_status status = GPUIPC_OK;
    os_mutex_lock(&list->mutex);
    staging_ring *ring = find_free(ctx, writer, reader, stream, &count, &oldest);
    if (ring == NULL && count < STAGING_RINGS_MAX) {
        status = ring_make(ctx, writer, reader, &ring);
        if (status == GPUIPC_OK) {
            list_prepend(&list->rings, &ring->link);
            os_mutex_lock(&ring->mutex); /* nobody else has seen it */
        }
    }
    os_mutex_unlock(&list->mutex);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (ring == NULL) {
        ring = oldest; /* rings stay as long as the context */
        os_mutex_lock(&ring->mutex);
    }
    ring->last = stream;
    *out_ring = ring;
    return GPUIPC_OK;
}

static void end(context *ctx, bool is_forked) {
    list_link *at;
    while ((at = list_take(&ctx->staging->rings)) != NULL) {
        ring_destroy(ctx, LIST_ITEM(at, staging_ring, link), ctx->ends_by, is_forked);
    }
}

const context_part staging_part = {CONTEXT_PART(staging, staging_list), .end = end};

/* ---- copies ------------------------------------------------------------------------------- */

static gpuipc_status wait_and_copy(const driver *drv, half *self, uint32_t slot, CUevent ready,
                                   CUdeviceptr into, CUdeviceptr from, uint64_t bytes) {
    gpuipc_status status;
    /* a wait for an event that was never recorded is none (cuda.h) */
    if ((status = detour_enter(drv, ready, self->stream)) != GPUIPC_OK ||
        (status = DRIVER_CALL(drv, cuMemcpyAsync, (into, from, bytes, self->stream),
                              "copying a piece between host and device")) != GPUIPC_OK) {
        return status;
    }
    return DRIVER_CALL(drv, cuEventRecord, (self->done[slot], self->stream),
                       "marking the end of a piece");
}

/* Pieces for each slot from @p at on: by the reader into the slots, or by the writer out of them. */
static gpuipc_status put_round(const job *self, half *by, uint64_t at) {
    staging_ring *ring = self->ring;
    const bool fills = by == &ring->reader;
    device_scope scope;
    gpuipc_status status = device_enter(self->ctx, by->device, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    for (uint32_t i = 0; i < STAGING_SLOTS && at < self->bytes && status == GPUIPC_OK; i++) {
        const uint64_t left = self->bytes - at;
        const uint64_t bytes = left < self->piece ? left : self->piece;
        /* unified addressing: pinned host memory has the same address everywhere */
        const CUdeviceptr slot = (CUdeviceptr)(uintptr_t)(ring->slots + i * STAGING_SLOT_BYTES);
        status = fills ? wait_and_copy(&self->ctx->driver, by, i, ring->writer.done[i], slot,
                                       self->source + at, bytes)
                       : wait_and_copy(&self->ctx->driver, by, i, ring->reader.done[i],
                                       self->destination + at, slot, bytes);
        at += bytes;
        if (!fills) {
            ring->last_slot = i;
        }
    }
    device_leave(&scope);
    return status;
}

/* The caller's stream goes on after what is on the ring's. After a failure it is tried for both
 * sides, and there is nothing to do about a second one. */
static gpuipc_status come_back(const job *self, half *from, gpuipc_stream stream) {
    return detour_return(&self->ctx->driver, from->stream, from->done[self->ring->last_slot],
                         stream);
}

static gpuipc_status put_copy(const job *self, gpuipc_stream stream) {
    const driver *drv = &self->ctx->driver;
    staging_ring *ring = self->ring;
    CUevent left;
    gpuipc_status status = detour_leave(drv, stream, &left);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = detour_enter(drv, left, ring->reader.stream);
    if (status == GPUIPC_OK) {
        status = detour_enter(drv, left, ring->writer.stream);
    }
    detour_event_destroy(drv, left);
    for (uint64_t at = 0; at < self->bytes && status == GPUIPC_OK;
         at += self->piece * STAGING_SLOTS) {
        status = put_round(self, &ring->reader, at);
        if (status == GPUIPC_OK) {
            status = put_round(self, &ring->writer, at);
        }
    }
    if (status == GPUIPC_OK) {
        status = come_back(self, &ring->writer, stream);
    }
    if (status != GPUIPC_OK) {
        gpuipc_error why = status_save();
        (void)come_back(self, &ring->reader, stream);
        (void)come_back(self, &ring->writer, stream);
        status_restore(&why);
    }
    return status;
}

gpuipc_status staging_copy(struct context *ctx, const staging_end *destination,
                           const staging_end *source, uint64_t bytes, gpuipc_stream stream) {
    job self = {.ctx = ctx,
                .destination = destination->address,
                .source = source->address,
                .bytes = bytes,
                .piece = staging_piece_bytes(bytes)};
    gpuipc_status status = ring_take(ctx, destination->device, source->device, stream, &self.ring);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = put_copy(&self, stream);
    os_mutex_unlock(&self.ring->mutex);
    return status;
}

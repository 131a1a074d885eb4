/* SPDX-License-Identifier: MIT */
/** @file Contents on a ring: what is put on the streams of one side. See contents_ring.h. */
#include <stdlib.h>
#include <string.h>

#include "contents/contents_lane.h"
#include "copy/detour.h"
#include "sync/point_wait.h"
#include "sync/watch.h"

/* The contents of one call. */
typedef struct work {
    contents_ring *ring;
    contents_lane *lane;
    const contents_flow *flow;
    context *ctx;
    const driver *drv;
    uint64_t first;     /* piece */
    uint64_t end;       /* behind the last one */
    uint64_t piece;     /* bytes */
    bool by_stream;     /* streams wait for words; else this call does */
    point_word passage; /* of the stream that waits, and all others; no page: none */
} work;

/* All of one size: two stages that are equally fast take as long as the sum and the largest piece, in whatever
 * order they come. Measured on two H200s (driver 580), 256 MiB, in parts of the slower direction alone: 0.93;
 * with a ramp at both ends 0.92, also of 4 MiB pieces; with two streams that copy in turn 0.90, in 4 MiB
 * pieces 0.86. */
uint64_t contents_piece_count(uint64_t bytes) {
    const uint64_t piece = staging_piece_bytes(bytes);
    return bytes / piece + (bytes % piece != 0);
}

/* What a side waits for, or tells, of a piece: that the sender has filled its slot, or the receiver
 * emptied it. */
static point_word filled(const contents_ring *ring, uint64_t n) {
    return (point_word){ring->words, CONTENTS_FILLED(n % STAGING_SLOTS), n + 1};
}

static point_word emptied(const contents_ring *ring, uint64_t n) {
    return (point_word){ring->words, CONTENTS_EMPTIED(n % STAGING_SLOTS), n + 1};
}

static point_word awaited(const contents_ring *ring, uint64_t n) {
    return ring->sends ? emptied(ring, n) : filled(ring, n);
}

static point_word told(const contents_ring *ring, uint64_t n) {
    return ring->sends ? filled(ring, n) : emptied(ring, n);
}

/* The first of the last pieces, one for each slot: what is waited for last and told last. */
static uint64_t first_of_last(uint64_t first, uint64_t end) {
    return end - first < STAGING_SLOTS ? first : end - STAGING_SLOTS;
}

/* ---- words -------------------------------------------------------------------------------- */

/* The streams pass the flow's own passage, and are looked after until then: none for each word. */
static gpuipc_status await_word(const work *self, CUstream stream, const point_word *word) {
    return self->by_stream ? point_submit_waits(self->ctx, word, 1, stream, &POINT_PASSED, false)
                           : point_await(word, 1, self->flow->interrupted, os_deadline_after(-1));
}

/* In the device's primary context. */
static gpuipc_status tell(contents_ring *ring, const point_word *word, CUstream stream) {
    point_word passage;
    gpuipc_status status = point_write_async(word, 1, stream, &passage);
    if (status == GPUIPC_OK) {
        contents_pace_add(&ring->pace, &passage);
    }
    return status;
}

void contents_tell_end(contents_ring *self, uint64_t end, uint64_t count) {
    device_scope scope;
    const bool has_stream =
        self->last != NULL && device_enter(self->context, self->last->device, &scope) == GPUIPC_OK;
    for (uint64_t n = first_of_last(end - count, end); n < end; n++) {
        const point_word word = told(self, n);
        if (!has_stream || tell(self, &word, self->last->copies) != GPUIPC_OK) {
            point_store(&word);
        }
    }
    if (has_stream) {
        device_leave(&scope);
    }
}

/* ---- pieces ------------------------------------------------------------------------------- */

static gpuipc_status after(const work *self, CUstream later, CUstream earlier, CUevent marker) {
    return detour_return(self->drv, earlier, marker, later);
}

/* A piece that both ends have in host memory. */
typedef struct host_copy {
    void *into;
    const void *from;
    size_t bytes;
} host_copy;

static void copy_on_host(void *data) {
    host_copy *self = data;
    memcpy(self->into, self->from, self->bytes);
    free(self);
}

/* Not by cuMemcpyAsync: between two places of host memory it waits for the stream (CUDA Driver API, "API
 * synchronization behavior"), which waits for the peer. */
static gpuipc_status copy_by_host(const work *self, void *into, const void *from, uint64_t bytes) {
    host_copy *copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        return status_out_of_memory(sizeof(*copy));
    }
    *copy = (host_copy){into, from, (size_t)bytes};
    gpuipc_status status =
        DRIVER_CALL(self->drv, cuLaunchHostFunc, (self->lane->copies, copy_on_host, copy),
                    "copying a piece between two places of host memory");
    if (status != GPUIPC_OK) {
        free(copy);
    }
    return status;
}

static gpuipc_status copy_piece(const work *self, uint64_t n) {
    const bool sends = self->ring->sends;
    const uint64_t at = (n - self->first) * self->piece;
    const uint64_t left = self->flow->bytes - at;
    const uint64_t bytes = left < self->piece ? left : self->piece;
    uint8_t *slot = (uint8_t *)self->ring->slots + n % STAGING_SLOTS * STAGING_SLOT_BYTES;
    if (self->flow->host != NULL) {
        uint8_t *place = self->flow->host + at;
        return copy_by_host(self, sends ? slot : place, sends ? place : slot, bytes);
    }
    const CUdeviceptr host = (CUdeviceptr)(uintptr_t)slot;
    const CUdeviceptr place = self->flow->address + at;
    return DRIVER_CALL(self->drv, cuMemcpyAsync,
                       (sends ? host : place, sends ? place : host, bytes, self->lane->copies),
                       "copying a piece between host and device");
}

static gpuipc_status wait_for_slot(const work *self, uint64_t n) {
    const contents_lane *lane = self->lane;
    const bool sends = self->ring->sends;
    if (sends && n < STAGING_SLOTS) {
        return GPUIPC_OK; /* it was never filled */
    }
    const point_word word = sends ? emptied(self->ring, n - STAGING_SLOTS) : filled(self->ring, n);
    if (n == self->first) {
        return await_word(self, lane->copies, &word);
    }
    gpuipc_status status = await_word(self, lane->waits, &word);
    return status == GPUIPC_OK && self->by_stream
               ? after(self, lane->copies, lane->waits, lane->came[n % STAGING_SLOTS])
               : status;
}

/* Of the first piece and the last the words are on the stream that copies: there nobody gains by another
 * stream, and from one to another it takes 5 us. */
static gpuipc_status put_piece(const work *self, uint64_t n) {
    const contents_lane *lane = self->lane;
    const uint32_t slot = (uint32_t)(n % STAGING_SLOTS);
    const bool is_last = n + 1 == self->end;
    const point_word word = told(self->ring, n);
    gpuipc_status status;
    const contents_flow *flow = self->flow;
    if ((status = contents_pace_await(&self->ring->pace, 1, flow->interrupted, flow->deadline)) !=
            GPUIPC_OK ||
        (status = wait_for_slot(self, n)) != GPUIPC_OK ||
        (status = copy_piece(self, n)) != GPUIPC_OK) {
        return status;
    }
    status = is_last ? after(self, lane->copies, lane->signals, lane->end)
                     : after(self, lane->signals, lane->copies, lane->done[slot]);
    if (status != GPUIPC_OK) {
        return status;
    }
    return is_last && self->by_stream /* the flow's own passage comes soon behind it */
               ? point_submit_writes(self->ctx, &word, 1, lane->copies, &POINT_PASSED)
               : tell(self->ring, &word, is_last ? lane->copies : lane->signals);
}

/* The sender's stream passes when the receiver has all of it. */
static gpuipc_status await_end(const work *self) {
    gpuipc_status status = GPUIPC_OK;
    for (uint64_t n = first_of_last(self->first, self->end);
         n < self->end && self->ring->sends && status == GPUIPC_OK; n++) {
        const point_word word = emptied(self->ring, n);
        status = await_word(self, self->lane->copies, &word);
    }
    return status;
}

/* ---- the whole ---------------------------------------------------------------------------- */

/* From here on the streams that wait are let go when the peer ends. */
static gpuipc_status begin_watch(work *self) {
    const point_waiter by = {.context = self->ctx, .of = self->flow->lost};
    point_word words[STAGING_SLOTS];
    size_t count = 0;
    for (uint64_t n = first_of_last(self->first, self->end); n < self->end; n++) {
        words[count++] = awaited(self->ring, n);
    }
    return point_wait_begin(&by, self->ring->words, words, count, &self->passage);
}

/* When the stream that copies comes here, all three have passed. Once: written twice, it might be another's by then. */
static gpuipc_status end_watch(work *self) {
    if (self->passage.page == NULL) {
        return GPUIPC_OK;
    }
    gpuipc_status status =
        point_submit_writes(self->ctx, &self->passage, 1, self->lane->copies, &POINT_PASSED);
    if (status == GPUIPC_OK) {
        contents_pace_add(&self->ring->pace, &self->passage);
        self->passage = POINT_PASSED;
    }
    return status;
}

/* What came before may be on another device's streams. */
static gpuipc_status begin_lane(const work *self) {
    const contents_lane *lane = self->lane;
    const contents_lane *last = self->ring->last;
    gpuipc_status status = detour_enter(self->drv, self->flow->left, lane->copies);
    if (status != GPUIPC_OK || last == NULL || last == lane) {
        return status;
    }
    if ((status = detour_enter(self->drv, last->end, lane->copies)) != GPUIPC_OK ||
        (status = detour_enter(self->drv, last->end, lane->waits)) != GPUIPC_OK) {
        return status;
    }
    return detour_enter(self->drv, last->end, lane->signals);
}

/* When the caller's stream has passed, nothing is left on the lane's. */
static gpuipc_status come_back(const work *self) {
    return detour_return(self->drv, self->lane->copies, self->lane->end, self->flow->stream);
}

/* In the device's primary context. */
static gpuipc_status put_all(work *self) {
    gpuipc_status status = begin_lane(self);
    self->ring->last = self->lane;
    for (uint64_t n = self->first; n < self->end && status == GPUIPC_OK; n++) {
        status = put_piece(self, n);
    }
    if (status == GPUIPC_OK && (status = await_end(self)) == GPUIPC_OK &&
        (status = end_watch(self)) == GPUIPC_OK) {
        status = come_back(self);
    }
    return status;
}

/* Not all of it is on the streams: the peer goes on all the same. */
static void give_up(const work *self) {
    contents_ring *ring = self->ring;
    const gpuipc_error why = status_save();
    const point_word any = {ring->words, CONTENTS_FAILED, 1};
    const point_word failed = {ring->words, CONTENTS_FAILED, self->first + 1};
    if (ring->sends && !point_is_reached(&any)) {
        point_store(&failed);
    }
    if (self->flow->lost != NULL) {
        atomic_store(&self->flow->lost->is_lost, true);
    }
    contents_tell_end(ring, self->end, self->end - self->first);
    status_restore(&why);
}

/* The streams, and the caller's, go on. Where that fails as well, the words stay mapped for ever. */
static void let_go(work *self) {
    const contents_lane *lane = self->lane;
    const gpuipc_error why = status_save();
    (void)after(self, lane->copies, lane->waits, lane->came[0]);
    (void)after(self, lane->copies, lane->signals, lane->end);
    (void)end_watch(self);
    (void)come_back(self);
    status_restore(&why);
}

gpuipc_status contents_ring_await_room(const contents_ring *self, uint64_t bytes,
                                       const atomic_bool *interrupted, os_deadline deadline) {
    return contents_pace_await(&self->pace, contents_piece_count(bytes), interrupted, deadline);
}

gpuipc_status contents_ring_leave(const contents_ring *self, contents_flow *flow) {
    context *ctx = self->context;
    device_scope scope;
    if (flow->host != NULL && !ctx->driver.has_hostfunc) {
        return status_fail(GPUIPC_ERR_DRIVER_TOO_OLD,
                           "the driver has no host functions, which contents that lie in host "
                           "memory need");
    }
    gpuipc_status status = device_enter_stream(ctx, flow->stream, flow->device, &scope);
    if (status == GPUIPC_OK) {
        status = detour_leave(&ctx->driver, flow->stream, &flow->left);
        device_leave(&scope);
    }
    return status;
}

void contents_ring_stay(const contents_ring *self, const contents_flow *flow) {
    const gpuipc_error why = status_save();
    detour_event_destroy(&self->context->driver, flow->left);
    status_restore(&why);
}

gpuipc_status contents_ring_put(contents_ring *ring, const contents_flow *flow) {
    context *ctx = ring->context;
    work self = {.ring = ring,
                 .lane = ring->lanes[flow->device],
                 .flow = flow,
                 .ctx = ctx,
                 .drv = &ctx->driver,
                 .first = ring->next,
                 .end = ring->next + contents_piece_count(flow->bytes),
                 .piece = staging_piece_bytes(flow->bytes)};
    device_scope scope;
    CUdeviceptr words; /* where they are: what can fail of it does before anything waits */
    ring->next = self.end;
    gpuipc_status status = device_enter(ctx, flow->device, &scope);
    if (status != GPUIPC_OK) {
        goto stay;
    }
    self.by_stream = point_has_stream_waits(ctx);
    if (self.by_stream && (status = point_page_address(ring->words, &words)) == GPUIPC_OK) {
        status = begin_watch(&self);
    }
    if (status == GPUIPC_OK) {
        status = put_all(&self);
    }
    if (status != GPUIPC_OK) {
        let_go(&self);
    }
    device_leave(&scope);
stay:
    contents_ring_stay(ring, flow);
    if (status != GPUIPC_OK) {
        give_up(&self);
    }
    return status;
}

void contents_ring_skip(contents_ring *self, uint64_t bytes) {
    const uint64_t count = contents_piece_count(bytes);
    self->next += count;
    contents_tell_end(self, self->next, count);
}

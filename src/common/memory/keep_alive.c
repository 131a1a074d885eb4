/* SPDX-License-Identifier: MIT */
/** @file See keep_alive.h. No call of the driver here needs a CUDA context. */
#include "memory/keep_alive.h"

#include <stdlib.h>

#include "cuda/context.h"

/* Not the cost of a failure at each hand-over. */
#define AGAIN_NS UINT64_C(1000000000)
#define NEVER    UINT64_MAX

static gpuipc_status begin(context *ctx) {
    keep_alive *self = ctx->keep_alive;
    self->is_wanted = (ctx->config.flags & GPUIPC_CONTEXT_NO_KEEP_ALIVE) == 0;
    self->exported = SEGMENT_NONE;
    return GPUIPC_OK;
}

static void end_peer(context *ctx, keep_alive_peer *self) {
    mapping_destroy(&ctx->driver, &self->mapping);
    segment_release(&ctx->driver, &self->memory, false);
}

static void end(context *ctx, bool is_forked) {
    keep_alive *self = ctx->keep_alive;
    const size_t pairs = (size_t)ctx->device_count * ctx->device_count;
    if (!is_forked) {
        for (size_t i = 0; self->peers != NULL && i < pairs; i++) {
            end_peer(ctx, &self->peers[i]);
        }
        segment_release(&ctx->driver, &self->exported, false);
    }
    free(self->peers);
}

const context_part keep_alive_part = {CONTEXT_PART(keep_alive, keep_alive), .begin = begin,
                                      .end = end};

/* One granule of a device. */
static gpuipc_status allocate(context *ctx, uint32_t index, segment *out_segment) {
    const device *owner = &ctx->devices[index];
    CUmemAllocationProp prop;
    gpuipc_status status = device_allocation_prop(owner, &prop);
    return status == GPUIPC_OK
               ? segment_create(&ctx->driver, &prop, owner->info.granularity_bytes, out_segment)
               : status;
}

static gpuipc_status make_exported(context *ctx, uint32_t index, segment *out_segment) {
    segment made = SEGMENT_NONE;
    gpuipc_status status = allocate(ctx, index, &made);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = segment_export(&ctx->driver, &made, &made.kept);
    if (status != GPUIPC_OK) {
        segment_release(&ctx->driver, &made, false);
        return status;
    }
    *out_segment = made;
    return GPUIPC_OK;
}

/* Access for the other device alone: it is the link from there that is to stay (measured on H200s, driver 580:
 * memory of the owner with access for the other keeps it as well as imported memory does). */
static gpuipc_status make_peer(context *ctx, uint32_t owner, uint32_t index,
                               keep_alive_peer *out_peer) {
    keep_alive_peer made = {.memory = SEGMENT_NONE};
    gpuipc_status status = allocate(ctx, owner, &made.memory);
    if (status != GPUIPC_OK) {
        return status;
    }
    if ((status = mapping_create(&ctx->driver, &made.memory, 1, &made.mapping)) != GPUIPC_OK ||
        (status = mapping_set_access(&ctx->driver, &made.mapping, ctx->devices[index].ordinal,
                                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) != GPUIPC_OK) {
        end_peer(ctx, &made);
        return status;
    }
    out_peer->memory = made.memory;
    out_peer->mapping = made.mapping;
    return GPUIPC_OK;
}

static bool is_due(keep_alive_try *next) {
    const uint64_t at = atomic_load(next);
    return at != NEVER && (at == 0 || os_clock_ns() >= at);
}

/* What was short may be there again. @return whether it is to be told: the first failure is */
static bool is_told(keep_alive_try *next, gpuipc_status status) {
    const bool is_first = atomic_load(next) == 0;
    const bool may_change =
        status == GPUIPC_ERR_OUT_OF_DEVICE_MEMORY || status == GPUIPC_ERR_TOO_MANY_HANDLES;
    atomic_store(next, may_change ? os_clock_ns() + AGAIN_NS : NEVER);
    return status != GPUIPC_OK && is_first;
}

void keep_alive_for_export(struct context *ctx, uint32_t index) {
    keep_alive *self = ctx->keep_alive;
    bool told = false;
    if (!self->is_wanted || index == GPUIPC_DEVICE_NONE || !is_due(&self->next_export)) {
        return;
    }
    const gpuipc_error before = status_save();
    os_mutex_lock(&self->mutex);
    if (is_due(&self->next_export)) {
        told = is_told(&self->next_export, make_exported(ctx, index, &self->exported));
    }
    os_mutex_unlock(&self->mutex);
    const gpuipc_error why = status_save();
    status_restore(&before);
    if (told) { /* without the mutex: who hears it may call the library */
        context_log(
            ctx, GPUIPC_LOG_INFO,
            "no handle of memory is kept alive, so sending a buffer may take 0.5 ms longer: %s: %s",
            why.native_call, why.sentence);
    }
}

/* The mutex is held. Without memory there is none now, and the next one asks again. */
static keep_alive_peer *find_peer(context *ctx, uint32_t owner, uint32_t index) {
    keep_alive *self = ctx->keep_alive;
    const size_t pairs = (size_t)ctx->device_count * ctx->device_count;
    if (self->peers == NULL) {
        self->peers = calloc(pairs, sizeof(*self->peers));
        for (size_t i = 0; self->peers != NULL && i < pairs; i++) {
            atomic_init(&self->peers[i].next, 0);
            self->peers[i].memory = SEGMENT_NONE;
        }
        atomic_store(&self->has_peers, self->peers != NULL);
    }
    return self->peers == NULL ? NULL : &self->peers[owner * ctx->device_count + index];
}

static bool is_peer_due(context *ctx, uint32_t owner, uint32_t index) {
    keep_alive *self = ctx->keep_alive;
    return !atomic_load(&self->has_peers) ||
           is_due(&self->peers[owner * ctx->device_count + index].next);
}

void keep_alive_for_peer(struct context *ctx, uint32_t owner, uint32_t index) {
    keep_alive *self = ctx->keep_alive;
    bool told = false;
    if (!self->is_wanted || owner == GPUIPC_DEVICE_NONE || index == GPUIPC_DEVICE_NONE ||
        owner == index || !is_peer_due(ctx, owner, index)) {
        return;
    }
    const gpuipc_error before = status_save();
    os_mutex_lock(&self->mutex);
    keep_alive_peer *peer = find_peer(ctx, owner, index);
    if (peer != NULL && is_due(&peer->next)) {
        told = is_told(&peer->next, make_peer(ctx, owner, index, peer));
    }
    os_mutex_unlock(&self->mutex);
    const gpuipc_error why = status_save();
    status_restore(&before);
    if (told) {
        context_log(
            ctx, GPUIPC_LOG_INFO,
            "no memory of device %u is kept alive for device %u, so opening a buffer there may take "
            "1 ms longer: %s: %s",
            owner, index, why.native_call, why.sentence);
    }
}

/* SPDX-License-Identifier: MIT */
/** @file See point_spare.h. */
#include "sync/point_spare.h"

#include <string.h>

#include "cuda/context.h"

/* So many pages are looked at in turn whether their memory can be used again: more than can come meanwhile. */
#define SPARES_LOOKED 4u
/* So many are kept for that, the latest ones: each has a descriptor, and one of its process. */
#define SPARES_MAX GPUIPC_CHANNEL_READERS_MAX

/* ---- farewells ----------------------------------------------------------------------------- */

static void say_farewell(const point_page *self) {
    atomic_store_explicit(&self->words[self->farewell], POINT_FAREWELL, memory_order_release);
}

static bool has_said_farewell(const point_page *self) {
    return self->farewell != 0 && atomic_load_explicit(&self->words[self->farewell],
                                                       memory_order_acquire) == POINT_FAREWELL;
}

/* Of a page of a peer's. */
static bool owes_farewell(const point_page *self) {
    return self->opened != NULL && self->farewell != 0;
}

void point_spare_leave(const point_page *self) {
    if (owes_farewell(self)) {
        say_farewell(self);
    }
}

/* ---- what waits ---------------------------------------------------------------------------- */

/* The mutex is held. Nobody asks about its process any more, nor is it sent. */
static void forget_peer(point_page *self) {
    os_handle_close(&self->handle);
    point_peer_unreference(self->peer, false);
    self->peer = NULL;
}

/* The mutex is held. */
static void keep_spare(point_page *self) {
    linked_list *spares = &self->context->points->spares;
    if (spares->count >= SPARES_MAX) {
        forget_peer(LIST_ITEM(list_take(spares), point_page, spare));
    }
    list_append(spares, &self->spare);
}

/* A page of a reader in this process, which has no account (point_peer.h), would wait for the end of this process. */
static bool may_be_used_again(const point_page *self) {
    return self->is_lasting && !atomic_load(&self->was_captured) && self->peer->quota != NULL;
}

void point_spare_add(point_page *self) {
    if (may_be_used_again(self)) {
        keep_spare(self);
    } else {
        forget_peer(self);
    }
    if (owes_farewell(self)) {
        list_append(&self->context->points->leaving, &self->spare);
    }
}

/* ---- memory that is used again ------------------------------------------------------------- */

/* Taken from both lists, unless who would end it looks at it. The mutex is held. */
static bool claim(point_page *one) {
    if (one == NULL || !deferred_take(one->context->deferred, &one->deferred)) {
        return false;
    }
    list_remove(&one->spare);
    return true;
}

/* The next in turn. */
static point_page *claim_next(struct context *ctx, linked_list *of) {
    point_page *found = NULL;
    os_mutex_lock(&ctx->points->mutex);
    for (unsigned i = 0; i < SPARES_LOOKED && found == NULL; i++) {
        point_page *next = LIST_ITEM(list_turn(of), point_page, spare);
        found = claim(next) ? next : NULL;
    }
    os_mutex_unlock(&ctx->points->mutex);
    return found;
}

/* Processes of which no number is known are none. */
static bool is_of_process(const point_page *self, const point_peer *peer) {
    return peer->process.process_id != 0 &&
           self->peer->process.process_id == peer->process.process_id;
}

/* One that this very process has said farewell to. There are few, and to look at them takes no call. */
static point_page *claim_left_by(struct context *ctx, const point_peer *peer) {
    point_page *found = NULL;
    os_mutex_lock(&ctx->points->mutex);
    for (list_link *at = ctx->points->spares.first; at != NULL && found == NULL;) {
        point_page *one = LIST_ITEM(at, point_page, spare);
        at = at->next;
        found = is_of_process(one, peer) && has_said_farewell(one) && claim(one) ? one : NULL;
    }
    os_mutex_unlock(&ctx->points->mutex);
    return found;
}

static void put_spare_back(point_page *self) {
    context *ctx = self->context;
    os_mutex_lock(&ctx->points->mutex);
    keep_spare(self);
    deferred_put_back(ctx->deferred, &self->deferred);
    os_mutex_unlock(&ctx->points->mutex);
}

/* A living process may not have come to its last words, on its streams neither, before it says so. That binds nobody, so that
 * the page goes back to that process alone. */
static bool is_left_to(const point_page *spare, const point_peer *peer) {
    const int is_running = os_peer_is_running(&spare->peer->process);
    return is_running == 0 ||
           (is_running > 0 && is_of_process(spare, peer) && has_said_farewell(spare));
}

/* What is registered in a CUDA context that was reset is so no more. */
static bool is_free_for(point_page *spare, const point_peer *peer) {
    return is_left_to(spare, peer) && strcmp(spare->peer->process.user, peer->process.user) == 0 &&
           point_page_is_at_rest(&spare->deferred) && point_page_is_registered(spare);
}

/* With its registration. All words are 0, as those of new memory. */
static void take_over(point_page *self, point_page *from) {
    self->words = from->words;
    self->handle = from->handle;
    self->device = from->device;
    atomic_store(&self->address, atomic_load(&from->address));
    from->words = NULL;
    from->handle = OS_HANDLE_NONE;
    point_page_destroy(from, false);
    for (size_t i = 0; i < POINT_PAGE_BYTES / sizeof(*self->words); i++) {
        atomic_store_explicit(&self->words[i], 0, memory_order_relaxed);
    }
}

static bool try_take_over(point_page *self, point_page *spare) {
    if (spare == NULL) {
        return false;
    }
    if (!is_free_for(spare, self->peer)) {
        put_spare_back(spare);
        return false;
    }
    take_over(self, spare);
    return true;
}

static bool take_over_any(point_page *self) {
    context *ctx = self->context;
    bool is_done = try_take_over(self, claim_left_by(ctx, self->peer));
    for (unsigned i = 0; i < SPARES_LOOKED && !is_done; i++) {
        is_done = try_take_over(self, claim_next(ctx, &ctx->points->spares));
    }
    return is_done;
}

void point_say_farewells(struct context *ctx) {
    for (unsigned i = 0; i < SPARES_LOOKED; i++) {
        point_page *page = claim_next(ctx, &ctx->points->leaving);
        if (page == NULL) {
            return;
        }
        const bool is_over = point_page_is_at_rest(&page->deferred);
        if (is_over) {
            say_farewell(page);
            page->farewell = 0; /* the page may be another one's now */
        }
        os_mutex_lock(&ctx->points->mutex);
        if (!is_over) {
            list_append(&ctx->points->leaving, &page->spare);
        }
        deferred_put_back(ctx->deferred, &page->deferred);
        os_mutex_unlock(&ctx->points->mutex);
    }
}

gpuipc_status point_page_create_lasting(struct context *ctx, point_peer *peer, uint32_t farewell,
                                        point_page **out_page) {
    point_page *self = NULL;
    gpuipc_status status = point_page_new(ctx, peer, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    self->is_lasting = true;
    self->farewell = farewell;
    if (!take_over_any(self) && (status = point_page_make_memory(self)) != GPUIPC_OK) {
        point_page_destroy(self, false);
        return status;
    }
    *out_page = self;
    return GPUIPC_OK;
}

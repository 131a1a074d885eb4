/* SPDX-License-Identifier: MIT */
/** @file See point.h: pages and words. What streams do with them is in point_stream.c. */
#include "sync/point.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/context.h"
#include "sync/deferred.h"
#include "sync/export_record.h"
#include "sync/point_spare.h"
#include "sync/trail.h"

/* The last word but one of a page: how many of its points were given out at least once. */
#define GIVEN_WORD (POINT_COUNT * 2u)
/* The last word of a page: 1 when the receiver has taken the page in. */
#define TAKEN_WORD (POINT_COUNT * 2u + 1u)
/* What a done word is given when nothing will be opened any more: beyond every value of a point, and
 * the comparison is cyclic (cuda.h, CU_STREAM_WAIT_VALUE_GEQ), so less than half of 64 bits. */
#define POINT_RETURNED_FOR_EVER (UINT64_C(1) << 62)

/* So many pages that graphs had captured stay after their end, the latest ones: those of all readers of a channel at least,
 * which end at the same time, and whose launches may not be over. */
#define KEPT GPUIPC_CHANNEL_READERS_MAX

/* What a page costs. */
static const quota_amount of_page = {{[QUOTA_MAPPINGS] = 1, [QUOTA_ADDRESSES] = POINT_PAGE_BYTES}};

_Static_assert(sizeof(atomic_uint_least64_t) == 8, "a word has 64 bits");

/* ---- words --------------------------------------------------------------------------------- */

point_word point_ready_word(const point *at) {
    return (point_word){at->page, at->index * 2, at->value};
}

point_word point_returned_word(const point *at) {
    return (point_word){at->page, at->index * 2 + 1, at->value};
}

point_word point_released_word(const point *at) {
    return (point_word){at->page, at->index * 2 + 1, at->value + 1};
}

void point_raise(const point_word *word) {
    atomic_uint_least64_t *at = &word->page->words[word->at];
    uint64_t now = atomic_load_explicit(at, memory_order_acquire);
    while (now - word->value >= UINT64_C(1) << 63 &&
           !atomic_compare_exchange_weak_explicit(at, &now, word->value, memory_order_release,
                                                  memory_order_acquire)) {
    }
}

gpuipc_status point_words_new(size_t most, point_words *out_words) {
    point_word *words = most == 0 ? NULL : malloc(most * sizeof(*words));
    if (words == NULL && most > 0) {
        return status_out_of_memory(most * sizeof(*words));
    }
    *out_words = (point_words){.words = words};
    return GPUIPC_OK;
}

void point_words_add(point_words *self, const point_word *word) {
    point_page_reference(word->page);
    self->words[self->count++] = *word;
}

void point_words_destroy(point_words *self, bool forked) {
    for (size_t i = 0; i < self->count; i++) {
        point_page_unreference(self->words[i].page, forked);
    }
    free(self->words);
}

/* The process is looked at before the word: what it wrote before its end is there when its end is seen. */
static gpuipc_status await_one(const point_word *word, const atomic_bool *interrupted,
                               os_deadline deadline) {
    const uint64_t begun_ns = os_clock_ns();
    while (!point_is_reached(word)) {
        if (interrupted != NULL && atomic_load(interrupted)) {
            return status_fail(GPUIPC_ERR_RELEASED,
                               "the connection was closed, or the context destroyed");
        }
        if (point_page_is_abandoned(word->page) && !point_is_reached(word)) {
            return status_fail(GPUIPC_ERR_LOST,
                               "the other process ended before its work on the buffer was done");
        }
        if (os_deadline_passed(deadline)) {
            return status_fail(GPUIPC_ERR_TIMEOUT,
                               "the other process's work on the buffer was not done in time");
        }
        os_pause(begun_ns, OS_PAUSE_MS, deadline);
    }
    return GPUIPC_OK;
}

gpuipc_status point_await(const point_word *words, size_t count, const atomic_bool *interrupted,
                          os_deadline deadline) {
    gpuipc_status status = GPUIPC_OK;
    for (size_t i = 0; i < count && status == GPUIPC_OK; i++) {
        status = await_one(&words[i], interrupted, deadline);
    }
    return status;
}

/* ---- pages --------------------------------------------------------------------------------- */

void point_page_destroy(point_page *self, bool forked) {
    if (!forked) {
        point_spare_leave(self);
    }
    if (self->words != NULL) {
        os_memory_unmap(self->words, POINT_PAGE_BYTES);
    }
    if (!forked) { /* in a child it is closed already */
        os_handle_close(&self->handle);
    }
    quota_return(&self->charge);
    point_peer_unreference(self->peer, forked);
    trail_unreference(self->trail, forked);
    free(self->opened);
    free(self->loans);
    free(self);
}

/* Whoever has made it: it is there for the peer. */
gpuipc_status point_page_new(struct context *ctx, point_peer *peer, point_page **out_page) {
    point_page *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    if (peer != NULL) {
        gpuipc_status status = quota_take(peer->quota, &of_page, &self->charge);
        if (status != GPUIPC_OK) {
            free(self);
            return status;
        }
        point_peer_reference(peer);
    }
    atomic_init(&self->references, 1u);
    atomic_init(&self->is_captured, false);
    atomic_init(&self->was_captured, false);
    atomic_init(&self->is_given_up, false);
    atomic_init(&self->has_turns, false);
    self->context = ctx;
    self->peer = peer;
    self->handle = OS_HANDLE_NONE;
    self->device = GPUIPC_DEVICE_NONE;
    *out_page = self;
    return GPUIPC_OK;
}

static gpuipc_status map(point_page *self, os_handle handle) {
    void *memory;
    gpuipc_status status = os_memory_map(handle, POINT_PAGE_BYTES, true, &memory);
    if (status == GPUIPC_OK) {
        self->words = memory;
    }
    return status;
}

gpuipc_status point_page_make_memory(point_page *self) {
    gpuipc_status status = os_memory_create("gpuipc-points", POINT_PAGE_BYTES, &self->handle);
    return status == GPUIPC_OK ? map(self, self->handle) : status;
}

gpuipc_status point_page_create(struct context *ctx, point_peer *peer, point_page **out_page) {
    point_page *self = NULL;
    gpuipc_status status = point_page_new(ctx, peer, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    if ((status = point_page_make_memory(self)) != GPUIPC_OK) {
        point_page_destroy(self, false);
        return status;
    }
    if (peer == NULL) {
        os_handle_close(&self->handle);
    }
    *out_page = self;
    return GPUIPC_OK;
}

gpuipc_status point_page_open(struct context *ctx, point_peer *peer, os_handle handle,
                              point_page **out_page) {
    point_page *self = NULL; /* as gcc -O3 wants it */
    uint64_t bytes = 0;
    gpuipc_status status = os_memory_inspect(handle, &bytes);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (bytes != POINT_PAGE_BYTES) {
        return status_fail(GPUIPC_ERR_PROTOCOL, "the page of points has %" PRIu64 " bytes, not %u",
                           bytes, POINT_PAGE_BYTES);
    }
    if ((status = point_page_new(ctx, peer, &self)) != GPUIPC_OK) {
        return status;
    }
    self->opened = calloc(POINT_COUNT, sizeof(*self->opened));
    status = self->opened == NULL ? status_out_of_memory(POINT_COUNT * sizeof(*self->opened))
                                  : map(self, handle);
    if (status != GPUIPC_OK) {
        point_page_destroy(self, false);
        return status;
    }
    const point_word taken = {self, TAKEN_WORD, 1};
    point_store(&taken);
    *out_page = self;
    return GPUIPC_OK;
}

void point_page_sent(point_page *self, bool is_lifeline) {
    if (self->is_lasting) {
        return;
    }
    if (is_lifeline) {
        point_peer_keep(self->peer, LIFELINE_SENDER, &self->handle);
    } else {
        os_handle_close(&self->handle);
    }
}

void point_page_give_out(point_page *self, uint32_t count) {
    const point_word given = {self, GIVEN_WORD, count};
    point_store(&given);
}

void point_set_open(const point *at, bool is_open) {
    os_mutex *mutex = &at->page->context->points->mutex;
    os_mutex_lock(mutex);
    point_opened *known = &at->page->opened[at->index];
    if (is_open || known->value == at->value) {
        *known = (point_opened){at->value, is_open};
    }
    os_mutex_unlock(mutex);
}

static bool is_still_open(point_page *self, uint32_t index) {
    const point at = {self, index, self->opened[index].value};
    const point_word released = point_released_word(&at);
    return self->opened[index].is_open && !point_is_reached(&released);
}

/* A peer that does not say it has given out any number of them. */
static uint32_t given_count(const point_page *self) {
    const uint32_t at = GIVEN_WORD;
    const uint64_t given = atomic_load_explicit(&self->words[at], memory_order_acquire);
    return given == 0 || given > POINT_COUNT ? POINT_COUNT : (uint32_t)given;
}

/* Those that were never given out are not touched: to write all of them is to make all of the page's memory. */
void point_page_return_rest(point_page *self, bool again) {
    const uint32_t given = given_count(self);
    os_mutex_lock(&self->context->points->mutex);
    self->looked_at = again ? 0 : self->looked_at;
    for (; self->looked_at < given; self->looked_at++) {
        if (!is_still_open(self, self->looked_at)) {
            const point_word done = {self, self->looked_at * 2 + 1, POINT_RETURNED_FOR_EVER};
            point_store(&done);
        }
    }
    os_mutex_unlock(&self->context->points->mutex);
}

bool point_page_is_taken(const point_page *self) {
    const point_word taken = {(point_page *)(uintptr_t)self, TAKEN_WORD, 1};
    return point_is_reached(&taken);
}

bool point_page_is_abandoned(point_page *self) {
    if (self->peer == NULL) {
        return false; /* this process's own streams write it */
    }
    os_mutex_lock(&self->context->points->mutex);
    const bool is_abandoned =
        point_peer_is_gone(self->peer) ||
        (self->opened == NULL && !point_page_is_taken(self) && point_peer_has_closed(self->peer) &&
         !point_page_is_taken(self)); /* it may have done so meanwhile */
    os_mutex_unlock(&self->context->points->mutex);
    return is_abandoned;
}

/* ---- the end of pages ---------------------------------------------------------------------- */

void point_page_reference(point_page *self) {
    atomic_fetch_add_explicit(&self->references, 1u, memory_order_relaxed);
}

static bool is_last(point_page *self) {
    return self != NULL &&
           atomic_fetch_sub_explicit(&self->references, 1u, memory_order_acq_rel) == 1u;
}

/* A graph that is launched when it should be no more, finds the words all the same. A device that does not is lost to the
 * program. The mutex is held. */
static bool is_kept(const point_page *self) {
    return atomic_load(&self->was_captured) && !atomic_load(&self->context->is_over) &&
           self->context->points->captured_ended - self->ended_as <= KEPT;
}

void point_page_end_capture(point_page *self) {
    os_mutex *mutex = &self->context->points->mutex;
    os_mutex_lock(mutex);
    if (atomic_exchange(&self->is_captured, false)) {
        self->ended_as = self->context->points->captured_ended++;
    }
    os_mutex_unlock(mutex);
}

bool point_page_is_kept(point_page *self) {
    os_mutex *mutex = &self->context->points->mutex;
    if (!atomic_load(&self->was_captured)) {
        return false;
    }
    os_mutex_lock(mutex);
    const bool is = is_kept(self);
    os_mutex_unlock(mutex);
    return is;
}

bool point_page_is_at_rest(deferred *item) {
    point_page *self = (point_page *)item;
    os_mutex_lock(&self->context->points->mutex);
    const bool ready = passage_all_reached(self) && !is_kept(self);
    os_mutex_unlock(&self->context->points->mutex);
    return ready && (self->trail == NULL || trail_have_all_passed(self->trail, &self->seen));
}

static void end_deferred(deferred *item, bool forked) {
    point_page *self = (point_page *)item;
    if (!forked) {
        os_mutex *mutex = &self->context->points->mutex;
        os_mutex_lock(mutex);
        list_remove(&self->spare);
        os_mutex_unlock(mutex);
        point_page_unregister(self);
    }
    point_page_destroy(self, forked);
}

/* The mutex is held. To unregister memory waits for the devices. */
static void end_page(point_page *self) {
    if (self->device == GPUIPC_DEVICE_NONE && passage_all_reached(self) &&
        (self->trail == NULL || trail_is_untouched(self->trail))) {
        point_page_destroy(self, false);
    } else {
        point_spare_add(self);
        self->deferred = (deferred){
            .bytes = POINT_PAGE_BYTES, .is_ready = point_page_is_at_rest, .run = end_deferred};
        deferred_add(self->context->deferred, &self->deferred);
    }
}

void point_page_unreference_locked(point_page *self) {
    if (is_last(self)) {
        end_page(self);
    }
}

void point_page_unreference(point_page *self, bool forked) {
    if (!is_last(self)) {
        return;
    }
    if (forked) {
        point_page_destroy(self, true);
        return;
    }
    os_mutex *mutex = &self->context->points->mutex;
    os_mutex_lock(mutex);
    end_page(self);
    os_mutex_unlock(mutex);
}

/* ---- of a context -------------------------------------------------------------------------- */

static void end(context *ctx, bool is_forked) {
    export_end_all(ctx, is_forked);
    bool ended = deferred_end(ctx->deferred, ctx->ends_by, is_forked);
    if (ended) {
        passage_table_end(ctx);
        ended = deferred_end(ctx->deferred, ctx->ends_by, is_forked);
    }
    if (!ended) {
        context_log(
            ctx, GPUIPC_LOG_WARNING,
            "a stream still uses memory that was released, or waits for another process; the "
            "memory is left to the end of the process");
    }
}

const context_part point_part = {CONTEXT_PART(points, point_context), .end = end};

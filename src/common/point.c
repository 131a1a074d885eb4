/* SPDX-License-Identifier: MIT */
/** @file See point.h: pages, points and words. What streams do with them is in point_stream.c. */
#include "point.h"

#include <inttypes.h>
#include <stdlib.h>

#include "context.h"
#include "point_internal.h"
#include "ready_event.h"

/* The last word of a page: 1 when the receiver has taken the page in. */
#define TAKEN_WORD (POINT_COUNT * 2u + 1u)
/* What a done word is given when nothing will be borrowed any more: beyond every value of a point, and
 * the comparison is cyclic (cuda.h, CU_STREAM_WAIT_VALUE_GEQ), so less than half of 64 bits. */
#define POINT_RETURNED_FOR_EVER (UINT64_C(1) << 62)
/* Waiting on the host begins with looking again and again, since a word often comes at once. */
#define SPIN_NS UINT64_C(50000)
/* How many slots a taking looks at in the long run, and how many more it may at first. */
#define LOOKS_EACH  64u
#define LOOKS_AHEAD (4 * POINT_COUNT)

_Static_assert(sizeof(atomic_uint_least64_t) == 8, "a word has 64 bits");

point_word point_ready_word(const point *at) {
    return (point_word){(at->index - 1) * 2, at->value};
}

point_word point_returned_word(const point *at) {
    return (point_word){(at->index - 1) * 2 + 1, at->value};
}

point_word point_released_word(const point *at) {
    return (point_word){(at->index - 1) * 2 + 1, at->value + 1};
}

bool point_is_valid(const point *at) {
    return at->index >= 1 && at->index <= POINT_COUNT;
}

/* As a stream compares: cuda.h, CU_STREAM_WAIT_VALUE_GEQ. */
bool point_is_reached(const point_page *self, const point_word *word) {
    uint64_t now = atomic_load_explicit(&self->words[word->at], memory_order_acquire);
    return now - word->value < UINT64_C(1) << 63;
}

void point_store(point_page *self, const point_word *word) {
    atomic_store_explicit(&self->words[word->at], word->value, memory_order_release);
}

/* ---- pages --------------------------------------------------------------------------------- */

static gpuipc_status page_new(struct context *ctx, const os_peer *peer, point_page **out_page) {
    point_page *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory("point_page", sizeof(*self));
    }
    self->peer.process = OS_HANDLE_NONE;
    if (peer != NULL) {
        self->peer = *peer;
        self->peer.process = OS_HANDLE_NONE;
        gpuipc_status status = os_handle_is_valid(peer->process)
                                   ? os_handle_duplicate(peer->process, &self->peer.process)
                                   : GPUIPC_OK;
        if (status != GPUIPC_OK) {
            free(self);
            return status;
        }
    }
    atomic_init(&self->references, 1u);
    self->context = ctx;
    self->handle = OS_HANDLE_NONE;
    self->device = GPUIPC_DEVICE_NONE;
    *out_page = self;
    return GPUIPC_OK;
}

static void page_free(point_page *self, bool forked) {
    os_memory_unmap(self->words, POINT_PAGE_BYTES);
    if (!forked) { /* in a child they are closed already */
        os_handle_close(&self->handle);
        os_peer_close(&self->peer);
    }
    free(self->borrowed);
    free(self->slots);
    free(self);
}

static gpuipc_status map(point_page *self, os_handle handle) {
    void *memory;
    gpuipc_status status = os_memory_map(handle, POINT_PAGE_BYTES, true, &memory);
    if (status == GPUIPC_OK) {
        self->words = memory;
    }
    return status;
}

gpuipc_status point_page_create(struct context *ctx, const os_peer *peer, point_page **out_page) {
    point_page *self;
    gpuipc_status status = page_new(ctx, peer, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    self->slots = calloc(POINT_COUNT, sizeof(*self->slots));
    status = self->slots == NULL
                 ? status_out_of_memory("point_page", POINT_COUNT * sizeof(*self->slots))
                 : os_memory_create("gpuipc-points", POINT_PAGE_BYTES, &self->handle);
    if (status != GPUIPC_OK || (status = map(self, self->handle)) != GPUIPC_OK) {
        page_free(self, false);
        return status;
    }
    if (peer == NULL) {
        os_handle_close(&self->handle);
    }
    *out_page = self;
    return GPUIPC_OK;
}

gpuipc_status point_page_open(struct context *ctx, const os_peer *peer, os_handle handle,
                              point_page **out_page) {
    point_page *self;
    uint64_t bytes = 0;
    gpuipc_status status = os_memory_inspect(handle, &bytes);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (bytes != POINT_PAGE_BYTES) {
        return status_fail(GPUIPC_ERR_PROTOCOL, "point_page_open",
                           "the page of points has %" PRIu64 " bytes, not %u", bytes,
                           POINT_PAGE_BYTES);
    }
    if ((status = page_new(ctx, peer, &self)) != GPUIPC_OK) {
        return status;
    }
    self->borrowed = calloc(POINT_COUNT, sizeof(*self->borrowed));
    status = self->borrowed == NULL ? status_out_of_memory("point_page", POINT_COUNT)
                                    : map(self, handle);
    if (status != GPUIPC_OK) {
        page_free(self, false);
        return status;
    }
    const point_word taken = {TAKEN_WORD, 1};
    point_store(self, &taken);
    *out_page = self;
    return GPUIPC_OK;
}

struct context *point_page_context(const point_page *self) {
    return self->context;
}

const os_peer *point_page_peer(const point_page *self) {
    return &self->peer;
}

os_handle point_page_handle(const point_page *self) {
    return self->handle;
}

void point_page_sent(point_page *self) {
    os_handle_close(&self->handle);
}

void point_page_set_connection(point_page *self, os_connection *connection) {
    os_mutex_lock(&self->context->points.mutex);
    self->connection = connection;
    os_mutex_unlock(&self->context->points.mutex);
}

void point_page_return_rest(point_page *self) {
    os_mutex_lock(&self->context->points.mutex);
    for (uint32_t i = 0; i < POINT_COUNT; i++) {
        if (self->borrowed[i] == 0) {
            atomic_store_explicit(&self->words[i * 2 + 1], POINT_RETURNED_FOR_EVER,
                                  memory_order_release);
        }
    }
    os_mutex_unlock(&self->context->points.mutex);
}

/* Whether it is on its way to a process that has closed the connection: what was not read is not read any
 * more, and whoever has not got the page cannot write there. */
static bool is_stranded(point_page *self) {
    const point_word taken = {TAKEN_WORD, 1};
    if (!self->is_stranded && self->slots != NULL && self->connection != NULL &&
        !point_is_reached(self, &taken) && os_connection_has_ended(self->connection)) {
        self->is_stranded = !point_is_reached(self, &taken);
    }
    return self->is_stranded;
}

bool point_page_is_known_gone(const point_page *self) {
    return self->is_gone;
}

bool point_page_peer_is_gone_locked(point_page *self) {
    if (self->is_gone) {
        return true;
    }
    const int running = os_peer_is_running(&self->peer);
    self->is_gone = running == 0 || is_stranded(self);
    return self->is_gone ||
           (running < 0 && (self->connection == NULL || os_connection_has_ended(self->connection)));
}

bool point_page_peer_is_gone(point_page *self) {
    os_mutex_lock(&self->context->points.mutex);
    bool gone = point_page_peer_is_gone_locked(self);
    os_mutex_unlock(&self->context->points.mutex);
    return gone;
}

/* ---- the end of pages ---------------------------------------------------------------------- */

/* Whether no stream can touch it any more. The mutex is held. */
static bool is_idle(const point_page *self) {
    const point_page *own = self->context->points.own;
    for (uint32_t i = 0; own != NULL && i < POINT_COUNT; i++) {
        const point_word passage = {i * 2, own->slots[i].value};
        if (own->slots[i].of == self && !point_is_reached(own, &passage)) {
            return false;
        }
    }
    return true;
}

void point_page_reference(point_page *self) {
    atomic_fetch_add_explicit(&self->references, 1u, memory_order_relaxed);
}

static bool is_last(point_page *self) {
    return self != NULL &&
           atomic_fetch_sub_explicit(&self->references, 1u, memory_order_acq_rel) == 1u;
}

static bool is_ready(deferred *item) {
    const point_page *self = (point_page *)item;
    os_mutex_lock(&self->context->points.mutex);
    const bool ready = is_idle(self);
    os_mutex_unlock(&self->context->points.mutex);
    return ready;
}

static void end_deferred(deferred *item, bool forked) {
    point_page *self = (point_page *)item;
    if (!forked) {
        point_page_unregister(self);
    }
    page_free(self, forked);
}

/* The mutex is held. To unregister memory waits for the devices. */
static void end_page(point_page *self) {
    point_page_forget(self);
    if (self->device == GPUIPC_DEVICE_NONE && is_idle(self)) {
        page_free(self, false);
    } else {
        self->deferred =
            (deferred){.bytes = POINT_PAGE_BYTES, .is_ready = is_ready, .run = end_deferred};
        deferred_add(&self->context->deferred, &self->deferred);
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
        page_free(self, true);
        return;
    }
    os_mutex *mutex = &self->context->points.mutex;
    os_mutex_lock(mutex);
    end_page(self);
    os_mutex_unlock(mutex);
}

gpuipc_status point_context_init(point_context *self) {
    *self = (point_context){0};
    return os_mutex_init(&self->mutex);
}

/* Whether the streams that were told to write or to wait for a word have come to it. */
static bool have_all_passed(deferred *item) {
    const point_page *own = (point_page *)item;
    for (uint32_t i = 0; i < POINT_COUNT; i++) {
        const point_word passage = {i * 2, own->slots[i].value};
        if (!point_is_reached(own, &passage)) {
            return false;
        }
    }
    return true;
}

bool point_context_end(struct context *ctx, os_deadline deadline, bool forked) {
    point_context *self = &ctx->points;
    ready_event_end(ctx, forked);
    bool ended = deferred_end(&ctx->deferred, deadline, forked);
    if (self->own != NULL && ended) {
        self->own->deferred = (deferred){.is_ready = have_all_passed, .run = end_deferred};
        deferred_add(&ctx->deferred, &self->own->deferred);
        ended = deferred_end(&ctx->deferred, deadline, forked);
    }
    if (!forked) { /* else another thread may have had it */
        os_mutex_destroy(&self->mutex);
    }
    return ended;
}

/* ---- points -------------------------------------------------------------------------------- */

bool point_slot_take(point_page *self, bool (*is_free)(const point_page *self, uint32_t index),
                     uint32_t *out_index) {
    const uint32_t ahead = LOOKS_AHEAD - self->spent;
    const uint32_t most = ahead < POINT_COUNT ? LOOKS_EACH : POINT_COUNT;
    uint32_t looks = 0;
    bool found = false;
    while (looks < most && !found) {
        const uint32_t index = self->next;
        self->next = (index + 1) % POINT_COUNT;
        looks++;
        if (is_free(self, index)) {
            *out_index = index;
            found = true;
        }
    }
    self->spent += looks;
    self->spent -= self->spent < LOOKS_EACH ? self->spent : LOOKS_EACH;
    return found;
}

/* The ready word must have been written as well: a stream that writes it later would put the value of
 * one hand-over over that of the next. */
static bool is_free_point(const point_page *self, uint32_t index) {
    const point_slot *slot = &self->slots[index];
    const point last = {index + 1, slot->value};
    const point_word released = point_released_word(&last);
    return slot->value == 0 || (point_is_reached(self, &released) &&
                                (slot->passage.value == 0 ||
                                 point_is_reached(self->context->points.own, &slot->passage)));
}

bool point_take(point_page *self, point *out_point) {
    uint32_t index = 0;
    os_mutex_lock(&self->context->points.mutex);
    bool found = point_slot_take(self, is_free_point, &index);
    if (found) {
        point_slot *slot = &self->slots[index];
        slot->value += 2;
        slot->passage = POINT_PASSED;
        *out_point = (point){index + 1, slot->value};
    }
    os_mutex_unlock(&self->context->points.mutex);
    return found;
}

void point_set_passage(point_page *self, const point *at, const point_word *passage) {
    os_mutex_lock(&self->context->points.mutex);
    self->slots[at->index - 1].passage = *passage;
    os_mutex_unlock(&self->context->points.mutex);
}

void point_borrow(point_page *self, const point *at, bool comes) {
    os_mutex_lock(&self->context->points.mutex);
    self->borrowed[at->index - 1] = comes ? 1 : 0;
    os_mutex_unlock(&self->context->points.mutex);
}

gpuipc_status point_await(point_page *self, const point_word *word, const atomic_bool *interrupted,
                          os_deadline deadline, const char *operation) {
    const uint64_t begun = os_clock_ns();
    unsigned pause = 0;
    while (!point_is_reached(self, word)) {
        if (interrupted != NULL && atomic_load(interrupted)) {
            return status_fail(GPUIPC_ERR_RELEASED, operation,
                               "the connection was closed meanwhile");
        }
        if (point_page_peer_is_gone(self) && !point_is_reached(self, word)) {
            return status_fail(GPUIPC_ERR_LOST, operation,
                               "the other process ended before its work on the buffer was done");
        }
        if (os_deadline_passed(deadline)) {
            return status_fail(GPUIPC_ERR_TIMEOUT, operation,
                               "the other process's work on the buffer was not done in time");
        }
        if (os_clock_ns() - begun > SPIN_NS) {
            os_sleep_ms(os_backoff_next(&pause, deadline));
        }
    }
    return GPUIPC_OK;
}

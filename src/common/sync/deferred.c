/* SPDX-License-Identifier: MIT */
/** @file See deferred.h. */
#include "sync/deferred.h"

#include "cuda/context.h"
#include "sync/drop.h"
#include "sync/export_record.h"
#include "sync/watch.h"

/* So much may be kept before the end of a connection waits for the devices. */
#define MANY_ITEMS 64u
#define MANY_BYTES (UINT64_C(64) << 20)
/* A call that adds one or two looks at so many at most: more than it adds. */
#define SOME 32u

/* Of the process. A child has none of its parent's streams. */
static struct {
    os_static_mutex mutex; /* guards the lists as well; nothing else is locked under it */
    uint32_t fork_generation;
    size_t waits;  /* of streams for other processes */
    size_t coming; /* that are about to begin, when no memory is freed any more */
    size_t frees;  /* that are going on: never while there are waits */
} all;

static void lock(void) {
    os_static_mutex_lock(&all.mutex);
    if (all.fork_generation != os_fork_generation()) {
        all.fork_generation = os_fork_generation();
        all.waits = 0;
        all.coming = 0;
        all.frees = 0;
    }
}

static void unlock(void) {
    os_static_mutex_unlock(&all.mutex);
}

/* Rarely does one go on, and not for long; and none begins meanwhile. */
void deferred_wait_begins(void) {
    unsigned pause = 0;
    lock();
    all.coming++;
    while (all.frees > 0) {
        unlock();
        os_sleep_ms(os_backoff_next(&pause, os_deadline_after(-1)));
        lock();
    }
    all.coming--;
    all.waits++;
    unlock();
}

void deferred_wait_ends(void) {
    lock();
    all.waits--;
    unlock();
}

bool deferred_is_quiet(void) {
    lock();
    const bool is_quiet = all.waits + all.coming == 0;
    unlock();
    return is_quiet;
}

bool deferred_free_begins(void) {
    lock();
    const bool may = all.waits + all.coming == 0;
    all.frees += may;
    unlock();
    return may;
}

void deferred_free_ends(void) {
    lock();
    all.frees--;
    unlock();
}

static void put(deferred_list *self, deferred *item, bool is_new) {
    os_static_mutex_lock(&all.mutex);
    list_append(item->is_ready == NULL ? &self->ready : &self->in_use, &item->link);
    self->bytes += item->bytes;
    self->additions += is_new;
    os_static_mutex_unlock(&all.mutex);
}

void deferred_add(deferred_list *self, deferred *item) {
    put(self, item, true);
}

bool deferred_take(deferred_list *self, deferred *item) {
    os_static_mutex_lock(&all.mutex);
    const bool is_there =
        list_has(&self->ready, &item->link) || list_has(&self->in_use, &item->link);
    if (is_there) {
        list_remove(&item->link);
        self->bytes -= item->bytes;
    }
    os_static_mutex_unlock(&all.mutex);
    return is_there;
}

void deferred_put_back(deferred_list *self, deferred *item) {
    put(self, item, false);
}

static deferred *take(deferred_list *self, linked_list *from) {
    os_static_mutex_lock(&all.mutex);
    deferred *first = LIST_ITEM(list_take(from), deferred, link);
    self->bytes -= first == NULL ? 0 : first->bytes;
    os_static_mutex_unlock(&all.mutex);
    return first;
}

static size_t count(const linked_list *of) {
    os_static_mutex_lock(&all.mutex);
    const size_t now = of->count;
    os_static_mutex_unlock(&all.mutex);
    return now;
}

/* @return whether it was ready, and is over */
static bool run_one(deferred *item) {
    const bool is_ready = item->is_ready == NULL || item->is_ready(item);
    if (is_ready) {
        item->run(item, false);
    }
    return is_ready;
}

/* Each is asked and run without a lock, while no stream waits, nor begins to before it is done: one that began to wait
 * meanwhile keeps the rest, at which nobody looks. @return how many were over */
static size_t run_from(deferred_list *self, linked_list *from, size_t most) {
    size_t over = 0;
    const size_t now = count(from);
    for (size_t left = now < most ? now : most; left > 0 && deferred_free_begins(); left--) {
        deferred *item = take(self, from); /* NULL: another thread has it */
        const bool is_over = item != NULL && run_one(item);
        deferred_free_ends();
        if (item != NULL && !is_over) {
            put(self, item, false);
        }
        over += is_over;
    }
    return over;
}

static bool run_once(deferred_list *self, size_t most) {
    const size_t over = run_from(self, &self->ready, most);
    return run_from(self, &self->in_use, most - over) + over > 0;
}

bool deferred_run(deferred_list *self) {
    bool were_some = false;
    while (run_once(self, SIZE_MAX)) { /* what was in one may have been added */
        were_some = true;
    }
    return were_some;
}

bool deferred_is_empty(const deferred_list *self) {
    return count(&self->ready) + count(&self->in_use) == 0;
}

bool deferred_has_ready(const deferred_list *self) {
    return count(&self->ready) > 0;
}

bool deferred_run_ready(deferred_list *self) {
    return run_from(self, &self->ready, 1) > 0;
}

bool deferred_are_many(const deferred_list *self) {
    os_static_mutex_lock(&all.mutex);
    const bool are_many =
        self->ready.count + self->in_use.count > MANY_ITEMS || self->bytes > MANY_BYTES;
    os_static_mutex_unlock(&all.mutex);
    return are_many;
}

uint64_t deferred_additions(const deferred_list *self) {
    os_static_mutex_lock(&all.mutex);
    const uint64_t now = self->additions;
    os_static_mutex_unlock(&all.mutex);
    return now;
}

static void run_forked(deferred_list *self) {
    deferred *item;
    while ((item = take(self, &self->ready)) != NULL ||
           (item = take(self, &self->in_use)) != NULL) {
        item->run(item, true);
    }
}

bool deferred_end(deferred_list *self, os_deadline deadline, bool forked) {
    unsigned pause = 0;
    if (forked) {
        run_forked(self);
        return true;
    }
    while (deferred_run(self), !deferred_is_empty(self)) {
        if (os_deadline_passed(deadline)) {
            return false;
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
    return true;
}

bool deferred_work_off(struct context *ctx) {
    export_look_at_left(ctx);
    watch_sweep(ctx); /* its thread may not have seen yet that a stream has passed */
    const bool was_dropped = drop_run(ctx); /* which may add to the list */
    return deferred_run(ctx->deferred) || was_dropped;
}

bool deferred_may_help(gpuipc_status status) {
    return status == GPUIPC_ERR_LIMIT || status == GPUIPC_ERR_OUT_OF_MEMORY ||
           status == GPUIPC_ERR_OUT_OF_DEVICE_MEMORY || status == GPUIPC_ERR_TOO_MANY_HANDLES;
}

bool deferred_make_room(struct context *ctx) {
    const gpuipc_error why = status_save();
    const bool was_run = deferred_work_off(ctx);
    status_restore(&why);
    return was_run;
}

void deferred_tidy(struct context *ctx) {
    if (deferred_are_many(ctx->deferred)) {
        (void)deferred_work_off(ctx);
    }
}

void deferred_tidy_some(struct context *ctx) {
    if (deferred_are_many(ctx->deferred)) {
        const gpuipc_error why = status_save();
        (void)run_once(ctx->deferred, SOME);
        status_restore(&why);
    }
}

const context_part deferred_part = {CONTEXT_PART(deferred, deferred_list)};

/* SPDX-License-Identifier: MIT */
/** @file See deferred.h. */
#include "deferred.h"

/* So much may be kept before the end of a connection waits for the devices. */
#define MANY_ITEMS 64u
#define MANY_BYTES (UINT64_C(64) << 20)

/* Of the process. A child has none of its parent's streams. */
static struct {
    os_static_mutex mutex; /* guards the lists as well; nothing else is locked under it */
    uint32_t fork_generation;
    size_t waits;
} all;

/* The mutex is held. */
static size_t *waits(void) {
    if (all.fork_generation != os_fork_generation()) {
        all.fork_generation = os_fork_generation();
        all.waits = 0;
    }
    return &all.waits;
}

void deferred_wait_begins(void) {
    os_static_mutex_lock(&all.mutex);
    ++*waits();
    os_static_mutex_unlock(&all.mutex);
}

void deferred_wait_ends(void) {
    os_static_mutex_lock(&all.mutex);
    --*waits();
    os_static_mutex_unlock(&all.mutex);
}

bool deferred_is_quiet(void) {
    os_static_mutex_lock(&all.mutex);
    const bool is_quiet = *waits() == 0;
    os_static_mutex_unlock(&all.mutex);
    return is_quiet;
}

void deferred_add(deferred_list *self, deferred *item) {
    os_static_mutex_lock(&all.mutex);
    item->next = self->first;
    self->first = item;
    self->count++;
    self->bytes += item->bytes;
    os_static_mutex_unlock(&all.mutex);
}

static deferred *take_all(deferred_list *self) {
    os_static_mutex_lock(&all.mutex);
    deferred *first = self->first;
    *self = (deferred_list){0};
    os_static_mutex_unlock(&all.mutex);
    return first;
}

/* Each is asked and run without a lock: a stream that began to wait meanwhile keeps the rest. */
static bool run_once(deferred_list *self) {
    bool were_some = false;
    for (deferred *next, *item = take_all(self); item != NULL; item = next) {
        next = item->next;
        if (deferred_is_quiet() && (item->is_ready == NULL || item->is_ready(item))) {
            item->run(item, false);
            were_some = true;
        } else {
            deferred_add(self, item);
        }
    }
    return were_some;
}

bool deferred_run(deferred_list *self) {
    bool were_some = false;
    while (run_once(self)) { /* what was in one may have been added */
        were_some = true;
    }
    return were_some;
}

bool deferred_is_empty(const deferred_list *self) {
    os_static_mutex_lock(&all.mutex);
    const bool is_empty = self->first == NULL;
    os_static_mutex_unlock(&all.mutex);
    return is_empty;
}

bool deferred_are_many(const deferred_list *self) {
    os_static_mutex_lock(&all.mutex);
    const bool are_many = self->count > MANY_ITEMS || self->bytes > MANY_BYTES;
    os_static_mutex_unlock(&all.mutex);
    return are_many;
}

bool deferred_has(const deferred_list *self, const deferred *item) {
    os_static_mutex_lock(&all.mutex);
    const deferred *found = self->first;
    while (found != NULL && found != item) {
        found = found->next;
    }
    os_static_mutex_unlock(&all.mutex);
    return found != NULL;
}

static void run_forked(deferred_list *self) {
    for (deferred *next, *item = take_all(self); item != NULL; item = next) {
        next = item->next;
        item->run(item, true);
    }
}

bool deferred_end(deferred_list *self, os_deadline deadline, bool forked) {
    unsigned pause = 0;
    if (forked) {
        run_forked(self);
        return true;
    }
    while (deferred_run(self), self->first != NULL) {
        if (os_deadline_passed(deadline)) {
            return false;
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
    return true;
}

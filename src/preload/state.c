/* SPDX-License-Identifier: MIT */
/** @file See state.h. */
#include "state.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "memory.h"

static struct {
    pthread_once_t looked;
    pthread_once_t watched;
    bool was_turned_off;
    bool is_watched;
    atomic_bool is_forked;
} state = {.looked = PTHREAD_ONCE_INIT, .watched = PTHREAD_ONCE_INIT};

static void look(void) {
    const char *off = secure_getenv("GPUIPC_PRELOAD_OFF");
    const real_driver *driver = real_get();
    state.was_turned_off = off != NULL && strcmp(off, "1") == 0;
    if (driver != NULL) {
        log_line("%s before %s", state.was_turned_off ? "turned off" : "at work", driver->path);
    }
}

bool state_is_on(void) {
    if (atomic_load_explicit(&state.is_forked, memory_order_relaxed) || real_get() == NULL) {
        return false;
    }
    pthread_once(&state.looked, look);
    return !state.was_turned_off;
}

/* Another thread may have held a lock at the fork. Where there was memory, no lock is taken any more. */
static void in_child(void) {
    if (owner_was_made()) {
        atomic_store_explicit(&state.is_forked, true, memory_order_relaxed);
    } else {
        memory_lock_anew();
    }
}

static void watch(void) {
    state.is_watched = pthread_atfork(NULL, NULL, in_child) == 0;
}

bool state_watch_forks(void) {
    pthread_once(&state.watched, watch);
    return state.is_watched;
}

/* SPDX-License-Identifier: MIT */
/** @file See lookout.h. */
#include "sync/lookout.h"

#include <stdlib.h>

/* How many rounds the thread goes for nothing before it ends: a fifth of a second. */
#define IDLE_ROUNDS 10u
/* How long the end of the process waits for the thread. */
#define EXIT_MS 1000

typedef struct attendant {
    os_thread *thread;
    bool must_end;
    bool has_ended; /* it no longer takes the mutex */
} attendant;

/* A child has no thread, and leaves alone what its parent looks for. */
static struct {
    os_static_mutex mutex; /* guards the rest; only that of wait handles is taken under it */
    uint32_t fork_generation;
    linked_list lookouts;
    attendant *attendant;
    unsigned running;      /* attendants that have not ended */
    linked_list inherited; /* of the parent, which a leak checker wants to find */
    bool has_news;         /* something was begun since the thread looked */
    bool is_exiting;
    bool has_exit_handler;
} all;

/* The mutex was held over the fork, so that the list is whole. */
static void begin_as_child(void) {
    list_link *at;
    while ((at = list_take(&all.lookouts)) != NULL) {
        list_append(&all.inherited, at);
    }
    if (all.attendant != NULL) {
        os_thread_forget(all.attendant->thread);
        free(all.attendant);
        all.attendant = NULL;
    }
    all.running = 0;
}

static void lock(void) {
    os_static_mutex_lock(&all.mutex);
    if (all.fork_generation != os_fork_generation()) {
        all.fork_generation = os_fork_generation();
        begin_as_child();
    }
}

static void unlock(void) {
    os_static_mutex_unlock(&all.mutex);
}

/* ---- the thread -------------------------------------------------------------------------------- */

/* The next in turn, as it was then, with a reference on what it is of; NULL: that is ending, or there is none. What ends is
 * not looked for any more. */
static lookout *take_turn(lookout *out_asked) {
    lock();
    lookout *one = LIST_ITEM(list_turn(&all.lookouts), lookout, link);
    if (one != NULL && !object_try_reference(one->of)) {
        list_remove(&one->link);
        one = NULL;
    }
    if (one != NULL) {
        *out_asked = *one; /* another thread may begin it again meanwhile */
    }
    unlock();
    return one;
}

static void look_at(size_t count) {
    for (; count > 0; count--) {
        lookout asked;
        lookout *at = take_turn(&asked);
        if (at == NULL) {
            continue;
        }
        const bool has_come = asked.look(asked.of);
        lock();
        if (has_come && at->begun == asked.begun) {
            list_remove(&at->link);
            if (at->tells != NULL) {
                wait_handle_tell(at->tells, true);
            }
        }
        unlock();
        object_unreference(asked.of); /* which may end it */
    }
}

/* @return whether it is time to end */
static bool go_round(attendant *self, unsigned *idle, unsigned *pause) {
    lock();
    const size_t count = all.lookouts.count;
    unlock();
    look_at(count);
    lock();
    *idle = all.lookouts.count == 0 ? *idle + 1 : 0;
    *pause = all.has_news ? 0 : *pause;
    all.has_news = false;
    self->has_ended = self->must_end || all.is_exiting || *idle > IDLE_ROUNDS;
    const bool ends = self->has_ended;
    all.running -= ends;
    unlock();
    return ends;
}

static void attend(void *argument) {
    unsigned idle = 0;
    unsigned pause = 0;
    while (!go_round(argument, &idle, &pause)) {
        os_sleep_ms(os_backoff_next(&pause, os_deadline_after(-1)));
    }
}

static void join(attendant *self) {
    if (self != NULL) {
        os_thread_join(self->thread);
        free(self);
    }
}

/* What is left is left to the end of the process: the driver is about to end, and its calls with it. Another thread may
 * just dismiss one, and frees it then. */
static void at_exit(void) {
    const os_deadline deadline = os_deadline_after(EXIT_MS);
    lock();
    all.is_exiting = true;
    while (all.running > 0 && !os_deadline_passed(deadline)) {
        unlock();
        os_sleep_ms(1);
        lock();
    }
    attendant *found = all.attendant;
    if (found != NULL && found->has_ended) {
        all.attendant = NULL;
        join(found);
    }
    unlock();
}

/* The mutex is held. */
static gpuipc_status start(void) {
    if (all.is_exiting || (all.attendant != NULL && !all.attendant->has_ended)) {
        return GPUIPC_OK;
    }
    join(all.attendant);
    all.attendant = NULL;
    if (!all.has_exit_handler) {
        os_at_exit(at_exit);
        all.has_exit_handler = true;
    }
    attendant *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return status_out_of_memory(sizeof(*made));
    }
    const gpuipc_status status = os_thread_start(attend, made, &made->thread);
    if (status == GPUIPC_OK) {
        all.attendant = made;
        all.running++;
    } else {
        free(made);
    }
    return status;
}

void lookout_dismiss(void) {
    attendant *found = NULL;
    lock();
    if (all.lookouts.count == 0 && all.attendant != NULL) {
        found = all.attendant;
        found->must_end = true;
        all.attendant = NULL;
    }
    unlock();
    join(found);
}

/* ---- what is looked for ------------------------------------------------------------------------ */

gpuipc_status lookout_begin(lookout *self, object *of, bool (*look)(object *of),
                            wait_handle *tells) {
    lock();
    const gpuipc_status status = start();
    if (status == GPUIPC_OK && self->link.in == NULL) {
        list_append(&all.lookouts, &self->link);
    }
    self->of = of;
    self->look = look;
    self->tells = tells;
    self->begun++;
    all.has_news = true;
    unlock();
    return status;
}

void lookout_end(lookout *self) {
    lock();
    list_remove(&self->link);
    unlock();
}

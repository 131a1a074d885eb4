/* SPDX-License-Identifier: MIT */
/** @file See monitor.h. */
#include "sync/monitor.h"

#include <stdlib.h>

/* How many rounds a thread goes without an object before it ends: a fifth of a second. */
#define IDLE_ROUNDS 10u
/* How long the end of the process waits for the threads. */
#define EXIT_MS 1000

/* A thread that runs. */
typedef struct attendant {
    os_thread *thread;
    struct monitor *of;
    bool must_end;
    bool has_ended; /* it no longer takes the mutex */
} attendant;

typedef struct monitor {
    linked_list objects;
    attendant *attendant;
    unsigned running;     /* attendants that have not ended */
    bool has_news;        /* something was begun since the thread looked */
    bool has_condition;   /* the next one is made */
    os_condition changed; /* an object came, an attendant must end, or a look has ended */
} monitor;

/* A child has no thread, and leaves alone what its parent looks at. */
static struct {
    os_static_mutex mutex; /* guards the rest; only that of wait handles is taken under it */
    uint32_t fork_generation;
    monitor monitors[MONITOR_THREADS];
    linked_list inherited; /* of the parent, which a leak checker wants to find */
    bool is_exiting;       /* the thread that frees ends, and does not start again */
    bool has_exit_handler;
} all;

static monitored *monitored_at(list_link *at) {
    return LIST_ITEM(at, monitored, link);
}

static bool holds_reference(const monitor *self) {
    return self == &all.monitors[MONITOR_FREES];
}

/* The mutex was held over the fork, so that the lists are whole. */
static void begin_as_child(monitor *self) {
    list_link *at;
    while ((at = list_take(&self->objects)) != NULL) {
        monitored_at(at)->looks = 0;
        list_append(&all.inherited, at);
    }
    if (self->attendant != NULL) {
        os_thread_forget(self->attendant->thread);
        free(self->attendant);
    }
    *self = (monitor){.running = 0};
}

static void lock(void) {
    os_static_mutex_lock(&all.mutex);
    if (all.fork_generation != os_fork_generation()) {
        all.fork_generation = os_fork_generation();
        for (size_t i = 0; i < MONITOR_THREADS; i++) {
            begin_as_child(&all.monitors[i]);
        }
    }
}

static void unlock(void) {
    os_static_mutex_unlock(&all.mutex);
}

/* The mutex is held, and released meanwhile. */
static void await_change(monitor *self, unsigned milliseconds) {
    (void)os_condition_wait(&self->changed, &all.mutex.mutex, os_deadline_after((int)milliseconds));
}

/* ---- the thread: the mutex is held ------------------------------------------------------------- */

/* The next in turn. NULL: it is ending, or there is none. */
static monitored *take_turn(monitor *self) {
    monitored *one = monitored_at(list_turn(&self->objects));
    if (one != NULL && holds_reference(self) && !object_try_reference(one->of)) {
        list_remove(&one->link);
        return NULL;
    }
    return one;
}

/* The mutex is released meanwhile. */
static void look_at_next(monitor *self) {
    monitored *at = take_turn(self);
    if (at == NULL) {
        return;
    }
    const monitored asked = *at; /* another thread may begin it again meanwhile */
    at->looks++;
    unlock();
    const bool is_over = asked.look(asked.of);
    lock();
    if (is_over && at->begun == asked.begun) {
        list_remove(&at->link);
        if (at->notifies != NULL) {
            wait_handle_tell(at->notifies, true);
        }
    }
    at->looks--;
    os_condition_signal_all(&self->changed);
    if (holds_reference(self)) {
        unlock();
        object_unreference(asked.of); /* which may end it */
        lock();
    }
}

static bool is_ending(const monitor *self) {
    return all.is_exiting && self == &all.monitors[MONITOR_FREES];
}

static void attend(void *argument) {
    attendant *by = argument;
    monitor *self = by->of;
    unsigned idle = 0;
    unsigned pause = 0;
    lock();
    for (;;) {
        for (size_t left = self->objects.count; left > 0; left--) {
            look_at_next(self);
        }
        idle = self->objects.count == 0 ? idle + 1 : 0;
        pause = self->has_news ? 0 : pause;
        self->has_news = false;
        if (by->must_end || is_ending(self) || idle > IDLE_ROUNDS) {
            break;
        }
        await_change(self, os_backoff_next(&pause, os_deadline_after(-1)));
    }
    by->has_ended = true;
    self->running--;
    os_condition_signal_all(&self->changed);
    unlock();
}

static void join(attendant *self) {
    if (self != NULL) {
        os_thread_join(self->thread);
        free(self);
    }
}

/* The driver is about to end, so the thread that makes calls of the driver ends. The other one goes on: handlers that run
 * later may wait for a stream. Another thread may be dismissing an attendant, and frees it then. */
static void at_exit(void) {
    monitor *self = &all.monitors[MONITOR_FREES];
    const os_deadline deadline = os_deadline_after(EXIT_MS);
    lock();
    all.is_exiting = true;
    while (self->running > 0 && !os_deadline_passed(deadline)) {
        os_condition_signal_all(&self->changed);
        await_change(self, 1);
    }
    if (self->attendant != NULL && self->attendant->has_ended) {
        join(self->attendant);
        self->attendant = NULL;
    }
    unlock();
}

bool monitor_is_exiting(void) {
    lock();
    const bool is = all.is_exiting;
    unlock();
    return is;
}

bool monitor_runs(monitor_thread which) {
    lock();
    const bool runs = all.monitors[which].running > 0;
    unlock();
    return runs;
}

static gpuipc_status start(monitor *self) {
    gpuipc_status status = GPUIPC_OK;
    if (is_ending(self) || (self->attendant != NULL && !self->attendant->has_ended)) {
        return GPUIPC_OK;
    }
    join(self->attendant);
    self->attendant = NULL;
    if (!all.has_exit_handler) {
        os_at_exit(at_exit);
        all.has_exit_handler = true;
    }
    if (!self->has_condition && (status = os_condition_init(&self->changed)) != GPUIPC_OK) {
        return status;
    }
    self->has_condition = true; /* for the rest of the process */
    attendant *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return status_out_of_memory(sizeof(*made));
    }
    made->of = self;
    status = os_thread_start(attend, made, &made->thread);
    if (status == GPUIPC_OK) {
        self->attendant = made;
        self->running++;
    } else {
        free(made);
    }
    return status;
}

void monitor_dismiss(monitor_thread which) {
    monitor *self = &all.monitors[which];
    attendant *found = NULL;
    lock();
    if (self->objects.count == 0 && self->attendant != NULL) {
        found = self->attendant;
        found->must_end = true;
        self->attendant = NULL;
        os_condition_signal_all(&self->changed);
    }
    unlock();
    join(found);
}

/* ---- what is looked at ------------------------------------------------------------------------- */

gpuipc_status monitor_begin(monitored *self, monitor_thread by, object *of,
                            bool (*look)(object *of), wait_handle *notifies) {
    monitor *to = &all.monitors[by];
    lock();
    const gpuipc_status status = start(to);
    if (status == GPUIPC_OK && self->link.in == NULL) {
        list_append(&to->objects, &self->link);
        os_condition_signal_all(&to->changed);
    }
    self->of = of;
    self->look = look;
    self->notifies = notifies;
    self->begun++;
    to->has_news = true;
    unlock();
    return status;
}

void monitor_end(monitored *self) {
    lock();
    list_remove(&self->link);
    unlock();
}

void monitor_settle(monitored *self) {
    lock();
    while (self->looks > 0) {
        await_change(&all.monitors[MONITOR_PEERS], OS_PAUSE_MS);
    }
    unlock();
}

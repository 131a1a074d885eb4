/* SPDX-License-Identifier: MIT */
/** @file See memory_os.h. In the place of posix_clock.c, posix_thread.c, posix_bell.c and posix_closer.c, and as they do. */
#include <poll.h>
#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

#include "fuzz.h"
#include "memory_os.h"
#include "posix.h"

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define BEGIN_NS  UINT64_C(1000000000000)
#define LOOK_NS   1000u
#define HOUR_NS   UINT64_C(3600000000000)
#define LOCKED    1u
/* When a run of os_time_unix_ms() begins: any day. */
#define UNIX_MS UINT64_C(1700000000000)

GPUIPC_THREAD_LOCAL bool posix_signal_ran;

bool (*memory_meanwhile)(void);

static uint64_t now_ns = BEGIN_NS;
static bool is_meanwhile;
static unsigned held; /* mutexes */

/* ---- the clock --------------------------------------------------------------------------------- */

/* One that is running waits: it goes on, from the beginning, when it is run again. All of the library's are loops over what
 * is in memory, and this is a thread that has seen the first round of its loop a second time. */
static struct os_thread *running;
static jmp_buf until_wait;

void memory_wait(uint64_t until_ns) {
    if (running != NULL && held == 0) {
        longjmp(until_wait, 1);
    }
    if (running == NULL && !is_meanwhile && memory_meanwhile != NULL) {
        is_meanwhile = true;
        const bool has_done = memory_meanwhile();
        is_meanwhile = false;
        if (has_done) {
            return;
        }
    }
    FUZZ_CHECK(until_ns != UINT64_MAX && "nothing can come, and it waits for ever");
    now_ns = until_ns > now_ns ? until_ns : now_ns;
    FUZZ_CHECK(now_ns - BEGIN_NS < HOUR_NS);
}

void memory_pass(uint64_t milliseconds) {
    now_ns += milliseconds * NS_PER_MS;
}

bool os_signal_ran(void) {
    return false;
}

void os_signal_forget(void) {
}

/* Moved on, so that who only looks at it comes to an end. */
uint64_t os_clock_ns(void) {
    now_ns += LOOK_NS;
    return now_ns;
}

uint64_t os_clock_coarse_ns(void) {
    return os_clock_ns();
}

uint64_t os_time_unix_ms(void) {
    return UNIX_MS + now_ns / NS_PER_MS;
}

void os_sleep_ms(unsigned milliseconds) {
    memory_wait(now_ns + milliseconds * NS_PER_MS);
}

void os_sleep_us(unsigned microseconds) {
    memory_wait(now_ns + microseconds * NS_PER_US);
}

/* Only of the process at the other end, which is an eventfd, and without waiting. */
int fd_wait(int fd, short events, os_deadline deadline) {
    struct pollfd entry = {.fd = fd, .events = events};
    FUZZ_CHECK(os_deadline_passed(deadline));
    return poll(&entry, 1, 0) > 0 ? entry.revents : 0;
}

/* ---- mutexes ----------------------------------------------------------------------------------- */

void os_mutex_lock(os_mutex *mutex) {
    FUZZ_CHECK(mutex->align[0] != LOCKED && "it is locked, and nobody else can give it back");
    mutex->align[0] = LOCKED;
    held++;
}

bool os_mutex_try_lock(os_mutex *mutex) {
    const bool is_free = mutex->align[0] != LOCKED;
    mutex->align[0] = LOCKED;
    held += is_free;
    return is_free;
}

void os_mutex_unlock(os_mutex *mutex) {
    FUZZ_CHECK(mutex->align[0] == LOCKED);
    mutex->align[0] = 0;
    held--;
}

void os_static_mutex_lock(os_static_mutex *mutex) {
    os_mutex_lock(&mutex->mutex);
}

void os_static_mutex_unlock(os_static_mutex *mutex) {
    os_mutex_unlock(&mutex->mutex);
}

/* A fork() is none of the library's. */
void posix_static_mutexes_lock(void) {
}

void posix_static_mutexes_unlock(void) {
}

/* ---- conditions -------------------------------------------------------------------------------- */

gpuipc_status os_condition_init(os_condition *condition) {
    condition->align[0] = 0;
    return GPUIPC_OK;
}

void os_condition_destroy(os_condition *condition) {
    (void)condition;
}

void os_condition_signal_all(os_condition *condition) {
    (void)condition;
}

bool os_condition_wait(os_condition *condition, os_mutex *mutex, os_deadline deadline) {
    (void)condition;
    os_mutex_unlock(mutex);
    memory_wait(deadline.at_ns);
    os_mutex_lock(mutex);
    return !os_deadline_passed(deadline);
}

/* ---- threads ----------------------------------------------------------------------------------- */

struct os_thread {
    os_thread *next;
    void (*run)(void *argument);
    void *argument;
    bool has_ended;
};

static os_thread *threads;

gpuipc_status os_thread_start(void (*run)(void *argument), void *argument, os_thread **out_thread) {
    os_thread *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    *self = (os_thread){.next = threads, .run = run, .argument = argument};
    threads = self;
    *out_thread = self;
    return GPUIPC_OK;
}

/* To its first wait, or its end. */
static void run(os_thread *volatile self) {
    if (setjmp(until_wait) == 0) {
        running = self;
        self->run(self->argument);
        self->has_ended = true;
    }
    running = NULL;
}

/* One that ends joins others, so the list is looked through anew. */
void memory_run_threads(void) {
    for (os_thread *volatile at = threads; at != NULL; at = at->next) {
        if (!at->has_ended) {
            run(at);
        }
    }
}

/* Who joins it has told it before that it is to end. */
void os_thread_join(os_thread *thread) {
    os_thread **at = &threads;
    if (!thread->has_ended) {
        FUZZ_CHECK(running == NULL);
        run(thread);
        FUZZ_CHECK(thread->has_ended && "a thread that was told to end waits for something else");
    }
    while (*at != thread) {
        at = &(*at)->next;
    }
    *at = thread->next;
    free(thread);
}

/* Nothing is forked here. */
void os_thread_forget(os_thread *thread) {
    (void)thread;
    FUZZ_CHECK(false);
}

void memory_begin(void) {
    now_ns = BEGIN_NS;
}

/* ---- bells: who sleeps is woken by the time ---------------------------------------------------- */

gpuipc_status os_bell_make(const uint8_t name[16], os_bell *out_bell) {
    (void)name;
    *out_bell = OS_BELL_NONE;
    return GPUIPC_OK;
}

gpuipc_status os_bell_find(const uint8_t name[16], os_bell *out_bell) {
    return os_bell_make(name, out_bell);
}

gpuipc_status os_bell_copy(const os_bell *bell, os_bell *out_bell) {
    *out_bell = *bell;
    return GPUIPC_OK;
}

void os_bell_close(os_bell *bell) {
    (void)bell;
}

void os_bell_wait(const os_bell *bell, const atomic_uint_least64_t *word, unsigned milliseconds) {
    (void)bell;
    if (atomic_load(word) == 1) {
        os_sleep_ms(milliseconds);
    }
}

void os_bell_ring(const os_bell *bell, const atomic_uint_least64_t *word) {
    (void)bell;
    (void)word;
}

/* ---- descriptors of others: all that come here are closed at once ------------------------------ */

void posix_close_foreign(int fd) {
    close(fd);
}

void posix_close_alone(int fd) {
    close(fd);
}

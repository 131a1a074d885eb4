/* SPDX-License-Identifier: MIT */
/** @file Mutexes, conditions and threads, and the static mutexes that are held over fork(). */
#include "posix.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/** What lies in an os_static_mutex. Zero bytes are its start. */
typedef struct static_mutex {
    pthread_mutex_t mutex;
    struct static_mutex *next; /**< in the list of those that were ever locked */
    atomic_bool ready;
} static_mutex;

_Static_assert(sizeof(pthread_mutex_t) <= sizeof(os_mutex), "os_mutex is too small");
_Static_assert(sizeof(pthread_cond_t) <= sizeof(os_condition), "os_condition is too small");
_Static_assert(sizeof(static_mutex) <= sizeof(os_static_mutex), "os_static_mutex is too small");
_Static_assert(_Alignof(pthread_mutex_t) <= _Alignof(os_mutex), "os_mutex is aligned too little");
_Static_assert(_Alignof(pthread_cond_t) <= _Alignof(os_condition), "os_condition likewise");
_Static_assert(_Alignof(static_mutex) <= _Alignof(os_static_mutex), "os_static_mutex likewise");

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static static_mutex *list_head;

/* PTHREAD_MUTEX_INITIALIZER is all zero in glibc and musl, and stays so, since programs have it compiled in. Neither keeps
 * anything elsewhere that pthread_mutex_destroy() would free. */
static pthread_mutex_t *mutex_of(os_mutex *mutex) {
    return (pthread_mutex_t *)(void *)mutex;
}

static pthread_cond_t *condition_of(os_condition *condition) {
    return (pthread_cond_t *)(void *)condition;
}

/* A plain mutex of ours is locked by its owner only and never twice, so lock and unlock have no
 * failure left (pthread_mutex_lock(3p)); a broken rule is a bug that must not go on unseen. */
static void must_be_zero(int code) {
    if (code != 0) {
        abort();
    }
}

void os_mutex_lock(os_mutex *mutex) {
    must_be_zero(pthread_mutex_lock(mutex_of(mutex)));
}

bool os_mutex_try_lock(os_mutex *mutex) {
    int code = pthread_mutex_trylock(mutex_of(mutex));
    if (code == EBUSY) {
        return false;
    }
    must_be_zero(code);
    return true;
}

void os_mutex_unlock(os_mutex *mutex) {
    must_be_zero(pthread_mutex_unlock(mutex_of(mutex)));
}

static void static_mutex_prepare(static_mutex *mutex) {
    must_be_zero(pthread_mutex_lock(&list_mutex));
    if (!atomic_load_explicit(&mutex->ready, memory_order_relaxed)) {
        mutex->next = list_head;
        list_head = mutex;
        atomic_store_explicit(&mutex->ready, true, memory_order_release);
    }
    must_be_zero(pthread_mutex_unlock(&list_mutex));
}

void os_static_mutex_lock(os_static_mutex *mutex) {
    static_mutex *own = (static_mutex *)(void *)mutex;
    if (!atomic_load_explicit(&own->ready, memory_order_acquire)) {
        static_mutex_prepare(own);
    }
    must_be_zero(pthread_mutex_lock(&own->mutex));
}

void os_static_mutex_unlock(os_static_mutex *mutex) {
    must_be_zero(pthread_mutex_unlock(&((static_mutex *)(void *)mutex)->mutex));
}

/** Tries to take the whole list, of which @p held is taken already.
 *  @return NULL, or the first that somebody else has; then none but @p held is taken */
static static_mutex *list_try_lock(const static_mutex *held) {
    for (static_mutex *mutex = list_head; mutex != NULL; mutex = mutex->next) {
        if (mutex == held || pthread_mutex_trylock(&mutex->mutex) == 0) {
            continue;
        }
        for (static_mutex *taken = list_head; taken != NULL && taken != mutex;
             taken = taken->next) {
            if (taken != held) {
                must_be_zero(pthread_mutex_unlock(&taken->mutex));
            }
        }
        return mutex;
    }
    return NULL;
}

/* Threads nest these mutexes in orders that are not known here. So this waits for one only while
 * it holds no other, then tries the rest, and starts again with the one that was not free: no
 * circle of waiting threads can form. */
void posix_static_mutexes_lock(void) {
    static_mutex *held = NULL;
    for (;;) {
        if (held != NULL) {
            must_be_zero(pthread_mutex_lock(&held->mutex));
        }
        must_be_zero(pthread_mutex_lock(&list_mutex));
        static_mutex *busy = list_try_lock(held);
        if (busy == NULL) {
            return;
        }
        must_be_zero(pthread_mutex_unlock(&list_mutex));
        if (held != NULL) {
            must_be_zero(pthread_mutex_unlock(&held->mutex));
        }
        held = busy;
    }
}

void posix_static_mutexes_unlock(void) {
    for (static_mutex *mutex = list_head; mutex != NULL; mutex = mutex->next) {
        must_be_zero(pthread_mutex_unlock(&mutex->mutex));
    }
    must_be_zero(pthread_mutex_unlock(&list_mutex));
}

gpuipc_status os_condition_init(os_condition *condition) {
    pthread_condattr_t attributes;
    int code = pthread_condattr_init(&attributes);
    if (code != 0) {
        return posix_fail(code, "pthread_condattr_init", "no condition can be made");
    }
    /* Deadlines lie on the monotonic clock; the default here would be the one that people set. */
    code = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (code == 0) {
        code = pthread_cond_init(condition_of(condition), &attributes);
    }
    pthread_condattr_destroy(&attributes);
    return code == 0 ? GPUIPC_OK
                     : posix_fail(code, "pthread_cond_init", "no condition can be made");
}

void os_condition_destroy(os_condition *condition) {
    must_be_zero(pthread_cond_destroy(condition_of(condition)));
}

void os_condition_signal_all(os_condition *condition) {
    must_be_zero(pthread_cond_broadcast(condition_of(condition)));
}

/* pthread_cond_timedwait(3p) never answers EINTR, so this looks again every few milliseconds. */
static bool wait_interruptibly(os_mutex *mutex, os_deadline deadline) {
    unsigned pause = 2;
    os_mutex_unlock(mutex);
    os_sleep_ms(os_backoff_next(&pause, deadline));
    os_mutex_lock(mutex);
    return !os_deadline_passed(deadline);
}

bool os_condition_wait(os_condition *condition, os_mutex *mutex, os_deadline deadline) {
    if (deadline.interrupt != NULL) {
        return wait_interruptibly(mutex, deadline);
    }
    if (deadline.at_ns == UINT64_MAX) {
        must_be_zero(pthread_cond_wait(condition_of(condition), mutex_of(mutex)));
        return true;
    }
    struct timespec at = {.tv_sec = (time_t)(deadline.at_ns / 1000000000u),
                          .tv_nsec = (long)(deadline.at_ns % 1000000000u)};
    int code = pthread_cond_timedwait(condition_of(condition), mutex_of(mutex), &at);
    if (code == ETIMEDOUT) {
        return false;
    }
    must_be_zero(code);
    return true;
}

struct os_thread {
    pthread_t thread;
    void (*run)(void *argument);
    void *argument;
};

static void *thread_main(void *argument) {
    os_thread *thread = argument;
    thread->run(thread->argument);
    return NULL;
}

/* Whose own the thing is from then on. */
static void *thread_main_alone(void *argument) {
    const os_thread own = *(const os_thread *)argument;
    free(argument);
    own.run(own.argument);
    return NULL;
}

/* The new thread inherits the mask (pthread_create(3)): the program's signals are for the
 * program's own threads. */
static gpuipc_status thread_create(pthread_t *out_thread, void *(*start)(void *argument),
                                   os_thread *argument) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    must_be_zero(pthread_sigmask(SIG_SETMASK, &all, &before));
    int code = pthread_create(out_thread, NULL, start, argument);
    must_be_zero(pthread_sigmask(SIG_SETMASK, &before, NULL));
    return code == 0 ? GPUIPC_OK : posix_fail(code, "pthread_create", "no thread can be started");
}

static gpuipc_status thread_make(void (*run)(void *argument), void *argument,
                                 os_thread **out_thread) {
    os_thread *thread = malloc(sizeof(*thread));
    if (thread == NULL) {
        return status_out_of_memory(sizeof(*thread));
    }
    thread->run = run;
    thread->argument = argument;
    *out_thread = thread;
    return GPUIPC_OK;
}

gpuipc_status os_thread_start(void (*run)(void *argument), void *argument, os_thread **out_thread) {
    os_thread *thread = NULL;
    gpuipc_status status = thread_make(run, argument, &thread);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = thread_create(&thread->thread, thread_main, thread);
    if (status != GPUIPC_OK) {
        free(thread);
        return status;
    }
    *out_thread = thread;
    return GPUIPC_OK;
}

gpuipc_status posix_thread_start_alone(void (*run)(void *argument), void *argument) {
    os_thread *thread = NULL;
    pthread_t started;
    gpuipc_status status = thread_make(run, argument, &thread);
    if (status != GPUIPC_OK) {
        return status;
    }
    posix_library_stay();
    status = thread_create(&started, thread_main_alone, thread);
    if (status != GPUIPC_OK) {
        free(thread);
        return status;
    }
    must_be_zero(pthread_detach(started));
    return GPUIPC_OK;
}

void os_thread_join(os_thread *thread) {
    must_be_zero(pthread_join(thread->thread, NULL));
    free(thread);
}

void os_thread_forget(os_thread *thread) {
    free(thread);
}

/* SPDX-License-Identifier: MIT */
/** @file See allocation.h. */
#include "allocation.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include <gpuipc/gpuipc_status.h>

#include "thread_state.h"

/* The names are those that ld(1) makes of --wrap=SYMBOL. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);

/* The one thread that is watched; 0: none is. Not variables of each thread: libgcc's emulation of
 * those, on Windows, allocates when one is first used, and would come back here (emutls.c). */
static _Atomic uint64_t watched_thread;
static uint64_t fails_at;
static size_t most_bytes;
static bool (*asked)(void);
static uint64_t count;

/* What the watched thread has and has not freed. Another thread may free it: the last who holds an object does. */
enum {
    LIVE_MAX = 4096
};
static void *_Atomic made_here[LIVE_MAX];
static _Atomic int64_t live;

static bool is_watched(void) {
    const uint64_t thread = atomic_load(&watched_thread);
    return thread != 0 && thread == thread_state_own_number();
}

static void watch(uint64_t fail_at, size_t most, bool (*is_denied)(void)) {
    /* This thread's error record is a variable of the thread as well, and where the emulation of those
     * gets no memory it ends the process; so it is there before anything is denied. */
    (void)gpuipc_error_get();
    fails_at = fail_at;
    most_bytes = most;
    asked = is_denied;
    count = 0;
    atomic_store(&live, 0);
    for (size_t i = 0; i < LIVE_MAX; i++) {
        atomic_store(&made_here[i], NULL);
    }
    atomic_store(&watched_thread, thread_state_own_number());
}

void allocation_watch(uint64_t fail_at) {
    watch(fail_at, SIZE_MAX, NULL);
}

void allocation_watch_large(size_t most) {
    watch(0, most, NULL);
}

void allocation_watch_asked(bool (*is_denied)(void)) {
    watch(0, SIZE_MAX, is_denied);
}

int64_t allocation_live(void) {
    return atomic_load(&live);
}

uint64_t allocation_unwatch(int64_t *out_live) {
    atomic_store(&watched_thread, 0);
    *out_live = atomic_load(&live);
    return count;
}

/* Counts one; true when it is the one that fails. */
static bool fails_now(size_t bytes) {
    return is_watched() &&
           (++count == fails_at || bytes > most_bytes || (asked != NULL && asked()));
}

static void *made(void *memory) {
    bool is_noted = memory == NULL || !is_watched();
    for (size_t i = 0; i < LIVE_MAX && !is_noted; i++) {
        void *none = NULL;
        is_noted = atomic_compare_exchange_strong(&made_here[i], &none, memory);
        live += is_noted;
    }
    return memory;
}

/* Before it is freed, so that nobody has got the same address. @return whether it was noted */
static bool forget(void *memory) {
    for (size_t i = 0; i < LIVE_MAX && atomic_load(&live) > 0; i++) {
        void *wanted = memory;
        if (atomic_compare_exchange_strong(&made_here[i], &wanted, NULL)) {
            live--;
            return true;
        }
    }
    return false;
}

void *__wrap_malloc(size_t size) {
    return fails_now(size) ? NULL : made(__real_malloc(size));
}

void *__wrap_calloc(size_t elements, size_t size) {
    return fails_now(elements * size) ? NULL : made(__real_calloc(elements, size));
}

void *__wrap_realloc(void *memory, size_t size) {
    if (fails_now(size)) {
        return NULL;
    }
    if (memory == NULL) {
        return made(__real_malloc(size));
    }
    const bool was_noted = forget(memory);
    void *moved = __real_realloc(memory, size);
    if (was_noted) {
        (void)made(moved == NULL ? memory : moved);
    }
    return moved;
}

/* The C library's own strdup would call its malloc behind our back. */
char *__wrap_strdup(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = __wrap_malloc(size);
    return copy == NULL ? NULL : memcpy(copy, text, size);
}

void __wrap_free(void *memory) {
    if (memory != NULL) {
        (void)forget(memory);
    }
    __real_free(memory);
}

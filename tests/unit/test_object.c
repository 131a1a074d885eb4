/* SPDX-License-Identifier: MIT */
/** @file Handles of objects: live, released, of another kind, never given out, and in many threads. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/object.h"
#include "check.h"
#include "os.h"

TestSuite(object, .timeout = 60);

typedef struct thing {
    object object;
    uint32_t number;
    atomic_int *destroyed;
} thing;

static atomic_int destroyed;

static void destroy(object *base) {
    thing *self = (thing *)base;
    atomic_fetch_add(self->destroyed, 1);
    free(self);
}

static thing *make(object_kind kind, uint32_t number) {
    thing *self = malloc(sizeof(*self));
    cr_assert_not_null(self);
    object_init(&self->object, kind, destroy);
    self->number = number;
    self->destroyed = &destroyed;
    return self;
}

static void *publish(object_kind kind, uint32_t number) {
    void *handle = NULL;
    check_ok(object_publish(&make(kind, number)->object, &handle));
    return handle;
}

/* Drops one hold and gives the object up when it was the last. */
static gpuipc_status drop(object_kind kind, void *handle) {
    object *last = NULL;
    gpuipc_status status = object_remove_hold(kind, handle, &last);
    object_unreference(last);
    return status;
}

Test(object, a_published_object_is_found_until_it_is_dropped) {
    void *handle = publish(OBJECT_BUFFER, 7);
    object *found = NULL;
    check_ok(object_acquire(OBJECT_BUFFER, handle, &found));
    cr_assert_eq(((thing *)found)->number, 7);
    object_unreference(found);
    cr_assert_eq(atomic_load(&destroyed), 0);

    check_ok(drop(OBJECT_BUFFER, handle));
    cr_assert_eq(atomic_load(&destroyed), 1);
    found = NULL;
    check_refused(GPUIPC_ERR_RELEASED, "was released",
                  object_acquire(OBJECT_BUFFER, handle, &found));
    cr_assert_null(found);
    check_status(GPUIPC_ERR_RELEASED, drop(OBJECT_BUFFER, handle));
    check_status(GPUIPC_ERR_RELEASED, object_add_hold(OBJECT_BUFFER, handle));
    cr_assert_eq(atomic_load(&destroyed), 1);
}

Test(object, a_call_keeps_its_object_while_the_handle_goes) {
    void *handle = publish(OBJECT_BUFFER, 7);
    object *found;
    check_ok(object_acquire(OBJECT_BUFFER, handle, &found));
    check_ok(drop(OBJECT_BUFFER, handle));
    cr_assert_eq(atomic_load(&destroyed), 0);
    cr_assert_eq(((thing *)found)->number, 7);
    object_unreference(found);
    cr_assert_eq(atomic_load(&destroyed), 1);
}

Test(object, every_hold_is_dropped_once) {
    void *handle = publish(OBJECT_BUFFER, 1);
    check_ok(object_add_hold(OBJECT_BUFFER, handle));
    check_ok(object_add_hold(OBJECT_BUFFER, handle));
    check_ok(drop(OBJECT_BUFFER, handle));
    check_ok(drop(OBJECT_BUFFER, handle));
    cr_assert_eq(atomic_load(&destroyed), 0);
    check_ok(drop(OBJECT_BUFFER, handle));
    cr_assert_eq(atomic_load(&destroyed), 1);
    check_status(GPUIPC_ERR_RELEASED, drop(OBJECT_BUFFER, handle));
}

/* Whether or not it is the last, whoever takes it has a reference. */
Test(object, a_hold_is_taken_with_a_reference) {
    void *handle = publish(OBJECT_BUFFER, 1);
    object *taken[2] = {NULL, NULL};
    bool is_last = true;
    check_ok(object_add_hold(OBJECT_BUFFER, handle));
    check_ok(object_take_hold(OBJECT_BUFFER, handle, &taken[0], &is_last));
    cr_assert_not(is_last);
    check_ok(object_take_hold(OBJECT_BUFFER, handle, &taken[1], &is_last));
    cr_assert(is_last);
    cr_assert_eq(taken[0], taken[1]);
    check_status(GPUIPC_ERR_RELEASED, object_take_hold(OBJECT_BUFFER, handle, &taken[1], &is_last));
    object_unreference(taken[0]);
    cr_assert_eq(atomic_load(&destroyed), 0);
    object_unreference(taken[1]);
    cr_assert_eq(atomic_load(&destroyed), 1);
}

Test(object, another_kind_is_not_found) {
    static const object_kind kinds[] = {OBJECT_CONTEXT, OBJECT_BUFFER, OBJECT_LISTENER,
                                        OBJECT_CONNECTION};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        void *handle = publish(kinds[i], (uint32_t)i);
        for (size_t j = 0; j < sizeof(kinds) / sizeof(kinds[0]); j++) {
            object *found = NULL;
            check_status(i == j ? GPUIPC_OK : GPUIPC_ERR_RELEASED,
                         object_acquire(kinds[j], handle, &found));
            object_unreference(found);
            if (i != j) {
                check_status(GPUIPC_ERR_RELEASED, object_add_hold(kinds[j], handle));
                check_status(GPUIPC_ERR_RELEASED, drop(kinds[j], handle));
            }
        }
        check_ok(drop(kinds[i], handle));
    }
}

Test(object, values_never_given_out_are_refused) {
    void *handle = publish(OBJECT_BUFFER, 1);
    const uintptr_t live = (uintptr_t)handle;
    int somewhere = 0;
    const uintptr_t values[] = {1,
                                2,
                                (uintptr_t)&somewhere,
                                (uintptr_t)&somewhere | 1u,
                                UINTPTR_MAX,
                                UINTPTR_MAX - 1,
                                live - 1,                    /* not odd */
                                live + 2,                    /* the next slot */
                                live + ((uintptr_t)1 << 25), /* the next generation */
                                live ^ ((uintptr_t)1 << 63)};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        void *value = (void *)values[i];
        object *found = NULL;
        check_status(GPUIPC_ERR_RELEASED, object_acquire(OBJECT_BUFFER, value, &found));
        check_status(GPUIPC_ERR_RELEASED, object_add_hold(OBJECT_BUFFER, value));
        check_status(GPUIPC_ERR_RELEASED, drop(OBJECT_BUFFER, value));
    }
    object *found = NULL;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "buffer is NULL",
                  object_acquire(OBJECT_BUFFER, NULL, &found));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "server is NULL",
                  object_acquire(OBJECT_SERVER, NULL, &found));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, object_add_hold(OBJECT_BUFFER, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, drop(OBJECT_BUFFER, NULL));
    check_ok(drop(OBJECT_BUFFER, handle));
    cr_assert_eq(atomic_load(&destroyed), 1);
    object_unreference(NULL);
}

Test(object, a_slot_used_again_gives_another_handle) {
    enum {
        TIMES = 1000
    };
    static void *stale[TIMES];
    for (uint32_t i = 0; i < TIMES; i++) {
        stale[i] = publish(OBJECT_BUFFER, i);
        for (uint32_t j = 0; j < i; j++) {
            cr_assert_neq(stale[i], stale[j]);
        }
        check_ok(drop(OBJECT_BUFFER, stale[i]));
    }
    void *live = publish(OBJECT_BUFFER, TIMES);
    for (uint32_t i = 0; i < TIMES; i++) {
        check_status(GPUIPC_ERR_RELEASED, drop(OBJECT_BUFFER, stale[i]));
    }
    object *found;
    check_ok(object_acquire(OBJECT_BUFFER, live, &found));
    cr_assert_eq(((thing *)found)->number, TIMES);
    object_unreference(found);
    check_ok(drop(OBJECT_BUFFER, live));
}

Test(object, many_objects_keep_apart) {
    enum {
        COUNT = 5000
    };
    static void *handles[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        handles[i] = publish(OBJECT_BUFFER, i);
        cr_assert_not_null(handles[i]);
        /* no address of an object has its lowest bit set, so the two cannot be mistaken */
        cr_assert_eq((uintptr_t)handles[i] & 1u, 1);
    }
    for (uint32_t i = 0; i < COUNT; i += 2) {
        check_ok(drop(OBJECT_BUFFER, handles[i]));
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        object *found = NULL;
        check_status(i % 2 == 0 ? GPUIPC_ERR_RELEASED : GPUIPC_OK,
                     object_acquire(OBJECT_BUFFER, handles[i], &found));
        cr_assert(found == NULL || ((thing *)found)->number == i);
        object_unreference(found);
    }
    for (uint32_t i = 1; i < COUNT; i += 2) {
        check_ok(drop(OBJECT_BUFFER, handles[i]));
    }
    cr_assert_eq(atomic_load(&destroyed), COUNT);
}

/* ---- a thread that ends in the middle ---------------------------------------------------- */

static GPUIPC_THREAD_LOCAL unsigned asks_until_it_stays; /* 0: it does not */
static atomic_bool stays;
static atomic_bool goes_on;
static atomic_bool others_have_ended;

uint32_t __real_os_fork_generation(void);
uint32_t __wrap_os_fork_generation(void);
uint32_t __wrap_os_fork_generation(void) {
    if (asks_until_it_stays > 0 && --asks_until_it_stays == 0) {
        atomic_store(&stays, true);
        while (!atomic_load(&goes_on)) {
            os_sleep_ms(1);
        }
    }
    return __real_os_fork_generation();
}

bool __wrap_os_other_threads_have_ended(void);
bool __wrap_os_other_threads_have_ended(void) {
    return atomic_load(&others_have_ended);
}

/* What the lock is taken with is asked for first, and whether the object is the parent's while it is held. */
static void acquire_and_stay(void *handle) {
    object *found = NULL;
    asks_until_it_stays = 2;
    check_ok(object_acquire(OBJECT_BUFFER, handle, &found));
    object_unreference(found);
}

/* As on Windows, where a process ends its threads first: what a library still releases then is released. */
Test(object, what_a_thread_that_has_ended_had_locked_is_free) {
    void *handle = publish(OBJECT_BUFFER, 7);
    object *kept;
    os_thread *thread;
    check_ok(object_acquire(OBJECT_BUFFER, handle, &kept)); /* for the thread, which here goes on */
    check_ok(os_thread_start(acquire_and_stay, handle, &thread));
    while (!atomic_load(&stays)) {
        os_sleep_ms(1);
    }
    atomic_store(&others_have_ended, true);
    check_ok(drop(OBJECT_BUFFER, handle));
    atomic_store(&goes_on, true);
    os_thread_join(thread);
    cr_assert_eq(atomic_load(&destroyed), 0);
    object_unreference(kept);
    cr_assert_eq(atomic_load(&destroyed), 1);
}

/* ---- threads ----------------------------------------------------------------------------- */

enum {
    THREADS = 4,
    ROUNDS = 5000
};

typedef struct crowd {
    void *handle; /* one that all use, and one of them drops */
    atomic_uint released;
    atomic_uint wrong;
    atomic_uint finished;
} crowd;

static void use_and_drop(void *argument) {
    crowd *all = argument;
    for (int i = 0; i < ROUNDS; i++) {
        thing *own = make(OBJECT_CONNECTION, (uint32_t)i);
        void *handle = NULL;
        object *found = NULL;
        if (object_publish(&own->object, &handle) != GPUIPC_OK ||
            object_acquire(OBJECT_CONNECTION, handle, &found) != GPUIPC_OK ||
            ((thing *)found)->number != (uint32_t)i ||
            drop(OBJECT_CONNECTION, handle) != GPUIPC_OK) {
            atomic_fetch_add(&all->wrong, 1);
        }
        object_unreference(found);
        found = NULL;
        gpuipc_status status = object_acquire(OBJECT_BUFFER, all->handle, &found);
        if (status == GPUIPC_OK && ((thing *)found)->number != 4711) {
            atomic_fetch_add(&all->wrong, 1);
        }
        if (status != GPUIPC_OK && status != GPUIPC_ERR_RELEASED) {
            atomic_fetch_add(&all->wrong, 1);
        }
        object_unreference(found);
        if (i == ROUNDS / 2 && drop(OBJECT_BUFFER, all->handle) == GPUIPC_OK) {
            atomic_fetch_add(&all->released, 1);
        }
    }
    atomic_fetch_add(&all->finished, 1);
}

Test(object, threads_use_and_drop_at_the_same_time) {
    crowd all = {.handle = publish(OBJECT_BUFFER, 4711)};
    os_thread *threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        check_ok(os_thread_start(use_and_drop, &all, &threads[i]));
    }
    for (size_t i = 0; i < THREADS; i++) {
        os_thread_join(threads[i]);
    }
    cr_assert_eq(atomic_load(&all.finished), THREADS);
    cr_assert_eq(atomic_load(&all.wrong), 0);
    cr_assert_eq(atomic_load(&all.released), 1); /* one of them dropped it, the others were told */
    cr_assert_eq(atomic_load(&destroyed), THREADS * ROUNDS + 1);
}

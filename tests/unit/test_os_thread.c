/* SPDX-License-Identifier: MIT */
/** @file Mutexes, conditions, threads. */
#include <stdatomic.h>

#include "check.h"
#include "os.h"

TestSuite(os_thread, .timeout = 60);

enum {
    THREADS = 4,
    ROUNDS = 20000
};

typedef struct shared {
    os_mutex mutex;
    os_condition condition;
    os_static_mutex *fixed;
    int counter;
    int waiting;
    bool open;
} shared;

static void count_with_mutex(void *argument) {
    shared *all = argument;
    for (int i = 0; i < ROUNDS; i++) {
        os_mutex_lock(&all->mutex);
        all->counter++;
        os_mutex_unlock(&all->mutex);
    }
}

static void count_with_static_mutex(void *argument) {
    shared *all = argument;
    for (int i = 0; i < ROUNDS; i++) {
        os_static_mutex_lock(all->fixed);
        all->counter++;
        os_static_mutex_unlock(all->fixed);
    }
}

static void run_all(void (*run)(void *), shared *all) {
    os_thread *threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        check_ok(os_thread_start(run, all, &threads[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        os_thread_join(threads[i]);
    }
}

Test(os_thread, a_mutex_admits_one) {
    shared all = {0};
    run_all(count_with_mutex, &all);
    cr_assert_eq(all.counter, THREADS * ROUNDS);
}

Test(os_thread, a_static_mutex_admits_one) {
    static os_static_mutex fixed;
    shared all = {.fixed = &fixed};
    run_all(count_with_static_mutex, &all);
    cr_assert_eq(all.counter, THREADS * ROUNDS);
}

static void try_lock(void *argument) {
    shared *all = argument;
    all->open = os_mutex_try_lock(&all->mutex);
    if (all->open) {
        os_mutex_unlock(&all->mutex);
    }
}

Test(os_thread, try_lock_answers_at_once) {
    shared all = {0};
    os_thread *thread;
    cr_assert(os_mutex_try_lock(&all.mutex));
    check_ok(os_thread_start(try_lock, &all, &thread));
    os_thread_join(thread);
    cr_assert_not(all.open);
    os_mutex_unlock(&all.mutex);
    check_ok(os_thread_start(try_lock, &all, &thread));
    os_thread_join(thread);
    cr_assert(all.open);
}

static void wait_for_open(void *argument) {
    shared *all = argument;
    os_mutex_lock(&all->mutex);
    all->waiting++;
    os_condition_signal_all(&all->condition);
    while (!all->open) {
        cr_assert(os_condition_wait(&all->condition, &all->mutex, os_deadline_after(-1)));
    }
    all->counter++;
    os_mutex_unlock(&all->mutex);
}

Test(os_thread, a_signal_wakes_all_who_wait) {
    shared all = {0};
    os_thread *threads[THREADS];
    check_ok(os_condition_init(&all.condition));
    for (int i = 0; i < THREADS; i++) {
        check_ok(os_thread_start(wait_for_open, &all, &threads[i]));
    }
    os_mutex_lock(&all.mutex);
    while (all.waiting < THREADS) {
        cr_assert(os_condition_wait(&all.condition, &all.mutex, os_deadline_after(20000)));
    }
    all.open = true;
    os_condition_signal_all(&all.condition);
    os_mutex_unlock(&all.mutex);
    for (int i = 0; i < THREADS; i++) {
        os_thread_join(threads[i]);
    }
    cr_assert_eq(all.counter, THREADS);
    os_condition_destroy(&all.condition);
}

Test(os_thread, a_wait_ends_at_its_deadline) {
    static const int lengths[] = {0, 1, 50};
    shared all = {0};
    check_ok(os_condition_init(&all.condition));
    os_mutex_lock(&all.mutex);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        os_deadline deadline = os_deadline_after(lengths[i]);
        while (os_condition_wait(&all.condition, &all.mutex, deadline)) {
            cr_assert_not(os_deadline_passed(deadline)); /* woken for no reason: allowed */
        }
        cr_assert(os_deadline_passed(deadline));
    }
    /* The mutex is held again after a wait that ran out. */
    os_thread *thread;
    all.open = true;
    check_ok(os_thread_start(try_lock, &all, &thread));
    os_thread_join(thread);
    cr_assert_not(all.open);
    os_mutex_unlock(&all.mutex);
    os_condition_destroy(&all.condition);
}

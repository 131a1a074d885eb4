/* SPDX-License-Identifier: MIT */
/** @file See task.h. */
#include "task.h"

#include <stdio.h>
#include <stdlib.h>

#include "word.h"

task *task_new(CUcontext owner, work *todo) {
    task *one = calloc(1, sizeof(*one));
    if (one != NULL) {
        one->references = 1;
        one->owner = owner;
        one->todo = todo;
    }
    return one;
}

void task_retain(task *one) {
    one->references++;
}

/* What it waited for would otherwise hold the whole past of the streams. */
static void drop_after(task *one) {
    for (size_t i = 0; i < one->after_count; i++) {
        task_release(one->after[i]);
    }
    free(one->after);
    one->after = NULL;
    one->after_count = 0;
}

void task_release(task *one) {
    if (one == NULL || --one->references > 0) {
        return;
    }
    drop_after(one);
    work_free(one->todo);
    free(one);
}

bool task_add_after(task *one, task *other) {
    if (other == NULL || other->is_done) {
        return true;
    }
    task **grown = realloc(one->after, (one->after_count + 1) * sizeof(*grown));
    if (grown == NULL) {
        return false;
    }
    task_retain(other);
    one->after = grown;
    one->after[one->after_count++] = other;
    return true;
}

bool task_is_ready(const task *one) {
    for (size_t i = 0; i < one->after_count; i++) {
        if (!one->after[i]->is_done) {
            return false;
        }
    }
    return true;
}

void task_wait_ready(const task *one) {
    while (!task_is_ready(one)) {
        state_wait();
    }
}

void task_wait_done(const task *one) {
    while (!one->is_done) {
        state_wait();
    }
}

/* Waits for a word, with the lock released meanwhile. False: its memory was unmapped, or its access
 * changed, or the context ends, and nobody may ever write it. */
static bool run_wait(const task *one) {
    const uint64_t begin_ns = os_clock_ns();
    while (!word_is_reached(one->todo)) {
        if (context_is_ending(one->owner)) {
            fprintf(stderr, "gpuipc emulated driver: a context ends while one of its streams waits "
                            "for a word; with a GPU that takes for ever\n");
            return false;
        }
        state_unlock();
        word_watch(one->todo, os_clock_ns() - begin_ns);
        state_lock();
        if (!work_is_mapped(one->todo)) {
            return false;
        }
    }
    return true;
}

/* False: its memory was unmapped, or its access changed, before it ran or while it did. */
static bool run_work(const task *one) {
    const work *todo = one->todo;
    if (!work_is_mapped(todo)) {
        return false;
    }
    if (todo->kind == WORK_WAIT) {
        return run_wait(one);
    }
    state_unlock();
    work_run(todo);
    state_lock();
    return work_is_mapped(todo);
}

void task_run(task *one) {
    if (one->todo != NULL) {
        if (context_health(one->owner) == CUDA_SUCCESS && !run_work(one)) {
            context_fault(one->owner);
        }
        work_free(one->todo);
        one->todo = NULL;
    }
    drop_after(one);
    one->is_done = true;
    one->done_ns = os_clock_ns();
    state_announce();
}

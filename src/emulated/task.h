/* SPDX-License-Identifier: MIT */
/** @file One thing that a stream does, and what it must wait for. The driver's lock is held in
 *  every call. */
#ifndef GPUIPC_EMULATED_TASK_H
#define GPUIPC_EMULATED_TASK_H

#include "work.h"

typedef struct task {
    unsigned references;
    CUcontext owner; /**< whose work it is; it may be gone */
    bool is_done;
    uint64_t done_ns;    /**< on the monotonic clock */
    work *todo;          /**< NULL: it only marks a point */
    struct task **after; /**< what must be done first; one reference each */
    size_t after_count;
    bool ends_call;    /**< it takes up room that its stream has for calls */
    struct task *next; /**< in its stream's queue */
} task;

/** One reference, for the caller. Takes @p todo over on success. NULL when there is no memory. */
task *task_new(CUcontext owner, work *todo);
void task_retain(task *one);
/** NULL is allowed. */
void task_release(task *one);

/** It must wait for another; nothing to do if that is NULL or done. */
bool task_add_after(task *one, task *other);

/** Whether nothing that it waits for is left. */
bool task_is_ready(const task *one);
/** Waits until it is ready, or done, with the lock released meanwhile. */
void task_wait_ready(const task *one);
void task_wait_done(const task *one);

/** Runs it, with the lock released meanwhile, and finishes it. It is ready. Work whose memory was
 *  unmapped, and a wait in a context that is being ended, ends its context; in a context that has ended so, nothing runs any more. */
void task_run(task *one);

#endif

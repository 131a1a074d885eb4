/* SPDX-License-Identifier: MIT */
/**
 * @file Teardown that waits for the devices: cuMemFree, cuMemHostUnregister, cuMemFreeHost and
 * cuIpcCloseMemHandle go on when all streams have done their work, and hang as long as one waits for a word
 * (measured on an H200, driver 580), whichever context of gpuipc it belongs to: the CUDA contexts are the
 * process's. So such teardown goes on its context's list, unless the program asked for it at that moment: pages of points,
 * of passages and of channels, rings of contents, buffers, legacy handles, and remains of a transport's trial. These calls
 * run the list, since they may wait: the end of a connection, a channel, a subscription or the context,
 * gpuipc_buffer_await_returns(), the release of a buffer that has to wait by itself, a measurement, a connection that is
 * at a limit, and an allocation or an opening for which there is too little room. Where there are many, making and opening
 * a buffer run some. After drops, the thread that looks after them runs those that nothing uses, while the devices are
 * idle (drop.c). Nothing runs the list while a stream of this process waits for another process.
 */
#ifndef GPUIPC_DEFERRED_H
#define GPUIPC_DEFERRED_H

#include <gpuipc/gpuipc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "os.h"

struct context;

/** Lies in what is to be torn down. */
typedef struct deferred {
    list_link link;
    uint64_t bytes;
    /** Whether nothing uses it any more; NULL: nothing does. */
    bool (*is_ready)(struct deferred *self);
    /** Ends it, and its memory. No lock is held. @param forked in a child, without driver calls */
    void (*run)(struct deferred *self, bool forked);
} deferred;

/** Those of one context, which are run when its points end. All zero is empty. */
typedef struct deferred_list {
    linked_list ready;  /**< nothing uses them: without is_ready() */
    linked_list in_use; /**< is_ready() says when that is over */
    uint64_t bytes;
    uint64_t additions;
} deferred_list;

extern const struct context_part deferred_part;

/** Makes no driver call, and may be called with any lock held. */
void deferred_add(deferred_list *self, deferred *item);
/** Takes one off the list, which may be needed again. False: it is being looked at, and may be over. */
bool deferred_take(deferred_list *self, deferred *item);
/** It is not: back on the list. */
void deferred_put_back(deferred_list *self, deferred *item);

/** Runs those that are ready, unless a stream waits for another process. No lock is held, and a reference
 *  on the context is. @return whether there were any */
bool deferred_run(deferred_list *self);
/** The same of a context, in calls that may wait for the devices. */
bool deferred_work_off(struct context *ctx);
bool deferred_is_empty(const deferred_list *self);
/** Whether there is one that nothing uses. */
bool deferred_has_ready(const deferred_list *self);
/** Runs one that nothing uses, unless a stream waits for another process. For the thread of drop.c. @return whether it did */
bool deferred_run_ready(deferred_list *self);
/** Whether so many are kept that running them is worth a wait. */
bool deferred_are_many(const deferred_list *self);
/** Runs them if they are many: at the end of what a program opens and closes again and again. */
void deferred_tidy(struct context *ctx);
/** Runs some of them if they are many: where a program makes or opens buffers again and again. The cost does not depend on
 *  how many are in use still. */
void deferred_tidy_some(struct context *ctx);
/** Whether a failure is for want of room. */
bool deferred_may_help(gpuipc_status status);
/** After such a failure: runs all of them, and what was dropped. Keeps the record.
 *  @return whether that ended anything */
bool deferred_make_room(struct context *ctx);
/** How often something was added: who looks before and after knows whether anything was. */
uint64_t deferred_additions(const deferred_list *self);

/** At the end of the context: waits until all are ready. False: some were not, or streams still wait
 *  for other processes, and what is left is left to the end of the process.
 *  @param forked runs them all */
bool deferred_end(deferred_list *self, os_deadline deadline, bool forked);

/** A stream of this process is about to wait for another process; and no longer does. The former waits while memory is
 *  freed, which waits for what the devices have been given so far, but for no other process. No lock is held that is taken
 *  while that goes on. */
void deferred_wait_begins(void);
void deferred_wait_ends(void);
/** Whether none does. */
bool deferred_is_quiet(void);
/** Memory is about to be freed by a call that waits for all streams: false when one of them waits for another process. Else
 *  none begins to before deferred_free_ends(). */
bool deferred_free_begins(void);
void deferred_free_ends(void);

#endif

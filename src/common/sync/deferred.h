/* SPDX-License-Identifier: MIT */
/**
 * @file Teardown that waits for the devices: cuMemFree, cuMemHostUnregister, cuMemFreeHost and
 * cuIpcCloseMemHandle go on when all streams have done their work, and hang as long as one waits for a word
 * (measured on an H200, driver 580), whichever context of gpuipc it belongs to: the CUDA contexts are the
 * process's. So what nobody asked for at that moment is put on its context's list: pages of points, of passages and of
 * channels, rings of contents, buffers, legacy handles, and what a trial of a transport has left. Calls run it that may
 * wait: the end of a connection, a channel, a subscription or the context, gpuipc_buffer_await_returns(), the release of a
 * buffer that has to wait by itself, a measurement, a connection that is at a limit, and an allocation for which there is
 * too little memory. Where there are many, making a buffer runs some. None of them does so while a stream of this process
 * waits for another process.
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
    linked_list items;
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
/** Whether so many are kept that running them is worth a wait. */
bool deferred_are_many(const deferred_list *self);
/** Runs them if they are many: at the end of what a program opens and closes again and again. */
void deferred_tidy(struct context *ctx);
/** Runs some of them if they are many: before what a program makes again and again. What it costs does not depend on how many
 *  are in use still. */
void deferred_tidy_some(struct context *ctx);
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

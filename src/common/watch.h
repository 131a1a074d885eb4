/* SPDX-License-Identifier: MIT */
/**
 * @file Streams that wait for a word of another process must go on when that process ends; and what a buffer
 * owes its lender after a stream's write is stored behind that. As long as there are such streams, and no
 * longer, a thread of the context looks after them.
 */
#ifndef GPUIPC_WATCH_H
#define GPUIPC_WATCH_H

#include "borrow.h"
#include "point.h"

typedef struct watch {
    os_mutex mutex; /**< guards the rest */
    os_condition changed;
    struct watch_entry *first;
    struct watch_thread *thread; /**< NULL: there is none */
    struct context *context;
} watch;

/** Starts no thread yet. */
gpuipc_status watch_init(watch *self, struct context *ctx);

/** Lets go every stream that still waits, until they have passed or the deadline, and ends the thread.
 *  @param forked there is no thread here, and only memory is freed */
void watch_end(watch *self, os_deadline deadline, bool forked);

/** Looks after one word that a stream is about to wait for, until the stream has passed @p passage: a peer
 *  can take back what it has written. When the peer's process ends first, the word is stored here, and again
 *  if need be.
 *  @param of marked as lost then, if the word was not there; NULL: nothing is */
gpuipc_status watch_add(watch *self, point_page *page, const point_word *word,
                        const point_word *passage, borrow *of);

/** Tells @p of when a stream has passed of->passage: borrow_passed(). */
gpuipc_status watch_add_return(watch *self, borrow *of);

/** Forgets what is over, and ends the thread when nothing is left to look after. */
void watch_collect(watch *self);
/** Only the latter, whatever it costs to look. */
void watch_tidy(watch *self);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * @file Streams that wait for a word of another process must go on when nobody is there any more who would write it; and
 * what a buffer owes its exporter after a stream's write is stored behind that. As long as there are such streams, and no
 * longer, the peer monitor thread looks after them (monitor.h): at each peer once, and at a few of its streams in turn.
 */
#ifndef GPUIPC_WATCH_H
#define GPUIPC_WATCH_H

#include "sync/import_record.h"
#include "sync/monitor.h"
#include "sync/point.h"

typedef struct watch {
    os_mutex mutex; /**< guards the rest */
    linked_list
        groups; /**< one for each peer that is waited for; not looked at for longest: first */
    linked_list returns; /**< streams that write and wait for no process; likewise */
    monitored monitored; /**< by the peer monitor thread */
    bool is_monitored;   /**< from monitor_begin() until a look finds no such stream */
    struct context *context;
} watch;

/** Its end unblocks every stream that still waits, and waits until they have passed or the deadline. */
extern const struct context_part watch_part;

/** Looks after one word that a stream is about to wait for, until the stream has passed @p passage: a peer
 *  can take back what it has written. When nobody is there any more to write it, it is stored here, and again
 *  if need be. Before this deferred_wait_begins() is called, whose end is the watch's business, on success.
 *  @param of marked as lost then, if the word was not there; NULL: nothing is */
gpuipc_status watch_add(struct context *ctx, const point_word *word, const point_word *passage,
                        import_record *of);

/** Looks after the word of a channel's slot that a stream is about to wait for, until the slot's trail says that it has
 *  passed, and the page is not captured (point_page::is_captured). The slot's turn has begun (trail.c), or it is captured.
 *  All waits for one page are one thing here. @param word what is stored so that they pass */
gpuipc_status watch_add_slot(struct context *ctx, const point_word *word, uint32_t slot);

/** Tells @p of when a stream has passed of->passage: import_record_passed(). */
gpuipc_status watch_add_return(struct context *ctx, import_record *of);

/** Stores a word when a stream has passed @p passage, unless it has that value or a later one. */
gpuipc_status watch_add_store(struct context *ctx, const point_word *word,
                              const point_word *passage);

/** Forgets what is over, and ends the thread when the process has nothing left to look after. */
void watch_sweep(struct context *ctx);
/** Only the latter. */
void watch_tidy(struct context *ctx);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * @file Turns at the one slot of a channel that has no numbers: the writer's and its readers'. What both ends put on their
 * streams is the same each time, so that a graph can repeat it (docs/adr/0024). Each reader's page has two words. The
 * writer awaits "free", fills the slot, sets that back and says "ready"; the reader does the same the other way round.
 *
 * Streams write the low halves of these words, and wait for the whole. When nobody is there any more to say it, the high
 * half is set, for good: all waits pass from then on, whatever graphs go on writing.
 */
#ifndef GPUIPC_TURN_H
#define GPUIPC_TURN_H

#include "channel/channel_page.h"

/** The numbers of the two words. */
enum {
    TURN_READY = CHANNEL_ENTRIES + CHANNEL_READY,
    TURN_FREE = CHANNEL_ENTRIES + CHANNEL_RETURNED
};

/** What one end has of a turn. All zero: nothing. */
typedef struct turn_state {
    bool is_captured;
    uint32_t awaited; /**< TURN_FREE for the writer, TURN_READY for a reader */
    size_t count;
    point_page *pages[GPUIPC_CHANNEL_READERS_MAX]; /**< a reference on each */
} turn_state;

/** Whose it is. */
typedef struct turn_end {
    struct context *context;
    os_mutex *
        mutex; /**< guards the turn; held, and given up while a stream is given something that its queue may have no
                      *   room for. The caller sees to it that nobody begins or finishes a turn of this end meanwhile. */
    trail *trail;    /**< of the streams of this end */
    uint32_t device; /**< whose default stream is meant */
    turn_state *turn;
    point_words *
        captured; /**< gets each page that is captured, for turn_page_end(); NULL: the caller has it */
} turn_end;

/** Lets a stream wait until the turn is this end's, on each of the turn's pages; into a graph when it is being captured.
 *  Pages that are captured stay so until turn_page_end(). Nothing is owed: what was not ended changes no word.
 *  ERR_TIMEOUT: streams of this end, not captured, are too far behind; ERR_CUDA; ERR_LIMIT: too many pages are captured;
 *  ERR_NOT_SUPPORTED: streams of this device do not wait for words */
gpuipc_status turn_begin(const turn_end *of, gpuipc_stream stream);
/** Behind what the stream was given: the turn is the other's. ERR_INVALID_ARGUMENT: captured and begun on a stream that
 *  was not, or the other way round */
gpuipc_status turn_pass(const turn_end *of, gpuipc_stream stream);
/** One more page, with a reference on it. */
void turn_add(turn_state *self, point_page *page);
/** Its pages are given up. */
void turn_clear(turn_state *self, bool forked);

/** Before a page is sent: the first turn is the writer's. */
void turn_page_begin(const point_page *page);
/** Every stream that waits for this word passes from now on, also in launches that come later. */
void turn_let_go(point_page *page, uint32_t at);
/** Whether it is the writer's turn, or always is. */
bool turn_is_free(const point_page *page);
bool turn_is_let_go(const point_page *page, uint32_t at);
/** This end begins to end: who waits in the driver for room behind what waits for the other end comes back. */
void turn_page_give_up(point_page *page);
/** The same, and no graph is launched any more. */
void turn_page_end(point_page *page);

#endif

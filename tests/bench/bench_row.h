/* SPDX-License-Identifier: MIT */
/** @file A row: something measured, and what was found. */
#ifndef GPUIPC_BENCH_ROW_H
#define GPUIPC_BENCH_ROW_H

#include <stdbool.h>

#include "pair.h"

typedef struct bench_row {
    const char *name;
    const char *text; /**< what is measured */
    void (*run)(bench_pair *pair, const struct bench_row *row);
    /** A fixed one: rows may share a function. */
    uint64_t bytes;
    bool is_peer;  /**< owner and opener are two GPUs */
    double target; /**< 0: none */
    /** Whether it wants the processes that share memory without gpuipc. */
    bool wants_floor;
    bool
        is_new; /**< memory made the moment before (stock.h); a ticket of a server that nobody has met */
} bench_row;

/** NULL: there is none. */
const bench_row *row_find(const char *name);
/** Row number @p index, or NULL. */
const bench_row *row_at(size_t index);
void row_list_print(void);

void row_share(bench_pair *pair, const bench_row *row);      /**< row_share.c */
void row_sizes(bench_pair *pair, const bench_row *row);      /**< row_share.c */
void row_segments(bench_pair *pair, const bench_row *row);   /**< row_share.c */
void row_batch(bench_pair *pair, const bench_row *row);      /**< row_batch.c */
void row_live(bench_pair *pair, const bench_row *row);       /**< row_live.c */
void row_manifest(bench_pair *pair, const bench_row *row);   /**< row_manifest.c */
void row_consumers(bench_pair *pair, const bench_row *row);  /**< row_consumers.c */
void row_give_up(bench_pair *pair, const bench_row *row);    /**< row_give_up.c */
void row_copy(bench_pair *pair, const bench_row *row);       /**< row_copy.c */
void row_open_again(bench_pair *pair, const bench_row *row); /**< row_ticket.c */
void row_ticket(bench_pair *pair, const bench_row *row);     /**< row_ticket.c */
/* row_channel.c */
void row_channel_looking(bench_pair *pair, const bench_row *row);
void row_channel_asleep(bench_pair *pair, const bench_row *row);
void row_channel_sizes(bench_pair *pair, const bench_row *row);
void row_channel_readers(bench_pair *pair, const bench_row *row);
/* row_channel_stream.c */
void row_channel_hops(bench_pair *pair, const bench_row *row);
void row_channel_calls(bench_pair *pair, const bench_row *row);
void row_channel_frames(bench_pair *pair, const bench_row *row);
void row_threads(bench_pair *pair, const bench_row *row); /**< row_threads.c */
void row_at_rest(bench_pair *pair, const bench_row *row); /**< row_rest.c */

#endif

/* SPDX-License-Identifier: MIT */
/**
 * @file Things measured in turns, in blocks of rounds: a round after another thing's is a cold one (on an H200,
 * driver 580, by half again as long), and a block begins with rounds that do not count.
 */
#ifndef GPUIPC_BENCH_BLOCK_H
#define GPUIPC_BENCH_BLOCK_H

#include "pair.h"
#include "samples.h"

typedef struct block_plan {
    uint32_t blocks; /**< of each thing */
    uint32_t warm;   /**< rounds in the beginning of each that do not count */
    uint32_t rounds; /**< that do */
} block_plan;

/** One round of one thing. @param value of the memory's words, another one in each round
 *  @param counts whether to take samples */
typedef void block_round(void *of, uint32_t value, bool counts);

/** What the command line makes of it. */
block_plan block_plan_for(const bench_pair *pair, block_plan usual);

/** A block of one thing. */
void block_take(block_round *take, void *of, const block_plan *plan);
/** One of each of several; which is first changes with the block's @p number. */
void block_take_each(block_round *const *take, size_t count, void *of, const block_plan *plan,
                     uint32_t number);

#endif

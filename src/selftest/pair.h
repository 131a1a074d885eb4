/* SPDX-License-Identifier: MIT */
/** @file Two devices, and a producer and a consumer that share memory between them: each a program of its own, watched until
 *  both have ended. */
#ifndef GPUIPC_SELFTEST_PAIR_H
#define GPUIPC_SELFTEST_PAIR_H

#include "crew.h"

typedef struct pair {
    uint32_t owner; /**< the device of the memory */
    uint32_t user;  /**< the device of the consumer; DEVICE_ANY: its choice */
} pair;

/** For how many the same two programs are used: to start one takes longer than to share. */
#define PAIRS_MAX 128

/** Runs the cases of each pair, and prints a line for each. Where the programs end after a failure, others go on behind it.
 *  @param choice as --driver takes it
 *  @param count at most PAIRS_MAX
 *  @param cases how many each pair has */
void pair_run_all(const options *wanted, const char *choice, const pair *pairs, size_t count,
                  unsigned cases, tally *total);

/** Reads what --pairs has: "0-0,0-1". @return how many; 0: it is malformed */
size_t pair_read_all(const char *text, pair out_pairs[PAIRS_MAX]);

#endif

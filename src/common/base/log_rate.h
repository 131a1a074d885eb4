/* SPDX-License-Identifier: MIT */
/**
 * @file How often the log hears of what other processes do, who can do it as often as they like. No lock: a child that was
 * forked meanwhile finds none held.
 */
#ifndef GPUIPC_LOG_RATE_H
#define GPUIPC_LOG_RATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/** So many are said in each second of the clock. The log callback's comment promises it. */
#define LOG_RATE_MOST 16u

/** Zeroed memory is one. */
typedef struct log_rate {
    atomic_uint_least64_t
        word; /**< which second the next counts for, and how many were said in it */
    atomic_uint_least64_t left_out;
} log_rate;

/** Whether a sentence may be said, at a time of os_clock_ns().
 *  @param out_left_out how many were left out before it, of which nobody has been told; 0 unless a second has begun */
bool log_rate_admit(log_rate *self, uint64_t now_ns, uint64_t *out_left_out);

/** How many were left out of which nobody has been told; they are told now. */
uint64_t log_rate_settle(log_rate *self);

#endif

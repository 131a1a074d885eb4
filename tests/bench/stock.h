/* SPDX-License-Identifier: MIT */
/**
 * @file Memory that waits to be shared. cuMemCreate returns while the GPU still clears what somebody had before, and
 * the next cuMemSetAccess on that GPU waits for the rest: on an H200 with driver 580 1 GiB opens on its own GPU in 0.4
 * to 0.8 ms at once, and in 0.12 ms after 20 ms. Memory that a program shares was made and filled long before. So it
 * is made in advance, for as many rounds as there is room for, filled, and left alone for a moment.
 * Memory that is given up is cleared too. The next cuMemSetAccess took 0.86 ms right after 1 GiB had been given up, and
 * 0.30 ms where each round began 5 ms later. So what was used is given up when all has been.
 */
#ifndef GPUIPC_BENCH_STOCK_H
#define GPUIPC_BENCH_STOCK_H

#include <stdint.h>

#define STOCK_MAX 128u

/** Empty: all zero. */
typedef struct stock {
    void *made[STOCK_MAX];
    uint32_t count;
    uint32_t next;
} stock;

/** Makes one, and fills it with @p value. */
typedef void *stock_make(void *of, uint32_t value);

/** Gives one up. */
typedef void stock_end(void *of, void *made);

/** How many of these bytes each fit into what device @p device has free, with room left; 1 to ::STOCK_MAX. */
uint32_t stock_room(uint32_t device, uint64_t bytes);

/** The next. When none is left, @p ahead are made, with the values @p value, @p value + 1 and so on, as the rounds
 *  have them. Of one alone there is no moment: it is as new as it can be. */
void *stock_take(stock *self, uint32_t ahead, stock_make *make, void *of, uint32_t value);

/** After each round: gives up all that there were, if this was the last of them. */
void stock_settle(stock *self, stock_end *end, void *of);

#endif

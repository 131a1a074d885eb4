/* SPDX-License-Identifier: MIT */
/** @file The contents that a buffer has received last, and whether they were lost on the way. */
#ifndef GPUIPC_ARRIVAL_H
#define GPUIPC_ARRIVAL_H

#include "borrow.h"
#include "point.h"

struct buffer;

/** All zero: none. Guarded by the context's point mutex. */
typedef struct arrival {
    borrow *of;        /**< a reference; marked when the sender ended first */
    point_page *words; /**< through a ring: a reference on its words; else NULL */
    uint64_t end;      /**< and the number behind its last piece */
} arrival;

/** Notes contents in place of those before. Takes references of its own. */
void arrival_set(struct buffer *self, borrow *of, point_page *words, uint64_t end);

bool arrival_is_lost(struct buffer *self);

void arrival_clear(arrival *self, bool forked);

#endif

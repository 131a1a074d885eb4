/* SPDX-License-Identifier: MIT */
/** @file When shares expire: a heap, the next one first. */
#ifndef GPUIPC_EXPIRY_H
#define GPUIPC_EXPIRY_H

#include <gpuipc/gpuipc.h>

/** One of them, in what expires. All zero is in no heap. */
typedef struct expiry {
    uint64_t at_ns;   /**< on the monotonic clock */
    struct share *of; /**< what expires */
    size_t place;     /**< 1 + its number in the heap; 0: it is not there */
} expiry;

/** All zero is empty. */
typedef struct expiry_heap {
    expiry **entries;
    size_t count;
    size_t capacity;
} expiry_heap;

/** ERR_OUT_OF_MEMORY */
gpuipc_status expiry_add(expiry_heap *self, expiry *entry);
/** One that is not there is left alone. */
void expiry_remove(expiry_heap *self, expiry *entry);
/** NULL: there is none. */
expiry *expiry_next(const expiry_heap *self);
/** Its memory; what is in it is not touched. */
void expiry_heap_destroy(expiry_heap *self);

#endif

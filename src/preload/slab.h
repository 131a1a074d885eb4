/* SPDX-License-Identifier: MIT */
/** @file Which parts of 2 MiB are taken. Not locked, and it knows no memory. */
#ifndef GPUIPC_PRELOAD_SLAB_H
#define GPUIPC_PRELOAD_SLAB_H

#include <stdbool.h>
#include <stdint.h>

#define SLAB_BYTES 0x200000u
/** cudaMalloc() promises 256 bytes of alignment and gives 512. */
#define SLAB_UNIT_BYTES 512u
#define SLAB_UNITS      (SLAB_BYTES / SLAB_UNIT_BYTES)

/** All zero is empty. */
typedef struct slab {
    uint64_t taken[SLAB_UNITS / 64]; /**< a bit each */
    unsigned taken_count;
    unsigned
        too_many; /**< so many in a row were not to be had when last looked for; 0: not known */
} slab;

/** Takes units side by side. @param count above 0 @return false: there are not so many free ones in a row */
bool slab_take(slab *self, unsigned count, unsigned *out_first);
/** Gives back what was taken. */
void slab_give_back(slab *self, unsigned first, unsigned count);

#endif

/* SPDX-License-Identifier: MIT */
/** @file What the two sides of the copies have in common. */
#ifndef GPUIPC_BENCH_PARTNER_COPY_H
#define GPUIPC_BENCH_PARTNER_COPY_H

#include <stdint.h>

/** Out of the mapping, into it, and each at once with the other, half the bytes each way. */
enum {
    COPY_IN,
    COPY_OUT,
    COPY_BOTH,
    COPY_WAYS
};
/** Copies in one measurement. */
#define COPY_REPEAT 4u

/** What the memory is full of after a round. */
static inline uint32_t copy_value(uint32_t round) {
    return 0xB0000000u + round;
}

#endif

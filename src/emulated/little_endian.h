/* SPDX-License-Identifier: MIT */
/** @file Numbers in memory that several processes read, little-endian. */
#ifndef GPUIPC_EMULATED_LITTLE_ENDIAN_H
#define GPUIPC_EMULATED_LITTLE_ENDIAN_H

#include <stdint.h>

static inline void little_endian_put(uint8_t *at, unsigned bytes, uint64_t value) {
    for (unsigned i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

static inline uint64_t little_endian_get(const uint8_t *at, unsigned bytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

#endif

/* SPDX-License-Identifier: MIT */
/** @file Places in tables whose keys other processes choose: with a seed of random numbers nobody can bring
 *  about that many of them have the same. */
#ifndef GPUIPC_HASH_H
#define GPUIPC_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/** One more word of a key. The steps are those of SplitMix64, by which no two words become the same. */
static inline uint64_t hash_word(uint64_t so_far, uint64_t word) {
    uint64_t mixed = so_far ^ word;
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

/** Bytes of a key. @param size a multiple of 8 */
static inline uint64_t hash_bytes(uint64_t so_far, const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes + i, sizeof(word));
        so_far = hash_word(so_far, word);
    }
    return so_far;
}

#endif

/* SPDX-License-Identifier: MIT */
/** @file Contents that show where they should be. */
#ifndef GPUIPC_TEST_RUNTIME_WORDS_H
#define GPUIPC_TEST_RUNTIME_WORDS_H

#include <stddef.h>
#include <stdint.h>

/** Words that count from @p first. */
static inline void fill_words(uint32_t *words, size_t count, uint32_t first) {
    for (size_t i = 0; i < count; i++) {
        words[i] = first + (uint32_t)i;
    }
}

/** The index of the first word that is not what fill_words made; count: all are. */
static inline size_t first_wrong(const uint32_t *words, size_t count, uint32_t first) {
    size_t i = 0;
    while (i < count && words[i] == first + (uint32_t)i) {
        i++;
    }
    return i;
}

#endif

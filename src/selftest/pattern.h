/* SPDX-License-Identifier: MIT */
/** @file The contents that a buffer is checked for, word by word. */
#ifndef GPUIPC_SELFTEST_PATTERN_H
#define GPUIPC_SELFTEST_PATTERN_H

#include <gpuipc/gpuipc.h>

/** The 32-bit word at an index. */
typedef uint32_t (*pattern)(uint64_t index);

uint32_t pattern_producer(uint64_t index);    /**< (i * 2 + 1337) ^ 0xDEADBEEF */
uint32_t pattern_consumer(uint64_t index);    /**< another one */
uint32_t pattern_transformed(uint64_t index); /**< what kernel.h makes of the consumer's */

/** Writes the pattern into the whole buffer. */
gpuipc_status pattern_fill(gpuipc_buffer *buffer, uint64_t bytes, pattern of);

/** What differed. */
typedef struct pattern_result {
    uint64_t wrong; /**< how many words; 0: none */
    uint64_t first; /**< index of the first of them, and what is there */
    uint32_t found;
    uint32_t expected;
} pattern_result;

/** Compares words of which the first has that index; adds to what is wrong. */
void pattern_compare(const uint32_t *words, uint64_t first, uint64_t count, pattern of,
                     pattern_result *result);

/** Copies the whole buffer back and compares every word. */
gpuipc_status pattern_verify(gpuipc_buffer *buffer, uint64_t bytes, pattern of,
                             pattern_result *out_result);

#endif

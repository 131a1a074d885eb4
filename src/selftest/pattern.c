/* SPDX-License-Identifier: MIT */
/** @file See pattern.h. */
#include "pattern.h"

#include <stdlib.h>

#include "base/status.h"

/* Copied in pieces, so that 1 GiB of GPU memory needs no 1 GiB of the host's. */
#define PIECE_WORDS (UINT64_C(4) << 20)

uint32_t pattern_producer(uint64_t index) {
    return ((uint32_t)index * 2u + 1337u) ^ 0xDEADBEEFu;
}

uint32_t pattern_consumer(uint64_t index) {
    return ((uint32_t)index * 7u + 4242u) ^ 0x5A5AC3C3u;
}

uint32_t pattern_transformed(uint64_t index) {
    return pattern_consumer(index) * 5u + (uint32_t)index;
}

static uint64_t piece_at(uint64_t done, uint64_t words) {
    return words - done < PIECE_WORDS ? words - done : PIECE_WORDS;
}

static gpuipc_status make_piece(uint64_t words, uint32_t **out_piece) {
    status_enter(__func__);
    size_t bytes = (size_t)piece_at(0, words) * sizeof(uint32_t);
    uint32_t *piece = malloc(bytes);
    if (piece == NULL) {
        return status_out_of_memory(bytes);
    }
    *out_piece = piece;
    return GPUIPC_OK;
}

gpuipc_status pattern_fill(gpuipc_buffer *buffer, uint64_t bytes, pattern of) {
    const uint64_t words = bytes / sizeof(uint32_t);
    uint32_t *piece = NULL;
    gpuipc_status status = make_piece(words, &piece);
    if (status != GPUIPC_OK) {
        return status;
    }
    for (uint64_t done = 0; done < words && status == GPUIPC_OK;) {
        uint64_t count = piece_at(done, words);
        for (uint64_t i = 0; i < count; i++) {
            piece[i] = of(done + i);
        }
        status =
            gpuipc_buffer_write(buffer, done * sizeof(uint32_t), piece, count * sizeof(uint32_t));
        done += count;
    }
    free(piece);
    return status;
}

void pattern_compare(const uint32_t *words, uint64_t first, uint64_t count, pattern of,
                     pattern_result *result) {
    for (uint64_t i = 0; i < count; i++) {
        uint32_t expected = of(first + i);
        if (words[i] != expected && result->wrong++ == 0) {
            result->first = first + i;
            result->found = words[i];
            result->expected = expected;
        }
    }
}

gpuipc_status pattern_verify(gpuipc_buffer *buffer, uint64_t bytes, pattern of,
                             pattern_result *out_result) {
    const uint64_t words = bytes / sizeof(uint32_t);
    pattern_result result = {0};
    uint32_t *piece = NULL;
    gpuipc_status status = make_piece(words, &piece);
    if (status != GPUIPC_OK) {
        return status;
    }
    for (uint64_t done = 0; done < words;) {
        uint64_t count = piece_at(done, words);
        status =
            gpuipc_buffer_read(buffer, done * sizeof(uint32_t), piece, count * sizeof(uint32_t));
        if (status != GPUIPC_OK) {
            break;
        }
        pattern_compare(piece, done, count, of, &result);
        done += count;
    }
    free(piece);
    if (status == GPUIPC_OK) {
        *out_result = result;
    }
    return status;
}

/* SPDX-License-Identifier: MIT */
/** @file The patterns by which trials and measurements know that data arrived; see transport_probe.h. */
#include "query/transport_probe.h"

#include <inttypes.h>
#include <stdlib.h>

/* What is read at a time. */
#define CHUNK_BYTES (UINT64_C(2) << 20)

uint32_t probe_pattern_word(uint64_t position, uint32_t seed) {
    /* The odd factors are those of a well-known hash (MurmurHash3): different stripes and seeds have
     * different words, in all four bytes. */
    const uint32_t stripe = (uint32_t)(position * sizeof(uint32_t) / PROBE_STRIPE_BYTES);
    return (stripe + 1) * 0x85EBCA6Bu ^ (seed + 1) * 0xC2B2AE35u;
}

size_t probe_pattern_compare(const uint32_t *words, size_t count, uint64_t first, uint32_t seed) {
    size_t i = 0;
    while (i < count && words[i] == probe_pattern_word(first + i, seed)) {
        i++;
    }
    return i;
}

uint64_t probe_pattern_wrong(const uint32_t *words, size_t count, uint64_t first, uint32_t seed) {
    uint64_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        wrong += words[i] != probe_pattern_word(first + i, seed);
    }
    return wrong;
}

static bool fill(probe *self, CUdeviceptr at, uint32_t seed, CUstream stream) {
    for (uint64_t done = 0; done < self->bytes; done += PROBE_STRIPE_BYTES) {
        const uint64_t left = self->bytes - done;
        const uint64_t bytes = left < PROBE_STRIPE_BYTES ? left : PROBE_STRIPE_BYTES;
        const uint32_t word = probe_pattern_word(done / sizeof(word), seed);
        if (!PROBE_CALL(self, cuMemsetD32Async, (at + done, word, bytes / sizeof(word), stream))) {
            return false;
        }
    }
    return PROBE_CALL(self, cuStreamSynchronize, (stream));
}

static bool compare(probe *self, unsigned end, CUdeviceptr at, uint32_t seed, CUstream stream,
                    uint32_t *words) {
    for (uint64_t done = 0; done < self->bytes; done += CHUNK_BYTES) {
        const uint64_t left = self->bytes - done;
        const size_t bytes = (size_t)(left < CHUNK_BYTES ? left : CHUNK_BYTES);
        const size_t count = bytes / sizeof(*words);
        const uint64_t first = done / sizeof(*words);
        if (!PROBE_CALL(self, cuMemcpyDtoHAsync, (words, at + done, bytes, stream)) ||
            !PROBE_CALL(self, cuStreamSynchronize, (stream))) {
            return false;
        }
        const size_t right = probe_pattern_compare(words, count, first, seed);
        if (right < count && self->wrong_words == 0) {
            (void)probe_refuse(
                self, GPUIPC_REASON_WRONG_DATA,
                "device %u read 0x%08" PRIx32 " instead of 0x%08" PRIx32 " at byte %" PRIu64,
                self->devices[end], words[right], probe_pattern_word(first + right, seed),
                (first + right) * sizeof(*words));
        }
        self->wrong_words += probe_pattern_wrong(words + right, count - right, first + right, seed);
    }
    return self->wrong_words == 0;
}

/* What is done on a stream of a device's: NULL words fill, others compare. */
static bool work(probe *self, unsigned end, CUdeviceptr at, uint32_t seed, uint32_t *words) {
    const driver *drv = &self->ctx->driver;
    device_scope scope;
    CUstream stream;
    bool passed = false;
    if (!probe_enter(self, end, &scope)) {
        return false;
    }
    if (PROBE_CALL(self, cuStreamCreate, (&stream, CU_STREAM_NON_BLOCKING))) {
        passed = words == NULL ? fill(self, at, seed, stream)
                               : compare(self, end, at, seed, stream, words);
        /* Work that is under way reads or writes memory that is about to go. */
        (void)drv->cuStreamSynchronize(stream);
        (void)drv->cuStreamDestroy(stream);
    }
    device_leave(&scope);
    return passed;
}

bool probe_write(probe *self, unsigned end, CUdeviceptr at, uint32_t seed) {
    return work(self, end, at, seed, NULL);
}

bool probe_check(probe *self, unsigned end, CUdeviceptr at, uint32_t seed) {
    uint32_t *words = malloc((size_t)CHUNK_BYTES);
    if (words == NULL) {
        return probe_done(self, status_out_of_memory(CHUNK_BYTES));
    }
    const bool passed = work(self, end, at, seed, words);
    free(words);
    return passed;
}

/* The owner writes first: memory may still hold what an earlier trial left in it. */
bool probe_exchange(probe *self) {
    const CUdeviceptr owner_at = self->at[PROBE_OWNER];
    const CUdeviceptr user_at = self->at[PROBE_USER];
    return probe_write(self, PROBE_OWNER, owner_at, 1) &&
           probe_write(self, PROBE_USER, user_at, 2) &&
           probe_check(self, PROBE_OWNER, owner_at, 2) &&
           probe_write(self, PROBE_OWNER, owner_at, 3) && probe_check(self, PROBE_USER, user_at, 3);
}

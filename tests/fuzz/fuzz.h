/* SPDX-License-Identifier: MIT */
/**
 * @file What the fuzz targets share. Each target is one file with the function that libFuzzer calls; ci/fuzz builds it with
 * libFuzzer, and every other build links it with replay.c, which gives it the files of corpus/. Both hand it a copy of the
 * input in memory of exactly its size, so that AddressSanitizer sees a read of one byte beyond.
 */
#ifndef GPUIPC_FUZZ_H
#define GPUIPC_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The target: reads an input, and ends the process when the input breaks a promise. @return 0, as libFuzzer wants it */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** Ends the process, with a sentence, if a promise of the parser is broken. */
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fuzz_fail(__FILE__, __LINE__, #condition);                                             \
        }                                                                                          \
    } while (0)
_Noreturn void fuzz_fail(const char *file, int line, const char *condition);

/** What was decoded was encoded again: these are the same bytes.
 *  The environment variable GPUIPC_FUZZ_PLANTED plants a mistake here, by which each target proves that it can fail:
 *  "difference", one bit of the encoded bytes is wrong; "overread", one byte behind the input is read. */
void fuzz_check_same(const void *encoded, const void *bytes, size_t size, const uint8_t *data,
                     size_t data_size);

/** Whether GPUIPC_FUZZ_PLANTED says this, for mistakes of one target alone. */
bool fuzz_is_planted(const char *mistake);

#endif

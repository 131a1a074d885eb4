/* SPDX-License-Identifier: MIT */
/** @file The native error codes of the system that the tests run on, with the situation that each
 *  of them stands for: posix_error_codes.c, win32_error_codes.c. */
#ifndef GPUIPC_TEST_ERROR_CODES_H
#define GPUIPC_TEST_ERROR_CODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os_situation.h"

typedef struct error_code {
    int64_t code;
    os_situation situation;
    const char *name;
} error_code;

extern const error_code error_codes[];
extern const size_t error_code_count;

/** Which of the two systems of os_situation.h this is. */
extern const bool error_codes_are_posix;

/** The library's posix_error_status, posix_fail and posix_fail_as, and win32's. The sentence is the
 *  format's only argument. */
gpuipc_status error_code_status(int64_t code);
gpuipc_status error_code_fail(int64_t code, const char *operation, const char *sentence);
gpuipc_status error_code_fail_as(gpuipc_status status, int64_t code, const char *operation,
                                 const char *sentence);

/** What the system itself says of a code: its first line, without the full stop. */
void error_code_words(int64_t code, char *text, size_t capacity);

#endif

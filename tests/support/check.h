/* SPDX-License-Identifier: MIT */
/** @file Criterion assertions on statuses, which say what the error record says. */
#ifndef GPUIPC_TEST_CHECK_H
#define GPUIPC_TEST_CHECK_H

#include <criterion/criterion.h>
#include <string.h>

#include "named_calls.h"

/** Reports a call that returned another status than the expected one, and ends the case. */
_Noreturn void check_status_failed(const char *file, unsigned line, const char *call,
                                   gpuipc_status got, gpuipc_status expected);

/** Reports that the error record does not contain the text, and ends the case. */
_Noreturn void check_sentence_failed(const char *file, unsigned line, const char *part);

#define CHECK_STATUS(expected, call, text)                                                         \
    do {                                                                                           \
        const gpuipc_status check_got = (call);                                                    \
        if (check_got != (expected)) {                                                             \
            check_status_failed(__FILE__, __LINE__, text, check_got, (expected));                  \
        }                                                                                          \
    } while (0)

/** The call returns this status. */
#define check_status(expected, call) CHECK_STATUS(expected, call, #call)

#define check_ok(call) CHECK_STATUS(GPUIPC_OK, call, #call)

/** The call returns this status, and the message of the error record contains this text. */
#define check_refused(expected, text, call)                                                        \
    do {                                                                                           \
        CHECK_STATUS(expected, call, #call);                                                       \
        if (gpuipc_error_get()->status != (expected) ||                                            \
            strstr(gpuipc_error_get()->sentence, (text)) == NULL) {                                \
            check_sentence_failed(__FILE__, __LINE__, (text));                                     \
        }                                                                                          \
    } while (0)

#endif

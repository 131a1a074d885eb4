/* SPDX-License-Identifier: MIT */
/** @file Criterion assertions on statuses, which say what the error record says. */
#ifndef GPUIPC_TEST_CHECK_H
#define GPUIPC_TEST_CHECK_H

#include <criterion/criterion.h>
#include <string.h>

#include "named_calls.h"

/** The call answers this status. */
#define check_status(expected, call)                                                               \
    do {                                                                                           \
        gpuipc_status check_got = (call);                                                          \
        cr_assert_eq(check_got, (expected), "%s answered %s (%s), not %s", #call,                  \
                     gpuipc_status_name(check_got),                                                \
                     check_got == GPUIPC_OK ? "" : gpuipc_error_get()->sentence,                   \
                     gpuipc_status_name(expected));                                                \
    } while (0)

#define check_ok(call) check_status(GPUIPC_OK, call)

/** The call answers this status, and the sentence of the error record has this text in it. */
#define check_refused(expected, text, call)                                                        \
    do {                                                                                           \
        check_status(expected, call);                                                              \
        cr_assert_eq(gpuipc_error_get()->status, (expected));                                      \
        cr_assert(strstr(gpuipc_error_get()->sentence, (text)) != NULL, "\"%s\" is not in \"%s\"", \
                  (text), gpuipc_error_get()->sentence);                                           \
    } while (0)

#endif

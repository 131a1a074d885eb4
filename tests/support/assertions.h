/* SPDX-License-Identifier: MIT */
/** @file Criterion's classic assertions in fewer tokens. Criterion's own expand to 25 lines each, and the compiler needed half of
 *  its time for them, three quarters with sanitizers. gpuipc_criterion includes this file before all else. */
#ifndef GPUIPC_TEST_ASSERTIONS_H
#define GPUIPC_TEST_ASSERTIONS_H

#include <criterion/criterion.h>
#include <string.h>

#include "base/compiler.h"

/* As in Criterion's headers: a call without a message passes no argument for "...". The second line is for clang alone. */
#pragma GCC system_header
#pragma clang diagnostic ignored "-Wgnu-zero-variadic-macro-arguments"

/** Reports an assertion that failed, and ends the case.
 *  @param expression What is false.
 *  @param format     "x" and the format of a message. A message that is not empty replaces the expression. */
GPUIPC_PRINTF(4, 5)
_Noreturn void assertion_failed(const char *file, unsigned line, const char *expression,
                                const char *format, ...);

/** The same of two strings that differ. */
GPUIPC_PRINTF(6, 7)
_Noreturn void assertion_strings_failed(const char *file, unsigned line, const char *expression,
                                        const char *a, const char *b, const char *format, ...);

/* clang-format off */
#define ASSERTION(condition, text, ...)                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            assertion_failed(__FILE__, __LINE__, text, "x" __VA_ARGS__);                           \
        }                                                                                          \
    } while (0)
#undef cr_assert
#undef cr_assert_not
#undef cr_assert_eq
#undef cr_assert_neq
#undef cr_assert_lt
#undef cr_assert_gt
#undef cr_assert_leq
#undef cr_assert_geq
#undef cr_assert_null
#undef cr_assert_not_null
#undef cr_assert_str_eq
#define cr_assert(a, ...) ASSERTION(a, #a, __VA_ARGS__)
#define cr_assert_not(a, ...) ASSERTION(!(a), "!(" #a ")", __VA_ARGS__)
#define cr_assert_eq(a, b, ...) ASSERTION((a) == (b), "(" #a ") == (" #b ")", __VA_ARGS__)
#define cr_assert_neq(a, b, ...) ASSERTION((a) != (b), "(" #a ") != (" #b ")", __VA_ARGS__)
#define cr_assert_lt(a, b, ...) ASSERTION((a) < (b), "(" #a ") < (" #b ")", __VA_ARGS__)
#define cr_assert_gt(a, b, ...) ASSERTION((a) > (b), "(" #a ") > (" #b ")", __VA_ARGS__)
#define cr_assert_leq(a, b, ...) ASSERTION((a) <= (b), "(" #a ") <= (" #b ")", __VA_ARGS__)
#define cr_assert_geq(a, b, ...) ASSERTION((a) >= (b), "(" #a ") >= (" #b ")", __VA_ARGS__)
#define cr_assert_null(a, ...) ASSERTION((a) == NULL, "(" #a ") == NULL", __VA_ARGS__)
#define cr_assert_not_null(a, ...) ASSERTION((a) != NULL, "(" #a ") != NULL", __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...)                                                                \
    do {                                                                                           \
        const char *const cr_a__ = (a);                                                            \
        const char *const cr_b__ = (b);                                                            \
        if (cr_a__ == NULL || cr_b__ == NULL || strcmp(cr_a__, cr_b__) != 0) {                     \
            assertion_strings_failed(__FILE__, __LINE__, "(" #a ") == (" #b ")", cr_a__, cr_b__,   \
                                     "x" __VA_ARGS__);                                             \
        }                                                                                          \
    } while (0)
/* clang-format on */

#endif

/* SPDX-License-Identifier: MIT */
/** @file See assertions.h and check.h. */
#include "assertions.h"

#include <stdarg.h>
#include <stdio.h>

#include "check.h"

enum {
    TEXT_MAX = 4096
};

static _Noreturn void report(const char *file, unsigned line, const char *text) {
    struct criterion_assert_stats failure = {0};
    failure.file = file;
    failure.line = line;
    failure.message = text;
    criterion_send_assert(&failure);
    criterion_abort_test();
}

/** The message that the arguments make of "x" and a format, unless it is empty; else what @p text contains. */
static void format_message(char text[TEXT_MAX], const char *format, va_list arguments) {
    if (format[1] != '\0') {
        (void)vsnprintf(text, TEXT_MAX, format + 1, arguments);
    }
}

_Noreturn void assertion_failed(const char *file, unsigned line, const char *expression,
                                const char *format, ...) {
    char text[TEXT_MAX];
    va_list arguments;
    (void)snprintf(text, sizeof(text), "The expression %s is false.", expression);
    va_start(arguments, format);
    format_message(text, format, arguments);
    va_end(arguments);
    report(file, line, text);
}

_Noreturn void assertion_strings_failed(const char *file, unsigned line, const char *expression,
                                        const char *a, const char *b, const char *format, ...) {
    char text[TEXT_MAX];
    va_list arguments;
    (void)snprintf(text, sizeof(text),
                   "The expression (as strings) %s is false: \"%.1500s\", \"%.1500s\".", expression,
                   a == NULL ? "(null)" : a, b == NULL ? "(null)" : b);
    va_start(arguments, format);
    format_message(text, format, arguments);
    va_end(arguments);
    report(file, line, text);
}

_Noreturn void check_status_failed(const char *file, unsigned line, const char *call,
                                   gpuipc_status got, gpuipc_status expected) {
    char text[TEXT_MAX];
    (void)snprintf(text, sizeof(text), "%s answered %s (%s), not %s", call, gpuipc_status_name(got),
                   got == GPUIPC_OK ? "" : gpuipc_error_get()->sentence,
                   gpuipc_status_name(expected));
    report(file, line, text);
}

_Noreturn void check_sentence_failed(const char *file, unsigned line, const char *part) {
    char text[TEXT_MAX];
    (void)snprintf(text, sizeof(text), "\"%s\" is not in \"%s\" (%s)", part,
                   gpuipc_error_get()->sentence, gpuipc_status_name(gpuipc_error_get()->status));
    report(file, line, text);
}

/* SPDX-License-Identifier: MIT */
/** @file Lines of gpuipc-selftest that the tool itself seldom has: without an end, and longer than any terminal's. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "unique.h"
#include "wrap.h"

#define LONG_BYTES 20000

TestSuite(selftest_wrap, .timeout = 60);

/* Of the tool, which ends by it where there is no memory. */
void program_end_now(int exit_code) {
    (void)exit_code;
    abort();
}

/* Of the tool: how wide the terminal is that the error stream is. */
static unsigned error_columns;

unsigned program_error_columns(void) {
    return error_columns;
}

static char directory[RUNTIME_DIRECTORY_MAX];
static char path[RUNTIME_DIRECTORY_MAX + 8];
static char said[2 * LONG_BYTES];

/* From here on this stream is a file: a test is a process of its own. */
static void keep(FILE *stream) {
    cr_assert(runtime_directory_make(directory));
    (void)snprintf(path, sizeof(path), "%s/said", directory);
    cr_assert_not_null(freopen(path, "wb", stream));
}

static void read_said(FILE *stream) {
    cr_assert_eq(fclose(stream), 0);
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = '\0';
    cr_assert_eq(fclose(file), 0);
    cr_assert_eq(remove(path), 0);
    runtime_directory_remove(directory);
}

Test(selftest_wrap, what_has_no_newline_is_printed_at_the_end) {
    keep(stdout);
    wrap_begin(0, true);
    wrap_say("whole\nhalf \xc3\xbc");
    wrap_end();
    (void)fputs("|other|", stdout);
    wrap_end();
    wrap_say("next\n");
    read_said(stdout);
    cr_assert_str_eq(said, "whole\nhalf ?|other|next\n");
}

Test(selftest_wrap, a_line_of_any_length_is_whole_and_ascii) {
    static char word[LONG_BYTES + 1];
    memset(word, 'x', LONG_BYTES);
    memcpy(word + LONG_BYTES - 2, "\xc3\xbc", 2);
    keep(stdout);
    wrap_begin(0, true);
    wrap_say("first: ");
    wrap_say("%s\n", word);
    wrap_say("next\n");
    read_said(stdout);
    cr_assert_eq(strlen(said), strlen("first: ") + LONG_BYTES - 1 + strlen("\nnext\n"));
    cr_assert_eq(strncmp(said, "first: xxx", 10), 0);
    cr_assert_str_eq(said + strlen(said) - strlen("x?\nnext\n"), "x?\nnext\n");
}

Test(selftest_wrap, a_complaint_is_broken_where_the_error_stream_is_narrow) {
    keep(stderr);
    wrap_complain("--size \"%d\" is not a size such as 64M", 3);
    error_columns = 40;
    wrap_complain("--size \"%d\" is not a size such as 64M", 3);
    wrap_begin(0, true);
    wrap_complain("\xc3\xbc");
    read_said(stderr);
    cr_assert_str_eq(said, "gpuipc-selftest: --size \"3\" is not a size such as 64M\n"
                           "gpuipc-selftest: --size \"3\" is not a\n"
                           "  size such as 64M\n"
                           "gpuipc-selftest: ?\n");
}

Test(selftest_wrap, a_complaint_that_is_too_long_still_ends_its_line) {
    static char word[LONG_BYTES + 1];
    memset(word, 'x', LONG_BYTES);
    keep(stderr);
    wrap_complain("%s", word);
    wrap_complain("next");
    read_said(stderr);
    const char *end = strchr(said, '\n');
    cr_assert(end != NULL && end[-1] == 'x' && end - said < LONG_BYTES);
    cr_assert_str_eq(end, "\ngpuipc-selftest: next\n");
}

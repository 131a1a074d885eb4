/* SPDX-License-Identifier: MIT */
/** @file Runs gpuipc-selftest as a person or a script does. */
#ifndef GPUIPC_TEST_SELFTEST_RUN_H
#define GPUIPC_TEST_SELFTEST_RUN_H

#include "child.h"
#include "process_case.h"

#define SELFTEST_TOOL "gpuipc-selftest"
/** One small case; a short time-out, so that what is made to hang is ended soon. */
#define SELFTEST_ONE_CASE "--device=0", "--peer=1", "--size=1M", "--timeout=2"

/** Up to a NULL. */
typedef const char *const selftest_words[];

/** What a run printed on its standard output, and how it ended. */
typedef struct selftest_outcome {
    char first[CHILD_LINE_MAX];
    char last[CHILD_LINE_MAX];
    char all[65536];
    int code;
} selftest_outcome;

selftest_outcome selftest_run(const char *const *arguments, const char *const *environment);

/** Assert that it printed this, and ended so. */
void selftest_expect_text(const selftest_outcome *found, const char *text);
void selftest_expect_code(const selftest_outcome *found, int code);

#endif

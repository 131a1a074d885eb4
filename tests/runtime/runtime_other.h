/* SPDX-License-Identifier: MIT */
/** @file The other process, runtime_helper, line by line. */
#ifndef GPUIPC_TEST_RUNTIME_OTHER_H
#define GPUIPC_TEST_RUNTIME_OTHER_H

#include <criterion/criterion.h>

#include "child.h"

#define OTHER_PATIENCE_MS 30000

/** @param environment as child_start takes it */
static inline child_process *other_start(const char *const *environment) {
    child_process *started;
    cr_assert_eq(child_start("runtime_helper", NULL, environment, &started), GPUIPC_OK);
    return started;
}

static inline void other_tell(child_process *other, const char *line) {
    cr_assert_eq(child_write_line(other, line), GPUIPC_OK);
}

static inline void other_expect(child_process *other, const char *line) {
    char got[CHILD_LINE_MAX];
    cr_assert(child_expect_line(other, line, got, OTHER_PATIENCE_MS), "'%s' for '%s'", got, line);
}

/** It ends, and well. */
static inline void other_end(child_process *other) {
    child_end end;
    child_close_input(other);
    cr_assert_eq(child_wait(other, OTHER_PATIENCE_MS, &end), GPUIPC_OK);
    cr_assert(end.exited && end.code == 0, "code %d", end.code);
    child_destroy(other);
}

#endif

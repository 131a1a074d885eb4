/* SPDX-License-Identifier: MIT */
/** @file What a helper program said, compared with what it ought to say. */
#include "child.h"

#include <stdio.h>
#include <string.h>

bool child_expect_line(child_process *child, const char *expected, char *got, int timeout_ms) {
    gpuipc_status status = child_read_line(child, got, CHILD_LINE_MAX, timeout_ms);
    if (status != GPUIPC_OK) {
        snprintf(got, CHILD_LINE_MAX, "(no line: %s, %s)", gpuipc_status_name(status),
                 gpuipc_error_get()->sentence);
        return false;
    }
    return strcmp(got, expected) == 0;
}

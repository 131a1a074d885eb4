/* SPDX-License-Identifier: MIT */
/** @file See selftest_run.h. */
#include "selftest_run.h"

#include <stdio.h>
#include <string.h>

#include "check.h"

selftest_outcome selftest_run(const char *const *arguments, const char *const *environment) {
    selftest_outcome found = {.code = -1};
    char line[CHILD_LINE_MAX];
    child_process *tool;
    child_end how;
    check_ok(child_start(SELFTEST_TOOL, arguments, environment, &tool));
    while (child_read_line(tool, line, sizeof(line), PATIENCE_MS) == GPUIPC_OK) {
        size_t used = strlen(found.all);
        (void)snprintf(found.all + used, sizeof(found.all) - used, "%s\n", line);
        memcpy(found.last, line, sizeof(line));
        if (found.first[0] == '\0') {
            memcpy(found.first, line, sizeof(line));
        }
    }
    check_ok(child_wait(tool, PATIENCE_MS, &how));
    cr_assert(how.exited, "ended by signal or exception 0x%x", (unsigned)how.code);
    found.code = how.code;
    child_destroy(tool);
    return found;
}

void selftest_expect_text(const selftest_outcome *found, const char *text) {
    cr_assert(strstr(found->all, text) != NULL, "\"%s\" is not in:\n%s", text, found->all);
}

void selftest_expect_code(const selftest_outcome *found, int code) {
    cr_assert_eq(found->code, code, "exit code %d, not %d; it printed:\n%s", found->code, code,
                 found->all);
}

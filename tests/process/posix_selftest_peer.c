/* SPDX-License-Identifier: MIT */
/** @file The cases of test_process_selftest_peer.c in which the two ends are not in one place. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "selftest_peer.h"

#define EMULATED "--driver=emulated"

/* As two containers without a common mount. */
Test(selftest_peer, two_directories_are_found_to_be_two, .timeout = 100) {
    char option[SELFTEST_OPTION_MAX];
    child_process *giver = selftest_peer_start(option);
    const selftest_outcome found =
        selftest_run((selftest_words){"doctor", option, EMULATED, "--timeout=1", NULL},
                     (selftest_words){"GPUIPC_RUNTIME_DIR=/", NULL});
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "differs  D27  blocks  runtime directory: here ");
    selftest_expect_text(&found, "FAIL  verdict: INCONCLUSIVE: ");
    child_kill(giver);
    child_destroy(giver);
}

/* Neither sees the other's process, users, network or mounts: it works all the same, and each is named. */
Test(selftest_peer, between_namespaces_everything_works_and_is_named, .timeout = 100) {
    static const char *const labels[] = {"PID namespace",     "user namespace",  "IPC namespace",
                                         "network namespace", "mount namespace", "seccomp mode"};
    char option[SELFTEST_OPTION_MAX];
    char all[32768] = "";
    char line[CHILD_LINE_MAX];
    child_process *leader;
    child_end how;
    child_process *giver = selftest_peer_start(option);
    check_ok(
        child_start("process_helper",
                    (selftest_words){"/nowhere", "contained-users", "become", SELFTEST_TOOL,
                                     "doctor", option, EMULATED, NULL},
                    /* LeakSanitizer reads its own process by ptrace, which is refused there. */
                    (selftest_words){"ASAN_OPTIONS=detect_leaks=0", NULL}, &leader));
    while (child_read_line(leader, line, sizeof(line), PATIENCE_MS) == GPUIPC_OK) {
        const size_t used = strlen(all);
        (void)snprintf(all + used, sizeof(all) - used, "%s\n", line);
    }
    check_ok(child_wait(leader, PATIENCE_MS, &how));
    child_destroy(leader);
    if (strncmp(all, "not possible", strlen("not possible")) == 0) {
        child_kill(giver);
        child_destroy(giver);
        cr_skip_test("namespaces of one's own are not to be had here");
    }
    cr_assert(how.exited && how.code == 0, "%d: %s", how.code, all);
    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
        (void)snprintf(line, sizeof(line), "  %s: here ", labels[i]);
        cr_assert(strstr(all, line) != NULL, "\"%s\" is not in:\n%s", line, all);
    }
    cr_assert(strstr(all, "differs  D28  note    PID namespace: here ") != NULL, "%s", all);
    cr_assert(strstr(all, "pass  vmm, rung 5, ") != NULL, "%s", all);
    selftest_peer_expect(giver, "done: every rung was climbed", 0);
}

/* SPDX-License-Identifier: MIT */
/** @file The cases of test_process_selftest.c in which another library stands where the CUDA driver
 *  is looked for. On Windows that is the system's own folder and no other. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "check.h"
#include "selftest_run.h"
#include "system.h"

/* The tool alone is asked to end, as by kill(1): it ends what it has started, and tells what it has. */
Test(selftest, interrupted_it_tells_what_it_has, .timeout = 100) {
    const char *const arguments[] = {"--driver=emulated", "--quick", NULL};
    const char *const environment[] = {"GPUIPC_EMULATED_MACHINE=devices=16;memory=64M", NULL};
    char line[CHILD_LINE_MAX];
    char last[CHILD_LINE_MAX] = "";
    child_process *tool;
    child_end how;
    unsigned passed = 0;
    check_ok(child_start(SELFTEST_TOOL, arguments, environment, &tool));
    while (child_read_line(tool, line, sizeof(line), PATIENCE_MS) == GPUIPC_OK) {
        cr_assert_neq(strncmp(line, "passed", strlen("passed")), 0, "%s", line);
        passed += strncmp(line, "pass  ", 6) == 0;
        if (passed == 1 && last[0] == '\0') {
            cr_assert_eq(kill((pid_t)child_process_id(tool), SIGTERM), 0);
        }
        if (passed > 0) {
            (void)snprintf(last, sizeof(last), "%s", line);
        }
    }
    check_ok(child_wait(tool, PATIENCE_MS, &how));
    cr_assert(how.exited && how.code == 1, "%d", how.code);
    cr_assert_str_eq(last, "interrupted: this is what was found until then");
    cr_assert_lt(passed, 256, "all was tried");
    child_destroy(tool);
}

/* A folder in which the tool's libraries are looked for before those that are there already. */
static void write_library_path(char *out, size_t size, const char *below) {
    char folder[4096];
    const char *others = getenv("LD_LIBRARY_PATH");
    cr_assert(system_own_folder(folder, sizeof(folder)));
    const int length = snprintf(out, size, "LD_LIBRARY_PATH=%s/%s%s%s", folder, below,
                                others != NULL ? ":" : "", others != NULL ? others : "");
    cr_assert(length > 0 && (size_t)length < size);
}

/* "cuda" asks for a GPU, wherever a libcuda.so.1 may lead. */
Test(selftest, does_not_take_an_emulated_libcuda_for_the_installed_one, .timeout = 100) {
    char path[8192];
    write_library_path(path, sizeof(path), "emulated");
    selftest_outcome found = selftest_run(
        (selftest_words){"--driver=cuda", SELFTEST_ONE_CASE, NULL}, (selftest_words){path, NULL});
    selftest_expect_code(&found, 1);
    cr_assert_str_empty(found.all);
}

/* A libcuda.so.1 is there: what its cuInit answers decides. */
Test(selftest, turns_to_the_emulated_driver_only_when_there_is_no_device, .timeout = 100) {
    char path[8192];
    write_library_path(path, sizeof(path), "stand-in");
    selftest_words no_device = {path, "STAND_IN_INIT=100", NULL};
    selftest_words hidden = {path, "STAND_IN_INIT=100", "CUDA_VISIBLE_DEVICES=", NULL};
    selftest_words broken = {path, "STAND_IN_INIT=803", NULL};

    selftest_outcome found =
        selftest_run((selftest_words){"--driver=auto", SELFTEST_ONE_CASE, NULL}, no_device);
    selftest_expect_code(&found, 0);
    cr_assert(strstr(found.first, "driver: emulated in software, NOT a GPU (because ") != NULL,
              "%s", found.first);
    found = selftest_run((selftest_words){"--driver=auto", SELFTEST_ONE_CASE, NULL}, hidden);
    selftest_expect_code(&found, 0); /* what hid the GPUs does not hide the emulated ones */
    found = selftest_run((selftest_words){"--driver=cuda", SELFTEST_ONE_CASE, NULL}, no_device);
    selftest_expect_code(&found, 1);
    cr_assert_str_empty(found.all);
    found = selftest_run((selftest_words){"--driver=auto", SELFTEST_ONE_CASE, NULL}, broken);
    selftest_expect_code(&found, 1);
    cr_assert_str_empty(found.all);
}

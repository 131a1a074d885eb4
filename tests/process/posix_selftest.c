/* SPDX-License-Identifier: MIT */
/** @file The cases of test_process_selftest.c in which another library stands where the CUDA driver
 *  is looked for. On Windows that is the system's own folder and no other. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "selftest_run.h"
#include "system.h"

/* "cuda" asks for a GPU, wherever a libcuda.so.1 may lead. */
Test(selftest, does_not_take_an_emulated_libcuda_for_the_installed_one, .timeout = 100) {
    char folder[4096];
    char path[sizeof(folder) + 64];
    cr_assert(system_own_folder(folder, sizeof(folder)));
    (void)snprintf(path, sizeof(path), "LD_LIBRARY_PATH=%s/emulated", folder);
    selftest_outcome found = selftest_run(
        (selftest_words){"--driver=cuda", SELFTEST_ONE_CASE, NULL}, (selftest_words){path, NULL});
    selftest_expect_code(&found, 1);
    cr_assert_str_empty(found.all);
}

/* A libcuda.so.1 is there: what its cuInit answers decides. */
Test(selftest, turns_to_the_emulated_driver_only_when_there_is_no_device, .timeout = 100) {
    char folder[4096];
    char path[sizeof(folder) + 64];
    cr_assert(system_own_folder(folder, sizeof(folder)));
    (void)snprintf(path, sizeof(path), "LD_LIBRARY_PATH=%s/stand-in", folder);
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

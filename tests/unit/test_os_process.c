/* SPDX-License-Identifier: MIT */
/** @file This process: its number, its environment, random bytes. Forks: test_posix_process.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "child.h"
#include "os.h"

TestSuite(os_process, .timeout = 60);

Test(os_process, random_bytes_fill_all_and_differ) {
    enum {
        SIZE = 4096
    };
    static unsigned char first[SIZE + 1];
    static unsigned char second[SIZE + 1];
    check_ok(os_random(first, SIZE));
    check_ok(os_random(second, SIZE));
    cr_assert_neq(memcmp(first, second, SIZE), 0);
    cr_assert_eq(first[SIZE], 0, "written beyond the end");
    unsigned seen[256] = {0};
    for (size_t i = 0; i < SIZE; i++) {
        seen[first[i]]++;
    }
    unsigned values = 0;
    for (size_t i = 0; i < 256; i++) {
        values += seen[i] != 0;
        cr_assert(seen[i] < 100);
    }
    cr_assert(values > 200);
    check_ok(os_random(first, 0));
}

Test(os_process, watching_for_forks_again_is_allowed) {
    check_ok(os_fork_watch());
    check_ok(os_fork_watch());
    cr_assert_eq(os_fork_generation(), 0);
}

Test(os_process, number_and_environment_are_the_processs_own) {
    static const char *const arguments[] = {"environment", "GPUIPC_TEST_VARIABLE", NULL};
    static const char *const set[] = {"GPUIPC_TEST_VARIABLE=a value", NULL};
    static const char *const unset[] = {"GPUIPC_TEST_VARIABLE", NULL};
    const char *const *environments[] = {set, unset};
    static const char *const expected[] = {"a value", "(none)"};
    for (size_t i = 0; i < 2; i++) {
        child_process *helper;
        char line[CHILD_LINE_MAX];
        char number[32];
        check_ok(child_start("unit_helper", arguments, environments[i], &helper));
        snprintf(number, sizeof(number), "%" PRIu64, child_process_id(helper));
        cr_assert(child_expect_line(helper, number, line, 20000), "%s", line);
        cr_assert(child_expect_line(helper, expected[i], line, 20000), "%s", line);
        cr_assert_neq(child_process_id(helper), os_process_id());
        child_destroy(helper);
    }
}

Test(os_process, the_start_of_the_machine_is_one_for_all_processes) {
    static const char *const arguments[] = {"boot-id", NULL};
    static const uint8_t none[16];
    uint8_t first[16];
    uint8_t second[16];
    char text[33];
    char line[CHILD_LINE_MAX];
    child_process *helper;
    os_boot_id(first);
    os_boot_id(second);
    cr_assert_eq(memcmp(first, second, sizeof(first)), 0);
    cr_assert_neq(memcmp(first, none, sizeof(first)), 0);
    for (size_t i = 0; i < sizeof(first); i++) {
        snprintf(text + 2 * i, 3, "%02x", first[i]);
    }
    check_ok(child_start("unit_helper", arguments, NULL, &helper));
    cr_assert(child_expect_line(helper, text, line, 20000), "\"%s\" and not \"%s\"", line, text);
    child_destroy(helper);
}

Test(os_process, its_user_is_cut_to_the_room_there_is) {
    char whole[192];
    char cut[2] = {'x', 'x'};
    os_own_user(whole, sizeof(whole));
    os_own_user(cut, sizeof(cut));
    cr_assert(strlen(whole) > 0);
    cr_assert_eq(cut[0], whole[0]);
    cr_assert_eq(cut[1], '\0');
}

/* SPDX-License-Identifier: MIT */
/** @file Small files of the user's: read whole, replaced at once. What only one system has is in
 *  test_posix_file.c and test_win32_file.c. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "os.h"
#include "unique.h"

static leak_gate gate;
static char directory[RUNTIME_DIRECTORY_MAX];

static void start(void) {
    cr_assert(runtime_directory_make(directory));
    leak_gate_begin(&gate);
}

static void finish(void) {
    runtime_directory_remove(directory);
}

TestSuite(os_file, .init = start, .fini = finish, .timeout = 30);

static void check_no_leak(void) {
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_file, what_was_written_is_read) {
    char bytes[16];
    size_t size = 0;
    check_ok(os_file_replace(directory, "one.txt", "hello", 5));
    check_ok(os_file_read(directory, "one.txt", bytes, sizeof(bytes), &size));
    cr_assert_eq(size, 5);
    cr_assert_eq(memcmp(bytes, "hello", 5), 0);
    check_no_leak();
}

Test(os_file, a_file_takes_the_place_of_another) {
    char bytes[16];
    size_t size = 0;
    check_ok(os_file_replace(directory, "one.txt", "something long", 14));
    check_ok(os_file_replace(directory, "one.txt", "short", 5));
    check_ok(os_file_read(directory, "one.txt", bytes, sizeof(bytes), &size));
    cr_assert_eq(size, 5);
    cr_assert_eq(memcmp(bytes, "short", 5), 0);
    check_no_leak();
}

Test(os_file, an_empty_file_is_a_file) {
    char bytes[4];
    size_t size = 77;
    check_ok(os_file_replace(directory, "empty.txt", "", 0));
    check_ok(os_file_read(directory, "empty.txt", bytes, sizeof(bytes), &size));
    cr_assert_eq(size, 0);
    check_no_leak();
}

Test(os_file, one_that_is_missing_is_not_found) {
    char bytes[4];
    size_t size = 77;
    check_status(GPUIPC_ERR_NOT_FOUND,
                 os_file_read(directory, "none.txt", bytes, sizeof(bytes), &size));
    cr_assert_eq(size, 77);
    check_no_leak();
}

Test(os_file, one_longer_than_the_room_is_refused) {
    char bytes[4];
    size_t size = 77;
    check_ok(os_file_replace(directory, "four.txt", "1234", 4));
    check_ok(os_file_read(directory, "four.txt", bytes, sizeof(bytes), &size));
    cr_assert_eq(size, 4);
    check_ok(os_file_replace(directory, "five.txt", "12345", 5));
    check_status(GPUIPC_ERR_LIMIT,
                 os_file_read(directory, "five.txt", bytes, sizeof(bytes), &size));
    cr_assert_eq(size, 4);
    check_no_leak();
}

Test(os_file, a_directory_that_cannot_be_made_is_a_failure) {
    char below[RUNTIME_DIRECTORY_MAX + 32];
    char bytes[4];
    size_t size = 77;
    check_ok(os_file_replace(directory, "file", "x", 1));
    (void)snprintf(below, sizeof(below), "%s/file/in/it", directory);
    cr_assert_neq(os_file_replace(below, "one.txt", "x", 1), GPUIPC_OK);
    cr_assert_neq(os_file_read(below, "one.txt", bytes, sizeof(bytes), &size), GPUIPC_OK);
    cr_assert_eq(size, 77);
    check_no_leak();
}

/* SPDX-License-Identifier: MIT */
/** @file Small files on Windows: where the cache is, and what is made of the way there. */
#include <windows.h>

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "os.h"
#include "unique.h"

TestSuite(win32_file, .timeout = 30);

Test(win32_file, the_cache_is_in_the_users_local_data) {
    char path[OS_PATH_MAX];
    cr_assert(SetEnvironmentVariableW(L"LOCALAPPDATA", L"C:\\somewhere"));
    cr_assert(os_cache_directory(path, sizeof(path)));
    cr_assert_str_eq(path, "C:\\somewhere\\gpuipc\\cache");
    cr_assert_not(os_cache_directory(path, 10), "a path was cut");
    cr_assert(SetEnvironmentVariableW(L"LOCALAPPDATA", NULL));
    cr_assert_not(os_cache_directory(path, sizeof(path)));
}

Test(win32_file, what_is_missing_of_the_way_is_made) {
    char directory[RUNTIME_DIRECTORY_MAX];
    char child[OS_PATH_MAX];
    char path[OS_PATH_MAX];
    char bytes[4];
    size_t size = 0;
    leak_gate gate;
    cr_assert(runtime_directory_make(directory));
    leak_gate_begin(&gate);
    (void)snprintf(child, sizeof(child), "%s\\gpuipc\\cache", directory);
    check_ok(os_file_replace(child, "one.txt", "x", 1));
    check_ok(os_file_read(child, "one.txt", bytes, sizeof(bytes), &size));
    cr_assert_eq(size, 1);
    (void)snprintf(path, sizeof(path), "%s\\one.txt", child);
    cr_assert(DeleteFileA(path));
    cr_assert(RemoveDirectoryA(child), "a temporary file was left in it");
    (void)snprintf(child, sizeof(child), "%s\\gpuipc", directory);
    cr_assert(RemoveDirectoryA(child));
    runtime_directory_remove(directory);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(win32_file, a_directory_in_the_place_of_a_file_is_refused) {
    char directory[RUNTIME_DIRECTORY_MAX];
    char child[OS_PATH_MAX];
    char bytes[4];
    size_t size = 0;
    cr_assert(runtime_directory_make(directory));
    (void)snprintf(child, sizeof(child), "%s\\taken", directory);
    cr_assert(CreateDirectoryA(child, NULL));
    cr_assert_neq(os_file_replace(directory, "taken", "x", 1), GPUIPC_OK);
    check_status(GPUIPC_ERR_UNSAFE_DIRECTORY,
                 os_file_read(directory, "taken", bytes, sizeof(bytes), &size));
    cr_assert(RemoveDirectoryA(child));
    cr_assert(RemoveDirectoryA(directory), "a temporary file was left in it");
}

/* SPDX-License-Identifier: MIT */
/** @file Small files on Linux: where the cache is, and which files and directories are not believed. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

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

TestSuite(posix_file, .init = start, .fini = finish, .timeout = 30);

static void check_no_leak(void) {
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

static void below(const char *last, char path[OS_PATH_MAX]) {
    (void)snprintf(path, OS_PATH_MAX, "%s/%s", directory, last);
}

Test(posix_file, the_cache_is_where_xdg_says) {
    char path[OS_PATH_MAX];
    cr_assert_eq(setenv("XDG_CACHE_HOME", "/somewhere", 1), 0);
    cr_assert(os_cache_directory(path, sizeof(path)));
    cr_assert_str_eq(path, "/somewhere/gpuipc");
    cr_assert_not(os_cache_directory(path, 10), "a path was cut");
    cr_assert_eq(setenv("HOME", "/home/somebody", 1), 0);
    cr_assert_eq(setenv("XDG_CACHE_HOME", "not/absolute", 1), 0);
    cr_assert(os_cache_directory(path, sizeof(path)));
    cr_assert_str_eq(path, "/home/somebody/.cache/gpuipc");
    cr_assert_eq(unsetenv("XDG_CACHE_HOME"), 0);
    cr_assert(os_cache_directory(path, sizeof(path)));
    cr_assert_str_eq(path, "/home/somebody/.cache/gpuipc");
    cr_assert_eq(unsetenv("HOME"), 0);
    cr_assert_not(os_cache_directory(path, sizeof(path)));
    cr_assert_eq(setenv("HOME", "relative", 1), 0);
    cr_assert_not(os_cache_directory(path, sizeof(path)));
    check_no_leak();
}

Test(posix_file, nothing_is_made_in_the_home_of_another_user) {
    static const char *const ways[] = {"home/.cache/gpuipc",
                                       "home/gpuipc"}; /* HOME, XDG_CACHE_HOME */
    char home[OS_PATH_MAX];
    char path[OS_PATH_MAX];
    if (geteuid() != 0) {
        cr_skip_test("only root can give a directory away");
    }
    below("home", home);
    cr_assert_eq(mkdir(home, 0700), 0);
    cr_assert_eq(chown(home, 65534, (gid_t)-1), 0);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        below(ways[i], path);
        check_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, "belongs to user 65534",
                      os_file_replace(path, "file", "text", 4));
    }
    cr_assert_eq(rmdir(home), 0);
    check_no_leak();
}

Test(posix_file, what_is_missing_of_the_way_is_made_for_this_user_alone) {
    char parent[OS_PATH_MAX];
    char child[OS_PATH_MAX];
    char file[OS_PATH_MAX];
    struct stat found;
    below("cache", parent);
    below("cache/gpuipc", child);
    below("cache/gpuipc/one.txt", file);
    check_ok(os_file_replace(child, "one.txt", "x", 1));
    cr_assert_eq(stat(parent, &found), 0);
    cr_assert_eq(found.st_mode & 07777, 0700);
    cr_assert_eq(stat(child, &found), 0);
    cr_assert_eq(found.st_mode & 07777, 0700);
    cr_assert_eq(stat(file, &found), 0);
    cr_assert_eq(found.st_mode & 07777, 0600);
    cr_assert_eq(unlink(file), 0);
    cr_assert_eq(rmdir(child), 0, "a temporary file was left in it");
    cr_assert_eq(rmdir(parent), 0);
    check_no_leak();
}

Test(posix_file, a_directory_that_others_may_enter_is_refused) {
    char bytes[4];
    size_t size = 0;
    check_ok(os_file_replace(directory, "one.txt", "x", 1));
    cr_assert_eq(chmod(directory, 0755), 0);
    check_status(GPUIPC_ERR_UNSAFE_DIRECTORY, os_file_replace(directory, "one.txt", "y", 1));
    check_status(GPUIPC_ERR_UNSAFE_DIRECTORY,
                 os_file_read(directory, "one.txt", bytes, sizeof(bytes), &size));
    cr_assert_eq(chmod(directory, 0700), 0);
    check_no_leak();
}

Test(posix_file, a_link_or_a_pipe_is_no_file) {
    char bytes[4];
    char path[OS_PATH_MAX];
    size_t size = 0;
    check_ok(os_file_replace(directory, "one.txt", "x", 1));
    below("link.txt", path);
    cr_assert_eq(symlink("one.txt", path), 0);
    check_status(GPUIPC_ERR_UNSAFE_DIRECTORY,
                 os_file_read(directory, "link.txt", bytes, sizeof(bytes), &size));
    below("pipe.txt", path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    check_status(GPUIPC_ERR_UNSAFE_DIRECTORY,
                 os_file_read(directory, "pipe.txt", bytes, sizeof(bytes), &size));
    check_no_leak();
}

Test(posix_file, what_is_in_the_way_of_a_file_leaves_nothing_behind) {
    char path[OS_PATH_MAX];
    below("taken", path);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_neq(os_file_replace(directory, "taken", "x", 1), GPUIPC_OK);
    cr_assert_eq(rmdir(path), 0);
    cr_assert_eq(rmdir(directory), 0, "a temporary file was left in it");
    check_no_leak();
}

/* Writing would end this process (setrlimit(2), SIGXFSZ). */
Test(posix_file, a_limit_of_file_sizes_is_told_and_ends_nobody) {
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 2;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    check_refused(GPUIPC_ERR_OS, "RLIMIT_FSIZE", os_file_replace(directory, "one.txt", "xyz", 3));
    check_ok(os_file_replace(directory, "one.txt", "xy", 2));
    limit.rlim_cur = limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    check_no_leak();
}

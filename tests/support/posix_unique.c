/* SPDX-License-Identifier: MIT */
/** @file Runtime directories for tests, on POSIX systems. */
#include "unique.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool runtime_directory_make(char path[RUNTIME_DIRECTORY_MAX]) {
    /* Under /tmp and not under TMPDIR, which may be too long for a socket path (man 7 unix). */
    snprintf(path, RUNTIME_DIRECTORY_MAX, "/tmp/gpuipc-test-XXXXXX");
    return mkdtemp(path) != NULL;
}

/* Calls it for each file; @return how many there are */
static size_t each_file(const char *path, void (*act)(int directory, const char *name)) {
    DIR *directory = opendir(path);
    size_t count = 0;
    if (directory != NULL) {
        struct dirent *entry;
        while ((entry = readdir(directory)) != NULL) {
            if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
                count++;
                act(dirfd(directory), entry->d_name);
            }
        }
        closedir(directory);
    }
    return count;
}

static void leave_file(int directory, const char *name) {
    (void)directory;
    (void)name;
}

static void remove_file(int directory, const char *name) {
    unlinkat(directory, name, 0);
}

size_t runtime_directory_count(const char *path) {
    return each_file(path, leave_file);
}

void runtime_directory_remove(const char *path) {
    (void)each_file(path, remove_file);
    rmdir(path);
}

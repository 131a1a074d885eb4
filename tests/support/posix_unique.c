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

void runtime_directory_remove(const char *path) {
    DIR *directory = opendir(path);
    if (directory != NULL) {
        struct dirent *entry;
        while ((entry = readdir(directory)) != NULL) {
            if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
                unlinkat(dirfd(directory), entry->d_name, 0);
            }
        }
        closedir(directory);
    }
    rmdir(path);
}

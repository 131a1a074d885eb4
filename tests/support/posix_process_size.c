/* SPDX-License-Identifier: MIT */
/** @file See process_size.h: read from /proc/self (man 5 proc), without memory of its own. */
#include "process_size.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static bool count_entries(const char *path, uint64_t *out_count) {
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return false;
    }
    uint64_t count = 0;
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    *out_count = count - 3; /* ".", ".." and what this very function has open */
    return true;
}

static bool count_lines(const char *path, uint64_t *out_count) {
    static char bytes[65536];
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = -1;
    uint64_t count = 0;
    while (file >= 0 && (got = read(file, bytes, sizeof(bytes))) > 0) {
        for (ssize_t i = 0; i < got; i++) {
            count += bytes[i] == '\n';
        }
    }
    if (file >= 0) {
        close(file);
    }
    *out_count = count;
    return got == 0;
}

bool process_size_get(process_size *out_size) {
    uint64_t address_pages;
    uint64_t resident_pages;
    char text[128] = "";
    const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    const ssize_t got = read(file, text, sizeof(text) - 1);
    close(file);
    if (got <= 0 || sscanf(text, "%" SCNu64 " %" SCNu64, &address_pages, &resident_pages) != 2) {
        return false;
    }
    out_size->address_bytes = address_pages * (uint64_t)sysconf(_SC_PAGESIZE);
    out_size->resident_bytes = resident_pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return count_entries("/proc/self/fd", &out_size->handles) &&
           count_lines("/proc/self/maps", &out_size->mappings);
}

/* SPDX-License-Identifier: MIT */
/** @file Mapping the file of call_log.h, on POSIX systems. */
#include "call_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

void *call_log_map(const char *path, size_t size) {
    void *mapped = MAP_FAILED;
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        return NULL;
    }
    if (ftruncate(file, (off_t)size) == 0) {
        mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    close(file);
    return mapped == MAP_FAILED ? NULL : mapped;
}

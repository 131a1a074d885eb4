/* SPDX-License-Identifier: MIT */
/** @file See shared_name.h. On Linux a descriptor of a process of the same user can be opened once more
 *  through /proc (proc(5), /proc/pid/fd). */
#include "shared_name.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../posix/posix.h"

shared_name shared_name_make(os_handle memory) {
    return (shared_name){(uint32_t)os_process_id(), (uint32_t)memory.value};
}

/* What is there may be anything, such as a pipe, whose opening waits for the other end: so it is looked
 * at first, which O_PATH does without opening it (open(2)). */
static int open_if_memory(const char *path) {
    char again[64];
    struct stat found;
    const int pinned = open(path, O_PATH | O_CLOEXEC);
    if (pinned < 0) {
        return -1;
    }
    int fd = -1;
    if (fstat(pinned, &found) == 0 && S_ISREG(found.st_mode)) {
        snprintf(again, sizeof(again), "/proc/self/fd/%d", pinned);
        fd = open(again, O_RDWR | O_CLOEXEC);
    } else {
        errno = EBADF;
    }
    const int code = errno;
    close(pinned);
    errno = code;
    return fd;
}

/* Also of one whose end nobody has waited for yet: it has no program any more (proc(5), /proc/pid/exe). */
static bool process_has_ended(uint32_t process) {
    char path[64];
    char program[1];
    snprintf(path, sizeof(path), "/proc/%" PRIu32 "/exe", process);
    return readlink(path, program, sizeof(program)) < 0 && errno == ENOENT;
}

gpuipc_status shared_name_open(shared_name name, os_handle *out_memory) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%" PRIu32 "/fd/%" PRIu32, name.process, name.number);
    posix_register_lock(); /* see there: a fork would give the child what is not registered */
    const int fd = open_if_memory(path);
    const gpuipc_status status = posix_register_add(fd, "open(/proc/pid/fd)");
    posix_register_unlock();
    if (status == GPUIPC_OK) {
        *out_memory = (os_handle){fd};
        return GPUIPC_OK;
    }
    return process_has_ended(name.process) ? GPUIPC_ERR_PEER_CLOSED : status;
}

/* SPDX-License-Identifier: MIT */
/** @file Handles that are no GPU memory, and what the system says about one that is. */
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "conformance_process.h"

/** No test has this many descriptors open, and threads of the driver do not take it meanwhile. */
#define CLOSED_NUMBER 900

void wrong_handles_open(wrong_handle wrong[WRONG_HANDLES]) {
    const int memory_file = memfd_create("gpuipc-conformance", MFD_CLOEXEC);
    /* Page-sized, so that it is not refused for being empty. */
    cr_assert(memory_file >= 0 && ftruncate(memory_file, (off_t)GRANULE) == 0);
    const struct {
        const char *what;
        int descriptor;
        bool is_open;
    } made[WRONG_HANDLES] = {
        {"-1", -1, false},
        {"a closed number", CLOSED_NUMBER, false},
        {"/dev/null", open("/dev/null", O_RDWR | O_CLOEXEC), true},
        {"a memfd", memory_file, true},
        {"an eventfd", eventfd(0, EFD_CLOEXEC), true},
        {"a socket", socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), true},
        {"/dev/nvidiactl", open("/dev/nvidiactl", O_RDWR | O_CLOEXEC), true},
    };
    for (size_t i = 0; i < WRONG_HANDLES; i++) {
        wrong[i] = (wrong_handle){
            made[i].what, {made[i].descriptor}, made[i].is_open && made[i].descriptor >= 0};
    }
    cr_assert_eq(fcntl(CLOSED_NUMBER, F_GETFD), -1, "%d is open", CLOSED_NUMBER);
    for (size_t i = 2; i < WRONG_HANDLES - 1; i++) { /* the last is there only with a GPU */
        cr_assert(wrong[i].is_open, "%s does not open", wrong[i].what);
    }
}

void wrong_handles_close(wrong_handle wrong[WRONG_HANDLES]) {
    for (size_t i = 0; i < WRONG_HANDLES; i++) {
        if (wrong[i].is_open) {
            cr_assert_eq(close((int)wrong[i].handle.value), 0, "%s was closed by the driver",
                         wrong[i].what);
        }
    }
}

bool handle_is_open(os_handle handle) {
    return fcntl((int)handle.value, F_GETFD) != -1;
}

handle_facts handle_inspect(intptr_t native) {
    struct stat status;
    cr_assert_eq(fstat((int)native, &status), 0);
    const int flags = fcntl((int)native, F_GETFD);
    cr_assert_neq(flags, -1);
    return (handle_facts){.character_device = S_ISCHR(status.st_mode),
                          .major = major(status.st_rdev),
                          .minor = minor(status.st_rdev),
                          .mode = status.st_mode & 0777U,
                          .close_on_exec = (flags & FD_CLOEXEC) != 0};
}

/* SPDX-License-Identifier: MIT */
/** @file Handles that are no GPU memory, and what the system says about one that is. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "conformance_process.h"

/** No test has this many descriptors open, and threads of the driver do not take it meanwhile. */
#define CLOSED_NUMBER 900

size_t wrong_handles_open(wrong_handle wrong[WRONG_HANDLES_MAX]) {
    const int memory_file = memfd_create("gpuipc-conformance", MFD_CLOEXEC);
    /* Page-sized, so that it is not refused for being empty. */
    cr_assert(memory_file >= 0 && ftruncate(memory_file, (off_t)GRANULE) == 0);
    const struct {
        const char *what;
        int descriptor;
        bool is_open;
    } made[] = {
        {"-1", -1, false},
        {"a closed number", CLOSED_NUMBER, false},
        {"/dev/null", open("/dev/null", O_RDWR | O_CLOEXEC), true},
        {"a memfd", memory_file, true},
        {"an eventfd", eventfd(0, EFD_CLOEXEC), true},
        {"a socket", socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), true},
    };
    size_t count = sizeof made / sizeof made[0];
    cr_assert_lt(count, WRONG_HANDLES_MAX);
    for (size_t i = 0; i < count; i++) {
        cr_assert(!made[i].is_open || made[i].descriptor >= 0, "%s does not open", made[i].what);
        wrong[i] = (wrong_handle){made[i].what, {made[i].descriptor}, made[i].is_open};
    }
    cr_assert_eq(fcntl(CLOSED_NUMBER, F_GETFD), -1, "%d is open", CLOSED_NUMBER);
    const int control = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
    if (control >= 0) { /* only with a GPU */
        wrong[count++] = (wrong_handle){"/dev/nvidiactl", {control}, true};
    }
    return count;
}

void wrong_handles_close(const wrong_handle *wrong, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (wrong[i].is_open) {
            cr_assert_eq(close((int)wrong[i].handle.value), 0, "%s was closed by the driver",
                         wrong[i].what);
        }
    }
}

bool handle_is_open(os_handle handle) {
    return fcntl((int)handle.value, F_GETFD) != -1;
}

void handle_check_exported(const void *written) {
    struct stat status;
    int descriptor;
    memcpy(&descriptor, written, sizeof descriptor);
    cr_assert_eq(fstat(descriptor, &status), 0);
    const int flags = fcntl(descriptor, F_GETFD);
    cr_assert_neq(flags, -1);
    cr_assert_neq(flags & FD_CLOEXEC, 0, "measured: an exported fd already has FD_CLOEXEC set");
    if (drv.is_emulated) {
        return; /* it deviates: its memory is a memfd */
    }
    cr_assert(S_ISCHR(status.st_mode) && major(status.st_rdev) == 195 &&
                  minor(status.st_rdev) == 255,
              "measured: an exported fd is a character device 195:255, not %u:%u",
              major(status.st_rdev), minor(status.st_rdev));
    cr_assert_eq(status.st_mode & 0777U, 0666, "measured: an exported fd has mode 0666, not %o",
                 status.st_mode & 0777U);
}

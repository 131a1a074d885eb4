/* SPDX-License-Identifier: MIT */
/** @file See raw_handle.h, and posix_system.h for the lingering one. */
#include "raw_handle.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "posix_system.h"

void raw_handle_close(intptr_t handle) {
    if (handle >= 0) {
        close((int)handle);
    }
}

/* A memfd that is sealed as the emulated driver's memory is, but is not its memory. */
static intptr_t open_sealed_memfd(void) {
    int fd = memfd_create("not-gpu-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (ftruncate(fd, (2 << 20) + 4096) != 0 ||
                    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)) {
        raw_handle_close(fd);
        return -1;
    }
    return fd;
}

static intptr_t open_memfd(void) {
    int fd = memfd_create("not-gpu-memory", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, 2 << 20) != 0) {
        raw_handle_close(fd);
        return -1;
    }
    return fd;
}

static intptr_t open_pipe(void) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    close(ends[1]);
    return ends[0];
}

static intptr_t open_file(void) {
    return open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
}

static intptr_t open_dev_null(void) {
    return open("/dev/null", O_RDWR | O_CLOEXEC);
}

static intptr_t open_eventfd(void) {
    return eventfd(0, EFD_CLOEXEC);
}

static intptr_t open_socket(void) {
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static intptr_t open_directory(void) {
    return open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static const struct {
    const char *name;
    intptr_t (*open)(void);
} kinds[] = {{"a memfd", open_memfd}, /* RAW_HANDLE_MEMORY */
             {"a sealed memfd", open_sealed_memfd},
             {"a file", open_file},
             {"/dev/null", open_dev_null},
             {"an eventfd", open_eventfd},
             {"a socket", open_socket},
             {"the end of a pipe", open_pipe},
             {"a directory", open_directory}};

const int raw_handle_kinds = sizeof(kinds) / sizeof(*kinds);

intptr_t raw_handle_open(int kind) {
    return kinds[kind].open();
}

const char *raw_handle_kind_name(int kind) {
    return kinds[kind].name;
}

/* Two TCP sockets of this machine, connected. */
static bool pair_over_loopback(int ends[2]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ends[1] = -1;
    if (listener >= 0 && ends[0] >= 0 && bind(listener, (struct sockaddr *)&address, size) == 0 &&
        listen(listener, 1) == 0 &&
        getsockname(listener, (struct sockaddr *)&address, &size) == 0 &&
        connect(ends[0], (struct sockaddr *)&address, size) == 0) {
        ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    }
    raw_handle_close(listener);
    if (ends[1] < 0) {
        raw_handle_close(ends[0]);
    }
    return ends[1] >= 0;
}

intptr_t raw_handle_open_lingering(intptr_t *out_other_end) {
    static const char bytes[1 << 16];
    const struct linger linger = {.l_onoff = 1, .l_linger = 5};
    int ends[2];
    if (!pair_over_loopback(ends)) {
        return -1;
    }
    while (send(ends[0], bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    if (setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) != 0) {
        raw_handle_close(ends[0]);
        raw_handle_close(ends[1]);
        return -1;
    }
    *out_other_end = ends[1];
    return ends[0];
}

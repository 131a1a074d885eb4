/* SPDX-License-Identifier: MIT */
/** @file See raw_handle.h, and posix_system.h for the lingering one. */
#include "raw_handle.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "posix_system.h"

void raw_handle_close(intptr_t handle) {
    if (handle >= 0) {
        close((int)handle);
    }
}

intptr_t raw_handle_copy(intptr_t handle) {
    return fcntl((int)handle, F_DUPFD_CLOEXEC, 0);
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

/* Of 2 MiB, with these seals. */
static int open_memory(int seals) {
    int fd = memfd_create("not-gpu-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (ftruncate(fd, 2 << 20) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0)) {
        raw_handle_close(fd);
        return -1;
    }
    return fd;
}

static intptr_t open_memfd(void) {
    return open_memory(F_SEAL_SEAL);
}

/* It can still shrink under who has mapped it, and its sender has shrunk it. */
static intptr_t open_truncated_memfd(void) {
    int fd = open_memory(F_SEAL_GROW);
    if (fd >= 0 && ftruncate(fd, 4096) != 0) {
        raw_handle_close(fd);
        return -1;
    }
    return fd;
}

/* Of a fixed size, but nobody may write it. */
static intptr_t open_read_only_memfd(void) {
    return open_memory(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
}

/* Of a fixed size, opened by its sender for reading alone. */
static intptr_t open_memfd_for_reading(void) {
    char path[64];
    int fd = open_memory(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int reading = fd < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    raw_handle_close(fd);
    return reading;
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

static intptr_t open_path(void) {
    return open("/proc/self/exe", O_PATH | O_CLOEXEC);
}

static intptr_t open_epoll(void) {
    return epoll_create1(EPOLL_CLOEXEC);
}

/* Of this very process. (A C library may have no pidfd_open(2).) */
static intptr_t open_pidfd(void) {
    return syscall(SYS_pidfd_open, getpid(), 0);
}

static intptr_t open_timerfd(void) {
    return timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
}

static intptr_t open_dev_zero(void) {
    return open("/dev/zero", O_RDWR | O_CLOEXEC);
}

static intptr_t open_nvidiactl(void) {
    return open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
}

static const struct {
    const char *name;
    intptr_t (*open)(void);
} kinds[] = {{"a memfd", open_memfd}, /* RAW_HANDLE_MEMORY */
             {"a sealed memfd", open_sealed_memfd},
             {"a memfd that was truncated", open_truncated_memfd},
             {"a memfd that nobody may write", open_read_only_memfd},
             {"a memfd for reading alone", open_memfd_for_reading},
             {"a file", open_file},
             {"/dev/null", open_dev_null},
             {"an eventfd", open_eventfd},
             {"a socket", open_socket},
             {"the end of a pipe", open_pipe},
             {"a directory", open_directory},
             {"an O_PATH descriptor", open_path},
             {"an epoll set", open_epoll},
             {"a pidfd", open_pidfd},
             {"a timerfd", open_timerfd},
             {"/dev/zero", open_dev_zero},
             {"/dev/nvidiactl", open_nvidiactl}};

const int raw_handle_kinds = sizeof(kinds) / sizeof(*kinds);

intptr_t raw_handle_open(int kind) {
    return kinds[kind].open();
}

const char *raw_handle_kind_name(int kind) {
    return kinds[kind].name;
}

bool raw_handle_is_memory(int kind) {
    return kinds[kind].open == open_sealed_memfd;
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

/* @param packet_of one that takes a packet with the descriptor */
static bool put_in(int packet_of, int fd) {
    union {
        struct cmsghdr header;
        unsigned char room[CMSG_SPACE(sizeof(int))];
    } control;
    char byte = 0;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    memset(&control, 0, sizeof(control));
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    return sendmsg(packet_of, &message, MSG_NOSIGNAL) >= 0;
}

intptr_t raw_handle_put_into_socket(intptr_t handle) {
    int ends[2];
    if (handle < 0 || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return -1;
    }
    const bool is_in = put_in(ends[0], (int)handle);
    raw_handle_close(handle);
    raw_handle_close(ends[0]);
    if (!is_in) {
        raw_handle_close(ends[1]);
    }
    return is_in ? ends[1] : -1;
}

/* The client of a listening socket has sent it, and nobody accepts. */
intptr_t raw_handle_put_into_listener(intptr_t handle) {
    struct sockaddr_un address = {.sun_family =
                                      AF_UNIX}; /* without a name it gets one of its own */
    socklen_t size = sizeof(address);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_in =
        handle >= 0 && listener >= 0 && client >= 0 &&
        bind(listener, (struct sockaddr *)&address, sizeof(address.sun_family)) == 0 &&
        listen(listener, 1) == 0 &&
        getsockname(listener, (struct sockaddr *)&address, &size) == 0 &&
        connect(client, (struct sockaddr *)&address, size) == 0 && put_in(client, (int)handle);
    raw_handle_close(handle);
    raw_handle_close(client);
    if (!is_in) {
        raw_handle_close(listener);
    }
    return is_in ? listener : -1;
}

/* SPDX-License-Identifier: MIT */
/** @file See raw_socket.h. */
#include "raw_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FDS_MAX 253

static bool address_make(const char *directory, const char *name, struct sockaddr_un *address) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length =
        snprintf(address->sun_path, sizeof(address->sun_path), "%s/%s.sock", directory, name);
    return length > 0 && (size_t)length < sizeof(address->sun_path);
}

static int socket_at(const char *directory, const char *name,
                     int (*attach)(int, const struct sockaddr *, socklen_t)) {
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || !address_make(directory, name, &address) ||
        attach(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        raw_close(fd);
        return -1;
    }
    return fd;
}

int raw_connect(const char *directory, const char *name) {
    return socket_at(directory, name, connect);
}

int raw_listen(const char *directory, const char *name) {
    int fd = socket_at(directory, name, bind);
    if (fd >= 0 && listen(fd, 4) != 0) {
        raw_close(fd);
        return -1;
    }
    return fd;
}

static bool wait_for(int fd, short events, int timeout_ms) {
    struct pollfd entry = {.fd = fd, .events = events};
    return poll(&entry, 1, timeout_ms) == 1 && (entry.revents & events) != 0;
}

int raw_accept(int listener, int timeout_ms) {
    return wait_for(listener, POLLIN, timeout_ms) ? accept4(listener, NULL, NULL, SOCK_CLOEXEC)
                                                  : -1;
}

bool raw_send(int fd, const void *bytes, size_t size, const int *fds, size_t count) {
    union {
        struct cmsghdr header;
        unsigned char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > FDS_MAX) {
        return false;
    }
    if (count > 0) {
        memset(&control, 0, sizeof(control));
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

long raw_receive(int fd, void *bytes, size_t capacity, int *fds, size_t *count, int timeout_ms) {
    union {
        struct cmsghdr header;
        unsigned char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = bytes, .iov_len = capacity};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    size_t room = *count;
    *count = 0;
    if (!wait_for(fd, POLLIN, timeout_ms)) {
        return -1;
    }
    ssize_t size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = size < 0 ? NULL : CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_type == SCM_RIGHTS) {
        size_t came = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        *count = came < room ? came : room;
        memcpy(fds, CMSG_DATA(header), *count * sizeof(int));
    }
    return size;
}

bool raw_sees_end(int fd, int timeout_ms) {
    return wait_for(fd, POLLRDHUP, timeout_ms);
}

void raw_close(int fd) {
    if (fd >= 0) {
        close(fd);
    }
}

/* A memfd that is sealed as the emulated driver's memory is, but is not its memory. */
static int open_sealed_memfd(void) {
    int fd = memfd_create("not-gpu-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (ftruncate(fd, (2 << 20) + 4096) != 0 ||
                    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)) {
        raw_close(fd);
        return -1;
    }
    return fd;
}

static int open_memfd(void) {
    int fd = memfd_create("not-gpu-memory", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, 2 << 20) != 0) {
        raw_close(fd);
        return -1;
    }
    return fd;
}

static int open_pipe(void) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    close(ends[1]);
    return ends[0];
}

int raw_open(raw_kind kind) {
    switch (kind) {
    case RAW_FILE:
        return open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    case RAW_DEV_NULL:
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    case RAW_MEMFD:
        return open_memfd();
    case RAW_SEALED_MEMFD:
        return open_sealed_memfd();
    case RAW_EVENTFD:
        return eventfd(0, EFD_CLOEXEC);
    case RAW_SOCKET:
        return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    case RAW_PIPE:
        return open_pipe();
    case RAW_DIRECTORY:
        return open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    default:
        return -1;
    }
}

const char *raw_kind_name(raw_kind kind) {
    static const char *const names[RAW_KINDS] = {
        "a file",     "/dev/null", "a memfd",           "a sealed memfd",
        "an eventfd", "a socket",  "the end of a pipe", "a directory"};
    return names[kind];
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
    raw_close(listener);
    if (ends[1] < 0) {
        raw_close(ends[0]);
    }
    return ends[1] >= 0;
}

int raw_open_lingering(int *out_other_end) {
    static const char bytes[1 << 16];
    const struct linger linger = {.l_onoff = 1, .l_linger = 5};
    int ends[2];
    if (!pair_over_loopback(ends)) {
        return -1;
    }
    while (send(ends[0], bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    if (setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) != 0) {
        raw_close(ends[0]);
        raw_close(ends[1]);
        return -1;
    }
    *out_other_end = ends[1];
    return ends[0];
}

/* SPDX-License-Identifier: MIT */
/** @file See raw_peer.h. */
#include "posix_raw_socket.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FDS_MAX 253

struct raw_peer {
    int fd;
};

struct raw_listener {
    int fd;
    struct sockaddr_un address;
};

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
    if (fd >= 0 && (!address_make(directory, name, &address) ||
                    attach(fd, (const struct sockaddr *)&address, sizeof(address)) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Takes over the descriptor, if there is one. */
static raw_peer *peer_make(int fd) {
    raw_peer *self = fd < 0 ? NULL : malloc(sizeof(*self));
    if (self != NULL) {
        self->fd = fd;
    } else if (fd >= 0) {
        close(fd);
    }
    return self;
}

int raw_socket(const raw_peer *of) {
    return of->fd;
}

raw_peer *raw_connect(const char *directory, const char *name) {
    return peer_make(socket_at(directory, name, connect));
}

raw_listener *raw_listen(const char *directory, const char *name) {
    int fd = socket_at(directory, name, bind);
    raw_listener *self = fd < 0 || listen(fd, 4) != 0 ? NULL : malloc(sizeof(*self));
    if (self != NULL) {
        self->fd = fd;
        (void)address_make(directory, name, &self->address); /* which has been bound */
    } else if (fd >= 0) {
        close(fd);
    }
    return self;
}

static bool wait_for(int fd, short events, int timeout_ms) {
    struct pollfd entry = {.fd = fd, .events = events};
    return poll(&entry, 1, timeout_ms) == 1 && (entry.revents & events) != 0;
}

raw_peer *raw_accept(raw_listener *listener, int timeout_ms) {
    return wait_for(listener->fd, POLLIN, timeout_ms)
               ? peer_make(accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC))
               : NULL;
}

void raw_listener_close(raw_listener *listener) {
    (void)unlink(listener->address.sun_path);
    close(listener->fd);
    free(listener);
}

bool raw_send(raw_peer *to, const void *bytes, size_t size, const intptr_t *handles, size_t count) {
    union {
        struct cmsghdr header;
        unsigned char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control;
    int fds[FDS_MAX];
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > FDS_MAX) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        fds[i] = (int)handles[i];
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
    return sendmsg(to->fd, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

long raw_receive(raw_peer *from, void *bytes, size_t capacity, intptr_t *handles, size_t *count,
                 int timeout_ms) {
    union {
        struct cmsghdr header;
        unsigned char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control;
    int fds[FDS_MAX];
    struct iovec part = {.iov_base = bytes, .iov_len = capacity};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    size_t room = *count;
    *count = 0;
    if (!wait_for(from->fd, POLLIN, timeout_ms)) {
        return -1;
    }
    ssize_t size = recvmsg(from->fd, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = size < 0 ? NULL : CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_type == SCM_RIGHTS) {
        size_t came = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        *count = came < room ? came : room;
        memcpy(fds, CMSG_DATA(header), *count * sizeof(int));
        for (size_t i = 0; i < *count; i++) {
            handles[i] = fds[i];
        }
    }
    return size;
}

bool raw_sees_end(raw_peer *peer, int timeout_ms) {
    return wait_for(peer->fd, POLLRDHUP, timeout_ms);
}

void raw_close(raw_peer *peer) {
    if (peer != NULL) {
        close(peer->fd);
        free(peer);
    }
}

/* SPDX-License-Identifier: MIT */
/** @file See courier.h: SOCK_SEQPACKET and SCM_RIGHTS. */
#include "courier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bench_call.h"

struct courier {
    int listener; /* -1: none */
    int connection;
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
};

typedef union control {
    char bytes[CMSG_SPACE(COURIER_HANDLES_MAX * sizeof(int))];
    struct cmsghdr header; /* for its alignment: man 3 cmsg */
} control;

const char *courier_why_not(void) {
    return NULL;
}

static courier *make(const char *directory, const char *name, struct sockaddr_un *out_address) {
    courier *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        bench_fail("no memory for a socket's name");
    }
    const int length = snprintf(self->path, sizeof(self->path), "%s/%s.floor", directory, name);
    if (length < 0 || (size_t)length >= sizeof(self->path)) {
        bench_fail("the name of a socket in %s is too long", directory);
    }
    *out_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out_address->sun_path, self->path, sizeof(self->path));
    self->listener = -1;
    self->connection = -1;
    return self;
}

static int check(int result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
    return result;
}

courier *courier_listen(const char *directory, const char *name) {
    struct sockaddr_un address;
    courier *self = make(directory, name, &address);
    self->listener = check(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), "socket");
    (void)check(bind(self->listener, (const struct sockaddr *)&address, sizeof(address)), "bind");
    (void)check(listen(self->listener, 1), "listen");
    return self;
}

void courier_accept(courier *self) {
    self->connection = check(accept4(self->listener, NULL, NULL, SOCK_CLOEXEC), "accept4");
    (void)unlink(self->path);
}

courier *courier_connect(const char *directory, const char *name) {
    struct sockaddr_un address;
    courier *self = make(directory, name, &address);
    self->connection = check(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), "socket");
    (void)check(connect(self->connection, (const struct sockaddr *)&address, sizeof(address)),
                "connect");
    return self;
}

void courier_send(courier *self, const int *descriptors, size_t count) {
    control ancillary;
    char byte = 0;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = ancillary.bytes,
                             .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    memset(&ancillary, 0, sizeof(ancillary));
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
    (void)check((int)sendmsg(self->connection, &message, MSG_NOSIGNAL), "sendmsg");
}

size_t courier_receive(courier *self, int *descriptors) {
    control ancillary;
    char byte;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = ancillary.bytes,
                             .msg_controllen = sizeof(ancillary.bytes)};
    const int got = check((int)recvmsg(self->connection, &message, MSG_CMSG_CLOEXEC), "recvmsg");
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (got == 0 || header == NULL || (message.msg_flags & MSG_CTRUNC) != 0) {
        bench_fail("a packet without its descriptors came");
    }
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(descriptors, CMSG_DATA(header), count * sizeof(int));
    return count;
}

void courier_say(courier *self, uint64_t number) {
    (void)check((int)send(self->connection, &number, sizeof(number), MSG_NOSIGNAL), "send");
}

uint64_t courier_hear(courier *self) {
    uint64_t number = 0;
    if (check((int)recv(self->connection, &number, sizeof(number), 0), "recv") != sizeof(number)) {
        bench_fail("a packet came that is no number");
    }
    return number;
}

void courier_close_descriptor(int descriptor) {
    (void)close(descriptor);
}

void courier_end(courier *self) {
    if (self == NULL) {
        return;
    }
    if (self->listener >= 0) {
        (void)close(self->listener);
    }
    if (self->connection >= 0) {
        (void)close(self->connection);
    }
    free(self);
}

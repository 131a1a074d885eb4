/* SPDX-License-Identifier: MIT */
/** @file Packets: bytes and descriptors, sent and received whole or not at all. */
#include "posix.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

/* Linux 6.5, include/linux/socket.h; older C library headers lack it. */
#ifndef SCM_PIDFD
#define SCM_PIDFD 4
#endif

/** Room for the descriptors of one packet, aligned as cmsg(3) wants it. */
typedef union send_control {
    struct cmsghdr header;
    unsigned char bytes[CMSG_SPACE(OS_PACKET_HANDLES_MAX * sizeof(int))];
} send_control;

static void control_fill(struct msghdr *message, send_control *control, const os_handle *handles,
                         size_t count) {
    if (count == 0) {
        return;
    }
    memset(control, 0, sizeof(*control));
    message->msg_control = control->bytes;
    message->msg_controllen = CMSG_SPACE(count * sizeof(int));
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (size_t i = 0; i < count; i++) {
        int fd = (int)handles[i].value;
        memcpy(CMSG_DATA(header) + i * sizeof(fd), &fd, sizeof(fd));
    }
}

static gpuipc_status send_failed(int code, size_t size) {
    switch (code) {
    case EBADF:
        return posix_fail_as(GPUIPC_ERR_INVALID_ARGUMENT, code, "sendmsg",
                             "one of the handles is not open");
    case EMSGSIZE:
        return posix_fail(code, "sendmsg",
                          "a packet of %zu bytes is more than the system lets a socket hold (raise "
                          "net.core.wmem_max)",
                          size);
    case ETOOMANYREFS:
        return posix_fail(code, "sendmsg",
                          "this user's descriptors on their way between processes are at the limit "
                          "(RLIMIT_NOFILE, man 7 unix)");
    case EPIPE:
    case ECONNRESET:
        return posix_fail(code, "sendmsg", "the other end is closed");
    default:
        return posix_fail(code, "sendmsg", "the packet cannot be sent");
    }
}

/* How soon a sender sees that its own end was stopped where the peer has stopped its sending. */
#define LOOK_MS 20

/* Until there may be room. POLLRDHUP tells a sender that its own end was stopped, which is no hang-up yet. It also comes
 * from a peer that has stopped its sending, and then stays: @p is_half_closed, from then on it is not waited for. */
static gpuipc_status wait_for_room(int fd, os_deadline deadline, bool *is_half_closed) {
    const int left = os_deadline_left_ms(deadline);
    const int look = left >= 0 && left < LOOK_MS ? left : LOOK_MS;
    const int events = *is_half_closed ? fd_wait(fd, POLLOUT, os_deadline_after(look))
                                       : fd_wait(fd, POLLOUT | POLLRDHUP, deadline);
    if (events < 0) {
        return posix_fail(errno, "poll", "the connection cannot be waited for");
    }
    *is_half_closed = *is_half_closed || events == POLLRDHUP;
    return GPUIPC_OK;
}

gpuipc_status os_connection_send(os_connection *connection, const void *bytes, size_t size,
                                 const os_handle *handles, size_t count, os_deadline deadline) {
    /* An empty packet cannot be told from the end of the connection: recv(2). */
    if (size == 0 || size > OS_PACKET_BYTES_MAX || count > OS_PACKET_HANDLES_MAX) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "a packet has 1 to %d bytes and up to %d handles, not %zu and %zu",
                           OS_PACKET_BYTES_MAX, OS_PACKET_HANDLES_MAX, size, count);
    }
    send_control control;
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    control_fill(&message, &control, handles, count);
    bool is_half_closed = false;
    for (;;) {
        gpuipc_status status = posix_connection_usable(connection);
        if (status != GPUIPC_OK) {
            return status;
        }
        if (sendmsg(connection->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) {
            return GPUIPC_OK;
        }
        int code = errno;
        if (code != EAGAIN && code != EINTR) {
            status = posix_connection_usable(connection);
            return status != GPUIPC_OK ? status : send_failed(code, size);
        }
        if (code == EAGAIN && os_deadline_passed(deadline)) {
            return status_fail(GPUIPC_ERR_TIMEOUT,
                               "the peer did not take its packets before the time ran out");
        }
        if (code == EAGAIN &&
            (status = wait_for_room(connection->fd, deadline, &is_half_closed)) != GPUIPC_OK) {
            return status;
        }
    }
}

/** Room for all that the kernel can add to one packet: 253 descriptors, credentials, a pidfd. The
 *  last two come only to a socket that asked for them, which ours do not; the room is there so that
 *  they could never push a descriptor out. */
typedef union receive_control {
    struct cmsghdr header;
    unsigned char bytes[CMSG_SPACE(OS_PACKET_HANDLES_MAX * sizeof(int)) +
                        CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
} receive_control;

#define RECEIVED_FDS_MAX (sizeof(receive_control) / sizeof(int))

typedef struct packet {
    size_t size;
    int flags;
    bool has_control;
    bool at_limit; /**< this process can open no further descriptor */
    bool surplus;  /**< a descriptor came by another way than SCM_RIGHTS */
    bool is_left;  /**< not all of it could be taken, and it is still in the socket */
    size_t fd_count;
    size_t registered; /**< how many of them are, from the first on */
    int fds[RECEIVED_FDS_MAX];
} packet;

/** Every descriptor in every control message, wanted or not: each is open in this process now. */
static void control_collect(struct msghdr *message, packet *received) {
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        received->has_control = true;
        bool rights = header->cmsg_type == SCM_RIGHTS;
        if (header->cmsg_level != SOL_SOCKET || (!rights && header->cmsg_type != SCM_PIDFD)) {
            continue;
        }
        received->surplus = received->surplus || !rights;
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count && received->fd_count < RECEIVED_FDS_MAX; i++) {
            memcpy(&received->fds[received->fd_count], CMSG_DATA(header) + i * sizeof(int),
                   sizeof(int));
            received->fd_count++;
        }
    }
}

static bool process_at_limit(int fd) {
    int probe = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (probe >= 0) {
        close(probe);
        return false;
    }
    return errno == EMFILE || errno == ENFILE;
}

static void packet_close(packet *received) {
    for (size_t i = 0; i < received->fd_count; i++) {
        if (i < received->registered) {
            posix_register_close_foreign(received->fds[i]);
        } else {
            posix_close_foreign(received->fds[i]);
        }
    }
    received->fd_count = 0;
}

/** With the register locked: registers what came. */
static gpuipc_status packet_register(packet *received) {
    gpuipc_status status = GPUIPC_OK;
    while (received->registered < received->fd_count && status == GPUIPC_OK) {
        status = posix_register_record(received->fds[received->registered]);
        received->registered += status == GPUIPC_OK;
    }
    return status;
}

/* Takes off a packet that was looked at: what does not fit is discarded (recv(2)). Room for none would do for Linux, but
 * qemu-user (7.2) does not make that call, and answers 0. @return 0, or errno */
static int packet_take_off(int fd) {
    uint8_t first;
    struct iovec part = {.iov_base = &first, .iov_len = sizeof(first)};
    struct msghdr rest = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t size;
    do {
        size = recvmsg(fd, &rest, MSG_DONTWAIT);
    } while (size < 0 && errno == EINTR);
    return size < 0 ? errno : 0;
}

/* One try. What a process at its limit cannot take of a packet the kernel would close inside recvmsg(): of a socket that
 * lingers (posix_closer.c) that takes as long as its sender likes. So where there may be too little room, the packet is
 * looked at first. A look makes descriptors of our own beside those that are on their way, which then are not the last ones
 * when the packet is taken off; and a packet that does not fit is left where it is.
 * @return 0, or errno */
static int packet_take(int fd, void *bytes, size_t capacity, packet *received,
                       gpuipc_status *out_status) {
    receive_control control;
    struct iovec part = {.iov_base = bytes, .iov_len = capacity};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    received->size = 0;
    received->flags = 0;
    received->has_control = false;
    received->at_limit = false;
    received->surplus = false;
    received->is_left = false;
    received->fd_count = 0; /* so that nothing is in the rest, which is long */
    received->registered = 0;
    *out_status = GPUIPC_OK;
    posix_register_lock();
    const bool is_look = !posix_register_has_room(OS_PACKET_HANDLES_MAX);
    ssize_t size =
        recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | (is_look ? MSG_PEEK : 0));
    int code = size < 0 ? errno : 0;
    if (size >= 0) {
        received->size = (size_t)size;
        received->flags = message.msg_flags;
        control_collect(&message, received);
        /* Asked before anything is closed again. */
        received->at_limit = (message.msg_flags & MSG_CTRUNC) != 0 && process_at_limit(fd);
        received->is_left = is_look && (message.msg_flags & MSG_CTRUNC) != 0;
        *out_status = packet_register(received);
    }
    if (size >= 0 && is_look && !received->is_left) {
        code = packet_take_off(fd);
    }
    posix_register_unlock();
    if (code != 0) {
        packet_close(received);
    }
    return code;
}

/* MSG_CTRUNC, recvmsg(2): "some control data was discarded due to lack of space in the buffer for
 * ancillary data"; man 7 unix: descriptors that do not fit, or that would exceed RLIMIT_NOFILE, are
 * closed in the receiving process, and the rest is delivered. So a list may arrive cut, with nothing
 * in it to say where, and what was cut off cannot be asked for again. A program that went on would
 * take what is left for what was sent, or would leave it open. Hence every descriptor that came is
 * closed and the status ends the connection.
 *
 * The buffer has room for the most that a peer can send (SCM_MAX_FD, which sendmsg() enforces on the
 * sum of all its control messages), so a cut list means one of two things. If this process is at its
 * limit of descriptors and fewer than the most came, the limit cut it, and no peer is to blame. */
static gpuipc_status packet_cut(const packet *received) {
    if (received->at_limit && received->fd_count < OS_PACKET_HANDLES_MAX) {
        return status_fail(GPUIPC_ERR_TOO_MANY_HANDLES,
                           "this process has no descriptor left for the handles of a packet: "
                           "%zu of them could be taken (MSG_CTRUNC at RLIMIT_NOFILE)",
                           received->fd_count);
    }
    return status_fail(GPUIPC_ERR_HANDLE_COUNT,
                       "the handles of a packet came cut short, after %zu (MSG_CTRUNC)",
                       received->fd_count);
}

/* recv(2) answers 0 both for the end and for an empty packet, which a sender of ours never makes.
 * Control data can only have come with a packet; and where the peer has not shut its end, it was one
 * too. An empty packet right before a hang-up passes for the hang-up, which follows anyway. */
static gpuipc_status packet_empty(int fd, const packet *received) {
    int events = fd_wait(fd, POLLRDHUP, os_deadline_after(0));
    if (!received->has_control && events > 0 && (events & (POLLRDHUP | POLLHUP)) != 0) {
        return status_fail(GPUIPC_ERR_PEER_CLOSED, "the other end is closed");
    }
    return status_fail(GPUIPC_ERR_PROTOCOL, "the peer sent an empty packet");
}

static gpuipc_status packet_judge(int fd, const packet *received, size_t capacity) {
    if ((received->flags & MSG_CTRUNC) != 0) {
        return packet_cut(received);
    }
    if ((received->flags & MSG_TRUNC) != 0) {
        return status_fail(GPUIPC_ERR_PROTOCOL,
                           "the peer sent a packet longer than the %zu bytes there may be",
                           capacity);
    }
    if (received->size == 0) {
        return packet_empty(fd, received);
    }
    if (received->surplus || received->fd_count > OS_PACKET_HANDLES_MAX) {
        return status_fail(GPUIPC_ERR_HANDLE_COUNT,
                           "the peer sent %zu descriptors; %d are possible, by SCM_RIGHTS alone",
                           received->fd_count, OS_PACKET_HANDLES_MAX);
    }
    return GPUIPC_OK;
}

/** Waits for one packet. *received holds registered descriptors on success only. */
static gpuipc_status packet_wait(os_connection *connection, void *bytes, size_t capacity,
                                 packet *received, os_deadline deadline) {
    const uint64_t look_until =
        connection->look_us == 0 ? 0 : os_clock_ns() + connection->look_us * UINT64_C(1000);
    bool reset_seen = false;
    received->fd_count = 0;
    for (;;) {
        gpuipc_status status = posix_connection_usable(connection);
        if (status != GPUIPC_OK) {
            return status;
        }
        int code = packet_take(connection->fd, bytes, capacity, received, &status);
        if (code == 0) {
            return status;
        }
        /* A peer that closed with packets of ours unread makes the next call here answer
         * ECONNRESET once (net/unix/af_unix.c, unix_release_sock()); what it had sent before is
         * still to be read behind that, and then the end. */
        if (code == ECONNRESET && !reset_seen) {
            reset_seen = true;
            continue;
        }
        if (code != EAGAIN && code != EINTR) {
            return posix_fail(code, "recvmsg", "no packet can be received");
        }
        if (code == EAGAIN && os_deadline_passed(deadline)) {
            posix_register_look();
            return status_fail(GPUIPC_ERR_TIMEOUT, "no packet came before the time ran out");
        }
        if (code == EAGAIN && look_until != 0 && os_clock_ns() < look_until) {
            sched_yield(); /* who is to answer may need this very processor */
            continue;
        }
        posix_register_look();
        if (code == EAGAIN && fd_wait(connection->fd, POLLIN, deadline) < 0) {
            return posix_fail(errno, "poll", "the connection cannot be waited for");
        }
    }
}

static void packet_deliver(packet *received, size_t *out_size, os_handle *handles,
                           size_t *out_count) {
    for (size_t i = 0; i < received->fd_count; i++) {
        handles[i] = (os_handle){received->fds[i]};
    }
    *out_size = received->size;
    *out_count = received->fd_count;
}

gpuipc_status os_connection_receive(os_connection *connection, void *bytes, size_t capacity,
                                    size_t *out_size, os_handle *handles, size_t *out_count,
                                    os_deadline deadline) {
    packet received;
    gpuipc_status status = packet_wait(connection, bytes, capacity, &received, deadline);
    if (status != GPUIPC_OK) {
        packet_close(&received);
        return status;
    }
    status = packet_judge(connection->fd, &received, capacity);
    if (status == GPUIPC_ERR_PEER_CLOSED && atomic_load(&connection->interrupted)) {
        /* The end that was seen is the one that our own shutdown() made. */
        status = posix_connection_usable(connection);
    }
    if (status != GPUIPC_OK) {
        packet_close(&received);
        return status;
    }
    packet_deliver(&received, out_size, handles, out_count);
    return GPUIPC_OK;
}

gpuipc_status os_connection_take_rest(os_connection *connection, void *bytes, size_t capacity,
                                      size_t *out_size, os_handle *handles, size_t *out_count) {
    packet received = {.fd_count = 0};
    gpuipc_status status = GPUIPC_OK;
    int code;
    if (connection->generation != os_fork_generation()) {
        return posix_fail_forked();
    }
    do { /* ECONNRESET comes once: packet_wait() */
        code = packet_take(connection->fd, bytes, capacity, &received, &status);
    } while (code == EINTR || code == ECONNRESET);
    if (code != 0) {
        status = posix_fail(code, "recvmsg", "no packet can be received");
    }
    if (status == GPUIPC_OK) {
        status = packet_judge(connection->fd, &received, capacity);
    }
    if (status != GPUIPC_OK) {
        packet_close(&received);
        return status;
    }
    packet_deliver(&received, out_size, handles, out_count);
    return GPUIPC_OK;
}

/* @return whether all is out. Asked for credentials, the kernel adds them to every packet and not to the end, which tells an
 * empty packet from it. */
static bool packet_drain(int fd) {
    int on = 1;
    packet received = {.fd_count = 0};
    bool more = true;
    shutdown(fd, SHUT_RDWR);
    (void)setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
    gpuipc_error why = status_save();
    while (more) {
        unsigned char byte;
        gpuipc_status status;
        int code = packet_take(fd, &byte, sizeof(byte), &received, &status);
        more = code == EINTR || code == ECONNRESET ||
               (code == 0 && !received.is_left && (received.size > 0 || received.has_control));
        packet_close(&received);
    }
    status_restore(&why);
    return !received.is_left;
}

/* Left in the queue, descriptors would be closed by the kernel when the socket is, and one that lingers (posix_closer.c)
 * would make that wait for as long as the peer likes: then a thread waits that has nothing else to do. After shutdown()
 * nothing more comes, and what is queued is still given out (net/unix/af_unix.c, unix_dgram_recvmsg()). */
void posix_packet_close(int fd) {
    if (packet_drain(fd)) {
        posix_register_close(fd);
    } else {
        posix_register_close_alone(fd);
    }
}

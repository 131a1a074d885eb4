/* SPDX-License-Identifier: MIT */
/** @file Connections: opened by name, interrupted, closed. What goes over one is in
 *  posix_packet.c. */
#include "posix.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/sockios.h>

gpuipc_status posix_fail_forked(void) {
    return status_fail(GPUIPC_ERR_FORKED,
                       "this object was made before fork(); its descriptors are closed here");
}

gpuipc_status posix_socket_make(int type, int *out_fd) {
    posix_register_lock();
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    gpuipc_status status = posix_register_add(fd, "socket");
    posix_register_unlock();
    if (status == GPUIPC_OK) {
        *out_fd = fd;
    }
    return status;
}

/* net/unix/af_unix.c, unix_dgram_sendmsg(): a packet may have SO_SNDBUF - 32 bytes. What socket(7)
 * calls wmem_default is enough on most machines; where it was set lower, twice what is asked for is
 * given, up to wmem_max. Where that is too little as well, send says so when it comes to it. */
static void socket_make_room(int fd) {
    int room = 0;
    socklen_t size = sizeof(room);
    if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, &size) != 0 ||
        room < OS_PACKET_BYTES_MAX + 32) {
        int wanted = OS_PACKET_BYTES_MAX;
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &wanted, sizeof(wanted));
    }
}

gpuipc_status posix_connection_wrap(int fd, os_connection **out_connection) {
    os_connection *connection = malloc(sizeof(*connection));
    if (connection == NULL) {
        return status_out_of_memory(sizeof(*connection));
    }
    *connection = (os_connection){.fd = fd, .generation = os_fork_generation()};
    socket_make_room(fd);
    *out_connection = connection;
    return GPUIPC_OK;
}

static gpuipc_status connect_failed(int code, const posix_address *address) {
    const char *path = address->socket.sun_path + (address->file == 0 ? 1 : 0);
    switch (code) {
    case ENOENT:
    case ECONNREFUSED: /* a socket left by a dead process, or not listening yet */
        return posix_fail_as(GPUIPC_ERR_NOT_FOUND, code, "connect", "nobody listens at %s", path);
    case EAGAIN: /* man 2 connect: nonblocking, and cannot be completed immediately */
        return posix_fail_as(GPUIPC_ERR_TIMEOUT, code, "connect",
                             "the listener at %s does not accept the connections it has", path);
    case EACCES:
    case EPERM:
        return posix_fail_as(GPUIPC_ERR_ACCESS_DENIED, code, "connect",
                             "this user (%u) may not connect to %s; in a directory that a group "
                             "shares, new sockets have that group with: chmod 2770 DIRECTORY",
                             (unsigned)geteuid(), path);
    case EPROTOTYPE:
        return posix_fail_as(GPUIPC_ERR_PROTOCOL, code, "connect",
                             "the socket at %s is another program's", path);
    case POSIX_UNREACHABLE:
        return posix_address_unreachable(address);
    default:
        return posix_fail(code, "connect", "no connection to %s", path);
    }
}

static int socket_connect(int fd, int directory, const posix_address *address) {
    int code;
    do {
        code = posix_address_do(connect, fd, directory, address);
    } while (code == EINTR);
    return code;
}

/* Who listens has bound the socket and not given it its rights yet, of which the umask takes some: posix_endpoint.c. */
static bool is_just_made(int directory, const posix_address *address, bool shared) {
    struct stat found;
    return fstatat(directory, address->socket.sun_path + address->file, &found,
                   AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISSOCK(found.st_mode) && (found.st_mode & 07777u) != posix_socket_rights(shared);
}

/** One try.
 *  @param out_may_pass whether a failure may pass: nobody is there yet, or it is busy (a full backlog) */
static gpuipc_status connection_try(int fd, const posix_address *address, const char *path,
                                    bool shared, bool *out_may_pass) {
    int directory = -1;
    bool just_made = false;
    if (address->file != 0) {
        gpuipc_status status = posix_directory_open(path, shared, false, &directory);
        if (status != GPUIPC_OK) {
            *out_may_pass = status == GPUIPC_ERR_NOT_FOUND;
            return status;
        }
    }
    int code = socket_connect(fd, directory, address);
    if (code == EACCES && directory >= 0) {
        just_made = is_just_made(directory, address, shared);
        code = socket_connect(fd, directory, address); /* it may have got its rights in between */
    }
    if (directory >= 0) {
        posix_register_close(directory);
    }
    const gpuipc_status status = code == 0 ? GPUIPC_OK : connect_failed(code, address);
    *out_may_pass = status == GPUIPC_ERR_NOT_FOUND || status == GPUIPC_ERR_TIMEOUT ||
                    (code == EACCES && just_made);
    return status;
}

gpuipc_status os_connection_open(const os_directory *directory, const char *name,
                                 os_deadline deadline, os_connection **out_connection) {
    char path[PATH_MAX] = "";
    gpuipc_status status = GPUIPC_OK;
    if (name[0] != POSIX_ABSTRACT_MARK) {
        status = os_directory_resolve(directory, path, sizeof(path));
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    posix_address address;
    status = posix_address_make(path, name, &address);
    if (status != GPUIPC_OK) {
        return status;
    }
    int fd;
    status = posix_socket_make(SOCK_SEQPACKET, &fd);
    if (status != GPUIPC_OK) {
        return status;
    }
    bool shared = directory != NULL && directory->shared;
    unsigned pause = 0;
    for (;;) {
        bool may_pass;
        status = connection_try(fd, &address, path, shared, &may_pass);
        if (!may_pass || os_deadline_passed(deadline)) {
            break;
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
    if (status == GPUIPC_OK) {
        status = posix_connection_wrap(fd, out_connection);
    }
    if (status != GPUIPC_OK) {
        posix_register_close(fd);
    }
    return status;
}

gpuipc_status posix_connection_usable(const os_connection *connection) {
    if (connection->generation != os_fork_generation()) {
        return posix_fail_forked();
    }
    if (atomic_load(&connection->interrupted)) {
        return status_fail(GPUIPC_ERR_RELEASED, "another thread closed the connection meanwhile");
    }
    return GPUIPC_OK;
}

gpuipc_status os_connection_get_peer(os_connection *connection, os_peer *out_peer) {
    if (connection->generation != os_fork_generation()) {
        return posix_fail_forked();
    }
    return posix_peer_of_socket(connection->fd, out_peer);
}

/* With SHUT_RD the peer's next sendmsg() answers EPIPE, and no packet comes after what is queued, which is still given out
 * (net/unix/af_unix.c, unix_dgram_sendmsg(), unix_dgram_recvmsg()). POLLHUP, which is what the peer knows the end by,
 * comes with SHUT_WR alone. */
void os_connection_stop(os_connection *connection) {
    if (connection->generation == os_fork_generation()) {
        atomic_store(&connection->interrupted, true);
        shutdown(connection->fd, SHUT_RD);
    }
}

void os_connection_interrupt(os_connection *connection) {
    if (connection->generation == os_fork_generation()) {
        atomic_store(&connection->interrupted, true);
        shutdown(connection->fd, SHUT_RDWR);
    }
}

/* Since os_connection_stop() nothing more can have come. */
bool os_connection_end(os_connection *connection, bool *out_peer_closed) {
    os_connection_interrupt(connection);
    *out_peer_closed = false;
    return true;
}

void os_connection_set_look(os_connection *connection, uint32_t microseconds) {
    connection->look_us = microseconds;
}

/* unix(7), SIOCOUTQ: what has been sent and not been received is charged to the sender. */
bool os_connection_is_read(os_connection *connection) {
    int unread = 0;
    return ioctl(connection->fd, SIOCOUTQ, &unread) != 0 || unread == 0;
}

bool os_connection_has_ended(os_connection *connection) {
    int events = fd_wait(connection->fd, 0, os_deadline_after(0));
    /* looked at afterwards: an interrupt looks like the end, and is noted before it is done */
    return events > 0 && (events & POLLHUP) != 0 && !atomic_load(&connection->interrupted);
}

void os_connection_destroy(os_connection *connection) {
    if (connection->generation == os_fork_generation()) {
        posix_packet_close(connection->fd);
    }
    free(connection);
}

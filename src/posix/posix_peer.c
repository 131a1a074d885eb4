/* SPDX-License-Identifier: MIT */
/** @file Who is at the other end of a socket, as the kernel vouches for it. */
#include "posix.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* user_namespaces(7), "Unmapped user and group IDs": what /proc/sys/kernel/overflowuid is unless somebody changes it. */
#define OVERFLOW_USER 65534u

/* Linux 6.5, include/uapi/asm-generic/socket.h; older C library headers lack it. */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/** A pidfd for the process that the kernel noted when the connection was made; -1 with errno. */
static int pidfd_of_socket(int fd) {
    int process = -1;
    socklen_t size = sizeof(process);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &size) != 0) {
        return -1;
    }
    return process;
}

/* For kernels before 6.5. The number is from the time of the connection, so by now it may belong to
 * another process. A peer that has hung up is not looked for at all, and one that hangs up while
 * its descriptor is made is dropped again. What remains: the process ended, its number was given
 * out anew, and another process still holds its socket. Then the wrong process is watched, which
 * does harm only by keeping a lease for longer; the user was checked on the socket itself. */
static int pidfd_of_number(int fd, pid_t process_id) {
    os_deadline now = os_deadline_after(0);
    if ((fd_wait(fd, 0, now) & POLLHUP) != 0) {
        errno = ESRCH;
        return -1;
    }
    int process = (int)syscall(SYS_pidfd_open, process_id, 0); /* closed on exec: pidfd_open(2) */
    if (process >= 0 && (fd_wait(fd, 0, now) & POLLHUP) != 0) {
        close(process);
        errno = ESRCH;
        return -1;
    }
    return process;
}

/* A process whose number is 0 here lives outside; one with a number may live in a namespace inside ours,
 * where it has another: namespaces(7). What may not be read (ptrace(2) access mode) says nothing. */
static bool is_in_other_namespace(pid_t process_id) {
    char path[64];
    char own[64] = "";
    char other[64] = "";
    if (process_id == 0) {
        return true;
    }
    (void)snprintf(path, sizeof(path), "/proc/%ld/ns/pid", (long)process_id);
    return readlink("/proc/self/ns/pid", own, sizeof(own) - 1) > 0 &&
           readlink(path, other, sizeof(other) - 1) > 0 && strcmp(own, other) != 0;
}

/* Whether each number is one user here: in the first user namespace, whose map is of all of them (user_namespaces(7)). */
static bool are_all_users_mapped(void) {
    unsigned long first = 1;
    unsigned long outside = 1;
    unsigned long count = 0;
    FILE *map = fopen("/proc/self/uid_map", "re");
    if (map == NULL) {
        return false;
    }
    const bool is_one_line = fscanf(map, "%lu %lu %lu", &first, &outside, &count) == 3;
    fclose(map);
    return is_one_line && first == 0 && outside == 0 && count == UINT32_MAX;
}

/* Users whom a namespace does not know have the overflow user's number there, all the same one. So who runs under that
 * number does not know his own kind by it. */
static bool is_own_user(uid_t user) {
    return user == geteuid() && (user != OVERFLOW_USER || are_all_users_mapped());
}

gpuipc_status posix_peer_of_socket(int fd, os_peer *out_peer) {
    struct ucred credentials;
    socklen_t size = sizeof(credentials);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
        return posix_fail(errno, "getsockopt(SO_PEERCRED)", "the peer cannot be identified");
    }
    os_peer peer = {.process_id = (uint64_t)credentials.pid,
                    .same_user = is_own_user(credentials.uid),
                    .other_pid_namespace = is_in_other_namespace(credentials.pid),
                    .process = OS_HANDLE_NONE};
    snprintf(peer.user, sizeof(peer.user), "%u", (unsigned)credentials.uid);

    gpuipc_status status = GPUIPC_OK;
    posix_register_lock();
    int process = pidfd_of_socket(fd);
    if (process < 0 && errno == ENOPROTOOPT && credentials.pid > 0) {
        process = pidfd_of_number(fd, credentials.pid);
    }
    /* That there is none is no failure, not even at our own limit of descriptors: the peer is known
     * by its credentials, and whether it runs cannot be said then. */
    if (process >= 0) {
        status = posix_register_add(process, "pidfd_open");
        peer.process = (os_handle){process};
    }
    posix_register_unlock();
    if (status == GPUIPC_OK) {
        *out_peer = peer;
    }
    return status;
}

gpuipc_status os_peer_self(os_peer *out_peer) {
    os_peer peer = {.process_id = os_process_id(), .same_user = true, .process = OS_HANDLE_NONE};
    os_own_user(peer.user, sizeof(peer.user));
    posix_register_lock();
    const int process = (int)syscall(SYS_pidfd_open, getpid(), 0);
    gpuipc_status status =
        process < 0 ? posix_fail(errno, "pidfd_open", "there is no descriptor of this process")
                    : posix_register_add(process, "pidfd_open");
    posix_register_unlock();
    if (status == GPUIPC_OK) {
        peer.process = (os_handle){process};
        *out_peer = peer;
    }
    return status;
}

void os_own_user(char *user, size_t capacity) {
    (void)snprintf(user, capacity, "%u", (unsigned)geteuid());
}

void os_peer_close(os_peer *peer) {
    posix_register_close((int)peer->process.value); /* of this process's own making */
    peer->process = OS_HANDLE_NONE;
}

int os_peer_is_running(const os_peer *peer) {
    if (os_handle_is_valid(peer->process)) {
        /* pidfd_open(2): readable when the process has ended. */
        int events = fd_wait((int)peer->process.value, POLLIN, os_deadline_after(0));
        if (events < 0 || (events & POLLNVAL) != 0) {
            return -1;
        }
        return events == 0 ? 1 : 0;
    }
    /* Without a pidfd a number in use proves nothing (it may have been given out anew), but one
     * that is not in use does. */
    if (peer->process_id != 0 && kill((pid_t)peer->process_id, 0) != 0 && errno == ESRCH) {
        return 0;
    }
    return -1;
}

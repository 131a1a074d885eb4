/* SPDX-License-Identifier: MIT */
/**
 * @file Closing what a peer has sent. The last close(2) of a file does what its kind does at the end, and that can take as long
 * as a peer likes. A file system in user space (FUSE) answers flush() when its server does. A socket that lingers waits for
 * its other end, and a Unix socket may hold further descriptors in its queue. So the calling thread closes only the kinds
 * that are known to be quick. Threads that wait alone close all others, and end when there is nothing left.
 */
#include "posix.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Documentation/admin-guide/devices.txt: /dev/null and its like, and NVIDIA's. */
#define MEMORY_DEVICES 1u
#define NVIDIA_DEVICES 195u

/* So many are closed at a time. As many wait for that as the process may have open. */
#define CLOSERS_MAX 16u

typedef struct waiting {
    struct waiting *next;
    int fd;
} waiting;

static struct {
    os_static_mutex mutex;
    uint32_t
        generation; /**< os_fork_generation() of the closers: a forked child has none of them */
    unsigned closers;
    waiting *first;
} all;

/* The last close() of memory frees it: 64 MiB take some 10 ms. */
#define AT_ONCE_BLOCKS (UINT64_C(64) << 11) /* of 512 bytes */

/* ---- what is quick ------------------------------------------------------------------------- */

/* With what is known without asking a file system: AT_STATX_DONT_SYNC. One that keeps its type from us is none of those
 * that are known (fs/fuse/dir.c, fuse_update_get_attr(): EACCES). */
static bool look_at(int fd, unsigned wanted, struct statx *out_found) {
    return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, wanted, out_found) == 0 &&
           (out_found->stx_mask & wanted) == wanted;
}

/* Not a pipe: the lock that its close takes is held by a read or write of the peer's, whose buffer may be such a file. */
static bool closes_at_once(int fd) {
    struct statx found;
    if (fcntl(fd, F_GET_SEALS) >= 0) { /* memory of the kernel's own: fcntl(2), "File Sealing" */
        return look_at(fd, STATX_BLOCKS, &found) && found.stx_blocks <= AT_ONCE_BLOCKS;
    }
    return look_at(fd, STATX_TYPE, &found) && S_ISCHR(found.stx_mode) &&
           (found.stx_rdev_major == MEMORY_DEVICES || found.stx_rdev_major == NVIDIA_DEVICES);
}

/* A socket that lingers waits in close() for its data to be acknowledged (socket(7), SO_LINGER), if it is the last
 * descriptor of it. What lies in the queue of a Unix socket is left alone: its sender may go on using the socket. */
static void stop_lingering(int fd) {
    const struct linger none = {0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none)); /* fails on all but sockets */
}

/* ---- the threads --------------------------------------------------------------------------- */

/* @return what waits, which is the caller's; NULL: nothing does, and the caller is no closer any more */
static waiting *take_one(void) {
    os_static_mutex_lock(&all.mutex);
    waiting *taken = all.first;
    if (taken == NULL) {
        all.closers--;
    } else {
        all.first = taken->next;
    }
    os_static_mutex_unlock(&all.mutex);
    return taken;
}

static void close_waiting(void *argument) {
    waiting *taken;
    (void)argument;
    while ((taken = take_one()) != NULL) {
        const int fd = taken->fd;
        free(taken);
        stop_lingering(fd);
        close(fd);
    }
}

/* A forked child has no closers, and the numbers may be other files' there by now: the copies of those that waited go
 * with the program that the child executes. The mutex is held. */
static void notice_fork(void) {
    if (all.generation != os_fork_generation()) {
        all.generation = os_fork_generation();
        all.closers = 0;
        while (all.first != NULL) {
            waiting *gone = all.first;
            all.first = gone->next;
            free(gone);
        }
    }
}

/* Where no thread can be started, and where memory has run out, the caller waits. */
void posix_close_alone(int fd) {
    waiting *one = malloc(sizeof(*one));
    if (one == NULL) {
        stop_lingering(fd);
        close(fd);
        return;
    }
    os_static_mutex_lock(&all.mutex);
    notice_fork();
    *one = (waiting){.next = all.first, .fd = fd};
    all.first = one;
    const bool is_more = all.closers < CLOSERS_MAX;
    all.closers += is_more;
    os_static_mutex_unlock(&all.mutex);
    const gpuipc_error why = status_save();
    if (is_more && posix_thread_start_alone(close_waiting, NULL) != GPUIPC_OK) {
        close_waiting(NULL);
    }
    status_restore(&why);
}

void posix_close_foreign(int fd) {
    if (closes_at_once(fd)) {
        close(fd);
    } else {
        posix_close_alone(fd);
    }
}

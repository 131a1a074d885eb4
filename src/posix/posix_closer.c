/* SPDX-License-Identifier: MIT */
/**
 * @file Closing what a peer has sent. close(2) calls the file's own flush(), and that of a file system in user space (FUSE)
 * ends when the process that serves it likes; a network's or a device's may take long as well. So what is not known to be
 * closed at once is closed by threads that wait alone, and that end when there is nothing left.
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

/* A socket that lingers waits in close() for its data to be acknowledged (socket(7), SO_LINGER), if
 * it is the last descriptor of it: a peer could send one to make us wait. */
static void stop_lingering(int fd) {
    const struct linger none = {0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none)); /* fails on all but sockets */
}

/* With what is known without asking a file system: AT_STATX_DONT_SYNC. One that keeps its type from us is none of those
 * that are known (fs/fuse/dir.c, fuse_update_get_attr(): EACCES). */
static bool look_at(int fd, struct statx *out_found) {
    return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID,
                 out_found) == 0 &&
           (out_found->stx_mask & STATX_TYPE) != 0;
}

/* On a disk, or on what this process has as its root: whoever started it chose that. */
static bool is_local(const struct statx *file) {
    struct statx root;
    return file->stx_dev_major != 0 ||
           (statx(AT_FDCWD, "/", AT_STATX_DONT_SYNC, STATX_MNT_ID, &root) == 0 &&
            (file->stx_mask & root.stx_mask & STATX_MNT_ID) != 0 &&
            file->stx_mnt_id == root.stx_mnt_id);
}

static bool closes_at_once(int fd) {
    struct statx found;
    if (fcntl(fd, F_GET_SEALS) >= 0) {
        return true; /* memory of the kernel's own: fcntl(2), "File Sealing" */
    }
    if (!look_at(fd, &found)) {
        return false;
    }
    switch (found.stx_mode & S_IFMT) {
    case 0: /* an anonymous inode: eventfd, pidfd, dma-buf and others */
    case S_IFIFO:
        return true;
    case S_IFSOCK:
        stop_lingering(fd);
        return true;
    case S_IFCHR:
        return found.stx_rdev_major == MEMORY_DEVICES || found.stx_rdev_major == NVIDIA_DEVICES;
    case S_IFREG:
    case S_IFDIR:
        return is_local(&found);
    default:
        return false;
    }
}

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

/* SPDX-License-Identifier: MIT */
/** @file Listeners: a name made, a dead process's name replaced, connections accepted. */
#include "posix.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BACKLOG        128
#define LOCK_WAIT_MS   2000
#define UNLINK_WAIT_MS 50

struct os_listener {
    int fd;
    atomic_int spare; /**< given up for a client to be refused; -1: to be made again */
    int directory;    /**< -1: an abstract name */
    posix_address address;
    dev_t device; /**< of the socket's file, and its inode: whether the name is still ours */
    ino_t inode;
    uint32_t generation;
    atomic_bool interrupted;
};

/* A second name is a hard link to the socket's file: connect(2) goes by what the file is, and the kernel takes back
 * nothing of it when its process dies, so that it is replaced as the first name is. */
struct os_name {
    os_listener *of;
    posix_address address;
};

static const char *file_of(const posix_address *address) {
    return address->socket.sun_path + address->file;
}

/* The lock is the directory's own flock(2): nothing is left lying about, and the kernel takes it
 * back from a process that dies. It is held only while a name is made, replaced or removed. Kept
 * for a listener's life it would say "alive" without a connect, but a lock lives as long as any
 * copy of its descriptor does, so it would say so as well for a process that is dead and has left a
 * copy in a child; whether somebody accepts is what a connect asks. */
static gpuipc_status directory_lock(int directory, int wait_ms) {
    os_deadline deadline = os_deadline_after(wait_ms);
    unsigned pause = 0;
    while (flock(directory, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return posix_fail(errno, "flock", "the runtime directory cannot be locked");
        }
        if (os_deadline_passed(deadline)) {
            return status_fail(GPUIPC_ERR_TIMEOUT,
                               "another process has locked the runtime directory for %d ms",
                               wait_ms);
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
    return GPUIPC_OK;
}

/* Unlocked explicitly, and not by close alone: a copy of the descriptor would keep the lock. */
static void directory_unlock(int directory) {
    flock(directory, LOCK_UN);
}

/** Whether a process has a socket at the address. The connect is one of another type, so that it
 *  never becomes a connection that a living listener would have to deal with: net/unix/af_unix.c,
 *  unix_find_bsd() answers ECONNREFUSED where no socket is behind the file, and EPROTOTYPE where one
 *  of another type is. Every other answer, such as a lack of rights, proves no death. */
static gpuipc_status address_probe(int directory, const posix_address *address, bool *out_alive) {
    int fd;
    gpuipc_status status = posix_socket_make(SOCK_DGRAM, &fd);
    if (status != GPUIPC_OK) {
        return status;
    }
    int code = posix_address_do(connect, fd, directory, address);
    *out_alive = code != ECONNREFUSED && code != ENOENT;
    posix_register_close(fd);
    return GPUIPC_OK;
}

/** With the directory locked: removes the socket of a process that is gone. */
static gpuipc_status name_clear(int directory, const posix_address *address, bool *out_replaced) {
    const char *path = address->socket.sun_path;
    struct stat found;
    if (fstatat(directory, file_of(address), &found, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? GPUIPC_OK
                               : posix_fail(errno, "fstatat", "%s cannot be looked at", path);
    }
    if (!S_ISSOCK(found.st_mode)) {
        return status_fail(GPUIPC_ERR_NAME_IN_USE,
                           "%s exists and is no socket; it is left as it is", path);
    }
    bool alive;
    gpuipc_status status = address_probe(directory, address, &alive);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (alive) {
        return status_fail(GPUIPC_ERR_NAME_IN_USE, "a process listens at %s", path);
    }
    if (unlinkat(directory, file_of(address), 0) != 0 && errno != ENOENT) {
        return posix_fail(errno, "unlinkat", "the dead socket %s cannot be removed", path);
    }
    *out_replaced = true;
    return GPUIPC_OK;
}

static void log_replaced(const posix_address *address, const os_log *log) {
    char sentence[256];
    if (log != NULL && log->write != NULL) {
        snprintf(sentence, sizeof(sentence), "replaced %s, left by a process that is gone",
                 address->socket.sun_path);
        log->write(log->user_data, sentence);
    }
}

/** @param code ENOENT: somebody has removed what was there a moment ago. */
static gpuipc_status name_removed(int code, const char *call, const char *path) {
    return posix_fail_as(GPUIPC_ERR_NOT_FOUND, code, call,
                         "somebody has removed %s, or the directory that it is in, meanwhile",
                         path);
}

static gpuipc_status socket_bind(int fd, int directory, const posix_address *address) {
    const char *path = address->socket.sun_path + (address->file == 0 ? 1 : 0);
    int code = posix_address_do(bind, fd, directory, address);
    switch (code) {
    case 0:
        return GPUIPC_OK;
    case EADDRINUSE:
        return posix_fail_as(GPUIPC_ERR_NAME_IN_USE, code, "bind", "%s is taken", path);
    case ENOENT:
        return name_removed(code, "bind", path);
    case POSIX_UNREACHABLE:
        return posix_address_unreachable(address);
    default:
        return posix_fail(code, "bind", "no socket can be made at %s", path);
    }
}

static gpuipc_status socket_listen(int fd) {
    if (listen(fd, BACKLOG) != 0) {
        return posix_fail(errno, "listen", "the socket cannot listen");
    }
    return GPUIPC_OK;
}

/** Gives the socket's file the rights that the umask has taken. In a directory that a group shares, others of it can put a
 *  link in the file's place meanwhile: so it is held open, and what is open is changed. */
static gpuipc_status rights_set(const os_listener *listener, mode_t rights, struct stat *out_made) {
    const char *path = listener->address.socket.sun_path;
    char open_file[64];
    gpuipc_status status;
    int fd;
    posix_register_lock();
    do {
        fd = openat(listener->directory, file_of(&listener->address),
                    O_PATH | O_NOFOLLOW | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0 && errno == ENOENT) {
        posix_register_unlock();
        return name_removed(ENOENT, "openat", path);
    }
    status = posix_register_add(fd, "openat");
    posix_register_unlock();
    if (status != GPUIPC_OK) {
        return status;
    }
    posix_descriptor_path(fd, open_file, sizeof(open_file));
    if (fstat(fd, out_made) != 0) {
        status = posix_fail(errno, "fstat", "%s cannot be looked at", path);
    } else if (!S_ISSOCK(out_made->st_mode) || out_made->st_uid != geteuid()) {
        status = status_fail(GPUIPC_ERR_UNSAFE_DIRECTORY,
                             "another process has put something in the place of %s", path);
    } else if ((out_made->st_mode & 07777u) != rights && chmod(open_file, rights) != 0) {
        status = posix_fail(errno, "chmod", "the rights of %s cannot be set", path);
    }
    posix_register_close(fd);
    return status;
}

/** With the directory locked. The socket's own rights are what its file gets, less the umask (net/unix/af_unix.c,
 *  unix_bind_bsd()), so that the file never has more; and until listen() a connect is refused. */
static gpuipc_status name_make(os_listener *listener, bool shared) {
    const mode_t rights = posix_socket_rights(shared);
    struct stat made;
    if (fchmod(listener->fd, rights) != 0) {
        return posix_fail(errno, "fchmod", "the rights of a socket cannot be set");
    }
    gpuipc_status status = socket_bind(listener->fd, listener->directory, &listener->address);
    if (status != GPUIPC_OK) {
        return status;
    }
    if ((status = rights_set(listener, rights, &made)) != GPUIPC_OK ||
        (status = socket_listen(listener->fd)) != GPUIPC_OK) {
        unlinkat(listener->directory, file_of(&listener->address), 0);
        return status;
    }
    listener->device = made.st_dev;
    listener->inode = made.st_ino;
    return GPUIPC_OK;
}

static gpuipc_status listener_open_in_directory(os_listener *listener, const char *path,
                                                bool shared, const os_log *log) {
    gpuipc_status status = posix_directory_open(path, shared, true, &listener->directory);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = directory_lock(listener->directory, LOCK_WAIT_MS);
    if (status != GPUIPC_OK) {
        goto close_directory;
    }
    bool replaced = false;
    status = name_clear(listener->directory, &listener->address, &replaced);
    if (status == GPUIPC_OK) {
        status = name_make(listener, shared);
    }
    directory_unlock(listener->directory);
    if (status == GPUIPC_OK) {
        if (replaced) {
            log_replaced(&listener->address, log);
        }
        return GPUIPC_OK;
    }

close_directory:
    posix_register_close(listener->directory);
    return status;
}

static gpuipc_status listener_open_abstract(os_listener *listener) {
    gpuipc_status status = socket_bind(listener->fd, -1, &listener->address);
    return status == GPUIPC_OK ? socket_listen(listener->fd) : status;
}

/** Its own, and the spare one. */
static gpuipc_status listener_sockets_make(os_listener *listener) {
    int spare;
    gpuipc_status status = posix_socket_make(SOCK_SEQPACKET, &listener->fd);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = posix_socket_make(SOCK_SEQPACKET, &spare);
    if (status != GPUIPC_OK) {
        posix_register_close(listener->fd);
        return status;
    }
    atomic_init(&listener->spare, spare);
    return GPUIPC_OK;
}

gpuipc_status os_listener_open(const os_directory *directory, const char *name, const os_log *log,
                               os_listener **out_listener) {
    char path[PATH_MAX] = "";
    gpuipc_status status = GPUIPC_OK;
    if (name[0] != POSIX_ABSTRACT_MARK) {
        status = os_directory_resolve(directory, path, sizeof(path));
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    os_listener *listener = malloc(sizeof(*listener));
    if (listener == NULL) {
        return status_out_of_memory(sizeof(*listener));
    }
    *listener = (os_listener){.fd = -1, .directory = -1, .generation = os_fork_generation()};
    status = posix_address_make(path, name, &listener->address);
    if (status != GPUIPC_OK) {
        goto free_listener;
    }
    status = listener_sockets_make(listener);
    if (status != GPUIPC_OK) {
        goto free_listener;
    }
    bool shared = directory != NULL && directory->shared;
    status = listener->address.file == 0 ? listener_open_abstract(listener)
                                         : listener_open_in_directory(listener, path, shared, log);
    if (status != GPUIPC_OK) {
        goto close_sockets;
    }
    *out_listener = listener;
    return GPUIPC_OK;

close_sockets:
    posix_register_close(atomic_load(&listener->spare));
    posix_register_close(listener->fd);
free_listener:
    free(listener);
    return status;
}

gpuipc_status posix_listener_descriptor(const os_listener *listener, int *out_fd) {
    if (listener->generation != os_fork_generation()) {
        return posix_fail_forked();
    }
    *out_fd = listener->fd;
    return GPUIPC_OK;
}

static gpuipc_status listener_interrupted(void) {
    return status_fail(GPUIPC_ERR_RELEASED, "another thread closed the listener meanwhile");
}

/** One try. @return 0, or errno: the caller decides what to do about it */
static int listener_try(os_listener *listener, gpuipc_status *out_status,
                        os_connection **out_connection) {
    posix_register_lock();
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int code = fd < 0 ? errno : 0;
    *out_status = fd < 0 ? GPUIPC_OK : posix_register_add(fd, "accept4");
    posix_register_unlock();
    if (fd < 0 || *out_status != GPUIPC_OK) {
        return code;
    }
    *out_status = posix_connection_wrap(fd, out_connection);
    if (*out_status != GPUIPC_OK) {
        posix_register_close(fd);
    }
    return 0;
}

gpuipc_status os_listener_accept(os_listener *listener, os_deadline deadline,
                                 os_connection **out_connection) {
    unsigned pause = 0;
    for (;;) {
        if (listener->generation != os_fork_generation()) {
            return posix_fail_forked();
        }
        if (atomic_load(&listener->interrupted)) {
            return listener_interrupted();
        }
        gpuipc_status status;
        int code = listener_try(listener, &status, out_connection);
        if (code == 0) {
            return status;
        }
        if (code == EINTR || code == ECONNABORTED) {
            continue; /* another client may wait, also when there is no time */
        }
        bool at_limit = code == EMFILE || code == ENFILE;
        bool again = code == EAGAIN || (code == EINVAL && atomic_load(&listener->interrupted));
        if (!at_limit && !again) {
            return posix_fail(code, "accept4", "no connection can be accepted");
        }
        if (os_deadline_passed(deadline)) {
            return at_limit ? posix_fail(code, "accept4", "no descriptor for a new connection")
                            : status_fail(GPUIPC_ERR_TIMEOUT,
                                          "nobody connected before the time ran out");
        }
        /* At the limit the waiting connection stays, and with it readiness: waiting for that
         * would spin. With no events asked for, poll() still answers a shutdown (POLLHUP). */
        const os_deadline until =
            at_limit ? os_deadline_inherit(
                           os_deadline_after((int)os_backoff_next(&pause, deadline)), deadline)
                     : deadline;
        int came = fd_wait(listener->fd, at_limit ? 0 : POLLIN, until);
        if (came < 0) {
            return posix_fail(errno, "poll", "the listener cannot be waited for");
        }
    }
}

/** Removes a name if it is still this listener's. Where the lock cannot be had it stays: a dead
 *  socket is replaced by the next who wants its name. */
static void name_remove(const os_listener *listener, const posix_address *address) {
    gpuipc_error saved = status_save();
    if (directory_lock(listener->directory, UNLINK_WAIT_MS) != GPUIPC_OK) {
        status_restore(&saved);
        return;
    }
    struct stat found;
    if (fstatat(listener->directory, file_of(address), &found, AT_SYMLINK_NOFOLLOW) == 0 &&
        found.st_dev == listener->device && found.st_ino == listener->inode) {
        unlinkat(listener->directory, file_of(address), 0);
    }
    directory_unlock(listener->directory);
}

/* ---- second names ------------------------------------------------------------------------------ */

/* With the directory locked. */
static gpuipc_status name_link(const os_name *name, bool *out_replaced) {
    const os_listener *of = name->of;
    gpuipc_status status = name_clear(of->directory, &name->address, out_replaced);
    if (status == GPUIPC_OK && linkat(of->directory, file_of(&of->address), of->directory,
                                      file_of(&name->address), 0) != 0) {
        status = posix_fail(errno, "linkat", "the name %s cannot be made",
                            name->address.socket.sun_path);
    }
    return status;
}

gpuipc_status os_listener_add_name(os_listener *listener, const os_directory *directory,
                                   const char *name, const os_log *log, os_name **out_name) {
    char path[PATH_MAX];
    bool replaced = false;
    gpuipc_status status = os_directory_resolve(directory, path, sizeof(path));
    if (status != GPUIPC_OK) {
        return status;
    }
    if (listener->generation != os_fork_generation()) {
        return posix_fail_forked();
    }
    os_name *made = malloc(sizeof(*made));
    if (made == NULL) {
        return status_out_of_memory(sizeof(*made));
    }
    made->of = listener;
    status = posix_address_make(path, name, &made->address);
    if (status != GPUIPC_OK ||
        (status = directory_lock(listener->directory, LOCK_WAIT_MS)) != GPUIPC_OK) {
        free(made);
        return status;
    }
    status = name_link(made, &replaced);
    directory_unlock(listener->directory);
    if (status != GPUIPC_OK) {
        free(made);
        return status;
    }
    if (replaced) {
        log_replaced(&made->address, log);
    }
    *out_name = made;
    return GPUIPC_OK;
}

void os_name_close(os_name *name) {
    if (name != NULL && name->of->generation == os_fork_generation()) {
        name_remove(name->of, &name->address);
    }
    free(name);
}

/* ---- what is left of others ------------------------------------------------------------------ */

/* So many are asked at once, so that what it costs does not grow with those that live. */
#define SWEPT_AT_ONCE 16u

/* What getdents64(2) writes; glibc has it from 2.30 on, musl by another name. */
typedef struct directory_entry {
    uint64_t inode;
    int64_t next;
    unsigned short size;
    unsigned char type;
    char name[];
} directory_entry;

/* Of which names one is looked at. */
typedef struct sweep {
    int directory;
    const char *path;
    const char *prefix;
    uint64_t start; /**< the number of the first that is asked */
    uint64_t count; /**< how many names there are; 0: they are being counted */
    uint64_t at;
} sweep;

static void sweep_name(const sweep *self, const char *file) {
    char name[NAME_MAX + 1];
    posix_address address;
    struct stat found;
    bool alive = true;
    (void)snprintf(name, sizeof(name), "%.*s", (int)(strlen(file) - strlen(POSIX_SOCKET_SUFFIX)),
                   file);
    if (fstatat(self->directory, file, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISSOCK(found.st_mode) && posix_address_make(self->path, name, &address) == GPUIPC_OK &&
        address_probe(self->directory, &address, &alive) == GPUIPC_OK && !alive) {
        unlinkat(self->directory, file, 0);
    }
}

static bool is_swept(const sweep *self, const directory_entry *entry) {
    const size_t length = strlen(entry->name);
    const size_t suffix = strlen(POSIX_SOCKET_SUFFIX);
    return length > suffix && strncmp(entry->name, self->prefix, strlen(self->prefix)) == 0 &&
           strcmp(entry->name + length - suffix, POSIX_SOCKET_SUFFIX) == 0;
}

/** @return how many names there are */
static uint64_t sweep_entries(sweep *self) {
    _Alignas(directory_entry) char entries[8192];
    long size;
    lseek(self->directory, 0, SEEK_SET);
    for (self->at = 0;
         (size = syscall(SYS_getdents64, self->directory, entries, sizeof(entries))) > 0;) {
        for (long offset = 0; offset < size;) {
            const directory_entry *entry =
                (const directory_entry *)(const void *)(entries + offset);
            offset += entry->size;
            if (is_swept(self, entry)) {
                if (self->count > 0 &&
                    (self->at + self->count - self->start) % self->count < SWEPT_AT_ONCE) {
                    sweep_name(self, entry->name);
                }
                self->at++;
            }
        }
    }
    return self->at;
}

void os_directory_sweep(const os_directory *directory, const char *prefix) {
    char path[PATH_MAX];
    sweep all = {.directory = -1, .path = path, .prefix = prefix};
    const bool shared = directory != NULL && directory->shared;
    const gpuipc_error why = status_save();
    if (os_directory_resolve(directory, path, sizeof(path)) == GPUIPC_OK &&
        posix_directory_open(path, shared, true, &all.directory) == GPUIPC_OK) {
        if (os_random(&all.start, sizeof(all.start)) == GPUIPC_OK &&
            directory_lock(all.directory, UNLINK_WAIT_MS) == GPUIPC_OK) {
            all.count = sweep_entries(&all);
            if (all.count > 0) {
                all.start %= all.count;
                (void)sweep_entries(&all);
            }
            directory_unlock(all.directory);
        }
        posix_register_close(all.directory);
    }
    status_restore(&why);
}

/* ---- the end ----------------------------------------------------------------------------------- */

/* On Linux, shutdown() of a listening Unix socket wakes all who poll it: net/unix/af_unix.c,
 * unix_shutdown() calls sk_state_change, unix_dgram_poll() answers EPOLLHUP from then on. The name goes
 * now and not with the last thread that waits, so that the next listener can have it. */
void os_listener_interrupt(os_listener *listener) {
    if (listener->generation != os_fork_generation() ||
        atomic_exchange(&listener->interrupted, true)) {
        return;
    }
    shutdown(listener->fd, SHUT_RDWR);
    if (listener->directory >= 0) {
        name_remove(listener, &listener->address);
    }
}

/** Takes a client that nobody accepted, and throws away what it has sent already. False when none was
 *  taken, with errno. */
static bool backlog_drop(int listener_fd) {
    posix_register_lock();
    int fd = accept4(listener_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int code = errno;
    gpuipc_status status = fd < 0 ? GPUIPC_OK : posix_register_add(fd, "accept4");
    posix_register_unlock();
    if (fd >= 0 && status == GPUIPC_OK) {
        posix_packet_close(fd);
    }
    errno = code;
    return fd >= 0 && status == GPUIPC_OK;
}

/* The spare descriptor is given up for the moment: accept4(2) needs a free number even for a client that is
 * closed at once. Should another thread be quicker to take it, this client waits for the next call. */
bool os_listener_refuse(os_listener *listener) {
    if (listener->generation != os_fork_generation()) {
        return false;
    }
    gpuipc_error why = status_save();
    bool is_taken = backlog_drop(listener->fd);
    if (!is_taken && (errno == EMFILE || errno == ENFILE)) {
        posix_register_close(atomic_exchange(&listener->spare, -1));
        is_taken = backlog_drop(listener->fd);
    }
    int spare = -1;
    if (atomic_load(&listener->spare) < 0 &&
        posix_socket_make(SOCK_SEQPACKET, &spare) == GPUIPC_OK) {
        posix_register_close(atomic_exchange(&listener->spare, spare));
    }
    status_restore(&why);
    return is_taken;
}

void os_listener_destroy(os_listener *listener) {
    if (listener->generation == os_fork_generation()) {
        gpuipc_error why = status_save();
        os_listener_interrupt(listener);
        while (backlog_drop(listener->fd)) {
        }
        status_restore(&why);
        posix_register_close(atomic_load(&listener->spare));
        if (listener->directory >= 0) {
            posix_register_close(listener->directory);
        }
        posix_register_close(listener->fd);
    }
    free(listener);
}

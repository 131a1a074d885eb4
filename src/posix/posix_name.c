/* SPDX-License-Identifier: MIT */
/** @file Names in a runtime directory: made, replaced after a process that is gone, removed. */
#include "posix.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BACKLOG        128
#define UNLINK_WAIT_MS 50

static const char *file_of(const posix_address *address) {
    return address->socket.sun_path + address->file;
}

/* The lock is the directory's own flock(2): nothing is left lying about, and the kernel takes it
 * back from a process that dies. It is held only while a name is made, replaced or removed. Kept
 * for a listener's life it would say "alive" without a connect, but a lock lives as long as any
 * copy of its descriptor does, so it would say so as well for a process that is dead and has left a
 * copy in a child; whether somebody accepts is what a connect asks. */
gpuipc_status posix_directory_lock(int directory, int wait_ms) {
    os_deadline deadline = os_deadline_after(wait_ms);
    unsigned pause = 0;
    while (flock(directory, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return posix_fail(errno, "flock", "the runtime directory cannot be locked");
        }
        if (os_deadline_passed(deadline)) {
            return status_fail(GPUIPC_ERR_TIMEOUT,
                               "another process kept the runtime directory locked (waited %d ms)",
                               wait_ms);
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
    return GPUIPC_OK;
}

/* Unlocked explicitly, and not by close alone: a copy of the descriptor would keep the lock. */
void posix_directory_unlock(int directory) {
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

gpuipc_status posix_name_clear(int directory, const posix_address *address, bool *out_replaced) {
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

gpuipc_status posix_name_removed(int code, const char *call, const posix_address *address) {
    return posix_fail_as(GPUIPC_ERR_NOT_FOUND, code, call,
                         "another program removed %s, or its directory, during this call",
                         address->socket.sun_path);
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
        return posix_name_removed(code, "bind", address);
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
static gpuipc_status rights_set(int directory, const posix_address *address, mode_t rights,
                                struct stat *out_made) {
    const char *path = address->socket.sun_path;
    char open_file[64];
    gpuipc_status status;
    int fd;
    posix_register_lock();
    do {
        fd = openat(directory, file_of(address), O_PATH | O_NOFOLLOW | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0 && errno == ENOENT) {
        posix_register_unlock();
        return posix_name_removed(ENOENT, "openat", address);
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

/* The socket's own rights are what its file gets, less the umask (net/unix/af_unix.c, unix_bind_bsd()), so that the file
 * never has more; and until listen() a connect is refused. */
gpuipc_status posix_name_make(int fd, int directory, const posix_address *address, bool shared,
                              struct stat *out_made) {
    const mode_t rights = posix_socket_rights(shared);
    if (address->file == 0) {
        gpuipc_status status = socket_bind(fd, -1, address);
        return status == GPUIPC_OK ? socket_listen(fd) : status;
    }
    if (fchmod(fd, rights) != 0) {
        return posix_fail(errno, "fchmod", "the rights of a socket cannot be set");
    }
    gpuipc_status status = socket_bind(fd, directory, address);
    if (status != GPUIPC_OK) {
        return status;
    }
    if ((status = rights_set(directory, address, rights, out_made)) != GPUIPC_OK ||
        (status = socket_listen(fd)) != GPUIPC_OK) {
        unlinkat(directory, file_of(address), 0);
    }
    return status;
}

bool posix_name_is(int directory, const posix_address *address, const struct stat *made) {
    struct stat found;
    return fstatat(directory, file_of(address), &found, AT_SYMLINK_NOFOLLOW) == 0 &&
           found.st_dev == made->st_dev && found.st_ino == made->st_ino;
}

/* Where the lock cannot be had it stays: a dead socket is replaced by the next who wants its name. */
void posix_name_remove(int directory, const posix_address *address, const struct stat *made) {
    gpuipc_error saved = status_save();
    if (posix_directory_lock(directory, UNLINK_WAIT_MS) != GPUIPC_OK) {
        status_restore(&saved);
        return;
    }
    if (posix_name_is(directory, address, made)) {
        unlinkat(directory, file_of(address), 0);
    }
    posix_directory_unlock(directory);
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
            posix_directory_lock(all.directory, UNLINK_WAIT_MS) == GPUIPC_OK) {
            all.count = sweep_entries(&all);
            if (all.count > 0) {
                all.start %= all.count;
                (void)sweep_entries(&all);
            }
            posix_directory_unlock(all.directory);
        }
        posix_register_close(all.directory);
    }
    status_restore(&why);
}

/* SPDX-License-Identifier: MIT */
/** @file Small files in a directory that is this user's alone. */
#include "posix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/** Room for a name that nobody else uses. */
#define TEMPORARY_NAME_MAX 64

/* XDG Base Directory Specification: a path that is not absolute is to be ignored. */
bool os_cache_directory(char *path, size_t capacity) {
    const char *base = os_environment("XDG_CACHE_HOME");
    const char *last = "/gpuipc";
    if (base == NULL || base[0] != '/') {
        base = os_environment("HOME");
        last = "/.cache/gpuipc";
    }
    if (base == NULL || base[0] != '/') {
        return false;
    }
    int length = snprintf(path, capacity, "%s%s", base, last);
    return length > 0 && (size_t)length < capacity;
}

/** Registers what openat() answered. O_NOFOLLOW and O_NONBLOCK: a link or a pipe there is not ours. */
static gpuipc_status open_in(int directory, const char *name, int flags, int *out_fd) {
    int fd;
    posix_register_lock();
    do {
        fd = openat(directory, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    } while (fd < 0 && errno == EINTR);
    int code = errno;
    gpuipc_status status = fd < 0 ? GPUIPC_OK : posix_register_add(fd, "openat");
    posix_register_unlock();
    if (fd < 0) {
        return posix_fail_as(code == ENOENT  ? GPUIPC_ERR_NOT_FOUND
                             : code == ELOOP ? GPUIPC_ERR_UNSAFE_DIRECTORY
                                             : posix_error_status(code),
                             code, "openat", "the file %.80s cannot be opened", name);
    }
    if (status == GPUIPC_OK) {
        *out_fd = fd;
    }
    return status;
}

/** Reads until the end. ERR_LIMIT */
static gpuipc_status read_all(int fd, const char *name, char *bytes, size_t capacity,
                              size_t *out_size) {
    size_t size = 0;
    char more;
    for (;;) {
        const bool is_full = size == capacity;
        ssize_t got = is_full ? read(fd, &more, 1) : read(fd, bytes + size, capacity - size);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return posix_fail(errno, "read", "the file %.80s cannot be read", name);
        }
        if (got == 0) {
            *out_size = size;
            return GPUIPC_OK;
        }
        if (is_full) {
            return status_fail(GPUIPC_ERR_LIMIT, "the file %.80s is longer than %zu bytes", name,
                               capacity);
        }
        size += (size_t)got;
    }
}

gpuipc_status os_file_read(const char *directory, const char *name, void *bytes, size_t capacity,
                           size_t *out_size) {
    struct stat found;
    int folder;
    int fd;
    gpuipc_status status = posix_directory_open(directory, false, false, &folder);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = open_in(folder, name, O_RDONLY, &fd);
    if (status != GPUIPC_OK) {
        goto close_folder;
    }
    if (fstat(fd, &found) != 0) {
        status = posix_fail(errno, "fstat", "the file %.80s cannot be looked at", name);
    } else if (!S_ISREG(found.st_mode) || found.st_uid != geteuid()) {
        status = status_fail(GPUIPC_ERR_UNSAFE_DIRECTORY,
                             "%.80s is no plain file, or not this user's", name);
    } else {
        status = read_all(fd, name, bytes, capacity, out_size);
    }
    posix_register_close(fd);
close_folder:
    posix_register_close(folder);
    return status;
}

static gpuipc_status write_all(int fd, const char *name, const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t written = write(fd, bytes, size);
        if (written < 0 && errno != EINTR) {
            return posix_fail(errno, "write", "the file %.80s cannot be written", name);
        }
        if (written > 0) {
            bytes += written;
            size -= (size_t)written;
        }
    }
    return GPUIPC_OK;
}

/* As in posix_directory.c: sudo -E leaves HOME and XDG_CACHE_HOME of another user. */
static gpuipc_status check_owner(const char *path) {
    uid_t owner;
    return posix_is_another_users(path, &owner)
               ? status_fail(GPUIPC_ERR_UNSAFE_DIRECTORY,
                             "%.80s belongs to user %u, and this process runs as user %u", path,
                             (unsigned)owner, (unsigned)geteuid())
               : GPUIPC_OK;
}

/** XDG: what is missing of the way there is made with mode 0700; here, the last but one part. */
static gpuipc_status make_parent(const char *directory) {
    char above[OS_PATH_MAX];
    char parent[OS_PATH_MAX];
    int length = snprintf(parent, sizeof(parent), "%s", directory);
    if (length < 0 || (size_t)length >= sizeof(parent)) {
        return status_fail(GPUIPC_ERR_NAME_TOO_LONG, "%.80s... is too long a path", directory);
    }
    char *end = strrchr(parent, '/');
    if (end == NULL || end == parent) {
        return GPUIPC_OK;
    }
    *end = '\0';
    (void)snprintf(above, sizeof(above), "%.*s", (int)(strrchr(parent, '/') - parent), parent);
    gpuipc_status status = above[0] == '\0' ? GPUIPC_OK : check_owner(above);
    if (status == GPUIPC_OK && mkdir(parent, 0700) != 0 && errno != EEXIST) {
        status = posix_fail(errno, "mkdir", "the directory %s cannot be made", parent);
    }
    return status == GPUIPC_OK ? check_owner(parent) : status;
}

static gpuipc_status write_new(int folder, const char *name, const void *bytes, size_t size) {
    int fd;
    gpuipc_status status = open_in(folder, name, O_WRONLY | O_CREAT | O_EXCL, &fd);
    if (status == GPUIPC_OK) {
        status = write_all(fd, name, bytes, size);
        posix_register_close(fd);
    }
    return status;
}

gpuipc_status os_file_replace(const char *directory, const char *name, const void *bytes,
                              size_t size) {
    char temporary[TEMPORARY_NAME_MAX];
    uint64_t random;
    int folder;
    gpuipc_status status;
    if ((status = posix_file_size_check(size, "write")) != GPUIPC_OK ||
        (status = os_random(&random, sizeof(random))) != GPUIPC_OK ||
        (status = make_parent(directory)) != GPUIPC_OK ||
        (status = posix_directory_open(directory, false, true, &folder)) != GPUIPC_OK) {
        return status;
    }
    (void)snprintf(temporary, sizeof(temporary), ".%llu-%016llx.tmp",
                   (unsigned long long)os_process_id(), (unsigned long long)random);
    status = write_new(folder, temporary, bytes, size);
    if (status == GPUIPC_OK && renameat(folder, temporary, folder, name) != 0) {
        status = posix_fail(errno, "renameat", "the file %.80s cannot be replaced", name);
    }
    if (status != GPUIPC_OK) {
        (void)unlinkat(folder, temporary, 0); /* it may not be there */
    }
    posix_register_close(folder);
    return status;
}

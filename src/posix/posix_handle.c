/* SPDX-License-Identifier: MIT */
/** @file Descriptors that the library owns, and the register by which a forked child closes them. */
#include "posix.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define WORD_BITS    64u
#define GROWTH_WORDS 16u

/* A look at the numbers below the limit ends when so many are free, or so many were asked for. */
#define ROOM_WANTED     512u
#define ROOM_LOOKED_FOR 1024u
/* How long it is believed: the rest of the program opens files as well. */
#define ROOM_NS UINT64_C(100000000)

/* One bit per descriptor number. A forked child walks it, so it is only ever changed with the lock
 * held, and fork() waits for the lock (posix_process.c). It is never freed: it lives as long as
 * the library. */
static struct {
    os_static_mutex mutex;
    uint64_t *words;
    size_t count;
    unsigned
        room; /* so many more could be opened at the last look, less what was registered since */
    uint64_t looked_ns; /* when that was; 0: never */
} fd_register;

void posix_register_lock(void) {
    os_static_mutex_lock(&fd_register.mutex);
}

void posix_register_unlock(void) {
    os_static_mutex_unlock(&fd_register.mutex);
}

static bool register_grow(size_t word) {
    if (word < fd_register.count) {
        return true;
    }
    size_t count = word + GROWTH_WORDS;
    uint64_t *words = realloc(fd_register.words, count * sizeof(*words));
    if (words == NULL) {
        return false;
    }
    memset(words + fd_register.count, 0, (count - fd_register.count) * sizeof(*words));
    fd_register.words = words;
    fd_register.count = count;
    return true;
}

/** @return whether it was registered */
static bool register_remove(int fd) {
    size_t word = (unsigned)fd / WORD_BITS;
    uint64_t bit = UINT64_C(1) << ((unsigned)fd % WORD_BITS);
    if (fd < 0 || word >= fd_register.count || (fd_register.words[word] & bit) == 0) {
        return false;
    }
    fd_register.words[word] &= ~bit;
    return true;
}

gpuipc_status posix_register_record(int fd) {
    gpuipc_status status = os_fork_watch();
    if (status != GPUIPC_OK) {
        return status;
    }
    size_t word = (unsigned)fd / WORD_BITS;
    if (!register_grow(word)) {
        return status_out_of_memory((word + GROWTH_WORDS) * sizeof(uint64_t));
    }
    fd_register.words[word] |= UINT64_C(1) << ((unsigned)fd % WORD_BITS);
    fd_register.room -= fd_register.room > 0;
    return GPUIPC_OK;
}

/* ---- room ----------------------------------------------------------------------------------- */

bool posix_register_has_room(unsigned count) {
    return fd_register.looked_ns != 0 && os_clock_ns() - fd_register.looked_ns < ROOM_NS &&
           fd_register.room >= count;
}

/* Of each number by itself: poll(2) would ask all at once, but asks the files of those that are open, too, and a peer's may
 * not answer. */
static unsigned count_free(rlim_t end) {
    unsigned found = 0;
    for (rlim_t i = 0; i < end && i < ROOM_LOOKED_FOR && found < ROOM_WANTED; i++) {
        found += fcntl((int)(end - 1 - i), F_GETFD) < 0;
    }
    return found;
}

/* A new descriptor has the lowest number that is free, so that the highest ones are free the longest. */
void posix_register_look(void) {
    struct rlimit limit = {.rlim_cur = 0};
    posix_register_lock();
    const uint64_t now = os_clock_ns();
    if (fd_register.looked_ns == 0 || now - fd_register.looked_ns >= ROOM_NS) {
        (void)getrlimit(RLIMIT_NOFILE, &limit); /* else there is none, as far as known */
        fd_register.room = count_free(limit.rlim_cur < INT_MAX ? limit.rlim_cur : INT_MAX);
        fd_register.looked_ns = now;
    }
    posix_register_unlock();
}

/* ---- what is in it -------------------------------------------------------------------------- */

gpuipc_status posix_register_add(int fd, const char *call) {
    if (fd < 0) {
        return posix_fail(errno, call, "no descriptor could be made");
    }
    gpuipc_status status = posix_register_record(fd);
    if (status != GPUIPC_OK) {
        close(fd);
    }
    return status;
}

/* close(2): after EINTR Linux has closed the descriptor all the same, so it is never tried again,
 * and there is nothing to be done about the other errors. The lock is kept meanwhile: were the bit
 * cleared first and a fork came between, the child would keep the descriptor; were it cleared
 * afterwards, the number could belong to somebody else by then. */
void posix_register_close(int fd) {
    posix_register_lock();
    if (register_remove(fd)) {
        close(fd);
    }
    posix_register_unlock();
}

void posix_register_close_all(void) {
    for (size_t word = 0; word < fd_register.count; word++) {
        for (unsigned bit = 0; fd_register.words[word] != 0; bit++) {
            uint64_t mask = UINT64_C(1) << bit;
            if ((fd_register.words[word] & mask) != 0) {
                fd_register.words[word] &= ~mask;
                close((int)(word * WORD_BITS + bit));
            }
        }
    }
}

/* Out of the lock: what a peer sent may keep whoever closes it. */
static void close_with(int fd, void (*close_it)(int fd)) {
    posix_register_lock();
    const bool is_ours = register_remove(fd);
    posix_register_unlock();
    if (is_ours) {
        close_it(fd);
    }
}

void posix_register_close_foreign(int fd) {
    close_with(fd, posix_close_foreign);
}

void posix_register_close_alone(int fd) {
    close_with(fd, posix_close_alone);
}

bool os_handle_is_valid(os_handle handle) {
    return handle.value >= 0 && handle.value <= INT_MAX;
}

gpuipc_status os_handle_adopt(intptr_t native, os_handle *out_handle) {
    if (native < 0 || native > INT_MAX) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "%lld is no file descriptor",
                           (long long)native);
    }
    int fd = (int)native;
    int flags = fcntl(fd, F_GETFD);
    if (flags < 0 || ((flags & FD_CLOEXEC) == 0 && fcntl(fd, F_SETFD, flags | FD_CLOEXEC) < 0)) {
        return posix_fail_as(GPUIPC_ERR_INVALID_ARGUMENT, errno, "fcntl",
                             "descriptor %d cannot be adopted", fd);
    }
    posix_register_lock();
    gpuipc_status status = posix_register_record(fd);
    posix_register_unlock();
    if (status == GPUIPC_OK) {
        *out_handle = (os_handle){native};
    }
    return status;
}

gpuipc_status os_handle_adopt_exported(const void *written, os_handle *out_handle) {
    /* cuda.h at CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: the handle is an int. */
    int fd;
    memcpy(&fd, written, sizeof(fd));
    gpuipc_status status = os_handle_adopt(fd, out_handle);
    if (status != GPUIPC_OK && fd >= 0) {
        close(fd); /* the driver made it for this call, so nobody else could */
    }
    return status;
}

gpuipc_status os_handle_attributes(const void **out_attributes) {
    *out_attributes = NULL;
    return GPUIPC_OK;
}

intptr_t os_handle_give_up(os_handle *handle) {
    intptr_t native = handle->value;
    if (os_handle_is_valid(*handle)) {
        posix_register_lock();
        register_remove((int)native);
        posix_register_unlock();
    }
    *handle = OS_HANDLE_NONE;
    return native;
}

gpuipc_status os_handle_duplicate_native(intptr_t native, os_handle *out_handle) {
    int fd = native < 0 || native > INT_MAX ? -1 : (int)native;
    posix_register_lock();
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    gpuipc_status status = GPUIPC_OK;
    if (copy < 0 && errno == EBADF) {
        status = posix_fail_as(GPUIPC_ERR_INVALID_ARGUMENT, EBADF, "fcntl(F_DUPFD_CLOEXEC)",
                               "descriptor %lld cannot be duplicated", (long long)native);
    } else {
        status = posix_register_add(copy, "fcntl(F_DUPFD_CLOEXEC)");
    }
    posix_register_unlock();
    if (status == GPUIPC_OK) {
        *out_handle = (os_handle){copy};
    }
    return status;
}

gpuipc_status os_handle_duplicate(os_handle handle, os_handle *out_handle) {
    return os_handle_duplicate_native(handle.value, out_handle);
}

void os_handle_close(os_handle *handle) {
    if (os_handle_is_valid(*handle)) {
        posix_register_close_foreign((int)handle->value);
    }
    *handle = OS_HANDLE_NONE;
}

/* SPDX-License-Identifier: MIT */
/**
 * @file Stands between the library and the C library: ld(1), --wrap, of the names in posix_calls.txt. A call that is to
 * fail is not made, but for those that give something back: the kernel has done that also where it answers an error
 * (close(2)), so they are made, and then fail.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/futex.h>
#include <linux/sockios.h>

#include "fault_point.h"
#include "posix.h"
#include "posix_fault_list.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

#define COUNT_OF(...) (sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

enum {
#define ID(id, name, is_transient, page, ...) CALL_##id,
    POSIX_FAULT_LIST(ID)
#undef ID
    CALLS
};

static const fault_call calls[CALLS] = {
#define ROW(id, name, is_transient, page, ...)                                                     \
    {name, FAULT_SYSTEM, is_transient, COUNT_OF(__VA_ARGS__), {__VA_ARGS__}},
    POSIX_FAULT_LIST(ROW)
#undef ROW
};

const fault_call *fault_system_call(size_t number) {
    return number < CALLS ? &calls[number] : NULL;
}

/* Nothing is asked where the answer is not changed: errno stays what it was. */
static int ask(int call) {
    const int before = errno;
    const int code = fault_ask(&calls[call]);
    errno = code != 0 ? code : before;
    return code;
}

/* CALL: not made when it is to fail. GIVES_BACK: made all the same. CODE: answers the code itself. */
#define CALL(type, name, parameters, values, call, failed)                                         \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        return ask(call) != 0 ? (failed) : __real_##name values;                                   \
    }
#define GIVES_BACK(type, name, parameters, values, call, failed)                                   \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        const type done = __real_##name values;                                                    \
        return ask(call) != 0 ? (failed) : done;                                                   \
    }
#define CODE(name, parameters, values, call)                                                       \
    int __real_##name parameters;                                                                  \
    int __wrap_##name parameters;                                                                  \
    int __wrap_##name parameters {                                                                 \
        const int before = errno;                                                                  \
        const int code = ask(call);                                                                \
        errno = before;                                                                            \
        return code != 0 ? code : __real_##name values;                                            \
    }

/* clang-format off */
CALL(int, accept4, (int fd, struct sockaddr *at, socklen_t *size, int flags), (fd, at, size, flags), CALL_ACCEPT, -1)
CALL(int, access, (const char *path, int mode), (path, mode), CALL_ACCESS, -1)
CALL(int, bind, (int fd, const struct sockaddr *at, socklen_t size), (fd, at, size), CALL_BIND, -1)
CODE(clock_nanosleep, (clockid_t clock, int flags, const struct timespec *at, struct timespec *left), (clock, flags, at, left), CALL_NANOSLEEP)
GIVES_BACK(int, close, (int fd), (fd), CALL_CLOSE, -1)
GIVES_BACK(int, closedir, (DIR *directory), (directory), CALL_CLOSEDIR, -1)
CALL(int, connect, (int fd, const struct sockaddr *at, socklen_t size), (fd, at, size), CALL_CONNECT, -1)
CALL(int, dladdr1, (const void *at, Dl_info *info, void **extra, int flags), (at, info, extra, flags), CALL_DLADDR, 0)
GIVES_BACK(int, dlclose, (void *library), (library), CALL_DLCLOSE, -1)
CALL(int, dlinfo, (void *library, int request, void *info), (library, request, info), CALL_DLINFO, -1)
CALL(void *, dlopen, (const char *name, int flags), (name, flags), CALL_DLOPEN, NULL)
CALL(void *, dlsym, (void *library, const char *name), (library, name), CALL_DLSYM, NULL)
CALL(int, dup3, (int from, int to, int flags), (from, to, flags), CALL_DUP3, -1)
CALL(int, epoll_create1, (int flags), (flags), CALL_EPOLL_CREATE, -1)
CALL(int, epoll_ctl, (int epoll, int what, int fd, struct epoll_event *event), (epoll, what, fd, event),
     what == EPOLL_CTL_DEL ? CALL_EPOLL_DEL : CALL_EPOLL_ADD, -1)
CALL(int, epoll_wait, (int epoll, struct epoll_event *events, int most, int wait_ms), (epoll, events, most, wait_ms), CALL_EPOLL_WAIT, -1)
CALL(int, eventfd, (unsigned start, int flags), (start, flags), CALL_EVENTFD, -1)
CALL(int, chmod, (const char *path, mode_t mode), (path, mode), CALL_CHMOD, -1)
CALL(int, fchmod, (int fd, mode_t mode), (fd, mode), CALL_FCHMOD, -1)
GIVES_BACK(int, fclose, (FILE *file), (file), CALL_FCLOSE, EOF)
CALL(FILE *, fopen, (const char *path, const char *mode), (path, mode), CALL_FOPEN, NULL)
CALL(int, fstat, (int fd, struct stat *found), (fd, found), CALL_FSTAT, -1)
CALL(int, fstatat, (int folder, const char *path, struct stat *found, int flags), (folder, path, found, flags), CALL_FSTATAT, -1)
CALL(int, ftruncate, (int fd, off_t size), (fd, size), CALL_FTRUNCATE, -1)
CALL(int, getrlimit, (__rlimit_resource_t what, struct rlimit *limit), (what, limit), CALL_GETRLIMIT, -1)
CALL(int, kill, (pid_t process, int number), (process, number), CALL_KILL, -1)
CALL(int, linkat, (int from_folder, const char *from, int to_folder, const char *to, int flags), (from_folder, from, to_folder, to, flags), CALL_LINKAT, -1)
CALL(int, listen, (int fd, int backlog), (fd, backlog), CALL_LISTEN, -1)
CALL(off_t, lseek, (int fd, off_t at, int from), (fd, at, from), CALL_LSEEK, -1)
CALL(int, memfd_create, (const char *name, unsigned flags), (name, flags), CALL_MEMFD, -1)
CALL(int, mkdir, (const char *path, mode_t mode), (path, mode), CALL_MKDIR, -1)
CALL(void *, mmap, (void *at, size_t size, int rights, int flags, int fd, off_t from), (at, size, rights, flags, fd, from), CALL_MMAP, MAP_FAILED)
GIVES_BACK(int, munmap, (void *at, size_t size), (at, size), CALL_MUNMAP, -1)
CALL(DIR *, opendir, (const char *path), (path), CALL_OPENDIR, NULL)
CALL(int, poll, (struct pollfd *entries, nfds_t count, int wait_ms), (entries, count, wait_ms), wait_ms == 0 ? CALL_POLL_NOW : CALL_POLL, -1)
CODE(pthread_atfork, (void (*prepare)(void), void (*parent)(void), void (*child)(void)), (prepare, parent, child), CALL_ATFORK)
CODE(pthread_condattr_init, (pthread_condattr_t *made), (made), CALL_CONDATTR_INIT)
CODE(pthread_condattr_setclock, (pthread_condattr_t *of, clockid_t clock), (of, clock), CALL_CONDATTR_CLOCK)
CODE(pthread_cond_init, (pthread_cond_t *made, const pthread_condattr_t *how), (made, how), CALL_COND_INIT)
CODE(pthread_create, (pthread_t *made, const pthread_attr_t *how, void *(*run)(void *), void *argument), (made, how, run, argument), CALL_THREAD)
CALL(struct dirent *, readdir, (DIR *directory), (directory), CALL_READDIR, NULL)
CALL(char *, realpath, (const char *path, char *real), (path, real), CALL_REALPATH, NULL)
CALL(int, renameat, (int from_folder, const char *from, int to_folder, const char *to), (from_folder, from, to_folder, to), CALL_RENAMEAT, -1)
CALL(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags), CALL_SENDMSG, -1)
CALL(int, shutdown, (int fd, int how), (fd, how), CALL_SHUTDOWN, -1)
CALL(int, socket, (int family, int type, int protocol), (family, type, protocol), CALL_SOCKET, -1)
CALL(int, stat, (const char *path, struct stat *found), (path, found), CALL_STAT, -1)
CALL(int, statvfs, (const char *path, struct statvfs *found), (path, found), CALL_STATVFS, -1)
CALL(int, statx, (int folder, const char *path, int flags, unsigned wanted, struct statx *found), (folder, path, flags, wanted, found), CALL_STATX, -1)
CALL(int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags), CALL_UNLINKAT, -1)
/* clang-format on */

/* ---- parts of calls ------------------------------------------------------------------- */

int __real_posix_address_do(posix_address_call *call, int fd, int directory,
                            const posix_address *address);
int __wrap_posix_address_do(posix_address_call *call, int fd, int directory,
                            const posix_address *address);
int __wrap_posix_address_do(posix_address_call *call, int fd, int directory,
                            const posix_address *address) {
    const char *before = fault_enter_part("posix_address_do");
    const int code = __real_posix_address_do(call, fd, directory, address);
    fault_leave_part(before);
    return code;
}

void __real_posix_close_foreign(int fd);
void __wrap_posix_close_foreign(int fd);
void __wrap_posix_close_foreign(int fd) {
    const char *before = fault_enter_part("posix_close_foreign");
    __real_posix_close_foreign(fd);
    fault_leave_part(before);
}

/* When there was a look is a matter of time, and so is what is known by it. Where nothing is known, the same call is made
 * twice. */
void __wrap_posix_register_look(void);
void __wrap_posix_register_look(void) {
}

bool __wrap_posix_register_has_room(unsigned count);
bool __wrap_posix_register_has_room(unsigned count) {
    (void)count;
    return false;
}

/* ---- calls of several uses ---------------------------------------------------------------------- */

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...) {
    static const struct {
        int command;
        int call;
    } uses[] = {{F_GETFD, CALL_GETFD},
                {F_SETFD, CALL_SETFD},
                {F_DUPFD_CLOEXEC, CALL_DUPFD},
                {F_ADD_SEALS, CALL_ADD_SEALS},
                {F_GET_SEALS, CALL_GET_SEALS}};
    va_list rest;
    va_start(rest, command);
    const int argument = va_arg(rest, int); /* each of these takes an int, or none */
    va_end(rest);
    for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++) {
        if (uses[i].command == command && ask(uses[i].call) != 0) {
            return -1;
        }
    }
    return __real_fcntl(fd, command, argument);
}

/* Unlocking gives back. */
int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation) {
    if ((operation & LOCK_UN) == 0) {
        return ask(CALL_LOCK) != 0 ? -1 : __real_flock(fd, operation);
    }
    const int done = __real_flock(fd, operation);
    return ask(CALL_UNLOCK) != 0 ? -1 : done;
}

int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...) {
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return request == SIOCOUTQ && ask(CALL_IOCTL) != 0 ? -1 : __real_ioctl(fd, request, argument);
}

static int open_mode(int flags, va_list rest) {
    return (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const int mode = open_mode(flags, rest);
    va_end(rest);
    return ask(CALL_OPEN) != 0 ? -1 : __real_open(path, flags, mode);
}

int __real_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const int mode = open_mode(flags, rest);
    va_end(rest);
    return ask(CALL_OPENAT) != 0 ? -1 : __real_openat(folder, path, flags, mode);
}

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size) {
    const int call = name == SO_SNDBUF     ? CALL_GET_SNDBUF
                     : name == SO_PEERCRED ? CALL_GET_PEERCRED
                                           : CALL_GET_PEERPIDFD;
    return ask(call) != 0 ? -1 : __real_getsockopt(fd, level, name, value, size);
}

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t size);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size) {
    const int call = name == SO_SNDBUF   ? CALL_SET_SNDBUF
                     : name == SO_LINGER ? CALL_SET_LINGER
                                         : CALL_SET_PASSCRED;
    return ask(call) != 0 ? -1 : __real_setsockopt(fd, level, name, value, size);
}

/* Six arguments always: the kernel looks at those that the call has. */
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
    long arguments[6];
    va_list rest;
    va_start(rest, number);
    for (size_t i = 0; i < 6; i++) {
        arguments[i] = va_arg(rest, long);
    }
    va_end(rest);
    int call = -1;
    if (number == SYS_futex) {
        call = (int)arguments[1] == FUTEX_WAIT ? CALL_FUTEX_WAIT : CALL_FUTEX_WAKE;
    } else if (number == SYS_pidfd_open) {
        call = CALL_PIDFD_OPEN;
    } else if (number == SYS_pidfd_getfd) {
        call = CALL_PIDFD_GETFD;
    } else if (number == SYS_getdents64) {
        call = CALL_GETDENTS;
    } /* else the test's own: thread_state.h */
    return call >= 0 && ask(call) != 0
               ? -1
               : __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
                                arguments[4], arguments[5]);
}

/* ---- calls that may do less than was asked for -------------------------------------------------- */

ssize_t __real_read(int fd, void *bytes, size_t size);
ssize_t __wrap_read(int fd, void *bytes, size_t size);
ssize_t __wrap_read(int fd, void *bytes, size_t size) {
    const int code = ask(CALL_READ);
    return code > 0 ? -1 : __real_read(fd, bytes, code == FAULT_SHORT && size > 1 ? 1 : size);
}

ssize_t __real_write(int fd, const void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size) {
    const int code = ask(CALL_WRITE);
    return code > 0 ? -1 : __real_write(fd, bytes, code == FAULT_SHORT && size > 1 ? 1 : size);
}

ssize_t __real_getrandom(void *bytes, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags) {
    const int code = ask(CALL_GETRANDOM);
    return code > 0 ? -1 : __real_getrandom(bytes, code == FAULT_SHORT ? 1 : size, flags);
}

ssize_t __real_readlink(const char *path, char *text, size_t size);
ssize_t __wrap_readlink(const char *path, char *text, size_t size);
ssize_t __wrap_readlink(const char *path, char *text, size_t size) {
    const int code = ask(CALL_READLINK);
    return code > 0 ? -1 : __real_readlink(path, text, code == FAULT_SHORT ? 1 : size);
}

/* The kernel itself cuts what does not fit, and says so. */
ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags) {
    /* packet_drain() (posix_packet.c) has room for one byte; a message of the library's has a header. packet_take_off() has
     * room for nothing, and so there is nothing to cut. */
    const bool is_drain = message->msg_iovlen == 1 && message->msg_iov[0].iov_len == 1;
    const int call = message->msg_iovlen == 0 ? CALL_TAKE_OFF : CALL_RECVMSG;
    const int code = ask(is_drain ? CALL_DRAIN : call);
    if (code > 0) {
        return -1;
    }
    if (code == FAULT_SHORT && message->msg_iovlen > 0 && message->msg_iov[0].iov_len > 1) {
        message->msg_iov[0].iov_len = 1;
    } else if (code == FAULT_SHORT_CONTROL) {
        message->msg_controllen = 0;
    }
    return __real_recvmsg(fd, message, flags);
}

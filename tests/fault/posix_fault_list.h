/* SPDX-License-Identifier: MIT */
/**
 * @file The system calls of src/posix that can fail, and how: the errors that the manual page named in each row allows for
 * any use of the call. Left away is EFAULT, since no address comes from outside. The first error is the one of a
 * call that fails for ever. posix_calls.txt says of every other function that the library calls why it is not here.
 */
#ifndef GPUIPC_TEST_POSIX_FAULT_LIST_H
#define GPUIPC_TEST_POSIX_FAULT_LIST_H

/* What open(2) allows without a peculiar flag. */
#define OPEN_ERRORS                                                                                \
    EMFILE, EACCES, EINTR, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENFILE, ENODEV, ENOENT, ENOMEM,    \
        ENOSPC, ENOTDIR, ENXIO, EOPNOTSUPP, EOVERFLOW, EPERM, EROFS, ETXTBSY, EWOULDBLOCK, EDQUOT
#define STAT_ERRORS       ENOMEM, EACCES, EBADF, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EOVERFLOW
#define GETSOCKOPT_ERRORS EBADF, EINVAL, ENOPROTOOPT, ENOTSOCK
#define SETSOCKOPT_ERRORS EBADF, EDOM, EINVAL, EISCONN, ENOBUFS, ENOMEM, ENOPROTOOPT, ENOTSOCK

/** X(id, name, is transient, manual page, errors...) */
#define POSIX_FAULT_LIST(X)                                                                        \
    X(ACCEPT, "accept4", false, accept(2), EMFILE, EAGAIN, EBADF, ECONNABORTED, EINTR, EINVAL,     \
      ENFILE, ENOBUFS, ENOMEM, ENOTSOCK, EOPNOTSUPP, EPERM, EPROTO)                                \
    X(ACCESS, "access", false, access(2), EACCES, EINVAL, EIO, ELOOP, ENAMETOOLONG, ENOENT,        \
      ENOMEM, ENOTDIR, EPERM, EROFS, ETXTBSY)                                                      \
    X(BIND, "bind", false, bind(2), EACCES, EADDRINUSE, EADDRNOTAVAIL, EBADF, EINVAL, ELOOP,       \
      ENAMETOOLONG, ENOENT, ENOMEM, ENOTDIR, ENOTSOCK, EROFS)                                      \
    X(NANOSLEEP, "clock_nanosleep", true, clock_nanosleep(2), EINTR)                               \
    X(CLOSE, "close", false, close(2), EIO, EDQUOT, EINTR, ENOSPC)                                 \
    X(CLOSEDIR, "closedir", false, closedir(3), EBADF)                                             \
    X(CONNECT, "connect", false, connect(2), ECONNREFUSED, EACCES, EADDRINUSE, EADDRNOTAVAIL,      \
      EAFNOSUPPORT, EAGAIN, EALREADY, EBADF, EINPROGRESS, EINTR, EISCONN, ENETUNREACH, ENOTSOCK,   \
      EPERM, EPROTOTYPE, ETIMEDOUT)                                                                \
    X(DLADDR, "dladdr1", false, dladdr(3), ENOENT)                                                 \
    X(DLCLOSE, "dlclose", false, dlopen(3), ENOENT)                                                \
    X(DLINFO, "dlinfo", false, dlinfo(3), ENOENT)                                                  \
    X(DLOPEN, "dlopen", false, dlopen(3), ENOENT)                                                  \
    X(DLSYM, "dlsym", false, dlsym(3), ENOENT)                                                     \
    X(EPOLL_CREATE, "epoll_create1", false, epoll_create(2), EMFILE, EINVAL, ENFILE, ENOMEM)       \
    X(EPOLL_ADD, "epoll_ctl(EPOLL_CTL_ADD)", false, epoll_ctl(2), ENOMEM, EBADF, EEXIST, EINVAL,   \
      ELOOP, ENOENT, ENOSPC, EPERM)                                                                \
    X(EPOLL_DEL, "epoll_ctl(EPOLL_CTL_DEL)", false, epoll_ctl(2), ENOMEM, EBADF, EINVAL, ENOENT)   \
    X(EPOLL_WAIT, "epoll_wait", false, epoll_wait(2), EBADF, EINTR, EINVAL)                        \
    X(EVENTFD, "eventfd", false, eventfd(2), EMFILE, EINVAL, ENFILE, ENODEV, ENOMEM)               \
    X(CHMOD, "chmod", false, chmod(2), EPERM, EACCES, EIO, ELOOP, ENAMETOOLONG, ENOENT, ENOMEM,    \
      ENOTDIR, EROFS)                                                                              \
    X(FCHMOD, "fchmod", false, chmod(2), EPERM, EBADF, EIO, EROFS)                                 \
    X(FCLOSE, "fclose", false, fclose(3), EIO, EBADF)                                              \
    X(GETFD, "fcntl(F_GETFD)", false, fcntl(2), EBADF)                                             \
    X(SETFD, "fcntl(F_SETFD)", false, fcntl(2), EBADF)                                             \
    X(DUPFD, "fcntl(F_DUPFD_CLOEXEC)", false, fcntl(2), EMFILE, EBADF, EINVAL)                     \
    X(DUP3, "dup3", false, dup(2), EMFILE, EBADF, EBUSY, EINTR, EINVAL)                            \
    X(ADD_SEALS, "fcntl(F_ADD_SEALS)", false, fcntl(2), EPERM, EBUSY, EINVAL)                      \
    X(GET_SEALS, "fcntl(F_GET_SEALS)", false, fcntl(2), EINVAL, EBADF)                             \
    X(LOCK, "flock(LOCK_EX)", false, flock(2), ENOLCK, EBADF, EINTR, EINVAL, EWOULDBLOCK)          \
    X(UNLOCK, "flock(LOCK_UN)", false, flock(2), ENOLCK, EBADF, EINTR, EINVAL)                     \
    X(FOPEN, "fopen", false, fopen(3), OPEN_ERRORS)                                                \
    X(FSTAT, "fstat", false, stat(2), ENOMEM, EBADF, EOVERFLOW)                                    \
    X(FSTATAT, "fstatat", false, stat(2), STAT_ERRORS, EINVAL)                                     \
    X(FTRUNCATE, "ftruncate", false, truncate(2), EFBIG, EBADF, EINTR, EINVAL, EIO, EPERM)         \
    X(GETRANDOM, "getrandom", false, getrandom(2), ENOSYS, EINTR, EINVAL, FAULT_SHORT)             \
    X(GETRLIMIT, "getrlimit", false, getrlimit(2), EINVAL)                                         \
    X(GET_SNDBUF, "getsockopt(SO_SNDBUF)", false, getsockopt(2), GETSOCKOPT_ERRORS)                \
    X(GET_PEERCRED, "getsockopt(SO_PEERCRED)", false, getsockopt(2), GETSOCKOPT_ERRORS)            \
    X(GET_PEERPIDFD, "getsockopt(SO_PEERPIDFD)", false, getsockopt(2), GETSOCKOPT_ERRORS)          \
    X(IOCTL, "ioctl(SIOCOUTQ)", false, ioctl(2), EBADF, EINVAL, ENOTTY)                            \
    X(KILL, "kill", false, kill(2), EPERM, EINVAL, ESRCH)                                          \
    X(LINKAT, "linkat", false, link(2), EACCES, EBADF, EDQUOT, EEXIST, EINVAL, EIO, ELOOP, EMLINK, \
      ENAMETOOLONG, ENOENT, ENOMEM, ENOSPC, ENOTDIR, EPERM, EROFS, EXDEV)                          \
    X(LISTEN, "listen", false, listen(2), EADDRINUSE, EBADF, ENOTSOCK, EOPNOTSUPP)                 \
    X(LSEEK, "lseek", false, lseek(2), EBADF, EINVAL, ENXIO, EOVERFLOW, ESPIPE)                    \
    X(MEMFD, "memfd_create", false, memfd_create(2), EMFILE, EINVAL, ENFILE, ENOMEM, EPERM)        \
    X(MKDIR, "mkdir", false, mkdir(2), EACCES, EDQUOT, EEXIST, EINVAL, ELOOP, EMLINK,              \
      ENAMETOOLONG, ENOENT, ENOMEM, ENOSPC, ENOTDIR, EPERM, EROFS)                                 \
    X(MMAP, "mmap", false, mmap(2), ENOMEM, EACCES, EAGAIN, EBADF, EEXIST, EINVAL, ENFILE, ENODEV, \
      EOVERFLOW, EPERM, ETXTBSY)                                                                   \
    X(MUNMAP, "munmap", false, mmap(2), EINVAL, ENOMEM)                                            \
    X(OPEN, "open", false, open(2), OPEN_ERRORS)                                                   \
    X(OPENAT, "openat", false, open(2), OPEN_ERRORS, EBADF, EEXIST)                                \
    X(OPENDIR, "opendir", false, opendir(3), EMFILE, EACCES, ENFILE, ENOENT, ENOMEM, ENOTDIR)      \
    X(POLL_NOW, "poll(at once)", false, poll(2), ENOMEM, EINTR, EINVAL)                            \
    X(POLL, "poll", false, poll(2), ENOMEM, EINTR, EINVAL)                                         \
    X(ATFORK, "pthread_atfork", false, pthread_atfork(3), ENOMEM)                                  \
    X(CONDATTR_INIT, "pthread_condattr_init", false, pthread_condattr_init(3p), ENOMEM)            \
    X(CONDATTR_CLOCK, "pthread_condattr_setclock", false, pthread_condattr_setclock(3p), EINVAL)   \
    X(COND_INIT, "pthread_cond_init", false, pthread_cond_init(3p), EAGAIN, ENOMEM)                \
    X(THREAD, "pthread_create", false, pthread_create(3), EAGAIN, EINVAL, EPERM)                   \
    X(READ, "read", false, read(2), EIO, EAGAIN, EBADF, EINTR, EINVAL, EISDIR, FAULT_SHORT)        \
    X(READDIR, "readdir", false, readdir(3), EBADF)                                                \
    X(READLINK, "readlink", false, readlink(2), EACCES, EINVAL, EIO, ELOOP, ENAMETOOLONG, ENOENT,  \
      ENOMEM, ENOTDIR, FAULT_SHORT)                                                                \
    X(REALPATH, "realpath", false, realpath(3), EACCES, EINVAL, EIO, ELOOP, ENAMETOOLONG, ENOENT,  \
      ENOMEM, ENOTDIR)                                                                             \
    X(RECVMSG, "recvmsg", false, recv(2), EBADF, EAGAIN, ECONNREFUSED, ECONNRESET, EINTR, EINVAL,  \
      ENOMEM, ENOTCONN, ENOTSOCK, FAULT_SHORT, FAULT_SHORT_CONTROL)                                \
    X(TAKE_OFF, "recvmsg", false, recv(2), EBADF, EAGAIN, ECONNREFUSED, ECONNRESET, EINTR, EINVAL, \
      ENOMEM, ENOTCONN, ENOTSOCK)                                                                  \
    X(DRAIN, "recvmsg(what nobody takes)", false, recv(2), EBADF, EAGAIN, ECONNREFUSED,            \
      ECONNRESET, EINTR, EINVAL, ENOMEM, ENOTCONN, ENOTSOCK)                                       \
    X(RENAMEAT, "renameat", false, rename(2), EACCES, EBADF, EBUSY, EDQUOT, EEXIST, EINVAL,        \
      EISDIR, ELOOP, EMLINK, ENAMETOOLONG, ENOENT, ENOMEM, ENOSPC, ENOTDIR, ENOTEMPTY, EPERM,      \
      EROFS, EXDEV)                                                                                \
    X(SENDMSG, "sendmsg", false, send(2), ENOBUFS, EACCES, EAGAIN, EALREADY, EBADF, ECONNRESET,    \
      EDESTADDRREQ, EINTR, EINVAL, EISCONN, EMSGSIZE, ENOMEM, ENOTCONN, ENOTSOCK, EOPNOTSUPP,      \
      EPIPE, ETOOMANYREFS)                                                                         \
    X(SET_SNDBUF, "setsockopt(SO_SNDBUF)", false, setsockopt(3p), SETSOCKOPT_ERRORS)               \
    X(SET_LINGER, "setsockopt(SO_LINGER)", false, setsockopt(3p), SETSOCKOPT_ERRORS)               \
    X(SET_PASSCRED, "setsockopt(SO_PASSCRED)", false, setsockopt(3p), SETSOCKOPT_ERRORS)           \
    X(SHUTDOWN, "shutdown", false, shutdown(2), EBADF, EINVAL, ENOTCONN, ENOTSOCK)                 \
    X(SOCKET, "socket", false, socket(2), EMFILE, EACCES, EAFNOSUPPORT, EINVAL, ENFILE, ENOBUFS,   \
      ENOMEM, EPROTONOSUPPORT)                                                                     \
    X(STAT, "stat", false, stat(2), STAT_ERRORS)                                                   \
    X(STATVFS, "statvfs", false, statvfs(3), EACCES, EINTR, EIO, ELOOP, ENAMETOOLONG, ENOENT,      \
      ENOMEM, ENOSYS, ENOTDIR, EOVERFLOW)                                                          \
    X(STATX, "statx", false, statx(2), STAT_ERRORS, EINVAL)                                        \
    X(FUTEX_WAIT, "syscall(SYS_futex, FUTEX_WAIT)", true, futex(2), EINTR, EACCES, EAGAIN, EINVAL, \
      ENOSYS, ETIMEDOUT)                                                                           \
    X(FUTEX_WAKE, "syscall(SYS_futex, FUTEX_WAKE)", false, futex(2), EINVAL, EACCES, ENOSYS)       \
    X(PIDFD_OPEN, "syscall(SYS_pidfd_open)", false, pidfd_open(2), EMFILE, EINVAL, ENFILE, ENODEV, \
      ENOMEM, ESRCH, ENOSYS)                                                                       \
    X(PIDFD_GETFD, "syscall(SYS_pidfd_getfd)", false, pidfd_getfd(2), EPERM, EBADF, EINVAL,        \
      EMFILE, ENFILE, ESRCH, ENOSYS)                                                               \
    X(GETDENTS, "syscall(SYS_getdents64)", false, getdents(2), EBADF, EINVAL, ENOENT, ENOTDIR)     \
    X(UNLINKAT, "unlinkat", false, unlink(2), EACCES, EBADF, EBUSY, EINVAL, EIO, EISDIR, ELOOP,    \
      ENAMETOOLONG, ENOENT, ENOMEM, ENOTDIR, EPERM, EROFS)                                         \
    X(WRITE, "write", false, write(2), ENOSPC, EAGAIN, EBADF, EDESTADDRREQ, EDQUOT, EFBIG, EINTR,  \
      EINVAL, EIO, EPERM, EPIPE, FAULT_SHORT)

#endif

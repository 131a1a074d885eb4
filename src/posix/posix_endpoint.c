/* SPDX-License-Identifier: MIT */
/** @file Listeners: names made, and made again when another program removed them; connections accepted. */
#include "posix.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/list.h"

struct os_listener {
    int fd; /**< this number stays; another socket can take the place of the one behind it */
    atomic_int spare; /**< given up for a client to be refused; -1: to be made again */
    posix_address address;
    bool shared;
    uint32_t generation;
    atomic_bool interrupted;
    os_log log;
    os_mutex mutex;    /**< guards all that follows */
    int directory;     /**< -1: an abstract name */
    struct stat made;  /**< the socket's file: whether a name is still this listener's */
    nlink_t links;     /**< so many names lead to that file, or are to be made again */
    linked_list names; /**< second names */
    os_poller *poller; /**< waits for clients; NULL: none does */
    void *tag;
    bool is_polled; /**< the poller knows the socket that is behind fd now */
};

/* A second name is a hard link to the socket's file: connect(2) goes by what the file is, and the kernel takes back
 * nothing of it when its process dies, so that it is replaced as the first name is. */
struct os_name {
    list_link link;
    os_listener *of;
    posix_address address;
    bool is_counted; /**< in the listener's links */
    bool is_missing; /**< could not be made again, which was logged */
};

static const char *file_of(const posix_address *address) {
    return address->socket.sun_path + address->file;
}

static void tell(const os_log *log, const char *what, const posix_address *address,
                 const char *more) {
    char sentence[256];
    if (log->write != NULL) {
        (void)snprintf(sentence, sizeof(sentence), "%s %s%s", what, address->socket.sun_path, more);
        log->write(log->user_data, sentence);
    }
}

static void tell_replaced(const os_log *log, const posix_address *address) {
    tell(log, "replaced", address, ", left by a process that is gone");
}

static void tell_renewed(const os_log *log, const posix_address *address) {
    tell(log, "made", address, " again, which another program had removed");
}

/* The directory is made where it is missing. */
static gpuipc_status directory_open(const os_listener *listener, int *out_directory) {
    char path[sizeof(listener->address.socket.sun_path)];
    (void)snprintf(path, sizeof(path), "%.*s", (int)listener->address.file - 1,
                   listener->address.socket.sun_path);
    return posix_directory_open(path, listener->shared, true, out_directory);
}

/* Makes the first name, of a socket, in the directory that the name's path leads to now.
 * @param wait_ms for the directory's lock */
static gpuipc_status name_open(os_listener *listener, int fd, int wait_ms, int *out_directory,
                               struct stat *out_made) {
    bool replaced = false;
    int directory;
    gpuipc_status status = directory_open(listener, &directory);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = posix_directory_lock(directory, wait_ms);
    if (status != GPUIPC_OK) {
        goto close_directory;
    }
    status = posix_name_clear(directory, &listener->address, &replaced);
    if (status == GPUIPC_OK) {
        status = posix_name_make(fd, directory, &listener->address, listener->shared, out_made);
    }
    posix_directory_unlock(directory);
    if (status == GPUIPC_OK) {
        if (replaced) {
            tell_replaced(&listener->log, &listener->address);
        }
        *out_directory = directory;
        return GPUIPC_OK;
    }

close_directory:
    posix_register_close(directory);
    return status;
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
    *listener = (os_listener){.fd = -1,
                              .shared = directory != NULL && directory->shared,
                              .directory = -1,
                              .links = 1,
                              .generation = os_fork_generation()};
    if (log != NULL) {
        listener->log = *log;
    }
    status = posix_address_make(path, name, &listener->address);
    if (status != GPUIPC_OK) {
        goto free_listener;
    }
    status = listener_sockets_make(listener);
    if (status != GPUIPC_OK) {
        goto free_listener;
    }
    status = listener->address.file == 0
                 ? posix_name_make(listener->fd, -1, &listener->address, false, &listener->made)
                 : name_open(listener, listener->fd, OS_NAMES_WAIT_MS, &listener->directory,
                             &listener->made);
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

gpuipc_status posix_listener_poll(os_listener *listener, os_poller *poller, void *tag) {
    if (listener->generation != os_fork_generation()) {
        return posix_fail_forked();
    }
    os_mutex_lock(&listener->mutex);
    gpuipc_status status = posix_poller_add(poller, listener->fd, tag);
    if (status == GPUIPC_OK) {
        listener->poller = poller;
        listener->tag = tag;
        listener->is_polled = true;
    }
    os_mutex_unlock(&listener->mutex);
    return status;
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
    os_deadline look = os_deadline_after(0);
    gpuipc_error lost = {.status = GPUIPC_OK};
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
        bool again = code == EAGAIN || code == EINVAL; /* shut down: at its end, or exchanged */
        if (!at_limit && !again) {
            return posix_fail(code, "accept4", "no connection can be accepted");
        }
        /* Clients that came before the name was removed have been accepted by now. */
        if (!at_limit && os_deadline_passed(look)) {
            look = os_deadline_after(OS_RENEW_MS);
            lost.status = os_listener_renew(listener, 0);
            if (lost.status != GPUIPC_OK) {
                lost = status_save();
            }
        }
        if (os_deadline_passed(deadline)) {
            return at_limit ? posix_fail(code, "accept4", "no descriptor for a new connection")
                   : lost.status != GPUIPC_OK
                       ? status_again(&lost)
                       : status_fail(GPUIPC_ERR_TIMEOUT,
                                     "no client connected before the time ran out");
        }
        /* At the limit the waiting connection stays, and with it readiness: waiting for that
         * would spin. With no events asked for, poll() still answers a shutdown (POLLHUP). */
        const os_deadline until =
            at_limit ? os_deadline_inherit(
                           os_deadline_after((int)os_backoff_next(&pause, deadline)), deadline)
            : look.at_ns < deadline.at_ns ? os_deadline_inherit(look, deadline)
                                          : deadline;
        int came = fd_wait(listener->fd, at_limit ? 0 : POLLIN, until);
        if (came < 0) {
            return posix_fail(errno, "poll", "the listener cannot be waited for");
        }
    }
}

/* ---- second names ------------------------------------------------------------------------------ */

/* With the mutex held, and the directory locked. */
static gpuipc_status name_link(os_name *name, bool *out_replaced) {
    os_listener *of = name->of;
    gpuipc_status status = posix_name_clear(of->directory, &name->address, out_replaced);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (linkat(of->directory, file_of(&of->address), of->directory, file_of(&name->address), 0) !=
        0) {
        return errno == ENOENT ? posix_name_removed(ENOENT, "linkat", &of->address)
                               : posix_fail(errno, "linkat", "the name %s cannot be made",
                                            name->address.socket.sun_path);
    }
    return GPUIPC_OK;
}

/* With the mutex held. The directory may have become one that listeners are refused in. */
static gpuipc_status name_add(os_name *name, bool *out_replaced) {
    os_listener *of = name->of;
    int checked;
    gpuipc_status status = directory_open(of, &checked);
    if (status != GPUIPC_OK) {
        return status;
    }
    posix_register_close(checked);
    status = posix_directory_lock(of->directory, OS_NAMES_WAIT_MS);
    if (status == GPUIPC_OK) {
        status = name_link(name, out_replaced);
        posix_directory_unlock(of->directory);
    }
    if (status == GPUIPC_OK) {
        name->is_counted = true;
        of->links++;
        list_append(&of->names, &name->link);
    }
    return status;
}

gpuipc_status os_listener_add_name(os_listener *listener, const os_directory *directory,
                                   const char *name, const os_log *log, os_name **out_name) {
    static const os_log none = {NULL, NULL};
    char path[PATH_MAX];
    bool replaced = false;
    gpuipc_status status = os_directory_resolve(directory, path, sizeof(path));
    if (status != GPUIPC_OK ||
        (status = os_listener_renew(listener, OS_NAMES_WAIT_MS)) != GPUIPC_OK) {
        return status;
    }
    os_name *made = malloc(sizeof(*made));
    if (made == NULL) {
        return status_out_of_memory(sizeof(*made));
    }
    *made = (os_name){.of = listener};
    status = posix_address_make(path, name, &made->address);
    if (status == GPUIPC_OK) {
        os_mutex_lock(&listener->mutex);
        status = name_add(made, &replaced);
        os_mutex_unlock(&listener->mutex);
    }
    if (status != GPUIPC_OK) {
        free(made);
        return status;
    }
    if (replaced) {
        tell_replaced(log != NULL ? log : &none, &made->address);
    }
    *out_name = made;
    return GPUIPC_OK;
}

void os_name_close(os_name *name) {
    if (name != NULL && name->of->generation == os_fork_generation()) {
        os_listener *of = name->of;
        os_mutex_lock(&of->mutex);
        if (name->is_counted) {
            posix_name_remove(of->directory, &name->address, &of->made);
            of->links--;
        }
        list_remove(&name->link);
        os_mutex_unlock(&of->mutex);
    }
    free(name);
}

/* ---- names that another program removed ---------------------------------------------------------- */

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

static gpuipc_status descriptor_copy(int fd, int *out_copy) {
    posix_register_lock();
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    gpuipc_status status = posix_register_add(copy, "fcntl");
    posix_register_unlock();
    if (status == GPUIPC_OK) {
        *out_copy = copy;
    }
    return status;
}

/* With the mutex held. */
static gpuipc_status listener_watch(os_listener *listener) {
    gpuipc_status status = GPUIPC_OK;
    if (listener->poller != NULL && !listener->is_polled) {
        status = posix_poller_add(listener->poller, listener->fd, listener->tag);
        listener->is_polled = status == GPUIPC_OK;
    }
    return status;
}

/* With the mutex held. Closing does not remove a socket that another process has a copy of (epoll(7), Q6). Shut down, it
 * would stay ready. */
static void listener_unwatch(os_listener *listener) {
    if (listener->is_polled) {
        posix_poller_remove(listener->poller, listener->fd);
        listener->is_polled = false;
    }
}

/* A bound socket takes no second address (unix(7), bind(2): EINVAL), and a file without a name gets none by linkat(2)
 * (ENOENT). So another socket takes its place, behind the same number. The shutdown wakes threads that wait for the old
 * one. Its clients are lost; those of a server connect again. */
static gpuipc_status socket_exchange(os_listener *listener, int made) {
    int former;
    int code;
    gpuipc_status status = descriptor_copy(listener->fd, &former);
    if (status != GPUIPC_OK) {
        return status;
    }
    listener_unwatch(listener);
    do {
        code = dup3(made, listener->fd, O_CLOEXEC) < 0 ? errno : 0;
    } while (code == EINTR || code == EBUSY);
    if (code != 0) {
        status = posix_fail(code, "dup3", "the socket of %s cannot be exchanged",
                            listener->address.socket.sun_path);
    } else {
        shutdown(former, SHUT_RDWR);
        while (backlog_drop(former)) {
        }
    }
    posix_register_close(former);
    return status;
}

/* With the mutex held. */
static gpuipc_status name_make_again(os_listener *listener, int wait_ms) {
    struct stat made;
    int directory;
    int fd;
    gpuipc_status status = posix_socket_make(SOCK_SEQPACKET, &fd);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = name_open(listener, fd, wait_ms, &directory, &made);
    if (status != GPUIPC_OK) {
        goto close_socket;
    }
    status = socket_exchange(listener, fd);
    if (status != GPUIPC_OK) {
        posix_name_remove(directory, &listener->address, &made);
        posix_register_close(directory);
        goto close_socket;
    }
    posix_register_close(listener->directory);
    listener->directory = directory;
    listener->made = made;
    tell_renewed(&listener->log, &listener->address);

close_socket:
    posix_register_close(fd);
    return status;
}

/* With the mutex held, and the directory locked. A name that another process has by now stays that one's. Any other failure
 * may pass: the name counts, so that the next renewal tries again. */
static void name_link_again(os_name *name) {
    os_listener *of = name->of;
    bool replaced;
    if (posix_name_is(of->directory, &name->address, &of->made)) {
        name->is_counted = true;
        return;
    }
    const gpuipc_status status = name_link(name, &replaced);
    name->is_counted = status != GPUIPC_ERR_NAME_IN_USE;
    if (status == GPUIPC_OK) {
        tell_renewed(&of->log, &name->address);
    } else if (!name->is_missing) {
        tell(&of->log, "another program removed", &name->address, ", which cannot be made again");
    }
    name->is_missing = status != GPUIPC_OK;
}

/* With the mutex held. */
static gpuipc_status names_link_again(os_listener *listener, int wait_ms) {
    gpuipc_status status = posix_directory_lock(listener->directory, wait_ms);
    if (status != GPUIPC_OK) {
        return status;
    }
    listener->links = 1;
    for (list_link *at = listener->names.first; at != NULL; at = at->next) {
        os_name *name = LIST_ITEM(at, os_name, link);
        name_link_again(name);
        listener->links += name->is_counted;
    }
    posix_directory_unlock(listener->directory);
    return GPUIPC_OK;
}

/* A name that cannot be looked at, for want of rights or memory, counts as there: who connects finds out.
 * @param out_links the names of the socket's file, at least as many as there ought to be where that is not known */
static bool name_is_there(const os_listener *listener, nlink_t *out_links) {
    struct stat found;
    *out_links = listener->links;
    if (fstatat(AT_FDCWD, listener->address.socket.sun_path, &found, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno != ENOENT && errno != ENOTDIR;
    }
    *out_links = found.st_nlink;
    return found.st_dev == listener->made.st_dev && found.st_ino == listener->made.st_ino;
}

/* With the mutex held. */
static gpuipc_status names_renew(os_listener *listener, int wait_ms) {
    nlink_t links;
    gpuipc_status status = GPUIPC_OK;
    gpuipc_status watched;
    const bool is_there = name_is_there(listener, &links);
    if (!is_there) {
        status = name_make_again(listener, wait_ms);
    }
    if (status == GPUIPC_OK && (!is_there || links < listener->links)) {
        status = names_link_again(listener, wait_ms);
    }
    const gpuipc_error why = status_save();
    if ((watched = listener_watch(listener)) == GPUIPC_OK || status != GPUIPC_OK) {
        status_restore(&why);
        return status;
    }
    return watched;
}

/* For the caller it is one failure, whatever its cause is. */
static gpuipc_status name_is_lost(const os_listener *listener, gpuipc_status cause) {
    char room[STATUS_PATH_MAX];
    if (cause == GPUIPC_ERR_OUT_OF_MEMORY || cause == GPUIPC_ERR_TOO_MANY_HANDLES) {
        return cause;
    }
    const gpuipc_error why = status_save();
    return status_fail(GPUIPC_ERR_NOT_FOUND,
                       "another program removed %s, which cannot be made again: %s",
                       status_path(listener->address.socket.sun_path, room), why.sentence);
}

/* Another thread may hold the mutex while it waits for the directory's lock. It makes names, too. */
gpuipc_status os_listener_renew(os_listener *listener, int wait_ms) {
    gpuipc_status status = GPUIPC_OK;
    if (listener->generation != os_fork_generation()) {
        return posix_fail_forked();
    }
    if (wait_ms != 0) {
        os_mutex_lock(&listener->mutex);
    } else if (!os_mutex_try_lock(&listener->mutex)) {
        return GPUIPC_OK;
    }
    if (atomic_load(&listener->interrupted)) {
        status = listener_interrupted();
    } else if (listener->directory >= 0 && (status = names_renew(listener, wait_ms)) != GPUIPC_OK) {
        status = name_is_lost(listener, status);
    }
    os_mutex_unlock(&listener->mutex);
    return status;
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
    os_mutex_lock(&listener->mutex);
    shutdown(listener->fd, SHUT_RDWR);
    if (listener->directory >= 0) {
        posix_name_remove(listener->directory, &listener->address, &listener->made);
    }
    os_mutex_unlock(&listener->mutex);
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

/* SPDX-License-Identifier: MIT */
/** @file Many sockets waited for at once: epoll(7), level-triggered, and an eventfd that wakes. */
#include "posix.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/** How many of what is ready are asked for in one system call. */
#define EVENTS_MAX 64

/** In epoll stands for the end of a process. */
static char process_tag;

/* In epoll the tag itself stands for an endpoint, and no tag is NULL; so NULL stands for the wake-up,
 * and nothing is kept here of what was added. */
struct os_poller {
    int epoll;
    int wake;
    uint32_t generation;
};

static gpuipc_status poller_usable(const os_poller *poller) {
    return poller->generation == os_fork_generation() ? GPUIPC_OK : posix_fail_forked();
}

/** epoll_ctl(2) says level-triggered is the default; EPOLLHUP and EPOLLERR come unasked. */
gpuipc_status posix_poller_add(os_poller *poller, int fd, void *tag) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data = {.ptr = tag}};
    if (epoll_ctl(poller->epoll, EPOLL_CTL_ADD, fd, &event) == 0) {
        return GPUIPC_OK;
    }
    return errno == EEXIST
               ? posix_fail_as(GPUIPC_ERR_INVALID_ARGUMENT, EEXIST, "epoll_ctl",
                               "descriptor %d is waited for already", fd)
               : posix_fail(errno, "epoll_ctl", "descriptor %d cannot be waited for", fd);
}

/* Fails only when it is not in there (ENOENT), and then there is nothing to remove. */
void posix_poller_remove(os_poller *poller, int fd) {
    (void)epoll_ctl(poller->epoll, EPOLL_CTL_DEL, fd, NULL);
}

static gpuipc_status descriptor_make_epoll(int *out_fd) {
    posix_register_lock();
    int fd = epoll_create1(EPOLL_CLOEXEC);
    gpuipc_status status = posix_register_add(fd, "epoll_create1");
    posix_register_unlock();
    if (status == GPUIPC_OK) {
        *out_fd = fd;
    }
    return status;
}

static gpuipc_status descriptor_make_wake(int *out_fd) {
    posix_register_lock();
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    gpuipc_status status = posix_register_add(fd, "eventfd");
    posix_register_unlock();
    if (status == GPUIPC_OK) {
        *out_fd = fd;
    }
    return status;
}

gpuipc_status os_poller_create(os_poller **out_poller) {
    os_poller *poller = malloc(sizeof(*poller));
    if (poller == NULL) {
        return status_out_of_memory(sizeof(*poller));
    }
    *poller = (os_poller){.epoll = -1, .wake = -1, .generation = os_fork_generation()};
    gpuipc_status status = descriptor_make_epoll(&poller->epoll);
    if (status != GPUIPC_OK) {
        goto free_poller;
    }
    status = descriptor_make_wake(&poller->wake);
    if (status != GPUIPC_OK) {
        goto close_epoll;
    }
    status = posix_poller_add(poller, poller->wake, OS_POLLER_WOKEN);
    if (status != GPUIPC_OK) {
        goto close_wake;
    }
    *out_poller = poller;
    return GPUIPC_OK;

close_wake:
    posix_register_close(poller->wake);
close_epoll:
    posix_register_close(poller->epoll);
free_poller:
    free(poller);
    return status;
}

/* What is in it needs no removing: it leaves with the descriptor of the epoll, epoll(7), Q6. */
void os_poller_destroy(os_poller *poller) {
    if (poller != NULL && poller->generation == os_fork_generation()) {
        posix_register_close(poller->wake);
        posix_register_close(poller->epoll);
    }
    free(poller);
}

gpuipc_status os_poller_add_listener(os_poller *poller, os_listener *listener, void *tag) {
    const gpuipc_status status = poller_usable(poller);
    return status == GPUIPC_OK ? posix_listener_poll(listener, poller, tag) : status;
}

gpuipc_status os_poller_add_connection(os_poller *poller, os_connection *connection, void *tag) {
    gpuipc_status status = poller_usable(poller);
    if (status == GPUIPC_OK) {
        status = posix_connection_usable(connection);
    }
    return status == GPUIPC_OK ? posix_poller_add(poller, connection->fd, tag) : status;
}

void os_poller_remove_connection(os_poller *poller, os_connection *connection) {
    if (poller->generation == os_fork_generation() &&
        connection->generation == poller->generation) {
        posix_poller_remove(poller, connection->fd);
    }
}

/** Takes the wake-up back. False when there was none. */
static bool wake_take(const os_poller *poller) {
    uint64_t count;
    return read(poller->wake, &count, sizeof(count)) == (ssize_t)sizeof(count);
}

/** One system call. @return how many tags there are; -1 with errno */
static int poller_try(os_poller *poller, os_deadline deadline, void **tags, size_t capacity) {
    struct epoll_event events[EVENTS_MAX];
    int most = capacity < EVENTS_MAX ? (int)capacity : EVENTS_MAX;
    int found = epoll_wait(poller->epoll, events, most, os_deadline_slice_ms(deadline));
    int count = 0;
    for (int i = 0; i < found; i++) {
        if (events[i].data.ptr == &process_tag) {
            tags[count++] = OS_POLLER_WOKEN;
        } else if (events[i].data.ptr != OS_POLLER_WOKEN || wake_take(poller)) {
            tags[count++] = events[i].data.ptr;
        }
    }
    return found < 0 ? -1 : count;
}

/* epoll_wait(2): "If the number of ready file descriptors exceeds maxevents, then successive
 * epoll_wait() calls will round robin through the set of ready file descriptors." What was found is
 * given out at once, so nothing is left to be reported of what is removed later. */
gpuipc_status os_poller_wait(os_poller *poller, os_deadline deadline, void **tags, size_t capacity,
                             size_t *out_count) {
    gpuipc_status status = poller_usable(poller);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (capacity == 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "there is no room for what is ready");
    }
    for (;;) {
        int count = poller_try(poller, deadline, tags, capacity);
        if (count < 0 && errno != EINTR) {
            return posix_fail(errno, "epoll_wait", "the poller cannot be waited for");
        }
        if (count < 0) {
            posix_signal_ran = true;
        }
        if (count > 0 || os_deadline_passed(deadline)) {
            *out_count = count > 0 ? (size_t)count : 0;
            return GPUIPC_OK;
        }
    }
}

struct os_process_watch {
    os_poller *poller;
    os_handle
        process; /* a duplicate: epoll takes a descriptor once (epoll(7), Q1), and each process has one here */
};

/* pidfd_open(2): "the file descriptor is readable when the process terminates". Once, since nothing makes it less so: as
 * long as there is a duplicate it stays in the epoll (epoll(7), Q6). */
gpuipc_status os_poller_watch(os_poller *poller, const os_peer *peer,
                              os_process_watch **out_watch) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data = {.ptr = &process_tag}};
    gpuipc_status status = poller_usable(poller);
    if (status == GPUIPC_OK && !os_handle_is_valid(peer->process)) {
        status = status_fail(GPUIPC_ERR_NOT_SUPPORTED, "there is no descriptor of the process");
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    os_process_watch *watch = malloc(sizeof(*watch));
    if (watch == NULL) {
        return status_out_of_memory(sizeof(*watch));
    }
    *watch = (os_process_watch){.poller = poller};
    status = os_handle_duplicate(peer->process, &watch->process);
    if (status != GPUIPC_OK) {
        free(watch);
        return status;
    }
    if (epoll_ctl(poller->epoll, EPOLL_CTL_ADD, (int)watch->process.value, &event) != 0) {
        status =
            posix_fail(errno, "epoll_ctl", "the end of process %" PRIu64 " cannot be waited for",
                       peer->process_id);
        posix_register_close((int)watch->process.value); /* of this process's own making */
        free(watch);
        return status;
    }
    *out_watch = watch;
    return GPUIPC_OK;
}

void os_process_watch_destroy(os_process_watch *watch) {
    if (watch != NULL && watch->poller->generation == os_fork_generation()) {
        (void)epoll_ctl(watch->poller->epoll, EPOLL_CTL_DEL, (int)watch->process.value, NULL);
        posix_register_close((int)watch->process.value); /* of this process's own making */
    }
    free(watch);
}

/* eventfd(2): fails only when the counter is full, and then it is set all the same. */
void os_poller_wake(os_poller *poller) {
    const uint64_t one = 1;
    if (poller->generation == os_fork_generation()) {
        (void)!write(poller->wake, &one, sizeof(one));
    }
}

/* epoll(7), Q3: "Is the epoll file descriptor itself poll/epoll/selectable? Yes. If an epoll file
 * descriptor has events waiting, then it will indicate as being readable." */
intptr_t os_poller_native(os_poller *poller) {
    return poller->generation == os_fork_generation() ? poller->epoll : -1;
}

/* SPDX-License-Identifier: MIT */
/** @file The monotonic clock, deadlines on it, and waiting until one. */
#include "posix.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <time.h>

#define NS_PER_MS      UINT64_C(1000000)
#define NS_PER_S       UINT64_C(1000000000)
#define BACKOFF_MAX_MS 20u

static const uint64_t never = UINT64_MAX;

uint64_t os_clock_ns(void) {
    struct timespec now;
    /* Cannot fail: CLOCK_MONOTONIC is part of every Linux, and the address is ours. */
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

os_deadline os_deadline_after(int timeout_ms) {
    if (timeout_ms < 0) {
        return (os_deadline){never};
    }
    return (os_deadline){os_clock_ns() + (uint64_t)timeout_ms * NS_PER_MS};
}

bool os_deadline_passed(os_deadline deadline) {
    return deadline.at_ns != never && os_clock_ns() >= deadline.at_ns;
}

int os_deadline_left_ms(os_deadline deadline) {
    if (deadline.at_ns == never) {
        return -1;
    }
    uint64_t now = os_clock_ns();
    if (now >= deadline.at_ns) {
        return 0;
    }
    uint64_t left = deadline.at_ns - now;
    uint64_t milliseconds = left / NS_PER_MS + (left % NS_PER_MS != 0);
    return milliseconds > INT_MAX ? INT_MAX : (int)milliseconds;
}

void os_sleep_ms(unsigned milliseconds) {
    uint64_t until = os_clock_ns() + milliseconds * NS_PER_MS;
    struct timespec at = {.tv_sec = (time_t)(until / NS_PER_S),
                          .tv_nsec = (long)(until % NS_PER_S)};
    /* An absolute time, so that signals that interrupt it do not make it longer. */
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
}

int fd_wait(int fd, short events, os_deadline deadline) {
    struct pollfd entry = {.fd = fd, .events = events};
    for (;;) {
        int ready = poll(&entry, 1, os_deadline_left_ms(deadline));
        if (ready > 0) {
            return entry.revents;
        }
        if (ready == 0 && os_deadline_passed(deadline)) {
            return 0;
        }
        if (ready < 0 && errno != EINTR) {
            return -1;
        }
        if (ready < 0 && os_deadline_passed(deadline)) {
            return 0;
        }
    }
}

unsigned posix_backoff_next(unsigned *milliseconds, os_deadline deadline) {
    *milliseconds = *milliseconds == 0 ? 1 : *milliseconds * 2;
    if (*milliseconds > BACKOFF_MAX_MS) {
        *milliseconds = BACKOFF_MAX_MS;
    }
    int left = os_deadline_left_ms(deadline);
    return left >= 0 && (unsigned)left < *milliseconds ? (unsigned)left : *milliseconds;
}

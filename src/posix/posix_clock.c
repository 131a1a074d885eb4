/* SPDX-License-Identifier: MIT */
/** @file The monotonic clock, and waiting until a point on it. */
#include "posix.h"

#include <errno.h>
#include <poll.h>
#include <time.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)
#define MS_PER_S  UINT64_C(1000)

GPUIPC_THREAD_LOCAL bool posix_signal_ran;

bool os_signal_ran(void) {
    return posix_signal_ran;
}

void os_signal_forget(void) {
    posix_signal_ran = false;
}

/* Cannot fail: both clocks are part of every Linux, and the address is ours. */
static uint64_t clock_ns(clockid_t which) {
    struct timespec now;
    clock_gettime(which, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t os_clock_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

/* A tick of the kernel: 1 to 10 ms (clock_gettime(2)). */
uint64_t os_clock_coarse_ns(void) {
    return clock_ns(CLOCK_MONOTONIC_COARSE);
}

/* A clock set to before 1970 counts as 1970. */
uint64_t os_time_unix_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec < 0 ? 0 : (uint64_t)now.tv_sec * MS_PER_S + (uint64_t)now.tv_nsec / NS_PER_MS;
}

static void sleep_until(uint64_t until) {
    struct timespec at = {.tv_sec = (time_t)(until / NS_PER_S),
                          .tv_nsec = (long)(until % NS_PER_S)};
    /* An absolute time, so that signals that interrupt it do not make it longer. */
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
        posix_signal_ran = true;
    }
}

void os_sleep_ms(unsigned milliseconds) {
    sleep_until(os_clock_ns() + milliseconds * NS_PER_MS);
}

void os_sleep_us(unsigned microseconds) {
    sleep_until(os_clock_ns() + microseconds * NS_PER_US);
}

int fd_wait(int fd, short events, os_deadline deadline) {
    struct pollfd entry = {.fd = fd, .events = events};
    for (;;) {
        int ready = poll(&entry, 1, os_deadline_slice_ms(deadline));
        if (ready > 0) {
            return entry.revents;
        }
        if (ready == 0 && os_deadline_passed(deadline)) {
            return 0;
        }
        if (ready < 0 && errno != EINTR) {
            return -1;
        }
        if (ready < 0) {
            posix_signal_ran = true;
        }
        if (ready < 0 && os_deadline_passed(deadline)) {
            return 0;
        }
    }
}

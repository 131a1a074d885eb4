/* SPDX-License-Identifier: MIT */
/** @file See thread_time.h; man 2 clock_gettime. */
#include "thread_time.h"

#include <time.h>

uint64_t thread_time_ns(void) {
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t thread_time_of(void (*act)(void *argument), void *argument, unsigned calls) {
    uint64_t least = UINT64_MAX;
    for (int row = 0; row < THREAD_TIME_ROWS; row++) {
        const uint64_t begun = thread_time_ns();
        for (unsigned call = 0; call < calls; call++) {
            act(argument);
        }
        const uint64_t took = (thread_time_ns() - begun) / calls;
        least = took < least ? took : least;
    }
    return least;
}

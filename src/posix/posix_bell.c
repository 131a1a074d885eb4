/* SPDX-License-Identifier: MIT */
/** @file Bells: a futex on a word of shared memory, which needs nothing but the word. */
#include "posix.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

gpuipc_status os_bell_make(const uint8_t name[16], os_bell *out_bell) {
    (void)name;
    *out_bell = OS_BELL_NONE;
    return GPUIPC_OK;
}

gpuipc_status os_bell_find(const uint8_t name[16], os_bell *out_bell) {
    return os_bell_make(name, out_bell);
}

gpuipc_status os_bell_copy(const os_bell *bell, os_bell *out_bell) {
    *out_bell = *bell;
    return GPUIPC_OK;
}

void os_bell_close(os_bell *bell) {
    (void)bell;
}

/* futex(2) looks at 32 bits: those that have the 1. */
static uint32_t *half_of(const atomic_uint_least64_t *word) {
    const union {
        uint64_t whole;
        uint32_t half[2];
    } one = {.whole = 1};
    return (uint32_t *)(uintptr_t)word + (one.half[0] == 1 ? 0 : 1);
}

/* Not FUTEX_PRIVATE_FLAG: the other side is another process. Any failure is a wake-up for nothing. */
void os_bell_wait(const os_bell *bell, const atomic_uint_least64_t *word, unsigned milliseconds) {
    const struct timespec most = {.tv_sec = (time_t)(milliseconds / 1000u),
                                  .tv_nsec = (long)(milliseconds % 1000u) * 1000000L};
    (void)bell;
    if (syscall(SYS_futex, half_of(word), FUTEX_WAIT, 1u, &most, NULL, 0) != 0 && errno == EINTR) {
        posix_signal_ran = true;
    }
}

void os_bell_ring(const os_bell *bell, const atomic_uint_least64_t *word) {
    (void)bell;
    (void)syscall(SYS_futex, half_of(word), FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

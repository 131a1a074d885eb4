/* SPDX-License-Identifier: MIT */
/** @file See host_room.h. */
#include "host_room.h"

#include <stdint.h>
#include <sys/mman.h>

bool host_room_take(uint64_t base, uint64_t size) {
    void *const wanted = (void *)(uintptr_t)base;
    void *const got =
        mmap(wanted, size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == wanted) {
        return true;
    }
    if (got != MAP_FAILED) {
        munmap(got, size); /* mmap(2): kernels before 4.17 take the address for a hint */
    }
    return false;
}

void host_room_give(uint64_t base, uint64_t size) {
    munmap((void *)(uintptr_t)base, size);
}

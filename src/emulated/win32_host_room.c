/* SPDX-License-Identifier: MIT */
/** @file See host_room.h. */
#include "host_room.h"

#include <windows.h>

bool host_room_take(uint64_t base, uint64_t size) {
    void *const wanted = (void *)(uintptr_t)base;
    void *const got = VirtualAlloc(wanted, size, MEM_RESERVE, PAGE_NOACCESS);
    if (got != NULL && got != wanted) {
        VirtualFree(got, 0, MEM_RELEASE);
    }
    return got == wanted;
}

void host_room_give(uint64_t base, uint64_t size) {
    (void)size;
    VirtualFree((void *)(uintptr_t)base, 0, MEM_RELEASE);
}

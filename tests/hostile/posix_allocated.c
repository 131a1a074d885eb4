/* SPDX-License-Identifier: MIT */
#include "allocated.h"

#include <malloc.h>

uint64_t allocated_bytes(void) {
    const struct mallinfo2 now = mallinfo2(); /* glibc 2.33 */
    return (uint64_t)now.uordblks + (uint64_t)now.hblkhd;
}

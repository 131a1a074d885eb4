/* SPDX-License-Identifier: MIT */
/** @file Names that no other test, run or user has. */
#include "unique.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#include "os.h"

void unique_name(char name[UNIQUE_NAME_MAX]) {
    static atomic_uint counter;
    uint32_t bits = 0;
    /* Without random bits the name is still one of a kind on this machine. */
    (void)os_random(&bits, sizeof(bits));
    snprintf(name, UNIQUE_NAME_MAX, "t%" PRIu64 "-%u-%08" PRIx32, os_process_id(),
             atomic_fetch_add(&counter, 1), bits);
}

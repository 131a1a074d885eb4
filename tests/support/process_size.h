/* SPDX-License-Identifier: MIT */
/** @file How much this process takes of what it shares with others; posix_process_size.c, win32_process_size.c. */
#ifndef GPUIPC_TEST_PROCESS_SIZE_H
#define GPUIPC_TEST_PROCESS_SIZE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct process_size {
    uint64_t handles; /**< that are open */
    uint64_t
        mappings; /**< ranges of addresses that are mapped; 0 on Windows, which does not count them */
    uint64_t
        address_bytes; /**< of all addresses that are taken; on Windows of memory that is committed */
    uint64_t resident_bytes; /**< of memory that is there */
} process_size;

/** False when it cannot be found out. */
bool process_size_get(process_size *out_size);

#endif

/* SPDX-License-Identifier: MIT */
/** @file How many bytes malloc() has given out in this process. posix_allocated.c, win32_allocated.c */
#ifndef GPUIPC_TEST_ALLOCATED_H
#define GPUIPC_TEST_ALLOCATED_H

#include <stdint.h>

/** 0, always, where nobody counts them: below a sanitizer, whose LeakSanitizer looks instead, and on Windows. */
uint64_t allocated_bytes(void);

#endif

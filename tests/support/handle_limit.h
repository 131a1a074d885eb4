/* SPDX-License-Identifier: MIT */
/** @file How many handles this process may have; posix_handle_limit.c, win32_handle_limit.c. */
#ifndef GPUIPC_TEST_HANDLE_LIMIT_H
#define GPUIPC_TEST_HANDLE_LIMIT_H

#include <stdint.h>

/** Raises the limit to so many, or as far as it may. @return what it is then; on Windows, which has none, @p wanted */
uint64_t handle_limit_raise(uint64_t wanted);

#endif

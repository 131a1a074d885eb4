/* SPDX-License-Identifier: MIT */
/** @file Native handles of anything but GPU memory. posix_raw_handle.c, win32_raw_handle.c. */
#ifndef GPUIPC_TEST_RAW_HANDLE_H
#define GPUIPC_TEST_RAW_HANDLE_H

#include <stdint.h>

#define RAW_HANDLE_NONE ((intptr_t)-1)

/** There are so many kinds, on each system its own. The first ones are memory of the host's. */
extern const int raw_handle_kinds;
#define RAW_HANDLE_MEMORY   0
#define RAW_HANDLE_MEMORIES 2

/** A fresh one, or RAW_HANDLE_NONE. */
intptr_t raw_handle_open(int kind);
const char *raw_handle_kind_name(int kind);

/** RAW_HANDLE_NONE is allowed. */
void raw_handle_close(intptr_t handle);

#endif

/* SPDX-License-Identifier: MIT */
/** @file Native handles of anything but GPU memory. posix_raw_handle.c, win32_raw_handle.c. */
#ifndef GPUIPC_TEST_RAW_HANDLE_H
#define GPUIPC_TEST_RAW_HANDLE_H

#include <stdbool.h>
#include <stdint.h>

#define RAW_HANDLE_NONE ((intptr_t)-1)

/** There are so many kinds, on each system its own. The first ones are memory of the host's. */
extern const int raw_handle_kinds;
#define RAW_HANDLE_MEMORY   0
#define RAW_HANDLE_MEMORIES 2

/** A fresh one; RAW_HANDLE_NONE: this machine has none. */
intptr_t raw_handle_open(int kind);
const char *raw_handle_kind_name(int kind);
/** Whether it is shared memory of the host's as the library takes it in: of a fixed size, to be read and written. */
bool raw_handle_is_memory(int kind);

/** Another handle of the same; RAW_HANDLE_NONE when there is none. */
intptr_t raw_handle_copy(intptr_t handle);

/** RAW_HANDLE_NONE is allowed. */
void raw_handle_close(intptr_t handle);

#endif

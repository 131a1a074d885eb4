/* SPDX-License-Identifier: MIT */
/** @file What a caller's event loop sees of a native handle. posix_native_ready.c, win32_native_ready.c */
#ifndef GPUIPC_TEST_NATIVE_READY_H
#define GPUIPC_TEST_NATIVE_READY_H

#include <stdbool.h>
#include <stdint.h>

/** Whether it is ready (a descriptor: readable; an event: signalled) before the time is out. */
bool native_is_ready(intptr_t native, int timeout_ms);

#endif

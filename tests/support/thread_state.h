/* SPDX-License-Identifier: MIT */
/** @file Whether a thread is asleep: how a test knows that a call is waiting, without a pause that
 *  would only make it likely. posix_thread_state.c, win32_thread_state.c. */
#ifndef GPUIPC_TEST_THREAD_STATE_H
#define GPUIPC_TEST_THREAD_STATE_H

#include <stdbool.h>
#include <stdint.h>

/** The system's number for the calling thread. */
uint64_t thread_state_own_number(void);

/** Returns when that thread of this process sleeps in the kernel; false after @p timeout_ms. */
bool thread_state_wait_asleep(uint64_t thread_number, int timeout_ms);

#endif

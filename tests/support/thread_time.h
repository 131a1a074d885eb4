/* SPDX-License-Identifier: MIT */
/** @file What calls cost a thread: of the processor's time, so that it hardly depends on what else the machine does.
 *  posix_thread_time.c alone: Wine has no such clock. */
#ifndef GPUIPC_TEST_THREAD_TIME_H
#define GPUIPC_TEST_THREAD_TIME_H

#include <stdint.h>

/** Which the calling thread has had, in nanoseconds. */
uint64_t thread_time_ns(void);

/** Of one call, in the fastest of many rows of so many. */
uint64_t thread_time_of(void (*act)(void *argument), void *argument, unsigned calls);

/** In how many rows: for those who measure one call after the other. */
#define THREAD_TIME_ROWS 21

#endif

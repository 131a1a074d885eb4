/* SPDX-License-Identifier: MIT */
/** @file What a measurement asks the operating system: posix_system.c, win32_system.c. */
#ifndef GPUIPC_BENCH_SYSTEM_H
#define GPUIPC_BENCH_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The kernel and its version. */
void system_kernel(char *text, size_t capacity);

/** Lets this process have as many descriptors as the system allows it. */
void system_raise_limits(void);

/** The threads of this process, and how often they have gone to sleep by themselves so far.
 *  False where that is not known. */
bool system_threads(uint32_t *out_threads, uint64_t *out_switches);

/** How many processors this process may use; on Windows how many there are. */
uint32_t system_processors(void);

/** Descriptors that this process has open. False where that is not known. */
bool system_descriptors(uint32_t *out_count);

/** From now on a system call of this thread ends the program, with a sentence. False where that cannot be.
 *  posix_calls.c, calls_absent.c */
bool system_calls_forbid(void);
void system_calls_allow(void);

#endif

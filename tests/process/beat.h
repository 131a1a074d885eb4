/* SPDX-License-Identifier: MIT */
/** @file What the machine keeps from this process: a thread that asks to be woken each millisecond, and notes when it was woken
 *  later. A test that judges by a clock does not lay to a call what nobody got in that moment. */
#ifndef GPUIPC_TEST_BEAT_H
#define GPUIPC_TEST_BEAT_H

#include <stdint.h>

void beat_begin(void);
void beat_end(void);

/** Of the time between these two of os_clock_ns(), how much this process did not get. Waits until the thread knows. */
uint64_t beat_withheld_ns(uint64_t from_ns, uint64_t to_ns);

/** What the thread notes: nothing ran between these two. */
void beat_note(uint64_t from_ns, uint64_t to_ns);

#endif

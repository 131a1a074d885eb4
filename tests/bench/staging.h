/* SPDX-License-Identifier: MIT */
/** @file What the two parts of the program share. */
#ifndef GPUIPC_BENCH_STAGING_H
#define GPUIPC_BENCH_STAGING_H

#include "bench_call.h"

#define BENCH_VALUE  0x5Au
#define BENCH_ROUNDS 7

/** Median of the times of BENCH_ROUNDS calls on a stream of the current context, in ms. */
double bench_time(void (*put)(void *argument, CUstream stream), void *argument, CUstream stream);

gpuipc_buffer *bench_buffer(gpuipc_context *context, uint32_t device, uint64_t bytes,
                            uint32_t value);
/** Whether every byte has the value. */
void bench_verify(gpuipc_buffer *buffer, uint64_t bytes, uint32_t value);

/** Contents from another process, which is this program again: GB/s.
 *  @param device of the receiver; the other's is the first */
double bench_contents(gpuipc_context *context, const char *directory, uint32_t device,
                      uint64_t bytes, gpuipc_transport way);
/** The other process. @return its exit code */
int bench_contents_sender(const char *directory, const char *name, uint64_t bytes, int way);

#endif

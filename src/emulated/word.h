/* SPDX-License-Identifier: MIT */
/** @file Words in memory that streams write and wait for; others may write them at the same time:
 *  other streams, other processes, and the host. */
#ifndef GPUIPC_EMULATED_WORD_H
#define GPUIPC_EMULATED_WORD_H

#include "context.h"
#include "work.h"

/** The work of one operation, for stream_submit; the driver's lock is held. CUDA_ERROR_INVALID_VALUE: also
 *  for an operation that there is not; CUDA_ERROR_NOT_SUPPORTED: flags, or the machine has no such words. */
CUresult word_prepare(const context *by, const CUstreamBatchMemOpParams *wanted, work **out);

/** Writes it. */
void word_write(const work *todo);

/** Makes 8 bytes @p value, unless they are more. */
void word_raise(uint8_t *at, uint64_t value);

/** Whether the word has the value that is waited for. */
bool word_is_reached(const work *todo);

/** Looks for a while, and returns at once when it has; the driver's lock is not held.
 *  @param waited_ns how long it has been waited for: the longer, the lazier */
void word_watch(const work *todo, uint64_t waited_ns);

#endif

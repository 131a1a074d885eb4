/* SPDX-License-Identifier: MIT */
/**
 * @file How much of one direction of a connection is on streams at once. A driver keeps the call that is the 1,022nd on a
 * stream until an earlier one has passed (measured on an H200, driver 580), whatever the caller's time-out says. Before it
 * comes to that the host waits, with the caller's deadline. Each thing on a stream has a passage behind it: a word that no
 * other process writes.
 */
#ifndef GPUIPC_PACE_H
#define GPUIPC_PACE_H

#include <gpuipc/gpuipc.h>

#include "os.h"
#include "sync/passage.h"

/** Ten calls for each of them find room on one stream. */
#define PACE_MOST 96u

/** All zero: nothing is on a stream. Guarded by whoever holds the direction. */
typedef struct pace {
    point_word passages[PACE_MOST]; /**< behind the latest things */
    uint32_t next;                  /**< the place of the oldest, which the next thing's takes */
} pace;

/** Waits on the host until so many more things find room; more than PACE_MOST: until that many do. ERR_TIMEOUT; ERR_RELEASED
 *  when *interrupted becomes true. */
gpuipc_status pace_await(const pace *self, uint64_t count, const atomic_bool *interrupted,
                         os_deadline deadline);

/** One more is on a stream, which has this passage behind it. */
void pace_add(pace *self, const point_word *passage);

/** The same for what the stream has been given until now: puts a passage there. After a failure it does not count.
 *  @param index of the device whose default stream it is, if it is one */
gpuipc_status pace_add_place(pace *self, struct context *ctx, gpuipc_stream stream, uint32_t index);

#endif

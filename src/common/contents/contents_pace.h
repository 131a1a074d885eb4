/* SPDX-License-Identifier: MIT */
/**
 * @file How much of contents is on streams at once. A driver keeps the call that is the 1,022nd on a stream until an earlier
 * one has passed (measured on an H200, driver 580), whatever the caller's time-out says. Before it comes to that the host
 * waits, with the caller's deadline. Behind each thing on a stream is a passage: a word that no other process writes. What a
 * failure leaves on a stream may have none.
 */
#ifndef GPUIPC_CONTENTS_PACE_H
#define GPUIPC_CONTENTS_PACE_H

#include <gpuipc/gpuipc.h>

#include "os.h"
#include "sync/passage.h"

/** Ten calls for each of them find room on one stream. */
#define CONTENTS_PACE_MOST 96u

/** All zero: nothing is on a stream. Guarded by its owner. */
typedef struct contents_pace {
    point_word passages[CONTENTS_PACE_MOST]; /**< one that is reached is room for another */
    uint32_t next;                           /**< mostly the oldest */
} contents_pace;

/** Waits on the host until so many more things find room; more than there are at most: until that many do. ERR_TIMEOUT;
 *  ERR_RELEASED when *interrupted becomes true. */
gpuipc_status contents_pace_await(const contents_pace *self, uint64_t count,
                                  const atomic_bool *interrupted, os_deadline deadline);

/** One more is on a stream, which has this passage behind it. After failures it may be one too many: then another is
 *  forgotten. */
void contents_pace_add(contents_pace *self, const point_word *passage);

/** The paces of the streams of a context's callers, over whichever connections contents go. */
extern const struct context_part contents_streams_part;

/** What a call gives to a stream. */
typedef struct contents_turn {
    struct contents_stream *of;
    gpuipc_stream stream;
    uint32_t index; /**< of the device whose default stream it is, if it is one */
} contents_turn;

/** Waits until the turn's stream has room for contents, as contents_pace_await(). contents_turn_end() is owed.
 *  @param self with stream and index */
gpuipc_status contents_turn_begin(struct context *ctx, contents_turn *self,
                                  const atomic_bool *interrupted, os_deadline deadline);
/** Puts a passage behind what the stream was given. The error record stays. */
void contents_turn_end(struct context *ctx, const contents_turn *self);

#endif

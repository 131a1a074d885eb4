/* SPDX-License-Identifier: MIT */
/** @file What contents_ring.c and contents_flow.c share: the streams of one device, and the words. */
#ifndef GPUIPC_CONTENTS_LANE_H
#define GPUIPC_CONTENTS_LANE_H

#include "contents/contents_ring.h"
#include "cuda/context.h"

/* Numbers of the words in a ring's page. Filled and failed are the sender's to write, emptied is the
 * receiver's. */
#define CONTENTS_FILLED(slot)  ((uint32_t)(slot)*2u)
#define CONTENTS_EMPTIED(slot) ((uint32_t)(slot)*2u + 1u)
#define CONTENTS_FAILED        (STAGING_SLOTS * 2u)

/* Words have streams of their own: each that is written or waited for on the stream that copies costs 4 us
 * (measured on an H200, driver 580). */
struct contents_lane {
    uint32_t device;
    CUstream copies; /* the last of the three to end */
    CUstream waits;
    CUstream signals;
    CUevent came[STAGING_SLOTS]; /* on waits: the word of a piece has come */
    CUevent done[STAGING_SLOTS]; /* on copies: a piece is through */
    CUevent end;                 /* on copies: contents are through */
};

/** After contents of which nothing may be awaited any more: lets the peer's stream go on, in the order
 *  of what is on this side's. @param end the number after their last piece */
void contents_tell_end(contents_ring *self, uint64_t end, uint64_t count);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * @file Trails: which streams of this process may still touch the words of a channel's pages. Behind what is put on a stream
 * for a frame an event is recorded, one for each slot and kind of use. It says what a passage says (passage.h), and costs
 * the stream nothing, where each word that a stream writes keeps the frames behind it waiting for 0.7 us. To ask an event
 * costs the host up to 2 us while streams are at work, so it is asked only where something depends on it. (Both measured on
 * an H200, driver 580.)
 */
#ifndef GPUIPC_TRAIL_H
#define GPUIPC_TRAIL_H

#include <gpuipc/gpuipc.h>

#include "sync/passage.h"

typedef struct trail trail;

/** What streams do with the words of a slot: each has its own event. */
typedef enum trail_use {
    TRAIL_WAIT = 0, /**< wait for them */
    TRAIL_WRITE = 1 /**< write them */
} trail_use;

#define TRAIL_SLOTS GPUIPC_CHANNEL_SLOTS_MAX
#define TRAIL_USES  2u

/** A set of slots for each use. All zero is empty. */
typedef struct trail_set {
    uint64_t slots[TRAIL_USES];
} trail_set;

/** One holds it. */
gpuipc_status trail_new(struct context *ctx, trail **out_trail);
void trail_reference(trail *self);
/** The last one destroys the events, so no lock is held unless trail_is_untouched(). NULL does nothing. */
void trail_unreference(trail *self, bool forked);

/** What a stream is being given with a slot. The stream's CUDA context is current; one thread at a time does so with a
 *  slot. */
typedef struct trail_turn {
    trail *of;
    struct trail_mark *mark;
    struct trail_event *event; /**< to be recorded at its end */
    uint64_t stream_id;
} trail_turn;

/** Makes the stream wait for another one that had the slot before. trail_turn_end() or _cancel() is owed. */
gpuipc_status trail_turn_begin(trail *self, trail_use use, uint32_t slot, gpuipc_stream stream,
                               trail_turn *out_turn);
/** Lets the stream write words of the slot. After a failure nothing is left on the stream. */
gpuipc_status trail_turn_write(const trail_turn *self, const point_word *words, size_t count,
                               gpuipc_stream stream);
/** Behind what the stream was given. Waits while another thread frees memory, so others have been told by then. */
void trail_turn_end(const trail_turn *self, gpuipc_stream stream);
/** The stream was given nothing, or has done it. */
void trail_turn_cancel(const trail_turn *self);

/** Lets a stream that point_has_stream_waits() wait for words of one slot, each of another page: a turn of its own. It
 *  goes on when nobody is there any more who would write them.
 *  @param is_alone nothing else waits for these words: they may be stored when the driver fails */
gpuipc_status trail_wait(trail *self, uint32_t slot, const point_word *words, size_t count,
                         gpuipc_stream stream, bool is_alone);

/** The number of a stream of the current CUDA context that no other one gets, and that is not being captured. It tells
 *  whether it is the one that had a slot before; 0: there is none, or the driver does not say. */
uint64_t trail_stream_id(const struct context *ctx, gpuipc_stream stream);
/** Whether that stream had the last turn. */
bool trail_is_of(const trail *self, trail_use use, uint32_t slot, uint64_t stream_id);

/** Whether streams have done all that they were given with a slot in this way. False where the driver does not say. */
bool trail_has_passed(trail *self, trail_use use, uint32_t slot);
/** Whether no stream was ever given anything: no call of the driver. */
bool trail_is_untouched(trail *self);
/** The same of all slots since the set was empty, for what ends while others go on: each is in the set once it was seen. */
bool trail_have_all_passed(trail *self, trail_set *seen);

#endif

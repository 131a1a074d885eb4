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

#include "cuda/device.h"
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

/** Streams are at most two periods behind the host, so that their queues have room (1,021 calls on an H200, driver 580; of
 *  these a frame has up to six): trail_is_far_behind(). It is odd, so that of two streams that are used by turns both are asked. */
#define TRAIL_PERIOD 31u

/** One holds it. */
gpuipc_status trail_new(struct context *ctx, trail **out_trail);
void trail_reference(trail *self);
/** The last one destroys the events, so no lock is held unless trail_is_untouched(). NULL does nothing. */
void trail_unreference(trail *self, bool forked);

/** A stream that a call gives something: its CUDA context is current until trail_stream_leave(). Each answer of the
 *  driver's takes 20 to 30 ns (measured on an H200), so it is asked once in a call. */
typedef struct trail_stream {
    gpuipc_stream stream; /**< GPUIPC_NO_STREAM, and all else zero: none */
    bool can_wait;        /**< point_has_stream_waits() */
    bool has_rested;      /**< it was asked long ago whether it is being captured */
    device_scope scope;
} trail_stream;

/** @param index the device whose default stream it is, if it is one
 *  @param entered of no use after a failure
 *  @return ERR_CUDA when it is being captured */
gpuipc_status trail_stream_enter(struct context *ctx, gpuipc_stream stream, uint32_t index,
                                 trail_stream *entered);
/** The call waits now, for other than the stream: another thread may begin to capture it meanwhile. */
void trail_stream_rest(trail_stream *self);
static inline void trail_stream_leave(const trail_stream *self) {
    device_leave(&self->scope);
}

/** What a stream is being given with a slot. One thread at a time does so with a slot. */
typedef struct trail_turn {
    trail *of;
    trail_use use;
    trail_stream *
        by; /**< a turn that outlasts a call is given another one of the same stream before its end */
    struct trail_mark *mark;
    struct trail_event *event; /**< to be recorded at its end */
} trail_turn;

/** Makes the stream wait for another one that had the slot before. trail_turn_end() or _cancel() is owed. ERR_CUDA also when
 *  the call has rested, and the stream is being captured now. @param turn of no use after a failure */
gpuipc_status trail_turn_begin(trail *self, trail_use use, uint32_t slot, trail_stream *by,
                               trail_turn *turn);
/** Lets the stream write words of the slot. After a failure nothing is left on the stream. */
gpuipc_status trail_turn_write(const trail_turn *self, const point_word *words, size_t count);
/** Behind what the stream was given. Waits while another thread frees memory, so others have been told by then. Not for the
 *  stream: where no event can be recorded, it writes a passage. */
void trail_turn_end(const trail_turn *self);
/** The same where it can be tried again: after a failure the turn is not over. */
gpuipc_status trail_turn_try_end(const trail_turn *self);
/** The stream was given nothing, or has done it. */
void trail_turn_cancel(const trail_turn *self);

/** Lets a stream that can wait do so for words of one slot, each of another page: a turn of its own. It goes on when nobody
 *  is there any more who would write them.
 *  After a failure it waits for nothing.
 *  @param let_go what is stored then: the same words, with those values or later ones */
gpuipc_status trail_wait(trail *self, uint32_t slot, const point_word *words,
                         const point_word *let_go, size_t count, trail_stream *by);

/** Whether that stream had the last turn. */
bool trail_is_of(const trail *self, trail_use use, uint32_t slot, const trail_stream *stream);

/** Whether streams have done all that they were given with a slot in this way. False where the driver does not say. */
bool trail_has_passed(trail *self, trail_use use, uint32_t slot);
/** The same of what they were given before a turn that has begun and not ended: nobody ends it meanwhile. */
bool trail_had_passed(trail *self, trail_use use, uint32_t slot);
/** As trail_has_passed(), for who has waited for the stream: looks again for up to 100 ms. */
bool trail_passes_soon(trail *self, trail_use use, uint32_t slot);
/** Whether streams are so far behind that they may have no room: who would give them more waits, and asks again. The driver is
 *  asked once in a period of turns, or as long as they are. */
bool trail_is_far_behind(trail *self);
/** Whether no stream was ever given anything: no call of the driver. */
bool trail_is_untouched(trail *self);
/** The same of all slots since the set was empty, for what ends while others go on: each is in the set once it was seen. */
bool trail_have_all_passed(trail *self, trail_set *seen);

#endif

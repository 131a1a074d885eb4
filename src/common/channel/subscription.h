/* SPDX-License-Identifier: MIT */
/** @file A reader's end of a channel. docs/channels.md */
#ifndef GPUIPC_SUBSCRIPTION_H
#define GPUIPC_SUBSCRIPTION_H

#include "base/wait_handle.h"
#include "channel/channel_page.h"
#include "channel/turn.h"
#include "memory/buffer.h"
#include "sync/trail.h"

/** What a kernel of the caller's awaits and stores in place of his stream: subscription_kernel.c. */
typedef struct subscription_kernel {
    bool is_in_use;    /**< it has the words, and gpuipc_subscription_kernel_launched() is owed */
    bool is_waiting;   /**< waits is a turn that is on */
    bool is_returning; /**< so is returns */
    gpuipc_stream stream;
    trail_turn waits;
    trail_turn returns;
} subscription_kernel;

/** What this reader has of a slot. */
typedef struct subscription_frame {
    uint64_t take;   /**< the latest: part of a frame's id */
    uint64_t number; /**< of the frame */
    bool was_ready;  /**< when it was published: the ready word need not be looked at */
    gpuipc_frame public_part;
    uint64_t header[CHANNEL_HEADER_WORDS];
    subscription_kernel kernel;
} subscription_frame;

/** What the thread of the wait handle is at: subscription_wait.c. */
typedef enum subscription_awaits {
    AWAITS_NOTHING = 0, /**< it has told, or a call is taking by itself */
    AWAITS_NEWS,        /**< the writer's bell */
    AWAITS_CONTENTS,    /**< of the frame that is pending */
    AWAITS_ROOM,        /**< something to be given back */
    AWAITS_NO_MORE      /**< its end */
} subscription_awaits;

/** What the caller's event loop waits for, and the thread that tells it. All zero: nobody has asked for it. */
typedef struct subscription_wait {
    wait_handle handle;
    atomic_bool is_asked_for;
    os_thread *thread;
    os_mutex mutex; /**< guards the rest; may be taken inside the one of who takes */
    os_condition changed;
    subscription_awaits awaits;
    uint64_t begun_ns; /**< when it began to await that */
    bool is_told;
    point_word contents;
} subscription_wait;

typedef struct subscription {
    object object;
    context *context;
    buffer *buffer;   /**< the slots, held */
    point_page *page; /**< a reference */
    os_bell reader_bell;
    os_bell writer_bell;
    gpuipc_delivery delivery;
    uint32_t max_held;
    uint64_t look_ns; /**< who waits for a frame looks for so long before it sleeps */
    uint32_t slots;
    uint64_t slot_bytes;
    uint32_t header_bytes;
    bool has_turns;      /**< it is a channel of turns: of the rest, only what says so is used */
    turn_state turn;     /**< guarded by the mutex */
    atomic_bool is_over; /**< closed, while a thread may be waiting in it */
    atomic_uint_least64_t
        taken; /**< a bit for each slot whose frame the caller has: set by who takes, cleared with the mutex */
    os_mutex taking; /**< held by the one thread that takes; guards the members to the next mutex */
    uint64_t number; /**< of the last frame that was taken, or found to be withdrawn */
    uint64_t sequence; /**< of the last that was taken */
    bool has_pending;  /**< one was taken whose contents its taker did not await to the end */
    uint32_t pending;  /**< its slot */
    uint64_t
        looking_since_ns; /**< when the first call began to wait for the next frame; 0: none did. Later when it was woken */
    uint64_t looked_ns; /**< when it was last looked whether the writer lives */
    bool is_writer_gone;
    uint32_t next_slot; /**< behind that of the last frame: mostly the next one's */
    uint64_t takes;     /**< of a channel of turns the mutex guards it while the turn is taken */
    os_mutex mutex;     /**< guards the rest; may be taken inside the other */
    subscription_frame
        frames[GPUIPC_CHANNEL_SLOTS_MAX]; /**< of a slot that is not taken: who takes guards it */
    subscription_wait waited;
} subscription;

static inline gpuipc_status subscription_acquire(gpuipc_subscription *handle,
                                                 subscription **out_subscription) {
    object *base = NULL;
    const gpuipc_status status = object_acquire(OBJECT_SUBSCRIPTION, handle, &base);
    *out_subscription = (subscription *)base;
    return status;
}

/** Whether the caller has that slot's frame. */
static inline bool subscription_has_taken(const subscription *self, uint32_t slot) {
    return (atomic_load_explicit(&self->taken, memory_order_acquire) >> slot & 1u) != 0;
}

static inline void subscription_set_taken(subscription *self, uint32_t slot, bool is_taken) {
    const uint64_t bit = UINT64_C(1) << slot;
    if (is_taken) {
        atomic_fetch_or_explicit(&self->taken, bit, memory_order_release);
    } else { /* who gives back looks then whether the wait handle awaits room: subscription_wait.c */
        atomic_fetch_and(&self->taken, ~bit);
    }
}

/** How many frames the caller has. It may give one back meanwhile, and who takes is the only one that adds to them. */
static inline uint32_t subscription_count_held(const subscription *self) {
    uint32_t count = 0;
    for (uint64_t left = atomic_load(&self->taken); left != 0; left &= left - 1) {
        count++;
    }
    return count;
}

/* ---- the next frame: subscription_next.c; the taking mutex is held ------------------------------ */

/** The next one for this reader, which it has not taken yet. */
bool subscription_find(const subscription *self, uint64_t *out_number, uint32_t *out_slot);
/** Asks the system now and then. */
bool subscription_is_writer_gone(subscription *self);
/** Waits until there is one, and takes it: its contents may not be there. Who is out of time and calls again goes on looking,
 *  or sleeping. */
gpuipc_status subscription_await_next(subscription *self, trail_stream *by, time_limit *limit,
                                      uint32_t *out_slot);

/* ---- what is said of its end: subscription.c ---------------------------------------------------- */

/** There will be no more. @param why what the end word says: CHANNEL_IS_ON when only the process has ended
 *  @return the status that takes answer */
gpuipc_status subscription_tell_end(uint64_t why);
/** A frame is given up that was not ready. @return ERR_LOST, with a sentence that says who went */
gpuipc_status subscription_tell_lost(const subscription *self);

/* ---- a channel of turns: subscription_turn.c; the mutex is held in all but the first two ------- */

void subscription_turns_begin(subscription *self);
/** The taking mutex is held. ERR_TIMEOUT: the streams of this end are too far behind */
gpuipc_status subscription_turn_take(subscription *self, gpuipc_stream stream);
/** The mutex is given up while the stream is given something. */
gpuipc_status subscription_turn_give_back(subscription *self, gpuipc_stream stream);
/** Whether streams pass without the writer. */
bool subscription_turn_is_lost(const subscription *self);
/** The writer's streams pass from now on, and this reader's. */
void subscription_turns_end(subscription *self);

/** A frame that the caller has taken. The mutex is held. */
gpuipc_status subscription_find_taken(subscription *self, const gpuipc_frame *frame,
                                      uint32_t *out_slot);
/** The caller has it no more. The mutex is held. @return ERR_LOST: it was none */
gpuipc_status subscription_forget(subscription *self, uint32_t slot, bool was_lost);
/** Whether who waited for the contents was let go: by the watch, or by the writer, which ended the channel. */
bool subscription_is_lost(const subscription *self, uint32_t slot);
/** Behind what a reader writes for its writer. */
void subscription_wake_writer(const subscription *self);
/** The slot is the writer's again, without a stream. */
void subscription_return_now(const subscription *self, uint32_t slot, uint64_t number);

/* ---- kernels: subscription_kernel.c ------------------------------------------------------------- */

/** The words of a frame that is being taken. */
typedef struct subscription_words {
    gpuipc_word ready;
    gpuipc_word returned;
} subscription_words;

/** From now on a kernel in a stream may have them. The taking mutex is held. */
gpuipc_status subscription_kernel_begin(subscription *self, uint32_t slot, trail_stream *by,
                                        subscription_words *words);
/** It does not store the returned word. The mutex is held.
 *  @param stream in which it awaited the other one; GPUIPC_NO_STREAM: it has ended, or there was none */
gpuipc_status subscription_kernel_cancel(subscription *self, uint32_t slot, gpuipc_stream stream);
/** The subscription ends: whatever still waits goes on. The mutex is held. */
void subscription_kernel_end(subscription *self, uint32_t slot);
/** Takes a frame: subscription.c. @param words for a kernel that awaits its contents; NULL: there is none */
gpuipc_status subscription_take(gpuipc_subscription *handle, gpuipc_stream stream,
                                subscription_words *words, int timeout_ms, gpuipc_frame *out_frame);

/* ---- the wait handle: subscription_wait.c. Nothing where nobody has asked for it. --------------- */

/** A call is going to wait by itself. The taking mutex is held. */
void subscription_wait_pause(subscription *self);
/** What it has left: the handle is ready, or its thread looks out. The taking mutex is held. */
void subscription_wait_settle(subscription *self);
/** Something was given back. No mutex is held. */
void subscription_wait_given(subscription *self);
/** The subscription ends. @param forked in a child, which has no such thread */
void subscription_wait_end(subscription *self, bool forked);

/** The caller has closed it, or could not be given it: all is given back, and the writer learns of it. */
void subscription_end(subscription *self);

#endif

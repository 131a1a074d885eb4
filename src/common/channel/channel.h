/* SPDX-License-Identifier: MIT */
/** @file The writer's end of a channel: its slots, and its readers. docs/channels.md */
#ifndef GPUIPC_CHANNEL_H
#define GPUIPC_CHANNEL_H

#include "channel/channel_page.h"
#include "channel/turn.h"
#include "memory/buffer.h"
#include "sync/monitor.h"
#include "sync/trail.h"
#include "ticket/offer.h"
#include "ticket/ticket_name.h"

/** A place for a reader. */
typedef struct channel_reader {
    point_page *page; /**< a reference; NULL: there is none, or no more */
    os_bell reader_bell;
    os_bell writer_bell;
    gpuipc_delivery delivery;
    uint32_t max_held;
    gpuipc_reader_state state; /**< 0: nobody was here yet */
    uint64_t process_id;
    uint64_t since_ms;
    uint64_t before; /**< number of the last frame that it is not offered */
    uint64_t passed_over;
    uint32_t captured; /**< so many publications that were captured in graphs go to it */
} channel_reader;

typedef struct channel_slot {
    list_link by_age;
    bool is_on_loan;
    bool is_intact; /**< what was published in it last is still there */
    bool
        was_returned; /**< likewise, and a reader has given it back, if only in the order of its stream */
    uint64_t loan;     /**< the latest: part of a frame's id */
    uint64_t number;   /**< of the frame that was published in it last; 0: none was */
    uint64_t sequence; /**< likewise */
    uint64_t bytes;    /**< likewise */
    uint32_t
        holders; /**< a bit for each reader that it was offered to and that is not known to have returned it */
    uint32_t awaited; /**< a bit for each reader that a stream of the writer's waits for, or did */
    uint64_t awaited_number; /**< the latest frame in this slot that one waits for */
    uint32_t
        loan_awaits; /**< likewise, that the stream of the latest loan was given to wait for: for that frame */
    bool is_told;      /**< readers were offered that frame */
    bool is_in_kernel; /**< a kernel has its words: gpuipc_channel_kernel_launched() is owed */
    bool has_turn;     /**< of the kernel's stream: the next two are valid */
    gpuipc_stream stream;
    trail_turn turn;
    size_t header_bytes; /**< of that frame, for readers that come later */
    uint8_t header[GPUIPC_FRAME_HEADER_MAX];
} channel_slot;

typedef struct channel {
    object object;
    offer_channel offered; /**< what the server calls */
    context *context;
    server *server;
    ticket share;      /**< what is revoked at the end */
    ticket_name *name; /**< NULL: it has none, or has ended */
    buffer *buffer;
    trail *trail; /**< a reference: of the writer's streams, for the pages of all readers */
    gpuipc_channel_config config; /**< with all of its values settled */
    os_mutex mutex;               /**< guards the rest */
    bool has_ended;
    uint64_t loans;
    uint64_t number; /**< of the last frame that got one */
    uint64_t told;   /**< the highest number of those that readers were offered */
    uint64_t sequence;
    uint64_t looked_ns; /**< when it was last looked which readers live */
    uint64_t
        full_since_ns; /**< when a loan first found no slot, and none has found one since; 0: the last one did */
    monitored monitored; /**< while there are readers */
    channel_slot slots[GPUIPC_CHANNEL_SLOTS_MAX];
    linked_list by_age; /**< the slots: first that of the oldest frame */
    uint32_t places;    /**< so many had a reader ever; those behind are not looked at */
    channel_reader readers[GPUIPC_CHANNEL_READERS_MAX];
    turn_state turn;      /**< of a channel of turns: what is on loan goes to these */
    point_words captured; /**< likewise: of all readers that graphs have waited for, to the end */
} channel;

static inline gpuipc_status channel_acquire(gpuipc_channel *handle, channel **out_channel) {
    object *base = NULL;
    const gpuipc_status status = object_acquire(OBJECT_CHANNEL, handle, &base);
    *out_channel = (channel *)base;
    return status;
}

/** For channel_try_lock() alone: when it was not free. */
GPUIPC_COLD bool channel_try_lock_again(channel *self);
/** Takes the mutex, for who may look again later: a writer that is never out of its calls is tried for a while. */
static inline bool channel_try_lock(channel *self) {
    return os_mutex_try_lock(&self->mutex) || channel_try_lock_again(self);
}
/** The same, and waits for it. Who has it has it for moments, mostly, so that nobody sleeps for it at once: to sleep, and to
 *  wake who sleeps, are system calls. */
static inline void channel_lock(channel *self) {
    if (!channel_try_lock(self)) {
        os_mutex_lock(&self->mutex);
    }
}

/* ---- slots: channel_slot.c; the mutex is held, and given up while a loan waits ------------------ */

/** What a loan looks for, and what was found. */
typedef struct slot_search {
    trail_stream *by;    /**< who can wait for readers that gave back in the order of theirs */
    uint32_t slot;       /**< or UINT32_MAX */
    uint32_t waits;      /**< a bit for each of those readers */
    uint32_t wanted;     /**< without a slot: the oldest; UINT32_MAX: all are on loan */
    uint32_t in_the_way; /**< without a slot: a bit for each reader that has it; 0: a stream has */
    bool is_behind;      /**< without a slot: the writer's streams are too far behind for any */
} slot_search;

/** What a loan is going to look at first, of all readers at the same time, and while the driver is asked about a stream.
 *  @param can_wait there is a stream, which may wait for readers */
void channel_prefetch_oldest(const channel *self, bool can_wait);
/** Until there is one. @param what all zero but who looks */
gpuipc_status channel_await_slot(channel *self, slot_search *what, time_limit *limit);
/** The stream waits for readers that gave it back in the order of theirs. */
gpuipc_status channel_await_readers(channel *self, const slot_search *what);

/* ---- what is published: channel_writer.c; the mutex is held ------------------------------------ */

/** The slot that a frame has on loan. */
gpuipc_status channel_find_loan(channel *self, const gpuipc_frame *frame, uint32_t *out_slot);
/** The word of a slot in the page of each reader.
 *  @param value to be written there  @param words room for GPUIPC_CHANNEL_READERS_MAX  @return how many */
size_t channel_list_words(const channel *self, uint32_t slot, uint64_t value, point_word *words);
/** What the caller says of a frame. */
gpuipc_status channel_check_frame(const channel *self, const gpuipc_frame *frame);
/** What was loaned becomes the next frame, which no reader sees yet. */
void channel_number_frame(channel *self, uint32_t slot, const gpuipc_frame *frame);
/** All readers that were there when it got its number see it, once. What makes it ready is on its stream.
 *  @param is_ready by now; else when a stream or a kernel says so */
void channel_tell_of(channel *self, uint32_t slot, bool is_ready);

/* ---- kernels that say so: channel_kernel.c; the mutex is held ---------------------------------- */

/** Whether a kernel has the words of a frame, and was not said to be launched. */
bool channel_kernel_has(const channel *self, const gpuipc_frame *frame, uint32_t *out_slot);
/** It is not launched: what publishes the frame in its place says that it is ready.
 *  @param stream the one that was named for the kernel, or none: else ERR_INVALID_ARGUMENT */
gpuipc_status channel_kernel_cancel(channel *self, uint32_t slot, gpuipc_stream stream);
/** The channel ends: frames of kernels that were not launched are never seen. */
void channel_kernels_end(channel *self);

/* ---- a reader that comes: channel_attach.c ------------------------------------------------------ */

/** What the server calls. */
extern const offer_channel channel_offered;

/* ---- readers: channel_reader.c; the mutex is held in all but the first ------------------------- */

/** By a thread of the process (monitor.h), as long as there are any: a call of the writer's that is long looks by itself.
 *  @return whether there are none */
bool channel_readers_look(object *of);
/** It reads no more: what it has is free. */
void channel_reader_end(channel *self, channel_reader *reader, gpuipc_reader_state why);
/** Looks which have ended or closed. @return whether there are some */
bool channel_look_at_readers(channel *self);
/** The slots whose frames a reader has taken and not given back: a bit for each. The reader goes on meanwhile, so that it may
 *  have given the first of them back when the last is looked at. */
uint64_t channel_list_held(const channel *self, const channel_reader *reader);
/** Tells all that there will be no more, and gives all up. @param forked in a child */
void channel_readers_end(channel *self, bool forked);
/** Offers a frame to a reader. @param is_ready its ready word says so */
void channel_offer(channel *self, channel_reader *reader, uint32_t slot, bool is_ready);

/* ---- a channel of turns: channel_turn.c; the mutex is held, and given up while streams are given something ---------- */

/** Whether the slot may be loaned. */
gpuipc_status channel_turn_check(const channel *self);
/** The stream waits until it is the writer's, of the readers that there are now. It is on loan. */
gpuipc_status channel_turn_loan(channel *self, gpuipc_stream stream, os_deadline deadline);
/** It is theirs when the stream comes to this, and on loan no more. */
gpuipc_status channel_turn_publish(channel *self, const gpuipc_frame *frame, gpuipc_stream stream);
/** Graphs are not launched any more. */
void channel_turns_end(channel *self);
/** The same of readers that have left, and before: the pages that end last are kept (point.h). */
void channel_turns_end_left(channel *self);
/** Nobody is in a call of the channel any more. */
void channel_turns_clear(channel *self, bool forked);

#endif

/* SPDX-License-Identifier: MIT */
/** @file See subscription.h: taking frames, with their contents. */
#include "channel/subscription.h"

#include "base/struct_size.h"
#include "sync/trail.h"

/* So long for the contents of a frame that was waited for: a stream that has nothing else to do writes a word in some 3 us. */
#define CONTENTS_NS UINT64_C(5000)

static bool has_stream(gpuipc_stream stream) {
    return stream != GPUIPC_NO_STREAM;
}

/* ---- what is said of its end ----------------------------------------------------------------------------------- */

gpuipc_status subscription_tell_end(uint64_t why) {
    return why == CHANNEL_DROPPED
               ? status_fail(GPUIPC_ERR_CONNECTION_BROKEN,
                             "the writer has dropped this reader, which was too slow")
               : status_fail(GPUIPC_ERR_PEER_CLOSED,
                             "the writer has ended the channel, or its process has ended");
}

gpuipc_status subscription_tell_lost(const subscription *self) {
    const uint64_t end = channel_read(self->page, CHANNEL_END);
    if (end == CHANNEL_IS_ON && !point_page_is_abandoned(self->page)) {
        return status_fail(
            GPUIPC_ERR_LOST,
            "the frame was given up before it was ready: its writer or this reader ended");
    }
    return status_fail(GPUIPC_ERR_LOST, "the writer %s before the frame was ready",
                       end == CHANNEL_DROPPED ? "dropped this reader" : "ended");
}

/* What says that there are no more frames is written before streams are let go. */
static gpuipc_status ask_writer(const subscription *self) {
    const uint64_t end = channel_read(self->page, CHANNEL_END);
    return end != CHANNEL_IS_ON || point_page_is_abandoned(self->page) ? subscription_tell_end(end)
                                                                       : GPUIPC_OK;
}

gpuipc_status gpuipc_subscription_check(gpuipc_subscription *handle) {
    status_enter(__func__);
    subscription *self;
    gpuipc_status status = subscription_acquire(handle, &self);
    if (status == GPUIPC_OK) {
        status = ask_writer(self);
        object_unreference(&self->object);
    }
    return status;
}

/* ---- its contents ------------------------------------------------------------------------------ */

/* Between two looks at what streams do. */
static gpuipc_status pause_for(const subscription *self, const char *what, uint64_t begun_ns,
                               time_limit *limit) {
    if (atomic_load(&self->is_over)) {
        return status_fail(GPUIPC_ERR_RELEASED, "the subscription was closed meanwhile");
    }
    const os_deadline deadline = time_limit_deadline(limit);
    if (os_deadline_passed(deadline)) {
        return status_fail(GPUIPC_ERR_TIMEOUT, "%s", what);
    }
    os_pause(begun_ns, CHANNEL_PAUSE_MS, deadline);
    return GPUIPC_OK;
}

/* The writer has ended, or has ended the channel. Contents may still have come before. */
static bool is_given_up(subscription *self, uint32_t slot) {
    return subscription_is_writer_gone(self) || subscription_is_lost(self, slot);
}

/* On the host. ERR_LOST: they will never be there */
static gpuipc_status await_contents(subscription *self, uint32_t slot, time_limit *limit) {
    const point_word ready = channel_ready_word(self->page, slot, self->frames[slot].number);
    const uint64_t begun_ns = os_clock_ns();
    gpuipc_status status = GPUIPC_OK;
    while (status == GPUIPC_OK && !point_is_reached(&ready)) {
        status = is_given_up(self, slot) && !point_is_reached(&ready)
                     ? subscription_tell_lost(self)
                     : pause_for(self, "the frame was not ready in time", begun_ns, limit);
    }
    return status;
}

/* A writer that is never ready, and goes on, does not fill the queues of this reader's streams. */
static gpuipc_status await_streams(const subscription *self, trail_stream *by, time_limit *limit) {
    gpuipc_status status = GPUIPC_OK;
    uint64_t begun_ns = 0;
    while (status == GPUIPC_OK && trail_is_far_behind(self->page->trail)) {
        trail_stream_rest(by);
        begun_ns = begun_ns == 0 ? os_clock_ns() : begun_ns;
        status =
            pause_for(self, "this reader's streams are too far behind the host", begun_ns, limit);
    }
    return status;
}

static gpuipc_status wait_on_stream(const subscription *self, uint32_t slot, trail_stream *by) {
    const point_word awaited = channel_awaited_word(self->page, slot, self->frames[slot].number);
    return trail_wait(self->page->trail, slot, &awaited, &awaited, 1, by);
}

/* Whose frame has just come is early: mostly the contents are there, and the writer's stream is about to say so. To look takes
 * less than to let a stream wait. */
static void look_for_contents(const point_word *ready) {
    const uint64_t begun_ns = os_clock_ns();
    while (!point_is_reached(ready) && os_clock_ns() - begun_ns < CONTENTS_NS) {
    }
}

/* @param words of a kernel, which waits itself; NULL: there is none */
static gpuipc_status wait_for_contents(subscription *self, uint32_t slot, trail_stream *by,
                                       subscription_words *words, time_limit *limit) {
    const point_word ready = channel_ready_word(self->page, slot, self->frames[slot].number);
    const bool was_ready = self->frames[slot].was_ready;
    gpuipc_status status = GPUIPC_OK;
    if (!was_ready && by->has_rested && words == NULL && !point_is_reached(&ready)) {
        look_for_contents(&ready);
    }
    if (!was_ready && !point_is_reached(&ready)) {
        if ((!by->can_wait && words == NULL) || is_given_up(self, slot)) {
            status = await_contents(self, slot, limit);
        } else if (words == NULL) {
            status = wait_on_stream(self, slot, by);
        }
    }
    return status == GPUIPC_OK && words != NULL ? subscription_kernel_begin(self, slot, by, words)
                                                : status;
}

/* ---- take -------------------------------------------------------------------------------------- */

static gpuipc_status check_held(const subscription *self) {
    const uint32_t held = subscription_count_held(self);
    return held >= self->max_held
               ? status_fail(GPUIPC_ERR_LIMIT,
                             "%u frames are taken, which is what this reader may have at a time",
                             held)
               : GPUIPC_OK;
}

/* The caller's from now on. */
static void hand_out(subscription *self, uint32_t slot, gpuipc_frame *out_frame) {
    subscription_frame *frame = &self->frames[slot];
    frame->take = ++self->takes;
    frame->public_part.id = frame->take << 8 | slot;
    struct_size_write(out_frame, &frame->public_part, sizeof(frame->public_part));
    subscription_set_taken(self, slot, true);
}

/* One that was ready never is given back unseen, and the next is looked for. A writer leaves as many as there are slots, when it
 * ends: one that goes on saying so of others would keep this call from its deadline. */
static gpuipc_status take_whole(subscription *self, trail_stream *by, subscription_words *words,
                                time_limit *limit, gpuipc_frame *out_frame) {
    uint32_t slot = self->pending;
    uint32_t lost = 0;
    gpuipc_status status;
    do {
        status = self->has_pending ? GPUIPC_OK : subscription_await_next(self, by, limit, &slot);
        self->has_pending = false;
        if (status != GPUIPC_OK) {
            return status;
        }
        status = await_streams(self, by, limit);
        if (status == GPUIPC_OK) {
            status = wait_for_contents(self, slot, by, words, limit);
        }
        if (status == GPUIPC_ERR_LOST) {
            subscription_return_now(self, slot, self->frames[slot].number);
            lost++;
        }
    } while (status == GPUIPC_ERR_LOST && lost <= self->slots);
    if (status == GPUIPC_ERR_LOST) {
        return status_fail(GPUIPC_ERR_PROTOCOL,
                           "the writer says of more frames than it has slots that they are lost");
    }
    if (status == GPUIPC_OK) {
        hand_out(self, slot, out_frame);
    } else {
        self->has_pending = true;
        self->pending = slot;
    }
    return status;
}

/* @param by all zero: no stream */
static gpuipc_status take(subscription *self, trail_stream *by, subscription_words *words,
                          int timeout_ms, gpuipc_frame *out_frame) {
    time_limit limit;
    time_limit_begin(self->context, timeout_ms, &limit);
    if (timeout_ms != 0) {
        subscription_wait_pause(self);
    }
    return time_limit_answer(&limit, take_whole(self, by, words, &limit, out_frame));
}

/* The stream waits; the host does while the stream is too far behind. */
static gpuipc_status await_turn(subscription *self, gpuipc_stream stream, time_limit *limit) {
    const uint64_t begun_ns = os_clock_ns();
    gpuipc_status status;
    do {
        status = subscription_turn_take(self, stream);
    } while (status == GPUIPC_ERR_TIMEOUT &&
             (status = pause_for(self, "this reader's streams are too far behind the host",
                                 begun_ns, limit)) == GPUIPC_OK);
    return status;
}

static gpuipc_status take_turn(subscription *self, gpuipc_stream stream, int timeout_ms,
                               gpuipc_frame *out_frame) {
    time_limit limit;
    gpuipc_status status = ask_writer(self);
    if (status != GPUIPC_OK) {
        return status;
    }
    time_limit_begin(self->context, timeout_ms, &limit);
    status = time_limit_answer(&limit, await_turn(self, stream, &limit));
    if (status == GPUIPC_OK) {
        hand_out(self, 0, out_frame);
    }
    return status;
}

/* What is going to be looked at, while the driver is asked about the stream. */
static void prefetch_next(const subscription *self) {
    channel_prefetch(self->page, channel_offered_at(self->number + 1, CHANNEL_PLACE));
    channel_prefetch(self->page, channel_entry(self->next_slot, CHANNEL_READY));
    channel_prefetch_to_write(self->page, CHANNEL_HAVING + self->next_slot);
}

static gpuipc_status take_on(subscription *self, gpuipc_stream stream, subscription_words *words,
                             int timeout_ms, gpuipc_frame *out_frame) {
    trail_stream by = {.stream = GPUIPC_NO_STREAM};
    gpuipc_status status = check_held(self);
    if (status == GPUIPC_OK && self->has_turns) {
        return words == NULL ? take_turn(self, stream, timeout_ms, out_frame)
                             : status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                                           "in a channel of turns streams wait, and no kernels");
    }
    if (status != GPUIPC_OK || !has_stream(stream)) {
        return status == GPUIPC_OK ? take(self, &by, words, timeout_ms, out_frame) : status;
    }
    prefetch_next(self);
    status = trail_stream_enter(self->context, stream, self->buffer->access_device, &by);
    if (status == GPUIPC_OK) {
        status = take(self, &by, words, timeout_ms, out_frame);
        trail_stream_leave(&by);
    }
    return status;
}

gpuipc_status subscription_take(gpuipc_subscription *handle, gpuipc_stream stream,
                                subscription_words *words, int timeout_ms,
                                gpuipc_frame *out_frame) {
    subscription *self;
    if (timeout_ms < -1) {
        return status_bad_timeout(timeout_ms);
    }
    gpuipc_status status =
        struct_size_check(out_frame, STRUCT_SIZE_UP_TO(gpuipc_frame, header_bytes));
    if (status != GPUIPC_OK || (status = subscription_acquire(handle, &self)) != GPUIPC_OK) {
        return status;
    }
    if (os_mutex_try_lock(&self->taking)) {
        status = atomic_load(&self->is_over)
                     ? status_fail(GPUIPC_ERR_RELEASED, "the subscription was closed meanwhile")
                     : take_on(self, stream, words, timeout_ms, out_frame);
        subscription_wait_settle(self);
        os_mutex_unlock(&self->taking);
    } else {
        status = status_fail(GPUIPC_ERR_BUSY, "another thread is taking from it");
    }
    object_unreference(&self->object);
    return status;
}

gpuipc_status gpuipc_subscription_take(gpuipc_subscription *handle, gpuipc_stream stream,
                                       int timeout_ms, gpuipc_frame *out_frame) {
    status_enter(__func__);
    return subscription_take(handle, stream, NULL, timeout_ms, out_frame);
}

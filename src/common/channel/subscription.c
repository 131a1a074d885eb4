/* SPDX-License-Identifier: MIT */
/** @file See subscription.h: taking frames. */
#include "channel/subscription.h"

#include <string.h>

#include "base/struct_size.h"
#include "sync/trail.h"

/* Frames that were withdrawn one after the other: then the caller looks at its deadline. */
#define TRIES_MAX 64
/* So often for a frame before anything else, which is less than a microsecond. */
#define LOOKS 256u
/* So long for the contents of a frame that was waited for: a stream that has nothing else to do writes a word in some 3 us. */
#define CONTENTS_NS UINT64_C(5000)
/* Who sleeps looks so often whether the writer lives. */
#define SLICE_MS 50u
#define LOOK_NS  UINT64_C(10000000)

static bool has_stream(gpuipc_stream stream) {
    return stream != GPUIPC_NO_STREAM;
}

/* ---- looking ----------------------------------------------------------------------------------- */

bool subscription_find(const subscription *self, uint64_t *out_number, uint32_t *out_slot) {
    const bool takes_all = self->delivery == GPUIPC_DELIVERY_ALL;
    const uint64_t number = takes_all ? self->number + 1 : channel_read(self->page, CHANNEL_TAIL);
    const uint64_t place = channel_read(self->page, channel_offered_at(number, CHANNEL_PLACE));
    const uint64_t slot = place & 255u;
    if (slot >= self->slots || place >> 8 != number || number <= self->number) {
        return false;
    }
    *out_number = number;
    *out_slot = (uint32_t)slot;
    return true;
}

/* Asks the system now and then. */
static bool is_writer_gone(subscription *self) {
    const uint64_t now_ns = os_clock_ns();
    if (!self->is_writer_gone && now_ns - self->looked_ns > LOOK_NS) {
        self->looked_ns = now_ns;
        self->is_writer_gone = point_page_is_abandoned(self->page);
    }
    return self->is_writer_gone;
}

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

/* ---- taking one -------------------------------------------------------------------------------- */

/* What the writer says of a frame. */
typedef struct offer_said {
    uint64_t sequence;
    uint64_t bytes;
    uint64_t header_bytes;
    uint64_t was_ready;
    uint64_t begins[CHANNEL_BEGINS_WORDS]; /* the header */
} offer_said;

/* Each word read once. */
static offer_said read_offer(const point_page *page, uint64_t number) {
    return (offer_said){
        .sequence = channel_read(page, channel_offered_at(number, CHANNEL_SEQUENCE)),
        .bytes = channel_read(page, channel_offered_at(number, CHANNEL_USED)),
        .header_bytes = channel_read(page, channel_offered_at(number, CHANNEL_HEADER)),
        .was_ready = channel_read(page, channel_offered_at(number, CHANNEL_WAS_READY)),
        .begins = {channel_read(page, channel_offered_at(number, CHANNEL_BEGINS)),
                   channel_read(page, channel_offered_at(number, CHANNEL_BEGINS + 1)),
                   channel_read(page, channel_offered_at(number, CHANNEL_BEGINS + 2))}};
}

/* False when it cannot be. */
static bool read_frame(subscription *self, uint32_t slot, const offer_said *said) {
    subscription_frame *frame = &self->frames[slot];
    const point_page *page = self->page;
    if (said->bytes > self->slot_bytes || said->header_bytes > self->header_bytes ||
        said->sequence <= self->sequence) {
        return false;
    }
    for (uint32_t i = 0; i < (said->header_bytes + 7) / 8; i++) {
        frame->header[i] = i < CHANNEL_BEGINS_WORDS
                               ? said->begins[i]
                               : atomic_load_explicit(&page->words[channel_header_at(slot, i)],
                                                      memory_order_relaxed);
    }
    frame->was_ready = said->was_ready == 1;
    frame->public_part =
        (gpuipc_frame){.struct_size = sizeof(gpuipc_frame),
                       .address = buffer_address(self->buffer, slot * self->slot_bytes),
                       .capacity = self->slot_bytes,
                       .bytes = said->bytes,
                       .sequence = said->sequence,
                       .missed = said->sequence - self->sequence - 1,
                       .header = said->header_bytes > 0 ? frame->header : NULL,
                       .header_bytes = (size_t)said->header_bytes};
    self->sequence = said->sequence;
    return true;
}

/* The writer has a slot back before the host is through with giving it back, or with saying that a kernel did: then who
 * takes its next frame waits for that thread. */
static bool is_still_taken(subscription *self, uint32_t slot) {
    if (!subscription_has_taken(self, slot)) {
        return false;
    }
    os_mutex_lock(&self->mutex);
    const bool is_taken = subscription_has_taken(self, slot);
    os_mutex_unlock(&self->mutex);
    return is_taken;
}

/* Of one that takes all, nothing is withdrawn before its end, which it learns from its next call. */
static bool claim(const subscription *self, uint32_t slot, uint64_t number) {
    channel_say(self->page, slot, number, CHANNEL_TAKEN);
    if (self->delivery == GPUIPC_DELIVERY_ALL || channel_still_stands(self->page, slot, number)) {
        return true;
    }
    channel_say(self->page, slot, number, CHANNEL_DECLINED);
    subscription_wake_writer(self);
    return false;
}

/* ERR_TIMEOUT: there is none now. A writer that withdraws one after the other does not keep it from its deadline. */
static gpuipc_status take_next(subscription *self, uint32_t *out_slot) {
    uint64_t number;
    uint32_t slot;
    for (int tries = 0; tries < TRIES_MAX && subscription_find(self, &number, &slot); tries++) {
        if (is_still_taken(self, slot)) {
            return status_fail(GPUIPC_ERR_LIMIT,
                               "the next frame is in the slot of one that is still taken: give "
                               "that back first, or say that its kernel was launched");
        }
        const offer_said said = read_offer(self->page, number);
        self->number = number;
        if (!claim(self, slot, number)) {
            continue; /* withdrawn, for a newer one */
        }
        self->frames[slot].number = number;
        if (!read_frame(self, slot, &said)) {
            subscription_return_now(self, slot, number);
            return status_fail(GPUIPC_ERR_PROTOCOL, "the writer says of a frame what cannot be");
        }
        self->looking_since_ns = 0;
        self->next_slot = (slot + 1) % self->slots;
        *out_slot = slot;
        return GPUIPC_OK;
    }
    return GPUIPC_ERR_TIMEOUT;
}

/* About to sleep, unless there is news. @return whether the writer rang: it has published, or is about to */
GPUIPC_COLD static bool sleep_a_while(const subscription *self, os_deadline deadline) {
    const int left = os_deadline_slice_ms(deadline);
    uint64_t number;
    uint32_t slot;
    channel_will_sleep(self->page, CHANNEL_READER_SLEEPS);
    if (!subscription_find(self, &number, &slot) && !atomic_load(&self->is_over) &&
        channel_read(self->page, CHANNEL_END) == CHANNEL_IS_ON) {
        os_bell_wait(&self->reader_bell, &self->page->words[CHANNEL_READER_SLEEPS],
                     left < 0 || (unsigned)left > SLICE_MS ? SLICE_MS : (unsigned)left);
    }
    return channel_read(self->page, CHANNEL_READER_SLEEPS) == 0;
}

/* What was published before the end is there when the end is seen: so it is looked for again behind that. */
static gpuipc_status take_or_tell_end(subscription *self, uint32_t *out_slot) {
    gpuipc_status status = take_next(self, out_slot);
    if (status != GPUIPC_ERR_TIMEOUT) {
        return status;
    }
    const uint64_t end = channel_read(self->page, CHANNEL_END);
    if (end == CHANNEL_IS_ON && !is_writer_gone(self)) {
        return status;
    }
    status = take_next(self, out_slot);
    return status == GPUIPC_ERR_TIMEOUT ? subscription_tell_end(end) : status;
}

/* A look at the clock, and at whether the writer lives, takes as long as dozens of looks for a frame, which may come
 * meanwhile. */
static void look_for_frame(const subscription *self) {
    uint64_t number;
    uint32_t slot;
    for (unsigned looks = 0; looks < LOOKS && !subscription_find(self, &number, &slot); looks++) {
    }
}

/* Until there is one. Who is out of time and calls again goes on looking, or sleeping. */
static gpuipc_status await_frame(subscription *self, trail_stream *by, time_limit *limit,
                                 uint32_t *out_slot) {
    gpuipc_status status = take_next(self, out_slot);
    if (status != GPUIPC_ERR_TIMEOUT) {
        return status;
    }
    if (self->looking_since_ns == 0) {
        self->looking_since_ns = os_clock_ns();
    }
    trail_stream_rest(by);
    while ((status = take_or_tell_end(self, out_slot)) == GPUIPC_ERR_TIMEOUT) {
        if (atomic_load(&self->is_over)) {
            return status_fail(GPUIPC_ERR_RELEASED, "the subscription was closed meanwhile");
        }
        if (os_deadline_passed(time_limit_deadline(limit))) {
            return status_fail(GPUIPC_ERR_TIMEOUT, "there was no frame in time");
        }
        if (os_clock_ns() - self->looking_since_ns > self->look_ns &&
            sleep_a_while(self, time_limit_deadline(limit))) {
            self->looking_since_ns = os_clock_ns();
        }
        look_for_frame(self);
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
    if (os_deadline_passed(time_limit_deadline(limit))) {
        return status_fail(GPUIPC_ERR_TIMEOUT, "%s", what);
    }
    channel_pause(begun_ns);
    return GPUIPC_OK;
}

/* The writer has ended, or has ended the channel. Contents may still have come before. */
static bool is_given_up(subscription *self, uint32_t slot) {
    return is_writer_gone(self) || subscription_is_lost(self, slot);
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
    *out_frame = frame->public_part;
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
        status = self->has_pending ? GPUIPC_OK : await_frame(self, by, limit, &slot);
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
    gpuipc_frame frame;
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
                     : take_on(self, stream, words, timeout_ms, &frame);
        subscription_wait_settle(self);
        os_mutex_unlock(&self->taking);
    } else {
        status = status_fail(GPUIPC_ERR_BUSY, "another thread is taking from it");
    }
    if (status == GPUIPC_OK) {
        struct_size_write(out_frame, &frame, sizeof(frame));
    }
    object_unreference(&self->object);
    return status;
}

gpuipc_status gpuipc_subscription_take(gpuipc_subscription *handle, gpuipc_stream stream,
                                       int timeout_ms, gpuipc_frame *out_frame) {
    status_enter(__func__);
    return subscription_take(handle, stream, NULL, timeout_ms, out_frame);
}

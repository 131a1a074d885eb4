/* SPDX-License-Identifier: MIT */
/** @file See subscription.h: the next frame for a reader, which it looks for, sleeps for, and claims. */
#include "channel/subscription.h"

/* Frames that were withdrawn one after the other: then the caller looks at its deadline. */
#define TRIES_MAX 64
/* So often for a frame before anything else, which is less than a microsecond. */
#define LOOKS 256u
/* Who sleeps looks so often whether the writer lives. */
#define SLICE_MS 50u
#define LOOK_NS  UINT64_C(10000000)

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

bool subscription_is_writer_gone(subscription *self) {
    const uint64_t now_ns = os_clock_coarse_ns();
    if (!self->is_writer_gone && now_ns - self->looked_ns > LOOK_NS) {
        self->looked_ns = now_ns;
        self->is_writer_gone = point_page_is_abandoned(self->page);
    }
    return self->is_writer_gone;
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
    if (end == CHANNEL_IS_ON && !subscription_is_writer_gone(self)) {
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

gpuipc_status subscription_await_next(subscription *self, trail_stream *by, time_limit *limit,
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

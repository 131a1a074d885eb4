/* SPDX-License-Identifier: MIT */
/** @file See channel.h: the readers that a channel has: what they are offered, whether they are there, and their end. */
#include <string.h>

#include "channel/channel.h"

static uint32_t bit_of(const channel *self, const channel_reader *reader) {
    return UINT32_C(1) << (reader - self->readers);
}

/* ---- offering ---------------------------------------------------------------------------------- */

/* Its last word may be used in part. */
static void write_header(const point_page *page, const channel_slot *of, uint32_t slot) {
    for (uint32_t i = 0; (size_t)i * 8 < of->header_bytes; i++) {
        const size_t at = (size_t)i * 8;
        const size_t rest = of->header_bytes - at;
        uint64_t word = 0;
        memcpy(&word, of->header + at, rest < 8 ? rest : 8);
        if (i < CHANNEL_BEGINS_WORDS) {
            channel_write(page, channel_offered_at(of->number, CHANNEL_BEGINS + i), word);
        } else {
            atomic_store_explicit(&page->words[channel_header_at(slot, i)], word,
                                  memory_order_relaxed);
        }
    }
}

void channel_offer(channel *self, channel_reader *reader, uint32_t slot, bool is_ready) {
    channel_slot *of = &self->slots[slot];
    const point_page *page = reader->page;
    const uint64_t number = of->number;
    const bool is_newest = reader->delivery == GPUIPC_DELIVERY_NEWEST;
    if (is_newest) { /* its reader may be at the offer that was here */
        channel_write(page, channel_offered_at(number, CHANNEL_PLACE), 0);
    }
    channel_write(page, channel_offered_at(number, CHANNEL_SEQUENCE), of->sequence);
    channel_write(page, channel_offered_at(number, CHANNEL_USED), of->bytes);
    channel_write(page, channel_offered_at(number, CHANNEL_HEADER), of->header_bytes);
    channel_write(page, channel_offered_at(number, CHANNEL_WAS_READY), is_ready);
    write_header(page, of, slot);
    channel_write(page, channel_offered_at(number, CHANNEL_PLACE), channel_place(number, slot));
    of->holders |= bit_of(self, reader);
    if (is_newest) {
        channel_write(page, CHANNEL_TAIL, number);
    }
}

/* Who takes the newest has passed over all that it was offered before. */
static bool is_passed_over(const channel *self, const channel_reader *reader, uint64_t number) {
    return reader->delivery == GPUIPC_DELIVERY_NEWEST && number != self->told;
}

/* ---- the end of a reader ----------------------------------------------------------------------- */

void channel_reader_end(channel *self, channel_reader *reader, gpuipc_reader_state why) {
    const uint32_t bit = bit_of(self, reader);
    if (why == GPUIPC_READER_DROPPED) {
        channel_write(reader->page, CHANNEL_END, CHANNEL_DROPPED);
    }
    for (uint32_t i = 0; i < self->config.slots; i++) {
        channel_slot *slot = &self->slots[i];
        slot->awaited &= ~bit;
        slot->loan_awaits &= ~bit;
        if ((slot->holders & bit) != 0) {
            /* what it has not taken it does not take any more, and a stream may wait for the rest */
            const bool has_declined = channel_says(reader->page, i, slot->number, CHANNEL_DECLINED);
            reader->passed_over +=
                has_declined || (channel_withdraw(reader->page, i, slot->number) &&
                                 is_passed_over(self, reader, slot->number));
            const point_word returned = channel_returned_word(reader->page, i, slot->number);
            point_raise(&returned);
            slot->holders &= ~bit;
        }
    }
    atomic_store(&reader->page->is_given_up, true);
    if (self->config.turns != 0) {
        turn_let_go(reader->page, TURN_FREE);
    }
    GPUIPC_FULL_FENCE();
    channel_wake(reader->page, CHANNEL_READER_SLEEPS, &reader->reader_bell);
    os_bell_close(&reader->reader_bell);
    os_bell_close(&reader->writer_bell);
    point_page_unreference(reader->page, false);
    reader->page = NULL;
    reader->state = why;
}

/* Of one that has closed, what its streams have not returned is still its own. */
static bool has_nothing(const channel *self, const channel_reader *reader) {
    const uint32_t bit = bit_of(self, reader);
    for (uint32_t i = 0; i < self->config.slots; i++) {
        const channel_slot *slot = &self->slots[i];
        const point_word returned = channel_returned_word(reader->page, i, slot->number);
        const point_word awaited = channel_returned_word(reader->page, i, slot->awaited_number);
        if ((slot->holders & bit) != 0 && !point_is_reached(&returned) &&
            channel_says(reader->page, i, slot->number, CHANNEL_GIVEN)) {
            return false;
        }
        if ((slot->awaited & bit) != 0 && !point_is_reached(&awaited)) {
            return false; /* another frame was offered in the slot meanwhile */
        }
    }
    return true;
}

bool channel_look_at_readers(channel *self) {
    bool are_any = false;
    self->looked_ns = os_clock_ns();
    for (uint32_t i = 0; i < self->places; i++) {
        channel_reader *reader = &self->readers[i];
        if (reader->page == NULL) {
            continue;
        }
        if (point_page_is_abandoned(reader->page)) {
            channel_reader_end(self, reader, GPUIPC_READER_ENDED);
        } else if (channel_read(reader->page, CHANNEL_LEFT) != 0 && has_nothing(self, reader)) {
            channel_reader_end(self, reader, GPUIPC_READER_CLOSED);
        } else {
            are_any = true;
        }
    }
    return are_any;
}

/* The pages of all readers, with a reference on each. The mutex is held. */
static size_t reference_pages(const channel *self, point_page *pages[GPUIPC_CHANNEL_READERS_MAX]) {
    size_t count = 0;
    for (uint32_t i = 0; i < self->places; i++) {
        if (self->readers[i].page != NULL) {
            point_page_reference(self->readers[i].page);
            pages[count++] = self->readers[i].page;
        }
    }
    return count;
}

/* What the system says of a process takes a call, during which the writer would wait. */
static bool is_any_abandoned(point_page *const *pages, size_t count) {
    bool is_any = false;
    for (size_t i = 0; i < count; i++) {
        is_any |= point_page_is_abandoned(pages[i]);
        point_page_unreference(pages[i], false);
    }
    return is_any;
}

/* Of those that go by themselves no system is asked. The mutex is held. @return whether there are any more */
static bool look_who_closed(channel *self) {
    bool are_any = false;
    for (uint32_t i = 0; i < self->places; i++) {
        channel_reader *reader = &self->readers[i];
        if (reader->page != NULL && channel_read(reader->page, CHANNEL_LEFT) != 0 &&
            has_nothing(self, reader)) {
            channel_reader_end(self, reader, GPUIPC_READER_CLOSED);
        }
        are_any |= reader->page != NULL;
    }
    return are_any;
}

bool channel_readers_look(object *of) {
    channel *self = (channel *)of;
    point_page *pages[GPUIPC_CHANNEL_READERS_MAX];
    if (!channel_try_lock(self)) {
        return false;
    }
    const size_t count = reference_pages(self, pages);
    os_mutex_unlock(&self->mutex);
    const bool is_any_gone = is_any_abandoned(pages, count);
    if (!channel_try_lock(self)) {
        return false;
    }
    const bool are_any = is_any_gone ? channel_look_at_readers(self) : look_who_closed(self);
    os_mutex_unlock(&self->mutex);
    return !are_any;
}

void channel_readers_end(channel *self, bool forked) {
    for (uint32_t i = 0; i < self->places; i++) {
        channel_reader *reader = &self->readers[i];
        if (reader->page == NULL) {
            continue;
        }
        if (!forked) {
            channel_write(reader->page, CHANNEL_END, CHANNEL_HAS_ENDED);
            if (self->config.turns != 0) {
                turn_page_end(reader->page);
            }
            GPUIPC_FULL_FENCE();
            channel_wake(reader->page, CHANNEL_READER_SLEEPS, &reader->reader_bell);
            os_bell_close(&reader->reader_bell);
            os_bell_close(&reader->writer_bell);
        }
        point_page_unreference(reader->page, forked);
        reader->page = NULL;
    }
}

/* ---- who they are ------------------------------------------------------------------------------ */

/* What a reader has of a slot. */
typedef enum reader_has {
    READER_HAS_NOTHING,
    READER_HAS_PASSED_OVER, /* it was offered the frame, and does not take it any more */
    READER_HAS_OFFER,
    READER_HAS_FRAME /* it has taken the frame, whatever it wrote */
} reader_has;

static reader_has look_at_reader(const channel *self, const channel_reader *reader, uint32_t at) {
    const channel_slot *slot = &self->slots[at];
    const point_word returned = channel_returned_word(reader->page, at, slot->number);
    if ((slot->holders & bit_of(self, reader)) == 0 || point_is_reached(&returned)) {
        return READER_HAS_NOTHING;
    }
    const uint64_t said = channel_said(reader->page, at);
    if (said == channel_having_of(slot->number, CHANNEL_DECLINED)) {
        return READER_HAS_PASSED_OVER;
    }
    if (said >> 2 != slot->number) {
        return is_passed_over(self, reader, slot->number) ? READER_HAS_PASSED_OVER
                                                          : READER_HAS_OFFER;
    }
    return said == channel_having_of(slot->number, CHANNEL_GIVEN) ? READER_HAS_NOTHING
                                                                  : READER_HAS_FRAME;
}

uint64_t channel_list_held(const channel *self, const channel_reader *reader) {
    uint64_t held = 0;
    for (uint32_t i = 0; reader->page != NULL && i < self->config.slots; i++) {
        held |= (uint64_t)(look_at_reader(self, reader, i) == READER_HAS_FRAME) << i;
    }
    return held;
}

/* @return frames that it was offered, and that it has passed over since */
static uint32_t count_held(const channel *self, const channel_reader *reader, uint32_t *out_lag,
                           uint32_t *out_held) {
    uint32_t counts[READER_HAS_FRAME + 1] = {0};
    for (uint32_t i = 0; reader->page != NULL && i < self->config.slots; i++) {
        counts[look_at_reader(self, reader, i)]++;
    }
    *out_lag = counts[READER_HAS_OFFER];
    *out_held = counts[READER_HAS_FRAME];
    return counts[READER_HAS_PASSED_OVER];
}

static gpuipc_reader_info describe(const channel *self, const channel_reader *reader) {
    gpuipc_reader_info info = {.process_id = reader->process_id,
                               .since_ms = reader->since_ms,
                               .passed_over = reader->passed_over,
                               .state = reader->state,
                               .delivery = (uint32_t)reader->delivery,
                               .captured = reader->captured};
    if (self->config.turns == 0) {
        info.passed_over += count_held(self, reader, &info.lag, &info.held);
    } else {
        info.held = reader->page != NULL && !turn_is_free(reader->page);
    }
    return info;
}

gpuipc_status gpuipc_channel_readers(gpuipc_channel *handle, gpuipc_reader_info *readers,
                                     size_t capacity, size_t *out_count) {
    status_enter(__func__);
    channel *self;
    if (out_count == NULL || (readers == NULL && capacity > 0)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "out_count is NULL, or readers although capacity is not 0");
    }
    gpuipc_status status = channel_acquire(handle, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    os_mutex_lock(&self->mutex);
    (void)channel_look_at_readers(self);
    for (uint32_t i = 0; i < self->places; i++) {
        if (i < capacity) {
            readers[i] = describe(self, &self->readers[i]);
        }
    }
    const size_t count = self->places;
    os_mutex_unlock(&self->mutex);
    object_unreference(&self->object);
    *out_count = count;
    return count <= capacity
               ? GPUIPC_OK
               : status_fail(GPUIPC_ERR_TOO_SMALL, "there are %zu readers; there is room for %zu",
                             count, capacity);
}

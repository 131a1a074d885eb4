/* SPDX-License-Identifier: MIT */
/** @file See channel.h: loans, and what is published. */
#include <inttypes.h>
#include <string.h>

#include "base/struct_size.h"
#include "channel/channel.h"
#include "sync/trail.h"

static bool has_stream(gpuipc_stream stream) {
    return stream != GPUIPC_NO_STREAM;
}

/* ---- loans ------------------------------------------------------------------------------------- */

/* The caller's from now on. */
static void hand_out(channel *self, uint32_t at, gpuipc_frame *out_frame) {
    channel_slot *slot = &self->slots[at];
    slot->is_on_loan = true;
    slot->is_intact = false;
    slot->loan = ++self->loans;
    out_frame->id = slot->loan << 8 | at;
    out_frame->address = buffer_address(self->buffer, at * self->config.slot_bytes);
    out_frame->capacity = self->config.slot_bytes;
    out_frame->bytes = self->config.slot_bytes;
}

static gpuipc_status loan_turn(channel *self, gpuipc_stream stream, time_limit *limit,
                               gpuipc_frame *out_frame) {
    channel_lock(self);
    gpuipc_status status = channel_turn_check(self);
    if (status == GPUIPC_OK) {
        hand_out(self, 0, out_frame); /* nobody else gets it meanwhile */
        status = channel_turn_loan(self, stream, time_limit_deadline(limit));
        self->slots[0].is_on_loan = status == GPUIPC_OK;
    }
    os_mutex_unlock(&self->mutex);
    return status;
}

/* @param by all zero: no stream */
static gpuipc_status loan(channel *self, trail_stream *by, time_limit *limit,
                          gpuipc_frame *out_frame) {
    slot_search what = {.by = by};
    gpuipc_status status = channel_await_slot(self, &what, limit);
    if (status == GPUIPC_OK) {
        status = channel_await_readers(self, &what);
    }
    if (status == GPUIPC_OK) {
        hand_out(self, what.slot, out_frame);
    }
    return status;
}

static gpuipc_status loan_on_stream(channel *self, gpuipc_stream stream, time_limit *limit,
                                    gpuipc_frame *out_frame) {
    trail_stream by;
    gpuipc_status status =
        trail_stream_enter(self->context, stream, self->buffer->access_device, &by);
    if (status == GPUIPC_OK) {
        status = loan(self, &by, limit, out_frame);
        trail_stream_leave(&by);
    }
    return status;
}

static gpuipc_status loan_on(channel *self, gpuipc_stream stream, time_limit *limit,
                             gpuipc_frame *out_frame) {
    trail_stream none = {.stream = GPUIPC_NO_STREAM};
    gpuipc_status status;
    if (self->config.turns != 0) {
        return loan_turn(self, stream, limit, out_frame);
    }
    channel_lock(self);
    channel_prefetch_oldest(self, has_stream(stream));
    status = has_stream(stream) ? loan_on_stream(self, stream, limit, out_frame)
                                : loan(self, &none, limit, out_frame);
    os_mutex_unlock(&self->mutex);
    return status;
}

gpuipc_status gpuipc_channel_loan(gpuipc_channel *handle, gpuipc_stream stream, int timeout_ms,
                                  gpuipc_frame *out_frame) {
    status_enter(__func__);
    gpuipc_frame frame = {.struct_size = sizeof(frame)};
    time_limit limit;
    channel *self;
    if (timeout_ms < -1) {
        return status_bad_timeout(timeout_ms);
    }
    gpuipc_status status =
        struct_size_check(out_frame, STRUCT_SIZE_UP_TO(gpuipc_frame, header_bytes));
    if (status != GPUIPC_OK || (status = channel_acquire(handle, &self)) != GPUIPC_OK) {
        return status;
    }
    time_limit_begin(self->context, timeout_ms, &limit);
    status = time_limit_answer(&limit, loan_on(self, stream, &limit, &frame));
    if (status == GPUIPC_OK) {
        struct_size_write(out_frame, &frame, sizeof(frame));
    }
    object_unreference(&self->object);
    return status;
}

/* ---- what is published ------------------------------------------------------------------------- */

gpuipc_status channel_find_loan(channel *self, const gpuipc_frame *frame, uint32_t *out_slot) {
    const uint64_t slot = frame->id & 255u;
    if (slot >= self->config.slots || !self->slots[slot].is_on_loan ||
        self->slots[slot].loan != frame->id >> 8) {
        return status_fail(
            GPUIPC_ERR_INVALID_ARGUMENT,
            "the frame is not on loan: it was published, or discarded, or is another "
            "channel's");
    }
    *out_slot = (uint32_t)slot;
    return GPUIPC_OK;
}

gpuipc_status channel_check_frame(const channel *self, const gpuipc_frame *frame) {
    if (frame->bytes > self->config.slot_bytes) {
        return status_fail(GPUIPC_ERR_OUT_OF_RANGE,
                           "the frame has %" PRIu64 " bytes, a slot %" PRIu64, frame->bytes,
                           self->config.slot_bytes);
    }
    if (frame->header_bytes > self->config.header_bytes) {
        return status_fail(GPUIPC_ERR_LIMIT,
                           "the header has %zu bytes; the channel has room for %u",
                           frame->header_bytes, self->config.header_bytes);
    }
    return frame->header == NULL && frame->header_bytes > 0
               ? status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                             "header is NULL although its size is not 0")
               : GPUIPC_OK;
}

size_t channel_list_words(const channel *self, uint32_t slot, uint64_t value, point_word *words) {
    size_t count = 0;
    for (uint32_t i = 0; i < self->places; i++) {
        if (self->readers[i].page != NULL) {
            words[count++] =
                (point_word){self->readers[i].page, channel_entry(slot, CHANNEL_READY), value};
        }
    }
    return count;
}

/* On success trail_turn_end() is owed. */
static gpuipc_status write_on_stream(channel *self, uint32_t at, uint64_t number, trail_stream *by,
                                     trail_turn *turn) {
    point_word words[GPUIPC_CHANNEL_READERS_MAX];
    const size_t count = channel_list_words(self, at, channel_ready_value(number), words);
    gpuipc_status status = trail_turn_begin(self->trail, TRAIL_WRITE, at, by, turn);
    if (status == GPUIPC_OK && (status = trail_turn_write(turn, words, count)) != GPUIPC_OK) {
        trail_turn_cancel(turn);
    }
    return status;
}

/* Whether a reader that the stream of this loan waits for may still have the frame before. */
static bool is_awaited(const channel *self, uint32_t at) {
    const channel_slot *slot = &self->slots[at];
    bool is_any_away = false;
    for (uint32_t i = 0; i < self->places && !is_any_away; i++) {
        if ((slot->loan_awaits >> i & 1u) != 0) {
            const point_word returned =
                channel_returned_word(self->readers[i].page, at, slot->awaited_number);
            is_any_away = !point_is_reached(&returned);
        }
    }
    return is_any_away;
}

static gpuipc_status passes_soon(channel *self, trail_use use, uint32_t at) {
    return trail_passes_soon(self->trail, use, at)
               ? GPUIPC_OK
               : status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                             "the frame was loaned for a stream that has not come to it: publish "
                             "it on that stream, or wait for the stream first");
}

/* Whether it may be published without a stream: the one that it was loaned for has waited for readers, or they are back. */
static gpuipc_status check_readers(channel *self, uint32_t at) {
    return is_awaited(self, at) ? passes_soon(self, TRAIL_WAIT, at) : GPUIPC_OK;
}

/* Without a stream. One that published in this slot before would write its number over a later one. */
static gpuipc_status write_now(channel *self, uint32_t at, uint64_t number) {
    const gpuipc_status status = passes_soon(self, TRAIL_WRITE, at);
    if (status != GPUIPC_OK) {
        return status;
    }
    point_word words[GPUIPC_CHANNEL_READERS_MAX];
    const size_t count = channel_list_words(self, at, channel_ready_value(number), words);
    for (size_t i = 0; i < count; i++) {
        point_store(&words[i]);
    }
    return GPUIPC_OK;
}

static void wake_readers(channel *self) {
    for (uint32_t i = 0; i < self->places; i++) {
        channel_reader *reader = &self->readers[i];
        if (reader->page != NULL) {
            channel_wake(reader->page, CHANNEL_READER_SLEEPS, &reader->reader_bell);
        }
    }
}

/* To wake takes longer than the stream is told in, and who was woken looks out for the frame for a while. Several would be
 * woken one after the other, and each frame came behind all of that: so they are told first. */
static void wake_only_reader(channel *self) {
    channel_reader *only = NULL;
    for (uint32_t i = 0; i < self->places; i++) {
        channel_reader *reader = &self->readers[i];
        if (reader->page != NULL && only != NULL) {
            return;
        }
        only = reader->page != NULL ? reader : only;
    }
    if (only != NULL) {
        channel_wake(only->page, CHANNEL_READER_SLEEPS, &only->reader_bell);
    }
}

/* The lines of all readers come at the same time, and while the driver is asked about the stream. */
static void prefetch_offers(const channel *self) {
    for (uint32_t i = 0; i < self->places; i++) {
        if (self->readers[i].page != NULL) {
            channel_prefetch_to_write(self->readers[i].page,
                                      channel_offered_at(self->number + 1, CHANNEL_PLACE));
        }
    }
}

void channel_number_frame(channel *self, uint32_t at, const gpuipc_frame *frame) {
    channel_slot *slot = &self->slots[at];
    slot->is_on_loan = false;
    slot->is_intact = true;
    slot->is_told = false;
    slot->was_returned = false;
    slot->number = ++self->number;
    list_remove(&slot->by_age);
    list_append(&self->by_age, &slot->by_age);
    slot->sequence = ++self->sequence;
    slot->bytes = frame->bytes;
    slot->holders = 0;
    slot->header_bytes = frame->header_bytes;
    if (frame->header_bytes > 0) {
        memcpy(slot->header, frame->header, frame->header_bytes);
    }
}

/* A kernel may be launched after that of a later frame, which is then the newest. */
static void tell_reader(channel *self, channel_reader *reader, uint32_t at, bool is_ready) {
    const uint64_t number = self->slots[at].number;
    if (reader->page == NULL || number <= reader->before) {
        return; /* it came when the frame had its number */
    }
    if (reader->delivery == GPUIPC_DELIVERY_NEWEST && number < self->told) {
        reader->passed_over++;
    } else {
        channel_offer(self, reader, at, is_ready);
    }
}

/* The words of all before any is woken. */
void channel_tell_of(channel *self, uint32_t at, bool is_ready) {
    channel_slot *slot = &self->slots[at];
    if (slot->is_told) {
        return;
    }
    slot->is_told = true;
    for (uint32_t i = 0; i < self->places; i++) {
        tell_reader(self, &self->readers[i], at, is_ready);
    }
    self->told = slot->number > self->told ? slot->number : self->told;
    GPUIPC_FULL_FENCE();
    wake_readers(self);
}

/* @param frame NULL: it has its number */
static gpuipc_status publish_on_stream(channel *self, uint32_t at, const gpuipc_frame *frame,
                                       gpuipc_stream stream) {
    const uint64_t number = frame != NULL ? self->number + 1 : self->slots[at].number;
    trail_turn turn;
    trail_stream by;
    if (frame != NULL) {
        wake_only_reader(self);
    }
    gpuipc_status status =
        trail_stream_enter(self->context, stream, self->buffer->access_device, &by);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = write_on_stream(self, at, number, &by, &turn);
    if (status == GPUIPC_OK) {
        if (frame != NULL) {
            channel_number_frame(self, at, frame);
        }
        channel_tell_of(self, at, false);
        trail_turn_end(&turn);
    }
    trail_stream_leave(&by);
    return status;
}

/* A kernel was to say that it is ready, and was not launched. */
static gpuipc_status publish_known(channel *self, uint32_t at, gpuipc_stream stream) {
    gpuipc_status status = has_stream(stream) ? GPUIPC_OK : check_readers(self, at);
    if (status == GPUIPC_OK) {
        status = channel_kernel_cancel(self, at, stream);
    }
    if (status == GPUIPC_OK) {
        status = has_stream(stream) ? publish_on_stream(self, at, NULL, stream)
                                    : write_now(self, at, self->slots[at].number);
    }
    if (status == GPUIPC_OK) {
        self->slots[at].is_in_kernel = false;
        channel_tell_of(self, at, true); /* unless a stream was given that it is ready */
    }
    return status;
}

/* The mutex is held. */
static gpuipc_status publish(channel *self, const gpuipc_frame *frame, gpuipc_stream stream) {
    uint32_t at = 0;
    if (channel_kernel_has(self, frame, &at)) {
        return publish_known(self, at, stream);
    }
    gpuipc_status status = channel_find_loan(self, frame, &at);
    if (status != GPUIPC_OK || (status = channel_check_frame(self, frame)) != GPUIPC_OK) {
        return status;
    }
    if (self->config.turns != 0) {
        return channel_turn_publish(self, frame, stream);
    }
    prefetch_offers(self);
    if (has_stream(stream)) {
        return publish_on_stream(self, at, frame, stream);
    }
    if ((status = check_readers(self, at)) == GPUIPC_OK) {
        status = write_now(self, at, self->number + 1);
    }
    if (status == GPUIPC_OK) {
        channel_number_frame(self, at, frame);
        channel_tell_of(self, at, true);
    }
    return status;
}

gpuipc_status gpuipc_channel_publish(gpuipc_channel *handle, const gpuipc_frame *frame,
                                     gpuipc_stream stream) {
    status_enter(__func__);
    gpuipc_frame known;
    channel *self;
    gpuipc_status status = struct_size_read(frame, STRUCT_SIZE_UP_TO(gpuipc_frame, header_bytes),
                                            &known, sizeof(known));
    if (status != GPUIPC_OK || (status = channel_acquire(handle, &self)) != GPUIPC_OK) {
        return status;
    }
    channel_lock(self);
    status = publish(self, &known, stream);
    os_mutex_unlock(&self->mutex);
    object_unreference(&self->object);
    return status;
}

gpuipc_status gpuipc_channel_discard(gpuipc_channel *handle, const gpuipc_frame *frame) {
    status_enter(__func__);
    gpuipc_frame known;
    channel *self;
    uint32_t at = 0;
    gpuipc_status status = struct_size_read(frame, STRUCT_SIZE_UP_TO(gpuipc_frame, header_bytes),
                                            &known, sizeof(known));
    if (status != GPUIPC_OK || (status = channel_acquire(handle, &self)) != GPUIPC_OK) {
        return status;
    }
    channel_lock(self);
    status = channel_find_loan(self, &known, &at);
    if (status == GPUIPC_OK) { /* what readers have not returned in stream order is still theirs */
        self->slots[at].is_on_loan = false;
        turn_clear(&self->turn, false); /* and the turn the writer's */
    }
    os_mutex_unlock(&self->mutex);
    object_unreference(&self->object);
    return status;
}

/* SPDX-License-Identifier: MIT */
/** @file See channel.h: loans, and what is published. */
#include <inttypes.h>
#include <string.h>

#include "base/struct_size.h"
#include "channel/channel.h"
#include "sync/trail.h"

/* Readers are looked at so often while a loan waits. */
#define LOOK_NS UINT64_C(10000000)
/* Who sleeps for one reader looks at the others so often. */
#define SLICE_MS 10u
/* Streams wake nobody. */
#define STREAM_SLICE_MS 1u

#define NO_SLOT UINT32_MAX

static bool has_stream(gpuipc_stream stream) {
    return stream != GPUIPC_NO_STREAM;
}

/* Whether there is a bit from that one on. */
static bool has_more(uint32_t bits, uint32_t from) {
    return from < GPUIPC_CHANNEL_READERS_MAX && bits >> from != 0;
}

/* ---- looking for a slot ------------------------------------------------------------------------ */

/* What was found. */
typedef struct search {
    trail_stream *by; /* who can wait for readers that gave back in the order of theirs */
    uint32_t slot;    /* or NO_SLOT */
    uint32_t waits;   /* a bit for each of those readers */
    channel_reader
        *holder; /* without a slot: one that has the oldest; NULL: a stream of the writer's has */
    uint32_t wanted; /* without a slot: that one; NO_SLOT: all are on loan */
} search;

/* How a reader that is among a slot's holders has it. What the reader wrote is compared, and nothing else. */
typedef enum having {
    HAS_NOT,
    HAS_BEEN_OFFERED, /* and it may be withdrawn */
    HAS_GIVEN,
    HAS
} having;

static having look_at_holder(const channel_reader *reader, uint32_t at, uint64_t number) {
    const point_word returned = channel_returned_word(reader->page, at, number);
    const uint64_t state = channel_read(reader->page, channel_entry(at, CHANNEL_STATE));
    if (point_is_reached(&returned)) {
        return HAS_NOT;
    }
    if (state == channel_state_of(number, CHANNEL_GIVEN)) {
        return HAS_GIVEN;
    }
    if (state == channel_state_of(number, CHANNEL_OFFERED) &&
        (reader->delivery == GPUIPC_DELIVERY_NEWEST ||
         channel_read(reader->page, CHANNEL_LEFT) == 1)) {
        return HAS_BEEN_OFFERED;
    }
    return HAS;
}

/* The readers that have an offer which nobody has taken lose it, unless they take it right now. */
static bool withdraw(channel *self, uint32_t at, uint32_t offered) {
    channel_slot *slot = &self->slots[at];
    bool all = true;
    for (uint32_t i = 0; has_more(offered, i); i++) {
        channel_reader *reader = &self->readers[i];
        if ((offered >> i & 1u) == 0) {
            continue;
        }
        if (channel_change(reader->page, at, slot->number, CHANNEL_OFFERED, CHANNEL_WITHDRAWN)) {
            slot->holders &= ~(UINT32_C(1) << i);
            reader->passed_over++;
        } else {
            all = false;
        }
    }
    return all;
}

/* Whether the stream of the latest publication has come to it, or it need not: what the same stream is given next comes
 * behind it. But not where nobody has seen that frame: who publishes for the newest would be ahead of it without end. */
static bool is_written(channel *self, uint32_t at, trail_stream *by) {
    const channel_slot *slot = &self->slots[at];
    return !slot->is_in_kernel &&
           ((slot->was_returned && trail_is_of(self->trail, TRAIL_WRITE, at, by)) ||
            trail_has_passed(self->trail, TRAIL_WRITE, at));
}

/* @param out_holder who has it, when it is not free */
static bool is_free(channel *self, uint32_t at, const search *what, uint32_t *out_waits,
                    channel_reader **out_holder) {
    channel_slot *slot = &self->slots[at];
    uint32_t offered = 0;
    *out_waits = 0;
    *out_holder = NULL;
    for (uint32_t i = 0; has_more(slot->holders, i); i++) {
        const uint32_t bit = UINT32_C(1) << i;
        if ((slot->holders & bit) == 0) {
            continue;
        }
        switch (look_at_holder(&self->readers[i], at, slot->number)) {
        case HAS_NOT:
            slot->holders &= ~bit;
            slot->was_returned = true;
            break;
        case HAS_BEEN_OFFERED:
            offered |= bit;
            break;
        case HAS_GIVEN:
            *out_waits |= bit;
            slot->was_returned = true;
            if (!what->by->can_wait) {
                *out_holder = &self->readers[i];
            }
            break;
        case HAS:
            *out_holder = &self->readers[i];
            break;
        }
    }
    return *out_holder == NULL && is_written(self, at, what->by) && withdraw(self, at, offered);
}

/* The slot whose frame is the oldest of those that are not in @p seen and not on loan. */
static uint32_t next_oldest(const channel *self, uint64_t seen) {
    uint32_t found = NO_SLOT;
    for (uint32_t i = 0; i < self->config.slots; i++) {
        const channel_slot *slot = &self->slots[i];
        if ((seen >> i & 1u) == 0 && !slot->is_on_loan &&
            (found == NO_SLOT || slot->number < self->slots[found].number)) {
            found = i;
        }
    }
    return found;
}

static void look_for_slot(channel *self, search *what) {
    uint64_t seen = 0;
    uint32_t at;
    what->slot = NO_SLOT;
    what->wanted = NO_SLOT;
    what->holder = NULL;
    while ((at = next_oldest(self, seen)) != NO_SLOT) {
        channel_reader *has_it;
        if (is_free(self, at, what, &what->waits, &has_it)) {
            what->slot = at;
            return;
        }
        if (what->wanted == NO_SLOT) {
            what->wanted = at;
            what->holder = has_it;
        }
        seen |= UINT64_C(1) << at;
    }
}

/* ---- no slot ----------------------------------------------------------------------------------- */

static gpuipc_status no_slot(gpuipc_status status, const search *what) {
    return what->holder == NULL
               ? status_fail(status,
                             "a stream has not come to the end of what was published in any "
                             "slot that no reader has")
               : status_fail(status, "readers have all slots; process %" PRIu64 " has the oldest",
                             what->holder->process_id);
}

/* Those in the way of the slot that is wanted. */
static void drop_slow(channel *self, const search *what) {
    const uint32_t holders = self->slots[what->wanted].holders;
    for (uint32_t i = 0; has_more(holders, i); i++) {
        channel_reader *reader = &self->readers[i];
        if ((holders >> i & 1u) != 0) {
            context_log_peer(self->context,
                             "channel: dropped the reader of process %" PRIu64
                             ", which was too slow",
                             reader->process_id);
            channel_reader_end(self, reader, GPUIPC_READER_DROPPED);
        }
    }
}

/* Whoever has taken more than he said does not keep to the rules. */
static void drop_greedy(channel *self) {
    for (uint32_t i = 0; i < self->config.max_readers; i++) {
        channel_reader *reader = &self->readers[i];
        uint32_t lag;
        uint32_t held;
        channel_count_held(self, reader, &lag, &held);
        if (reader->page != NULL && held > reader->max_held) {
            context_log_peer(self->context,
                             "channel: dropped the reader of process %" PRIu64
                             ", which has taken more than it may",
                             reader->process_id);
            channel_reader_end(self, reader, GPUIPC_READER_DROPPED);
        }
    }
}

static unsigned slice_ms(const search *what, os_deadline deadline) {
    const int left = os_deadline_slice_ms(deadline);
    const unsigned most = what->by->can_wait ? SLICE_MS : STREAM_SLICE_MS;
    return left < 0 || (unsigned)left > most ? most : (unsigned)left;
}

/* Until the holder rings, or it is time to look again. The mutex is held, and given up meanwhile. The page stays, whatever
 * becomes of the reader. */
static void sleep_for(channel *self, search *what, os_deadline deadline) {
    channel_reader *awaited = what->holder;
    const unsigned milliseconds = slice_ms(what, deadline);
    if (awaited == NULL) {
        os_mutex_unlock(&self->mutex);
        os_sleep_ms(milliseconds < STREAM_SLICE_MS ? milliseconds : STREAM_SLICE_MS);
        channel_lock(self);
        return;
    }
    point_page *page = awaited->page;
    os_bell bell = OS_BELL_NONE;
    channel_will_sleep(page, CHANNEL_WRITER_SLEEPS);
    look_for_slot(self, what);
    if (what->slot != NO_SLOT || what->holder != awaited ||
        os_bell_copy(&awaited->writer_bell, &bell) != GPUIPC_OK) {
        return;
    }
    point_page_reference(page);
    os_mutex_unlock(&self->mutex);
    os_bell_wait(&bell, &page->words[CHANNEL_WRITER_SLEEPS], milliseconds);
    channel_lock(self);
    os_bell_close(&bell);
    point_page_unreference(page, false);
}

/* Whether the time is over that slow readers are given. */
static bool is_patience_over(const channel *self, uint64_t now_ns) {
    return self->config.full == GPUIPC_FULL_DROP &&
           now_ns - self->full_since_ns >= self->config.drop_after_ms * UINT64_C(1000000);
}

/* The mutex is held. What is there at once needs no clock. */
static gpuipc_status await_slot(channel *self, search *what, os_deadline deadline) {
    uint64_t begun_ns = 0;
    for (;;) {
        look_for_slot(self, what);
        if (what->slot != NO_SLOT) {
            self->full_since_ns = 0;
            return GPUIPC_OK;
        }
        if (self->has_ended) {
            return status_fail(GPUIPC_ERR_RELEASED, "the channel was destroyed meanwhile");
        }
        if (what->wanted == NO_SLOT) {
            return status_fail(GPUIPC_ERR_LIMIT, "all slots are on loan");
        }
        trail_stream_rest(what->by);
        const uint64_t now_ns = os_clock_ns();
        begun_ns = begun_ns == 0 ? now_ns : begun_ns;
        self->full_since_ns = self->full_since_ns == 0 ? now_ns : self->full_since_ns;
        if (what->holder != NULL && is_patience_over(self, now_ns)) {
            drop_slow(self, what);
            continue;
        }
        const bool skips = self->config.full == GPUIPC_FULL_SKIP && what->holder != NULL;
        if (now_ns - self->looked_ns > LOOK_NS) {
            drop_greedy(self);
            (void)channel_look_at_readers(self);
        } else if (skips || os_deadline_passed(deadline)) {
            self->sequence += skips;
            return no_slot(skips ? GPUIPC_ERR_BUSY : GPUIPC_ERR_TIMEOUT, what);
        } else if (now_ns - begun_ns > CHANNEL_SPIN_NS) {
            sleep_for(self, what, deadline);
        } else {
            os_mutex_unlock(&self->mutex); /* others may want to publish */
            channel_lock(self);
        }
    }
}

/* ---- loans ------------------------------------------------------------------------------------- */

/* The stream waits for readers that gave back in the order of their own. One that has done so by now costs the stream a
 * microsecond to see, and the host nothing. The mutex is held. */
static gpuipc_status wait_for_readers(channel *self, const search *what) {
    point_word words[GPUIPC_CHANNEL_READERS_MAX];
    size_t count = 0;
    for (uint32_t i = 0; has_more(what->waits, i); i++) {
        if ((what->waits >> i & 1u) != 0) {
            words[count] = channel_returned_word(self->readers[i].page, what->slot,
                                                 self->slots[what->slot].number);
            count += !point_is_reached(&words[count]);
        }
    }
    return count == 0 ? GPUIPC_OK
                      : trail_wait(self->trail, what->slot, words, words, count, what->by);
}

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

static gpuipc_status loan_turn(channel *self, gpuipc_stream stream, os_deadline deadline,
                               gpuipc_frame *out_frame) {
    channel_lock(self);
    gpuipc_status status = channel_turn_check(self);
    if (status == GPUIPC_OK) {
        hand_out(self, 0, out_frame); /* nobody else gets it meanwhile */
        status = channel_turn_loan(self, stream, deadline);
        self->slots[0].is_on_loan = status == GPUIPC_OK;
    }
    os_mutex_unlock(&self->mutex);
    return status;
}

/* @param by all zero: no stream */
static gpuipc_status loan(channel *self, trail_stream *by, os_deadline deadline,
                          gpuipc_frame *out_frame) {
    search what = {.by = by, .slot = NO_SLOT};
    channel_lock(self);
    gpuipc_status status = await_slot(self, &what, deadline);
    if (status == GPUIPC_OK) {
        status = wait_for_readers(self, &what);
    }
    if (status == GPUIPC_OK) {
        hand_out(self, what.slot, out_frame);
    }
    os_mutex_unlock(&self->mutex);
    return status;
}

static gpuipc_status loan_on(channel *self, gpuipc_stream stream, os_deadline deadline,
                             gpuipc_frame *out_frame) {
    trail_stream by = {.stream = GPUIPC_NO_STREAM};
    if (self->config.turns != 0) {
        return loan_turn(self, stream, deadline, out_frame);
    }
    if (!has_stream(stream)) {
        return loan(self, &by, deadline, out_frame);
    }
    gpuipc_status status =
        trail_stream_enter(self->context, stream, self->buffer->access_device, &by);
    if (status == GPUIPC_OK) {
        status = loan(self, &by, deadline, out_frame);
        trail_stream_leave(&by);
    }
    return status;
}

gpuipc_status gpuipc_channel_loan(gpuipc_channel *handle, gpuipc_stream stream, int timeout_ms,
                                  gpuipc_frame *out_frame) {
    status_enter(__func__);
    gpuipc_frame frame = {.struct_size = sizeof(frame)};
    os_interrupt interrupt;
    channel *self;
    if (timeout_ms < -1) {
        return status_bad_timeout(timeout_ms);
    }
    gpuipc_status status =
        struct_size_check(out_frame, STRUCT_SIZE_UP_TO(gpuipc_frame, header_bytes));
    if (status != GPUIPC_OK || (status = channel_acquire(handle, &self)) != GPUIPC_OK) {
        return status;
    }
    os_deadline deadline = {0}; /* one that has passed asks no clock */
    if (timeout_ms != 0) {
        deadline = context_interruptible(self->context, os_deadline_after(timeout_ms), &interrupt);
    }
    status = loan_on(self, stream, deadline, &frame);
    if (timeout_ms != 0) {
        status = context_answer(self->context, &interrupt, status);
    }
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

/* On success trail_turn_end() is owed. */
static gpuipc_status write_on_stream(channel *self, uint32_t at, uint64_t number, trail_stream *by,
                                     trail_turn *out_turn) {
    point_word words[GPUIPC_CHANNEL_READERS_MAX];
    size_t count = 0;
    for (uint32_t i = 0; i < self->config.max_readers; i++) {
        if (self->readers[i].page != NULL) {
            words[count++] = channel_ready_word(self->readers[i].page, at, number);
        }
    }
    gpuipc_status status = trail_turn_begin(self->trail, TRAIL_WRITE, at, by, out_turn);
    if (status == GPUIPC_OK && (status = trail_turn_write(out_turn, words, count)) != GPUIPC_OK) {
        trail_turn_cancel(out_turn);
    }
    return status;
}

/* Without a stream. One that published in this slot before would write its number over a later one. */
static gpuipc_status write_now(channel *self, uint32_t at, uint64_t number) {
    if (!trail_passes_soon(self->trail, TRAIL_WRITE, at)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "the frame was loaned for a stream that has not come to it: publish it "
                           "on that stream, or wait for the stream first");
    }
    for (uint32_t i = 0; i < self->config.max_readers; i++) {
        if (self->readers[i].page != NULL) {
            const point_word ready = channel_ready_word(self->readers[i].page, at, number);
            point_store(&ready);
        }
    }
    return GPUIPC_OK;
}

/* The words of all before any is woken. */
static void tell_readers(channel *self, uint32_t at) {
    for (uint32_t i = 0; i < self->config.max_readers; i++) {
        if (self->readers[i].page != NULL) {
            channel_offer(self, &self->readers[i], at);
        }
    }
    GPUIPC_FULL_FENCE();
    for (uint32_t i = 0; i < self->config.max_readers; i++) {
        channel_reader *reader = &self->readers[i];
        if (reader->page != NULL) {
            channel_wake(reader->page, CHANNEL_READER_SLEEPS, &reader->reader_bell);
        }
    }
}

void channel_tell_of(channel *self, uint32_t at, const gpuipc_frame *frame) {
    channel_slot *slot = &self->slots[at];
    slot->is_on_loan = false;
    slot->is_intact = true;
    slot->was_returned = false;
    slot->number = ++self->number;
    slot->sequence = ++self->sequence;
    slot->bytes = frame->bytes;
    slot->holders = 0;
    slot->header_bytes = frame->header_bytes;
    if (frame->header_bytes > 0) {
        memcpy(slot->header, frame->header, frame->header_bytes);
    }
    tell_readers(self, at);
}

/* @param frame NULL: readers know of it */
static gpuipc_status publish_on_stream(channel *self, uint32_t at, const gpuipc_frame *frame,
                                       gpuipc_stream stream) {
    const uint64_t number = frame != NULL ? self->number + 1 : self->slots[at].number;
    trail_turn turn;
    trail_stream by;
    gpuipc_status status =
        trail_stream_enter(self->context, stream, self->buffer->access_device, &by);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = write_on_stream(self, at, number, &by, &turn);
    if (status == GPUIPC_OK) {
        if (frame != NULL) {
            channel_tell_of(self, at, frame);
        }
        trail_turn_end(&turn);
    }
    trail_stream_leave(&by);
    return status;
}

/* A kernel was to say that it is ready, and does not. */
static gpuipc_status publish_known(channel *self, uint32_t at, gpuipc_stream stream) {
    gpuipc_status status = channel_kernel_cancel(self, at, stream);
    if (status == GPUIPC_OK) {
        status = has_stream(stream) ? publish_on_stream(self, at, NULL, stream)
                                    : write_now(self, at, self->slots[at].number);
    }
    if (status == GPUIPC_OK) {
        self->slots[at].is_in_kernel = false;
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
    if (has_stream(stream)) {
        return publish_on_stream(self, at, frame, stream);
    }
    status = write_now(self, at, self->number + 1);
    if (status == GPUIPC_OK) {
        channel_tell_of(self, at, frame);
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

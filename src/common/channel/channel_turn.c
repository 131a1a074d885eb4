/* SPDX-License-Identifier: MIT */
/** @file See channel.h: the writer's end of a channel of turns. */
#include <inttypes.h>

#include "channel/channel.h"

static turn_end own_end(channel *self) {
    self->turn.awaited = TURN_FREE;
    return (turn_end){.context = self->context,
                      .mutex = &self->mutex,
                      .trail = self->trail,
                      .device = self->buffer->access_device,
                      .turn = &self->turn,
                      .captured = &self->captured};
}

static void add_readers(channel *self) {
    for (uint32_t i = 0; i < self->places; i++) {
        if (self->readers[i].page != NULL) {
            turn_add(&self->turn, self->readers[i].page);
        }
    }
}

static gpuipc_status check_not_ended(const channel *self) {
    return self->has_ended ? status_fail(GPUIPC_ERR_RELEASED, "the channel was destroyed meanwhile")
                           : GPUIPC_OK;
}

gpuipc_status channel_turn_check(const channel *self) {
    return self->slots[0].is_on_loan ? status_fail(GPUIPC_ERR_LIMIT, "the slot is on loan")
                                     : check_not_ended(self);
}

/* It is the streams that wait for readers, and the host for streams that are too far behind. */
static gpuipc_status await_turn(channel *self, gpuipc_stream stream, os_deadline deadline) {
    const turn_end end = own_end(self);
    const uint64_t begun_ns = os_clock_ns();
    gpuipc_status status;
    while ((status = turn_begin(&end, stream)) == GPUIPC_ERR_TIMEOUT && !self->has_ended &&
           !os_deadline_passed(deadline)) {
        os_mutex_unlock(&self->mutex);
        os_pause(begun_ns, CHANNEL_PAUSE_MS, deadline);
        channel_lock(self);
        turn_clear(&self->turn,
                   false); /* nothing is on the stream: who has come meanwhile has this turn, too */
        add_readers(self);
    }
    return self->has_ended ? check_not_ended(self) : status;
}

gpuipc_status channel_turn_loan(channel *self, gpuipc_stream stream, os_deadline deadline) {
    add_readers(self);
    gpuipc_status status = await_turn(self, stream, deadline);
    if (status != GPUIPC_OK) {
        turn_clear(&self->turn, false);
    }
    return status;
}

static void count_captured(channel *self) {
    for (uint32_t i = 0; i < self->places; i++) {
        channel_reader *reader = &self->readers[i];
        for (size_t k = 0; reader->page != NULL && k < self->turn.count; k++) {
            reader->captured += self->turn.pages[k] == reader->page;
        }
    }
}

gpuipc_status channel_turn_publish(channel *self, const gpuipc_frame *frame, gpuipc_stream stream) {
    const turn_end end = own_end(self);
    channel_slot *slot = &self->slots[0];
    if (frame->bytes != self->config.slot_bytes) {
        return status_fail(GPUIPC_ERR_OUT_OF_RANGE,
                           "a turn is the whole slot of %" PRIu64 " bytes, not %" PRIu64,
                           self->config.slot_bytes, frame->bytes);
    }
    gpuipc_status status = check_not_ended(self);
    if (status != GPUIPC_OK) {
        return status;
    }
    slot->loan = ++self->loans; /* nobody else publishes it, or discards it, meanwhile */
    status = turn_pass(&end, stream);
    slot->loan = frame->id >> 8;
    if (status == GPUIPC_OK) {
        if (self->turn.is_captured) {
            count_captured(self);
        }
        slot->is_on_loan = false;
        turn_clear(&self->turn, false);
    }
    return status;
}

void channel_turns_end_left(channel *self) {
    for (size_t i = 0; i < self->captured.count; i++) {
        point_page *page = self->captured.words[i].page;
        if (atomic_load(&page->is_given_up)) {
            turn_page_end(page);
        }
    }
}

void channel_turns_end(channel *self) {
    for (size_t i = 0; i < self->captured.count; i++) {
        turn_page_end(self->captured.words[i].page);
    }
}

void channel_turns_clear(channel *self, bool forked) {
    point_words_destroy(&self->captured, forked);
    turn_clear(&self->turn, forked);
}

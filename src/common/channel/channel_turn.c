/* SPDX-License-Identifier: MIT */
/** @file See channel.h: the writer's end of a channel of turns. */
#include <inttypes.h>

#include "channel/channel.h"

static turn_end own_end(channel *self) {
    self->turn.awaited = TURN_FREE;
    return (turn_end){.context = self->context,
                      .trail = self->trail,
                      .device = self->buffer->access_device,
                      .turn = &self->turn,
                      .captured = &self->captured};
}

static void add_readers(channel *self) {
    for (uint32_t i = 0; i < self->config.max_readers; i++) {
        if (self->readers[i].page != NULL) {
            turn_add(&self->turn, self->readers[i].page);
        }
    }
}

gpuipc_status channel_turn_loan(channel *self, gpuipc_stream stream) {
    const turn_end end = own_end(self);
    if (self->has_ended) {
        return status_fail(GPUIPC_ERR_RELEASED, "the channel was destroyed meanwhile");
    }
    if (self->slots[0].is_on_loan) {
        return status_fail(GPUIPC_ERR_LIMIT, "the slot is on loan");
    }
    add_readers(self);
    gpuipc_status status = turn_begin(&end, stream);
    if (status != GPUIPC_OK) {
        turn_clear(&self->turn, false);
    }
    return status;
}

static void count_captured(channel *self) {
    for (uint32_t i = 0; i < self->config.max_readers; i++) {
        channel_reader *reader = &self->readers[i];
        for (size_t k = 0; reader->page != NULL && k < self->turn.count; k++) {
            reader->captured += self->turn.pages[k] == reader->page;
        }
    }
}

gpuipc_status channel_turn_publish(channel *self, const gpuipc_frame *frame, gpuipc_stream stream) {
    const turn_end end = own_end(self);
    if (frame->bytes != self->config.slot_bytes) {
        return status_fail(GPUIPC_ERR_OUT_OF_RANGE,
                           "a turn is the whole slot of %" PRIu64 " bytes, not %" PRIu64,
                           self->config.slot_bytes, frame->bytes);
    }
    if (self->has_ended) {
        return status_fail(GPUIPC_ERR_RELEASED, "the channel was destroyed meanwhile");
    }
    gpuipc_status status = turn_finish(&end, stream);
    if (status == GPUIPC_OK) {
        if (self->turn.is_captured) {
            count_captured(self);
        }
        self->slots[0].is_on_loan = false;
        turn_clear(&self->turn, false);
    }
    return status;
}

void channel_turns_end(channel *self, bool forked) {
    for (size_t i = 0; i < self->captured.count && !forked; i++) {
        turn_page_end(self->captured.words[i].page);
    }
    point_words_destroy(&self->captured, forked);
    self->captured = (point_words){0};
    turn_clear(&self->turn, forked);
}

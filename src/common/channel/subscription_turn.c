/* SPDX-License-Identifier: MIT */
/** @file See subscription.h: a reader's end of a channel of turns. */
#include "channel/subscription.h"

static turn_end own_end(subscription *self) {
    return (turn_end){.context = self->context,
                      .mutex = &self->mutex,
                      .trail = self->page->trail,
                      .device = self->buffer->access_device,
                      .turn = &self->turn};
}

void subscription_turns_begin(subscription *self) {
    self->turn.awaited = TURN_READY;
    turn_add(&self->turn, self->page);
    self->frames[0].public_part = (gpuipc_frame){.struct_size = sizeof(gpuipc_frame),
                                                 .address = buffer_address(self->buffer, 0),
                                                 .capacity = self->slot_bytes,
                                                 .bytes = self->slot_bytes};
}

gpuipc_status subscription_turn_take(subscription *self, gpuipc_stream stream) {
    const turn_end end = own_end(self);
    os_mutex_lock(&self->mutex);
    const gpuipc_status status = turn_begin(&end, stream);
    os_mutex_unlock(&self->mutex);
    return status;
}

gpuipc_status subscription_turn_give_back(subscription *self, gpuipc_stream stream) {
    const turn_end end = own_end(self);
    subscription_frame *frame = &self->frames[0];
    const uint64_t take = frame->take;
    if (stream == GPUIPC_NO_STREAM) {
        return GPUIPC_OK;
    }
    frame->take = ++self->takes; /* nobody else gives it back meanwhile */
    const gpuipc_status status = turn_pass(&end, stream);
    frame->take = take;
    return status;
}

bool subscription_turn_is_lost(const subscription *self) {
    return turn_is_let_go(self->page, TURN_READY);
}

void subscription_turns_end(subscription *self) {
    turn_page_end(self->page);
    subscription_set_taken(self, 0, false);
}

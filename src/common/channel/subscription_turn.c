/* SPDX-License-Identifier: MIT */
/** @file See subscription.h: a reader's end of a channel of turns. */
#include "channel/subscription.h"

static turn_end own_end(subscription *self) {
    return (turn_end){.context = self->context,
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
    return turn_begin(&end, stream);
}

gpuipc_status subscription_turn_give_back(subscription *self, gpuipc_stream stream) {
    const turn_end end = own_end(self);
    return stream == GPUIPC_NO_STREAM ? GPUIPC_OK : turn_finish(&end, stream);
}

bool subscription_turn_is_lost(const subscription *self) {
    return turn_is_let_go(self->page, TURN_READY);
}

void subscription_turns_end(subscription *self) {
    turn_page_end(self->page);
    self->frames[0].is_taken = false;
}

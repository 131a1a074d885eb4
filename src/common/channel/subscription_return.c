/* SPDX-License-Identifier: MIT */
/** @file See subscription.h: giving frames back. */
#include "channel/subscription.h"

#include "base/struct_size.h"
#include "sync/trail.h"

void subscription_wake_writer(const subscription *self) {
    GPUIPC_FULL_FENCE();
    channel_wake(self->page, CHANNEL_WRITER_SLEEPS, &self->writer_bell);
}

void subscription_return_now(const subscription *self, uint32_t slot, uint64_t number) {
    const point_word returned = channel_returned_word(self->page, slot, number);
    point_store(&returned);
    subscription_wake_writer(self);
}

/* A stream that gave the slot back before would write its number over a later one. It is there before the contents are
 * ready, so whoever has awaited them has awaited it. (A stream waits for it by itself.) The mutex is held. */
static gpuipc_status return_on_host(const subscription *self, uint32_t slot) {
    if (!trail_passes_soon(self->page->trail, TRAIL_WRITE, slot) &&
        !point_page_is_abandoned(self->page)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "the stream that gave the slot back before has not come to it: give the "
                           "frame back on its stream, or wait for that stream first");
    }
    subscription_return_now(self, slot, self->frames[slot].number);
    return GPUIPC_OK;
}

/* The writer learns of the word only when the stream has been given it: the stream that the writer lets wait may be the same
 * one (docs/channels.md, "The order of streams"). An event is recorded last, which waits while another thread frees memory. */
static gpuipc_status write_on_stream(const subscription *self, uint32_t slot, trail_stream *by) {
    const uint64_t number = self->frames[slot].number;
    const point_word returned = channel_returned_word(self->page, slot, number);
    trail_turn turn;
    gpuipc_status status = trail_turn_begin(self->page->trail, TRAIL_WRITE, slot, by, &turn);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = trail_turn_write(&turn, &returned, 1);
    if (status != GPUIPC_OK) {
        trail_turn_cancel(&turn);
        return status;
    }
    channel_say(self->page, slot, number, CHANNEL_GIVEN);
    subscription_wake_writer(self);
    trail_turn_end(&turn);
    return GPUIPC_OK;
}

static gpuipc_status return_on_stream(const subscription *self, uint32_t slot,
                                      gpuipc_stream stream) {
    trail_stream by;
    channel_prefetch_to_write(self->page, CHANNEL_HAVING + slot);
    gpuipc_status status =
        trail_stream_enter(self->context, stream, self->buffer->access_device, &by);
    if (status == GPUIPC_OK) {
        status = write_on_stream(self, slot, &by);
        trail_stream_leave(&by);
    }
    return status;
}

/* One look: the writer's stream may be about to write
 * the word, so that it would be another one in a second. */
bool subscription_is_lost(const subscription *self, uint32_t slot) {
    const point_word awaited = channel_awaited_word(self->page, slot, self->frames[slot].number);
    return !self->frames[slot].was_ready && channel_read(self->page, awaited.at) == awaited.value;
}

gpuipc_status subscription_find_taken(subscription *self, const gpuipc_frame *frame,
                                      uint32_t *out_slot) {
    const uint64_t slot = frame->id & 255u;
    const subscription_frame *found = &self->frames[slot < self->slots ? slot : 0];
    if (slot >= self->slots || !subscription_has_taken(self, (uint32_t)slot) ||
        found->take != frame->id >> 8) {
        return status_fail(
            GPUIPC_ERR_INVALID_ARGUMENT,
            "the frame is not this subscription's: it was given back, or another one "
            "took it");
    }
    *out_slot = (uint32_t)slot;
    return GPUIPC_OK;
}

gpuipc_status subscription_forget(subscription *self, uint32_t slot, bool was_lost) {
    subscription_set_taken(self, slot, false);
    return was_lost ? subscription_tell_lost(self) : GPUIPC_OK;
}

/* The mutex is held. */
static gpuipc_status give_back(subscription *self, const gpuipc_frame *what, gpuipc_stream stream) {
    uint32_t slot = 0;
    gpuipc_status status = subscription_find_taken(self, what, &slot);
    if (status == GPUIPC_OK && self->frames[slot].kernel.is_in_use) {
        status = subscription_kernel_cancel(self, slot, stream);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    const bool was_lost =
        self->has_turns ? subscription_turn_is_lost(self) : subscription_is_lost(self, slot);
    if (self->has_turns) {
        status = subscription_turn_give_back(self, stream);
    } else if (stream != GPUIPC_NO_STREAM) {
        status = return_on_stream(self, slot, stream);
    } else {
        status = return_on_host(self, slot);
    }
    return status == GPUIPC_OK ? subscription_forget(self, slot, was_lost) : status;
}

gpuipc_status gpuipc_subscription_give_back(gpuipc_subscription *handle, const gpuipc_frame *frame,
                                            gpuipc_stream stream) {
    status_enter(__func__);
    gpuipc_frame known;
    subscription *self;
    gpuipc_status status = struct_size_read(frame, STRUCT_SIZE_UP_TO(gpuipc_frame, header_bytes),
                                            &known, sizeof(known));
    if (status != GPUIPC_OK || (status = subscription_acquire(handle, &self)) != GPUIPC_OK) {
        return status;
    }
    os_mutex_lock(&self->mutex);
    status = give_back(self, &known, stream);
    os_mutex_unlock(&self->mutex);
    subscription_wait_given(self);
    object_unreference(&self->object);
    return status;
}

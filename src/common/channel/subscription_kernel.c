/* SPDX-License-Identifier: MIT */
/** @file See subscription.h: frames whose contents a kernel of the caller's awaits, and which it gives back itself. */
#include "base/struct_size.h"
#include "channel/subscription.h"
#include "sync/watch.h"

/* ---- turns ------------------------------------------------------------------------------------- */

/* The kernel is the stream's, and what it looks at or stores is the slot's: so are its turns. */
static gpuipc_status begin_waiting(subscription *self, uint32_t slot, const point_word *awaited,
                                   trail_stream *by) {
    subscription_kernel *kernel = &self->frames[slot].kernel;
    gpuipc_status status =
        trail_turn_begin(self->page->trail, TRAIL_WAIT, slot, by, &kernel->waits);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = watch_add_slot(self->context, awaited, slot);
    if (status != GPUIPC_OK) {
        trail_turn_cancel(&kernel->waits);
        return status;
    }
    kernel->is_waiting = true;
    return GPUIPC_OK;
}

static void cancel_turns(subscription_kernel *kernel) {
    if (kernel->is_waiting) {
        trail_turn_cancel(&kernel->waits);
        kernel->is_waiting = false;
    }
    if (kernel->is_returning) {
        trail_turn_cancel(&kernel->returns);
        kernel->is_returning = false;
    }
}

static gpuipc_status begin_turns(subscription *self, uint32_t slot, const point_word *awaited,
                                 trail_stream *by) {
    subscription_kernel *kernel = &self->frames[slot].kernel;
    const point_word ready = channel_ready_word(self->page, slot, self->frames[slot].number);
    gpuipc_status status =
        trail_turn_begin(self->page->trail, TRAIL_WRITE, slot, by, &kernel->returns);
    if (status != GPUIPC_OK) {
        return status;
    }
    kernel->is_returning = true;
    if (!point_is_reached(&ready)) {
        status = begin_waiting(self, slot, awaited, by);
    }
    if (status != GPUIPC_OK) {
        cancel_turns(kernel);
    }
    return status;
}

/* ---- giving the words out ---------------------------------------------------------------------- */

static gpuipc_word word_at(CUdeviceptr page, const point_word *word) {
    return (gpuipc_word){page + word->at * UINT64_C(8), word->value};
}

/* Another thread may be giving the slot back, which the writer has offered again: one of them at a time has its turn. */
gpuipc_status subscription_kernel_begin(subscription *self, uint32_t slot, trail_stream *by,
                                        subscription_words *words) {
    subscription_kernel *kernel = &self->frames[slot].kernel;
    const uint64_t number = self->frames[slot].number;
    const point_word awaited = channel_awaited_word(self->page, slot, number);
    const point_word returned = channel_returned_word(self->page, slot, number);
    CUdeviceptr page;
    gpuipc_status status = point_page_address(self->page, &page);
    if (status != GPUIPC_OK) {
        return status;
    }
    os_mutex_lock(&self->mutex);
    status = begin_turns(self, slot, &awaited, by);
    os_mutex_unlock(&self->mutex);
    if (status == GPUIPC_OK) {
        kernel->is_in_use = true;
        kernel->stream = by->stream;
        words->ready = word_at(page, &awaited);
        words->returned = word_at(page, &returned);
    }
    return status;
}

gpuipc_status gpuipc_subscription_take_for_kernel(gpuipc_subscription *handle, gpuipc_stream stream,
                                                  int timeout_ms, gpuipc_frame *out_frame,
                                                  gpuipc_word *out_ready,
                                                  gpuipc_word *out_returned) {
    status_enter(__func__);
    subscription_words words;
    if (stream == GPUIPC_NO_STREAM || out_ready == NULL || out_returned == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "a kernel runs in a stream; or out_ready or out_returned is NULL");
    }
    gpuipc_status status = subscription_take(handle, stream, &words, timeout_ms, out_frame);
    if (status == GPUIPC_OK) {
        *out_ready = words.ready;
        *out_returned = words.returned;
    }
    return status;
}

/* ---- the kernel was launched ------------------------------------------------------------------- */

/* Behind it an event is recorded. */
static gpuipc_status end_turn(trail_turn *turn, trail_stream *by, bool *is_on) {
    gpuipc_status status = GPUIPC_OK;
    if (*is_on) {
        turn->by = by;
        status = trail_turn_try_end(turn);
        *is_on = status != GPUIPC_OK;
    }
    return status;
}

static gpuipc_status end_turns(subscription *self, subscription_kernel *kernel,
                               gpuipc_stream stream, bool returns) {
    trail_stream by;
    gpuipc_status status =
        trail_stream_enter(self->context, stream, self->buffer->access_device, &by);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = end_turn(&kernel->waits, &by, &kernel->is_waiting);
    if (status == GPUIPC_OK && returns) {
        status = end_turn(&kernel->returns, &by, &kernel->is_returning);
    }
    trail_stream_leave(&by);
    return status;
}

static void leave(subscription *self, uint32_t slot) {
    cancel_turns(&self->frames[slot].kernel);
    self->frames[slot].kernel.is_in_use = false;
}

/* The writer is told before the events are recorded, which waits while another thread frees memory. The mutex is held. */
static gpuipc_status launched(subscription *self, const gpuipc_frame *what, gpuipc_stream stream) {
    uint32_t slot = 0;
    gpuipc_status status = subscription_find_taken(self, what, &slot);
    if (status != GPUIPC_OK) {
        return status;
    }
    subscription_kernel *kernel = &self->frames[slot].kernel;
    if (!kernel->is_in_use || kernel->stream != stream) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "no kernel has words of this frame, or one in another stream");
    }
    const bool was_lost = subscription_is_lost(self, slot);
    channel_say(self->page, slot, self->frames[slot].number, CHANNEL_GIVEN);
    subscription_wake_writer(self);
    status = end_turns(self, kernel, stream, true);
    if (status != GPUIPC_OK) {
        return status;
    }
    leave(self, slot);
    return subscription_forget(self, slot, was_lost);
}

gpuipc_status gpuipc_subscription_kernel_launched(gpuipc_subscription *handle,
                                                  const gpuipc_frame *frame, gpuipc_stream stream) {
    status_enter(__func__);
    gpuipc_frame known;
    subscription *self;
    gpuipc_status status = struct_size_read(frame, STRUCT_SIZE_UP_TO(gpuipc_frame, header_bytes),
                                            &known, sizeof(known));
    if (status != GPUIPC_OK || (status = subscription_acquire(handle, &self)) != GPUIPC_OK) {
        return status;
    }
    os_mutex_lock(&self->mutex);
    status = launched(self, &known, stream);
    os_mutex_unlock(&self->mutex);
    subscription_wait_given(self);
    object_unreference(&self->object);
    return status;
}

/* ---- it stores nothing ------------------------------------------------------------------------- */

gpuipc_status subscription_kernel_cancel(subscription *self, uint32_t slot, gpuipc_stream stream) {
    subscription_kernel *kernel = &self->frames[slot].kernel;
    gpuipc_status status = GPUIPC_OK;
    if (stream != GPUIPC_NO_STREAM) {
        status = stream == kernel->stream
                     ? end_turns(self, kernel, stream, false)
                     : status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                                   "a kernel in another stream has words of this frame");
    }
    if (status == GPUIPC_OK) {
        leave(self, slot);
    }
    return status;
}

/* A stream may wait at the same word for the frame before, which it gave back in order: it would go on too early. */
void subscription_kernel_end(subscription *self, uint32_t slot) {
    if (self->frames[slot].kernel.is_in_use) {
        const point_word awaited =
            channel_awaited_word(self->page, slot, self->frames[slot].number);
        if (trail_had_passed(self->page->trail, TRAIL_WAIT, slot)) {
            point_raise(&awaited);
        }
        leave(self, slot);
    }
}

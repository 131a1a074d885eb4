/* SPDX-License-Identifier: MIT */
/** @file See channel.h: frames that a kernel of the caller's makes ready, by storing the words itself. */
#include <inttypes.h>

#include "base/struct_size.h"
#include "channel/channel.h"
#include "copy/detour.h"
#include "cuda/context.h"

/* ---- giving the words out ---------------------------------------------------------------------- */

static size_t count_readers(const channel *self) {
    size_t count = 0;
    for (uint32_t i = 0; i < self->places; i++) {
        count += self->readers[i].page != NULL;
    }
    return count;
}

/* In the CUDA context of the kernel's stream. */
static gpuipc_status find_words(const channel *self, uint32_t at, uint64_t number,
                                gpuipc_word *words) {
    gpuipc_status status = GPUIPC_OK;
    for (uint32_t i = 0; i < self->places && status == GPUIPC_OK; i++) {
        CUdeviceptr page;
        if (self->readers[i].page == NULL) {
            continue;
        }
        const point_word ready = channel_ready_word(self->readers[i].page, at, number);
        status = point_page_address(ready.page, &page);
        if (status == GPUIPC_OK) {
            *words++ = (gpuipc_word){page + ready.at * UINT64_C(8), ready.value};
        }
    }
    return status;
}

/* Nothing but the words' addresses and the turn can fail, so readers are told last. */
static gpuipc_status give_words(channel *self, uint32_t at, const gpuipc_frame *frame,
                                trail_stream *by, gpuipc_word *words) {
    channel_slot *slot = &self->slots[at];
    gpuipc_status status = find_words(self, at, self->number + 1, words);
    if (status == GPUIPC_OK) {
        status = trail_turn_begin(self->trail, TRAIL_WRITE, at, by, &slot->turn);
    }
    if (status == GPUIPC_OK) {
        slot->is_in_kernel = true;
        slot->has_turn = true;
        slot->stream = by->stream;
        channel_tell_of(self, at, frame, false);
    }
    return status;
}

/* The mutex is held. */
static gpuipc_status publish(channel *self, const gpuipc_frame *frame, gpuipc_stream stream,
                             gpuipc_word *words, size_t capacity, size_t *out_count) {
    uint32_t at = 0;
    trail_stream by;
    gpuipc_status status = channel_find_loan(self, frame, &at);
    if (status != GPUIPC_OK || (status = channel_check_frame(self, frame)) != GPUIPC_OK) {
        return status;
    }
    if (self->config.turns != 0) {
        return status_fail(
            GPUIPC_ERR_INVALID_ARGUMENT,
            "in a channel of turns streams say that a frame is ready, and no kernels");
    }
    const size_t count = count_readers(self);
    if (count > capacity) {
        *out_count = count;
        return status_fail(GPUIPC_ERR_TOO_SMALL, "there are %zu readers; there is room for %zu",
                           count, capacity);
    }
    status = trail_stream_enter(self->context, stream, self->buffer->access_device, &by);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = give_words(self, at, frame, &by, words);
    trail_stream_leave(&by);
    if (status == GPUIPC_OK) {
        *out_count = count;
    }
    return status;
}

gpuipc_status gpuipc_channel_publish_by_kernel(gpuipc_channel *handle, const gpuipc_frame *frame,
                                               gpuipc_stream stream, gpuipc_word *words,
                                               size_t capacity, size_t *out_count) {
    status_enter(__func__);
    gpuipc_word found[GPUIPC_CHANNEL_READERS_MAX];
    gpuipc_frame known;
    channel *self;
    if (stream == GPUIPC_NO_STREAM || out_count == NULL || (words == NULL && capacity > 0)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "a kernel runs in a stream; or out_count is NULL, or words although "
                           "capacity is not 0");
    }
    gpuipc_status status = struct_size_read(frame, STRUCT_SIZE_UP_TO(gpuipc_frame, header_bytes),
                                            &known, sizeof(known));
    if (status != GPUIPC_OK || (status = channel_acquire(handle, &self)) != GPUIPC_OK) {
        return status;
    }
    channel_lock(self);
    status = publish(self, &known, stream, found, capacity, out_count);
    os_mutex_unlock(&self->mutex);
    for (size_t i = 0; status == GPUIPC_OK && i < *out_count; i++) {
        words[i] = found[i];
    }
    object_unreference(&self->object);
    return status;
}

/* ---- the kernel was launched ------------------------------------------------------------------- */

void channel_kernel_is_over(channel *self, uint32_t slot) {
    self->slots[slot].is_in_kernel = false;
    channel_left_forget(self, slot);
}

bool channel_kernel_has(const channel *self, const gpuipc_frame *frame, uint32_t *out_slot) {
    const uint64_t at = frame->id & 255u;
    if (at >= self->config.slots || !self->slots[at].is_in_kernel ||
        self->slots[at].loan != frame->id >> 8) {
        return false;
    }
    *out_slot = (uint32_t)at;
    return true;
}

/* Behind it an event is recorded. */
static gpuipc_status end_turn(channel *self, channel_slot *slot, gpuipc_stream stream) {
    trail_stream by;
    gpuipc_status status =
        trail_stream_enter(self->context, stream, self->buffer->access_device, &by);
    if (status == GPUIPC_OK) {
        slot->turn.by = &by;
        status = trail_turn_try_end(&slot->turn);
        trail_stream_leave(&by);
    }
    return status;
}

/* The mutex is held. */
static gpuipc_status launched(channel *self, const gpuipc_frame *frame, gpuipc_stream stream) {
    uint32_t at = 0;
    if (!channel_kernel_has(self, frame, &at) || !self->slots[at].has_turn ||
        self->slots[at].stream != stream) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "no kernel has words of this frame, or one in another stream");
    }
    gpuipc_status status = end_turn(self, &self->slots[at], stream);
    if (status == GPUIPC_OK) {
        self->slots[at].has_turn = false;
        channel_kernel_is_over(self, at);
    }
    return status;
}

gpuipc_status gpuipc_channel_kernel_launched(gpuipc_channel *handle, const gpuipc_frame *frame,
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
    status = launched(self, &known, stream);
    os_mutex_unlock(&self->mutex);
    object_unreference(&self->object);
    return status;
}

/* ---- it was not -------------------------------------------------------------------------------- */

static void cancel_turn(channel_slot *slot) {
    if (slot->has_turn) {
        trail_turn_cancel(&slot->turn);
        slot->has_turn = false;
    }
}

gpuipc_status channel_kernel_cancel(channel *self, uint32_t slot, gpuipc_stream stream) {
    channel_slot *of = &self->slots[slot];
    if (of->has_turn && stream != GPUIPC_NO_STREAM && stream != of->stream) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "a kernel in another stream has words of this frame");
    }
    cancel_turn(of);
    return GPUIPC_OK;
}

void channel_kernel_let_go(const channel *self, point_page *page, uint32_t slot) {
    const point_word awaited = channel_awaited_word(page, slot, self->slots[slot].number);
    point_raise(&awaited); /* it may have been stored where the kernel could not be told of */
}

/* In the CUDA context of the device, by a stream that was made for this. */
static gpuipc_status write_behind(const channel *self, uint32_t at, const point_word *words,
                                  size_t count, CUstream stream) {
    trail_stream by;
    trail_turn turn;
    gpuipc_status status =
        trail_stream_enter(self->context, stream, self->buffer->access_device, &by);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = trail_turn_begin(self->trail, TRAIL_WRITE, at, &by, &turn);
    if (status == GPUIPC_OK) {
        status = trail_turn_write(&turn, words, count);
        if (status == GPUIPC_OK) {
            trail_turn_end(&turn);
        } else {
            trail_turn_cancel(&turn);
        }
    }
    trail_stream_leave(&by);
    return status;
}

/* While a stream has yet to say that the frame before is ready, readers may wait for that one at the same word. So they are let
 * go behind it: what a stream has been given is done after its end, which does not wait for it (cuda.h, cuStreamDestroy). To
 * make a stream waits while another thread frees memory (docs/adr/0011), so this is for streams that are late indeed. */
static gpuipc_status store_later(const channel *self, uint32_t at, const point_word *words,
                                 size_t count) {
    const driver *drv = &self->context->driver;
    device_scope scope;
    CUstream follows;
    gpuipc_status status = device_enter(self->context, self->buffer->access_device, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = detour_stream_new(drv, &follows);
    if (status == GPUIPC_OK) {
        status = write_behind(self, at, words, count, follows);
        detour_stream_destroy(drv, follows);
    }
    device_leave(&scope);
    return status;
}

/* Nobody says any more that it is ready: who awaits it goes on, and finds that there are no contents. Where no stream can be
 * given that, they are let go with this process. */
static void let_readers_go(const channel *self, uint32_t at) {
    point_word words[GPUIPC_CHANNEL_READERS_MAX];
    const size_t count =
        channel_list_words(self, at, channel_awaited_value(self->slots[at].number), words);
    if (!trail_passes_soon(self->trail, TRAIL_WRITE, at)) {
        (void)store_later(self, at, words, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        point_raise(&words[i]); /* it may have been stored where the kernel could not be told of */
    }
}

void channel_kernels_end(channel *self) {
    for (uint32_t i = 0; i < self->config.slots; i++) {
        cancel_turn(&self->slots[i]);
        if (self->slots[i].is_in_kernel) {
            let_readers_go(self, i);
            self->slots[i].is_in_kernel = false;
        }
    }
}

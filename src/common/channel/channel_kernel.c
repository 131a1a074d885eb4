/* SPDX-License-Identifier: MIT */
/**
 * @file See channel.h: frames that a kernel of the caller's makes ready, by storing the words itself. A frame gets its number where
 * the words are given out. Readers see it when the kernel was launched (docs/channels.md, "The order of streams").
 */
#include <inttypes.h>

#include "base/struct_size.h"
#include "channel/channel.h"

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
        channel_number_frame(self, at, frame);
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

bool channel_kernel_has(const channel *self, const gpuipc_frame *frame, uint32_t *out_slot) {
    const uint64_t at = frame->id & 255u;
    if (at >= self->config.slots || !self->slots[at].is_in_kernel ||
        self->slots[at].loan != frame->id >> 8) {
        return false;
    }
    *out_slot = (uint32_t)at;
    return true;
}

/* Behind it an event is recorded, which waits while another thread frees memory: so readers are told before. */
static gpuipc_status end_turn(channel *self, uint32_t at, gpuipc_stream stream) {
    channel_slot *slot = &self->slots[at];
    trail_stream by;
    gpuipc_status status =
        trail_stream_enter(self->context, stream, self->buffer->access_device, &by);
    if (status == GPUIPC_OK) {
        channel_tell_of(self, at, false);
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
    gpuipc_status status = end_turn(self, at, stream);
    if (status == GPUIPC_OK) {
        self->slots[at].has_turn = false;
        self->slots[at].is_in_kernel = false;
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

void channel_kernels_end(channel *self) {
    for (uint32_t i = 0; i < self->config.slots; i++) {
        cancel_turn(&self->slots[i]);
        self->slots[i].is_in_kernel = false;
    }
}

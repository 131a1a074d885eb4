/* SPDX-License-Identifier: MIT */
/** @file See awaited.h. */
#include "channel/awaited.h"

#include "channel/channel.h"

static awaited_wait *wait_at(awaited_ring *self, uint32_t index) {
    return &self->waits[(self->first + index) % AWAITED_MAX];
}

void awaited_forget(awaited_ring *self, uint32_t reader) {
    for (uint32_t i = 0; i < self->count; i++) {
        wait_at(self, i)->readers &= ~(UINT32_C(1) << reader);
    }
}

/* Those who have returned the frame are none of them any more. */
static void settle(const channel *of, awaited_wait *wait) {
    for (uint32_t i = 0; i < GPUIPC_CHANNEL_READERS_MAX && wait->readers >> i != 0; i++) {
        if ((wait->readers >> i & 1u) != 0) {
            const point_word returned =
                channel_returned_word(of->readers[i].page, wait->slot, wait->number);
            wait->readers &= ~((uint32_t)point_is_reached(&returned) << i);
        }
    }
}

/* The first one is not settled then, or there is none. */
static void advance(channel *of) {
    awaited_ring *self = &of->awaited;
    while (self->count > 0) {
        awaited_wait *first = wait_at(self, 0);
        settle(of, first);
        if (first->readers != 0) {
            return;
        }
        self->first = (self->first + 1) % AWAITED_MAX;
        self->count--;
        self->since_ns = 0;
    }
}

void awaited_add(channel *of, const awaited_wait *wait) {
    awaited_ring *self = &of->awaited;
    advance(of);
    if (self->count < AWAITED_MAX) {
        *wait_at(self, self->count++) = *wait;
    }
}

/* What is behind it was ready before its time where the reader came later. */
static bool has_come_to_it(const channel_reader *reader, const awaited_wait *wait) {
    const point_word ready = channel_ready_word(reader->page, wait->behind_slot, wait->behind);
    return wait->behind <= reader->before || point_is_reached(&ready);
}

uint32_t awaited_find(channel *of, uint64_t now_ns, uint64_t *out_since_ns) {
    awaited_ring *self = &of->awaited;
    uint32_t found = 0;
    advance(of);
    if (self->count == 0) {
        return 0;
    }
    const awaited_wait *first = wait_at(self, 0);
    for (uint32_t i = 0; i < GPUIPC_CHANNEL_READERS_MAX && first->readers >> i != 0; i++) {
        if ((first->readers >> i & 1u) != 0 && has_come_to_it(&of->readers[i], first)) {
            found |= UINT32_C(1) << i;
        }
    }
    if (found != 0 && self->since_ns == 0) {
        self->since_ns = now_ns;
    }
    *out_since_ns = self->since_ns;
    return found;
}

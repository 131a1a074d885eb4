/* SPDX-License-Identifier: MIT */
/**
 * @file See channel.h: readers that have ended, while a kernel of the writer's had a frame that they may await. What lets
 * them go is a later number than that of the frame before. A stream that has yet to write the latter takes it back. So
 * their pages are kept, and the words stored again behind that stream.
 */
#include "channel/channel.h"

bool channel_left_has_room(const channel *self) {
    uint32_t count = self->left_count;
    for (uint32_t i = 0; i < self->places; i++) {
        count += self->readers[i].page != NULL;
    }
    return count < GPUIPC_CHANNEL_READERS_MAX;
}

void channel_left_add(channel *self, point_page *page, uint64_t slots) {
    self->left[self->left_count++] = (channel_left){.page = page, .slots = slots};
}

static bool awaits(const channel_left *one, uint32_t slot) {
    return (one->slots >> slot & 1u) != 0;
}

static void let_go(const channel *self, uint32_t slot) {
    for (uint32_t i = 0; i < self->left_count; i++) {
        if (awaits(&self->left[i], slot)) {
            channel_kernel_let_go(self, self->left[i].page, slot);
        }
    }
}

static void await_no_more(channel *self, uint32_t slot) {
    for (uint32_t i = 0; i < self->left_count; i++) {
        self->left[i].slots &= ~(UINT64_C(1) << slot);
    }
}

static void drop_those_that_await_nothing(channel *self) {
    for (uint32_t i = self->left_count; i > 0; i--) {
        channel_left *one = &self->left[i - 1];
        if (one->slots == 0) {
            point_page_unreference(one->page, false);
            *one = self->left[--self->left_count];
        }
    }
}

static bool is_awaited(const channel *self, uint32_t slot) {
    bool is_any = false;
    for (uint32_t i = 0; i < self->left_count; i++) {
        is_any |= awaits(&self->left[i], slot);
    }
    return is_any;
}

bool channel_left_look(channel *self) {
    for (uint32_t i = 0; self->left_count > 0 && i < self->config.slots; i++) {
        if (is_awaited(self, i) && trail_had_passed(self->trail, TRAIL_WRITE, i)) {
            let_go(self, i);
            await_no_more(self, i);
        }
    }
    for (uint32_t i = 0; i < self->left_count; i++) {
        if (point_page_is_abandoned(self->left[i].page)) {
            self->left[i].slots = 0; /* who has ended with its process has no streams any more */
        }
    }
    drop_those_that_await_nothing(self);
    return self->left_count > 0;
}

size_t channel_left_words(const channel *self, uint32_t slot, uint64_t value, point_word *words) {
    size_t count = 0;
    for (uint32_t i = 0; i < self->left_count; i++) {
        if (awaits(&self->left[i], slot)) {
            words[count++] =
                (point_word){self->left[i].page, channel_entry(slot, CHANNEL_READY), value};
        }
    }
    return count;
}

void channel_left_forget(channel *self, uint32_t slot) {
    await_no_more(self, slot);
    drop_those_that_await_nothing(self);
}

void channel_left_end(channel *self, bool forked) {
    for (uint32_t i = 0; i < self->left_count; i++) {
        point_page_unreference(self->left[i].page, forked);
    }
    self->left_count = 0;
}

/* SPDX-License-Identifier: MIT */
/** @file See arrival.h. */
#include "arrival.h"

#include "buffer.h"
#include "contents_ring.h"

void arrival_set(struct buffer *self, borrow *of, point_page *words, uint64_t end) {
    borrow_reference(of);
    if (words != NULL) {
        point_page_reference(words);
    }
    os_mutex_lock(&self->context->points.mutex);
    arrival before = self->arrived;
    self->arrived = (arrival){of, words, end};
    os_mutex_unlock(&self->context->points.mutex);
    arrival_clear(&before, false);
}

bool arrival_is_lost(struct buffer *self) {
    const arrival *last = &self->arrived;
    os_mutex_lock(&self->context->points.mutex);
    bool is_lost = (last->of != NULL && atomic_load(&last->of->is_lost)) ||
                   (last->words != NULL && contents_ring_has_failed(last->words, last->end));
    os_mutex_unlock(&self->context->points.mutex);
    return is_lost;
}

void arrival_clear(arrival *self, bool forked) {
    borrow_unreference(self->of, forked);
    point_page_unreference(self->words, forked);
    *self = (arrival){0};
}

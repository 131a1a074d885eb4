/* SPDX-License-Identifier: MIT */
/** @file See borrow.h. */
#include "borrow.h"

#include <stdlib.h>

#include "context.h"

gpuipc_status borrow_begin(point_page *page, const point *at, bool ends_with_owner,
                           borrow **out_borrow) {
    borrow *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory("borrow", sizeof(*self));
    }
    atomic_init(&self->references, 1u);
    atomic_init(&self->is_returned, false);
    atomic_init(&self->is_lost, false);
    atomic_init(&self->is_closed, false);
    atomic_init(&self->is_released, false);
    self->ends_with_owner = ends_with_owner;
    if (at->index != 0) {
        point_page_reference(page);
        point_borrow(page, at, true);
        self->page = page;
        self->at = *at;
    }
    *out_borrow = self;
    return GPUIPC_OK;
}

void borrow_reference(borrow *self) {
    if (self != NULL) {
        atomic_fetch_add_explicit(&self->references, 1u, memory_order_relaxed);
    }
}

void borrow_unreference(borrow *self, bool forked) {
    if (self != NULL &&
        atomic_fetch_sub_explicit(&self->references, 1u, memory_order_acq_rel) == 1u) {
        point_page_unreference(self->page, forked);
        free(self);
    }
}

void borrow_return(borrow *self) {
    if (self != NULL && self->page != NULL && !atomic_load(&self->is_returned)) {
        const point_word returned = point_returned_word(&self->at);
        point_store(self->page, &returned);
    }
}

/* Once: afterwards the point is the next borrower's. */
static void release(borrow *self) {
    if (!atomic_exchange(&self->is_released, true)) {
        const point_word released = point_released_word(&self->at);
        point_store(self->page, &released);
        point_borrow(self->page, &self->at, false);
    }
}

void borrow_end(borrow *self) {
    if (self == NULL || self->page == NULL) {
        return;
    }
    if (atomic_load(&self->is_returned) && !self->ends_with_owner) {
        /* A stream has written, or will write, all that the lender waits for. */
        point_borrow(self->page, &self->at, false);
        return;
    }
    atomic_store(&self->is_closed, true);
    borrow_passed(self);
}

/* A stream that comes later would put the first stage over the second: whoever sees both that the memory
 * is closed and that the stream has passed stores it. */
void borrow_passed(borrow *self) {
    if (point_has_passed(point_page_context(self->page), &self->passage) &&
        atomic_load(&self->is_closed)) {
        release(self);
    }
}

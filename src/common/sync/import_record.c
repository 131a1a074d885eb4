/* SPDX-License-Identifier: MIT */
/** @file See import_record.h. */
#include "sync/import_record.h"

#include <stdlib.h>

#include "cuda/context.h"
#include "sync/loan_taken.h"

gpuipc_status import_record_new(const point *at, bool ends_with_owner, import_record **out_record) {
    import_record *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    atomic_init(&self->references, 1u);
    atomic_init(&self->is_returned, false);
    atomic_init(&self->is_awaited, false);
    atomic_init(&self->is_lost, false);
    atomic_init(&self->is_closed, false);
    atomic_init(&self->is_released, false);
    self->ends_with_owner = ends_with_owner;
    self->at = *at;
    if (at->page != NULL) {
        point_page_reference(at->page);
        point_set_open(at, true);
    }
    *out_record = self;
    return GPUIPC_OK;
}

typedef struct import_capture {
    list_link link;
    uint32_t at;
    point_word passage;
} import_capture;

/* The watch looks after them no longer. */
static void end_captures(import_record *self, bool forked) {
    import_capture *one;
    while ((one = LIST_ITEM(list_take(&self->captured), import_capture, link)) != NULL) {
        if (!forked) {
            passage_cancel(&one->passage);
        }
        free(one);
    }
}

gpuipc_status import_record_capture(import_record *self, const point_word *word,
                                    const point_word *passage) {
    os_mutex *mutex = &word->page->context->points->mutex;
    import_capture *made = malloc(sizeof(*made));
    if (made == NULL) {
        return status_out_of_memory(sizeof(*made));
    }
    *made = (import_capture){.at = word->at, .passage = *passage};
    os_mutex_lock(mutex);
    list_prepend(&self->captured, &made->link);
    os_mutex_unlock(mutex);
    return GPUIPC_OK;
}

bool import_record_is_captured(import_record *self, const point_word *word) {
    os_mutex *mutex = &word->page->context->points->mutex;
    os_mutex_lock(mutex);
    const list_link *at = self->captured.first;
    while (at != NULL && LIST_ITEM(at, import_capture, link)->at != word->at) {
        at = at->next;
    }
    os_mutex_unlock(mutex);
    return at != NULL;
}

void import_record_reference(import_record *self) {
    if (self != NULL) {
        atomic_fetch_add_explicit(&self->references, 1u, memory_order_relaxed);
    }
}

void import_record_unreference(import_record *self, bool forked) {
    if (self != NULL &&
        atomic_fetch_sub_explicit(&self->references, 1u, memory_order_acq_rel) == 1u) {
        end_captures(self, forked);
        point_page_unreference(self->at.page, forked);
        point_page_unreference(self->marks, forked);
        point_page_unreference(self->given_up.page, forked);
        free(self);
    }
}

void import_record_return(import_record *self) {
    if (self != NULL) {
        end_captures(self, false); /* nobody else has the buffer any more */
        loan_return_all(self);
    }
    if (self != NULL && self->at.page != NULL && !atomic_load(&self->is_returned)) {
        const point_word returned = point_returned_word(&self->at);
        point_store(&returned);
    }
}

/* Once: afterwards the point is the next hand-over's. */
static void release(import_record *self) {
    if (!atomic_exchange(&self->is_released, true)) {
        const point_word released = point_released_word(&self->at);
        point_set_open(&self->at, false);
        point_raise(&released);
    }
}

void import_record_end(import_record *self) {
    if (self == NULL || self->at.page == NULL) {
        return;
    }
    if (atomic_load(&self->is_returned) && !self->ends_with_owner) {
        /* A stream has written, or will write, all that the exporter waits for. */
        point_set_open(&self->at, false);
        return;
    }
    atomic_store(&self->is_closed, true);
    import_record_passed(self);
}

bool import_record_is_lost(const import_record *self) {
    return self != NULL && (atomic_load(&self->is_lost) ||
                            (self->given_up.page != NULL && point_is_reached(&self->given_up) &&
                             !point_is_reached(&self->later)));
}

/* A stream that comes later would put the first stage over the second: whoever sees both that the memory
 * is closed and that the stream has passed stores it. */
void import_record_passed(import_record *self) {
    if (point_is_reached(&self->passage) && atomic_load(&self->is_closed)) {
        release(self);
    }
}

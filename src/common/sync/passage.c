/* SPDX-License-Identifier: MIT */
/** @file See passage.h. */
#include "sync/passage.h"

#include <stdlib.h>

#include "cuda/context.h"
#include "sync/deferred.h"
#include "sync/point.h"

#define WORDS ((uint32_t)(POINT_PAGE_BYTES / sizeof(uint64_t)))
/* How many are looked at whenever one is taken: more than one, so that those that are over never become more than a
 * fraction of those that are not. */
#define LOOKS 4

struct passage_slot {
    point_word last;    /* given out last */
    point_page *of;     /* which the stream touches; NULL: none, or it is over */
    passage_slot *next; /* of the busy or the free ones */
    passage_slot *of_next;
    passage_slot **of_link;
};

struct passage_page {
    deferred deferred; /* the first */
    struct passage_page *next;
    point_page *page;
    struct context *context;
    uint32_t used; /* so many were given out at least once */
    passage_slot slots[];
};

/* ---- of one page --------------------------------------------------------------------------- */

static void leave_page(passage_slot *self) {
    if (self->of == NULL) {
        return;
    }
    *self->of_link = self->of_next;
    if (self->of_next != NULL) {
        self->of_next->of_link = self->of_link;
    }
    self->of = NULL;
}

static void join_page(passage_slot *self, point_page *of) {
    self->of = of;
    if (of == NULL) {
        return;
    }
    passage_slot **first = point_page_passages(of);
    self->of_next = *first;
    self->of_link = first;
    if (*first != NULL) {
        (*first)->of_link = &self->of_next;
    }
    *first = self;
}

bool passage_all_reached(point_page *of) {
    passage_slot **first = point_page_passages(of);
    while (*first != NULL && point_is_reached(&(*first)->last)) {
        leave_page(*first);
    }
    return *first == NULL;
}

/* ---- taking -------------------------------------------------------------------------------- */

static void append_busy(passage_table *self, passage_slot *slot) {
    slot->next = NULL;
    if (self->first_busy == NULL) {
        self->first_busy = slot;
    } else {
        self->last_busy->next = slot;
    }
    self->last_busy = slot;
}

static void settle_some(passage_table *self) {
    for (int i = 0; i < LOOKS && self->first_busy != NULL; i++) {
        passage_slot *slot = self->first_busy;
        self->first_busy = slot->next;
        if (point_is_reached(&slot->last)) {
            leave_page(slot);
            slot->next = self->free;
            self->free = slot;
        } else {
            append_busy(self, slot);
        }
    }
}

static gpuipc_status add_page(struct context *ctx, passage_table *self) {
    const size_t size = sizeof(struct passage_page) + WORDS * sizeof(passage_slot);
    if (self->page_count == POINT_PAGES_MAX) {
        return status_fail(GPUIPC_ERR_LIMIT, "passage_take",
                           "streams have not come to %u words yet", WORDS * POINT_PAGES_MAX);
    }
    struct passage_page *made = calloc(1, size);
    if (made == NULL) {
        return status_out_of_memory("passage_take", size);
    }
    gpuipc_status status = point_page_create(ctx, NULL, &made->page);
    if (status != GPUIPC_OK) {
        free(made);
        return status;
    }
    made->context = ctx;
    made->next = self->pages;
    self->pages = made;
    self->page_count++;
    return GPUIPC_OK;
}

static gpuipc_status take_free(struct context *ctx, passage_table *self, passage_slot **out_slot) {
    gpuipc_status status = GPUIPC_OK;
    if (self->free != NULL) {
        *out_slot = self->free;
        self->free = self->free->next;
        return GPUIPC_OK;
    }
    if (self->pages == NULL || self->pages->used == WORDS) {
        status = add_page(ctx, self);
    }
    if (status == GPUIPC_OK) {
        struct passage_page *newest = self->pages;
        *out_slot = &newest->slots[newest->used];
        (*out_slot)->last = (point_word){newest->page, newest->used, 0};
        newest->used++;
    }
    return status;
}

gpuipc_status passage_take(struct context *ctx, point_page *of, point_word *out_passage) {
    point_context *points = ctx->points;
    passage_slot *slot = NULL;
    os_mutex_lock(&points->mutex);
    settle_some(&points->passages);
    gpuipc_status status = take_free(ctx, &points->passages, &slot);
    if (status == GPUIPC_OK) {
        slot->last.value++;
        join_page(slot, of);
        append_busy(&points->passages, slot);
        *out_passage = slot->last;
    }
    os_mutex_unlock(&points->mutex);
    return status;
}

void passage_cancel(const point_word *passage) {
    if (passage->page != NULL) {
        point_store(passage);
    }
}

/* ---- their end ----------------------------------------------------------------------------- */

/* Whether the streams that were told to write or to wait for a word have come to it. */
static bool have_all_passed(deferred *item) {
    const struct passage_page *self = (struct passage_page *)item;
    for (uint32_t i = 0; i < self->used; i++) {
        if (!point_is_reached(&self->slots[i].last)) {
            return false;
        }
    }
    return true;
}

static void end_deferred(deferred *item, bool forked) {
    struct passage_page *self = (struct passage_page *)item;
    if (!forked) {
        point_page_unregister(self->page);
    }
    point_page_unreference(self->page, forked);
    free(self);
}

void passage_table_end(struct context *ctx) {
    passage_table *self = &ctx->points->passages;
    while (self->pages != NULL) {
        struct passage_page *page = self->pages;
        self->pages = page->next;
        page->deferred = (deferred){.is_ready = have_all_passed, .run = end_deferred};
        deferred_add(ctx->deferred, &page->deferred);
    }
    *self = (passage_table){0};
}

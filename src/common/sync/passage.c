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

typedef struct passage_slot {
    point_word last;   /* given out last */
    point_word until;  /* taken until this is reached: that one, or another slot's */
    list_link in_turn; /* of the busy or the free ones */
    list_link in_page; /* which the stream touches, until it is over */
} passage_slot;

struct passage_page {
    deferred deferred; /* the first */
    list_link link;
    point_page *page;
    struct context *context;
    uint32_t used; /* so many were given out at least once */
    passage_slot slots[];
};

bool passage_all_reached(point_page *of) {
    linked_list *left = &of->passages;
    while (left->first != NULL &&
           point_is_reached(&LIST_ITEM(left->first, passage_slot, in_page)->until)) {
        list_remove(left->first);
    }
    return left->count == 0;
}

/* ---- taking -------------------------------------------------------------------------------- */

static void settle_some(passage_table *self) {
    for (int i = 0; i < LOOKS && self->busy.count > 0; i++) {
        passage_slot *slot = LIST_ITEM(list_turn(&self->busy), passage_slot, in_turn);
        if (point_is_reached(&slot->until)) {
            list_remove(&slot->in_page);
            list_remove(&slot->in_turn);
            list_prepend(&self->free, &slot->in_turn);
        }
    }
}

static gpuipc_status add_page(struct context *ctx, passage_table *self) {
    const size_t size = sizeof(struct passage_page) + WORDS * sizeof(passage_slot);
    if (self->pages.count == POINT_PAGES_MAX) {
        return status_fail(GPUIPC_ERR_LIMIT, "streams have not come to %u words yet; let them",
                           WORDS * POINT_PAGES_MAX);
    }
    struct passage_page *made = calloc(1, size);
    if (made == NULL) {
        return status_out_of_memory(size);
    }
    gpuipc_status status = point_page_create(ctx, NULL, &made->page);
    if (status != GPUIPC_OK) {
        free(made);
        return status;
    }
    made->context = ctx;
    list_prepend(&self->pages, &made->link);
    return GPUIPC_OK;
}

static struct passage_page *newest_of(const passage_table *self) {
    return LIST_ITEM(self->pages.first, struct passage_page, link);
}

static gpuipc_status take_free(struct context *ctx, passage_table *self, passage_slot **out_slot) {
    gpuipc_status status = GPUIPC_OK;
    if (self->free.count > 0) {
        *out_slot = LIST_ITEM(list_take(&self->free), passage_slot, in_turn);
        return GPUIPC_OK;
    }
    struct passage_page *newest = newest_of(self);
    if (newest == NULL || newest->used == WORDS) {
        status = add_page(ctx, self);
    }
    if (status == GPUIPC_OK) {
        newest = newest_of(self);
        *out_slot = &newest->slots[newest->used];
        (*out_slot)->last = (point_word){newest->page, newest->used, 0};
        newest->used++;
    }
    return status;
}

/* @param until NULL: a new value of its own, which is given out */
static gpuipc_status take(struct context *ctx, point_page *of, const point_word *until,
                          point_word *out_passage) {
    point_context *points = ctx->points;
    passage_slot *slot = NULL;
    os_mutex_lock(&points->mutex);
    settle_some(&points->passages);
    gpuipc_status status = take_free(ctx, &points->passages, &slot);
    if (status == GPUIPC_OK) {
        slot->last.value += until == NULL;
        slot->until = until == NULL ? slot->last : *until;
        if (of != NULL) {
            list_append(&of->passages, &slot->in_page);
        }
        list_append(&points->passages.busy, &slot->in_turn);
        *out_passage = slot->until;
    }
    os_mutex_unlock(&points->mutex);
    return status;
}

gpuipc_status passage_take(struct context *ctx, point_page *of, point_word *out_passage) {
    return take(ctx, of, NULL, out_passage);
}

gpuipc_status passage_take_also(struct context *ctx, point_page *of, const point_word *passage) {
    point_word same;
    return take(ctx, of, passage, &same);
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
    struct passage_page *page;
    while ((page = LIST_ITEM(list_take(&self->pages), struct passage_page, link)) != NULL) {
        page->deferred = (deferred){.is_ready = have_all_passed, .run = end_deferred};
        deferred_add(ctx->deferred, &page->deferred);
    }
    *self = (passage_table){0};
}

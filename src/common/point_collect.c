/* SPDX-License-Identifier: MIT */
/** @file What is over, found a little at a time: what that costs does not depend on how much is in use. */
#include "context.h"
#include "lend.h"
#include "point_internal.h"
#include "ready_event.h"
#include "watch.h"

/* How often hand-overs ask about a process. */
#define ASK_NS UINT64_C(10000000)
/* How many processes the end of a connection asks about. It leaves at most one more, so of those
 * that are gone fewer remain in the long run than of those that live on without their connections. */
#define ASKS_AT_END 4u
/* How many lends the two look at. Likewise: an end follows one hand-over or more, and looks at many more. */
#define LOOKS        8u
#define LOOKS_AT_END 64u

void point_page_forget(point_page *self) {
    point_context *points = &self->context->points;
    if (self->orphan_link == NULL) {
        return;
    }
    if (points->next_orphan == self) {
        points->next_orphan = self->orphan_next;
    }
    *self->orphan_link = self->orphan_next;
    if (self->orphan_next != NULL) {
        self->orphan_next->orphan_link = self->orphan_link;
    }
    self->orphan_link = NULL;
}

/* The mutex is held. */
static void link_in(point_page *self) {
    point_page **first = &self->context->points.orphans;
    self->orphan_link = first;
    self->orphan_next = *first;
    if (self->orphan_next != NULL) {
        self->orphan_next->orphan_link = &self->orphan_next;
    }
    *first = self;
}

void point_page_leave(point_page *self) {
    os_mutex_lock(&self->context->points.mutex);
    self->connection = NULL;
    self->is_gone = point_page_peer_is_gone_locked(self);
    if (!self->is_gone) {
        link_in(self);
    }
    os_mutex_unlock(&self->context->points.mutex);
}

/* What is lent to those that are gone is forgotten as the lends are looked at. The mutex is held. */
static void ask(point_context *points, uint32_t most) {
    for (uint32_t asked = 0; asked < most && points->orphans != NULL; asked++) {
        point_page *page = points->next_orphan != NULL ? points->next_orphan : points->orphans;
        points->next_orphan = page->orphan_next;
        if (point_page_peer_is_gone_locked(page)) {
            page->is_gone = true;
            point_page_forget(page);
        }
    }
}

void point_collect_some(struct context *ctx) {
    point_context *points = &ctx->points;
    ready_event_collect_some(ctx);
    os_mutex_lock(&points->mutex);
    if (points->lent != NULL) {
        const uint64_t now = os_clock_ns();
        const bool asks = now - points->asked_ns >= ASK_NS;
        points->asked_ns = asks ? now : points->asked_ns;
        ask(points, asks ? 1 : 0);
        lend_collect_some(points, LOOKS, asks ? 1 : 0);
    }
    os_mutex_unlock(&points->mutex);
}

void point_collect_more(struct context *ctx) {
    point_context *points = &ctx->points;
    ready_event_collect_some(ctx);
    watch_tidy(&ctx->watch);
    os_mutex_lock(&points->mutex);
    ask(points, ASKS_AT_END);
    lend_collect_some(points, LOOKS_AT_END, 0);
    os_mutex_unlock(&points->mutex);
}

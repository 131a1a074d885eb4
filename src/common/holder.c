/* SPDX-License-Identifier: MIT */
/** @file See holder.h. */
#include "holder.h"

#include <stdio.h>
#include <stdlib.h>

/* How many holders of a row are looked at at once, each of which costs a system call: more than can come to it at once,
 * so that it gets shorter; how many hand-overs of theirs; and both when somebody needs a place. */
#define HOLDERS_AT_ONCE 2u
#define SWEPT_AT_ONCE   16u
#define SWEPT_FOR_PLACE 256u
/* How many of a client's own are looked at with each that it gets, so that they become fewer; and when it has too many. */
#define LOOKS_AT_OWN  2u
#define LOOKS_IF_FULL 64u
/* A share with fewer hand-overs than this is not looked through. */
#define FEWEST_TO_LOOK 8

/* ---- the row ------------------------------------------------------------------------------- */

static void row_append(holder_row *row, holder *self) {
    self->row = row;
    self->next = NULL;
    self->previous = row->last;
    if (row->last != NULL) {
        row->last->next = self;
    } else {
        row->first = self;
    }
    row->last = self;
}

static void row_remove(holder *self) {
    holder_row *row = self->row;
    if (self->previous != NULL) {
        self->previous->next = self->next;
    } else {
        row->first = self->next;
    }
    if (self->next != NULL) {
        self->next->previous = self->previous;
    } else {
        row->last = self->previous;
    }
    self->row = NULL;
}

static void rotate(holder *self) {
    holder_row *row = self->row;
    row_remove(self);
    row_append(row, self);
}

/* Nobody refers to it any more. */
static void holder_free(holder *self, bool forked) {
    if (self->row != NULL) {
        row_remove(self);
    }
    point_page_unreference(self->page, forked);
    known_process_unreference(self->process, forked);
    places_give_back(self->places, self->place);
    free(self);
}

/* ---- holds --------------------------------------------------------------------------------- */

static bool is_released(const hold *self) {
    const point_word released = point_released_word(&self->at);
    return !self->is_on_its_way && self->at.index != 0 &&
           point_is_reached(self->by->page, &released);
}

static void leave_holder(hold *self) {
    holder *by = self->by;
    if (by->next_look == self) {
        by->next_look = self->by_next;
    }
    *self->by_link = self->by_next;
    if (self->by_next != NULL) {
        self->by_next->by_link = self->by_link;
    }
    by->count--;
}

static void end_hold(hold *self) {
    *self->link = self->next;
    if (self->next != NULL) {
        self->next->link = self->link;
    }
    self->of->count--;
    leave_holder(self);
    free(self);
}

/* And its holder, if it was the last one of one that has left. */
static void end_with_holder(hold *self, bool forked) {
    holder *by = self->by;
    end_hold(self);
    if (by->first == NULL && by->peer == NULL) {
        holder_free(by, forked);
    }
}

/* The process of a holder is asked for once in a row of its hand-overs. */
void hold_list_reap(hold_list *self) {
    const holder *asked = NULL;
    bool is_gone = false;
    hold *next;
    for (hold *one = self->first; one != NULL; one = next) {
        next = one->next;
        bool is_over = is_released(one);
        if (!is_over && !one->is_on_its_way) {
            is_gone = asked == one->by ? is_gone : point_page_peer_is_gone(one->by->page);
            asked = one->by;
            is_over = is_gone;
        }
        if (is_over) {
            end_with_holder(one, false);
        }
    }
    self->next_look = self->count * 2 < FEWEST_TO_LOOK ? FEWEST_TO_LOOK : self->count * 2;
}

/* Takes away what is over among some of a client's. @return how many it has looked at; less than @p most: it has
 * come to the end of them */
static uint32_t reap_some(holder *self, uint32_t most, bool is_gone) {
    uint32_t looks = 0;
    hold *at = self->next_look != NULL ? self->next_look : self->first;
    for (; at != NULL && looks < most; looks++) {
        hold *next = at->by_next;
        if (!at->is_on_its_way && (is_gone || is_released(at))) {
            end_hold(at);
        }
        at = next;
    }
    self->next_look = at;
    return looks;
}

hold *hold_new(void) {
    return calloc(1, sizeof(hold));
}

void hold_begin(hold *self, hold_list *of, holder *by) {
    *self = (hold){.by = by,
                   .of = of,
                   .is_on_its_way = true,
                   .since_ms = os_time_unix_ms(),
                   .next = of->first,
                   .link = &of->first,
                   .by_next = by->first,
                   .by_link = &by->first};
    if (self->next != NULL) {
        self->next->link = &self->next;
    }
    if (self->by_next != NULL) {
        self->by_next->by_link = &self->by_next;
    }
    of->first = self;
    by->first = self;
    of->count++;
    by->count++;
    (void)reap_some(by, LOOKS_AT_OWN, false);
    if (of->count > of->next_look) {
        hold_list_reap(of);
    }
}

void hold_settle(hold *self, point_page *page, const point *at) {
    if (page == NULL) {
        end_with_holder(self, false);
        return;
    }
    if (self->by->page == NULL) {
        self->by->page = page;
    } else {
        point_page_unreference(page, false); /* a client has one page for all */
    }
    self->is_on_its_way = false;
    self->at = *at;
}

void hold_list_clear(hold_list *self, bool forked) {
    hold *next;
    for (hold *one = self->first; one != NULL; one = next) {
        next = one->next;
        end_with_holder(one, forked);
    }
}

/* ---- holders ------------------------------------------------------------------------------- */

/* Each of them once, and together at most so many of their hand-overs. */
static void sweep(holder_row *row, uint32_t most_holders, uint32_t most) {
    const holder *last = row->last;
    holder *next = row->first;
    for (; next != NULL && most_holders > 0 && most > 0; most_holders--) {
        holder *one = next;
        next = one == last ? NULL : one->next;
        most -= reap_some(one, most, point_page_peer_is_gone(one->page));
        if (one->first == NULL) {
            holder_free(one, false);
        } else if (one->next_look == NULL) {
            rotate(one);
        }
    }
}

void holder_sweep(holder_row *row) {
    sweep(row, HOLDERS_AT_ONCE, SWEPT_AT_ONCE);
}

gpuipc_status holder_new(places *of, const os_peer *peer, holder_row *left, holder **out_holder) {
    holder *self = calloc(1, sizeof(*self));
    places_user *place = NULL;
    if (self == NULL) {
        return status_out_of_memory("holder_new", sizeof(*self));
    }
    gpuipc_status status = places_take(of, peer->user, os_clock_ns(), &place);
    if (status == GPUIPC_OK && place == NULL) {
        sweep(left, SWEPT_FOR_PLACE, SWEPT_FOR_PLACE);
        status = places_take(of, peer->user, os_clock_ns(), &place);
    }
    if (status != GPUIPC_OK || place == NULL) {
        free(self);
        self = NULL;
    } else {
        *self = (holder){.places = of, .place = place, .peer = peer};
    }
    if (status == GPUIPC_OK) {
        *out_holder = self;
    }
    return status;
}

void holder_leave(holder *self, holder_row *row) {
    self->peer = NULL;
    known_process_unreference(self->process, false);
    self->process = NULL;
    (void)reap_some(self, SWEPT_AT_ONCE, false);
    if (self->first == NULL) {
        holder_free(self, false);
    } else {
        row_append(row, self);
    }
}

void holder_abandon(holder *self) {
    self->peer = NULL;
    holder_free(self, true);
}

bool holder_is_full(holder *self) {
    if (self->count >= HOLDER_MOST) {
        (void)reap_some(self, LOOKS_IF_FULL, false);
    }
    return self->count >= HOLDER_MOST;
}

static void describe(const holder *self, gpuipc_holder *out) {
    const os_peer *peer = self->page == NULL ? self->peer : point_page_peer(self->page);
    *out = (gpuipc_holder){.process_id = peer->process_id,
                           .since_ms = UINT64_MAX,
                           .is_running = os_peer_is_running(peer)};
    (void)snprintf(out->user, sizeof(out->user), "%s", peer->user);
}

size_t hold_list_describe(hold_list *self, gpuipc_holder *out_holders, size_t capacity) {
    size_t count = 0;
    for (hold *at = self->first; at != NULL; at = at->next) {
        holder *by = at->by;
        if (by->counted_as == 0) {
            by->counted_as = ++count;
            if (count <= capacity) {
                describe(by, &out_holders[count - 1]);
            }
        }
        if (by->counted_as <= capacity) {
            gpuipc_holder *out = &out_holders[by->counted_as - 1];
            out->openings++;
            out->since_ms = at->since_ms < out->since_ms ? at->since_ms : out->since_ms;
        }
    }
    for (hold *at = self->first; at != NULL; at = at->next) {
        at->by->counted_as = 0;
    }
    return count;
}

/* SPDX-License-Identifier: MIT */
/** @file See holder.h. */
#include "ticket/holder.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"

/* How many holders of a row are looked at at once, each of which costs a system call: more than can come to it at once,
 * so that it gets shorter; how many hand-overs of theirs; and both when somebody needs a place. */
#define HOLDERS_AT_ONCE 2u
#define SWEPT_AT_ONCE   16u
#define SWEPT_FOR_PLACE 256u
/* How many of a client's own are looked at with each that it gets, so that they become fewer; and when it has too many. */
#define LOOKS_AT_OWN  2u
#define LOOKS_IF_FULL 64u
/* How many hand-overs of a holder are looked at when it is listed, others each time. */
#define LOOKS_TO_LIST 64u
/* A share with fewer hand-overs than this is not looked through. */
#define FEWEST_TO_LOOK 8

/* ---- the row ------------------------------------------------------------------------------- */

static holder *holder_of(list_link *at) {
    return LIST_ITEM(at, holder, in_row);
}

/* Nobody refers to it any more. */
static void holder_free(holder *self, bool forked) {
    list_remove(&self->in_row);
    point_page_unreference(self->page, forked);
    known_process_unreference(self->process, forked);
    places_return(self->places, self->place);
    table_clear(&self->holdings);
    free(self);
}

/* ---- holdings ------------------------------------------------------------------------------ */

static holding *holding_of(list_link *at) {
    return LIST_ITEM(at, holding, in_list);
}

static hold *hold_of(list_link *at) {
    return LIST_ITEM(at, hold, link);
}

static hold *hold_of_holder(list_link *at) {
    return LIST_ITEM(at, hold, in_by);
}

static uint64_t hash_of(const hold_list *of) {
    return hash_bytes(0, (const uint8_t *)&of, sizeof(of));
}

static holding *find_holding(const holder *by, const hold_list *of) {
    table_link *at = table_find(&by->holdings, hash_of(of));
    while (at != NULL && TABLE_ITEM(at, holding, by_list)->of != of) {
        at = table_find_next(at);
    }
    return TABLE_ITEM(at, holding, by_list);
}

/* @param spare becomes it where there is none, and is freed else */
static holding *enter(holder *by, hold_list *of, holding *spare) {
    holding *self = find_holding(by, of);
    if (self != NULL) {
        free(spare);
        return self;
    }
    *spare = (holding){.by = by, .of = of};
    list_append(&of->holdings, &spare->in_list);
    table_add(&by->holdings, &spare->by_list, hash_of(of));
    return spare;
}

static void leave(holding *self, hold *gone) {
    if (self->next_look == gone) {
        self->next_look = hold_of(gone->link.next);
    }
    list_remove(&gone->link);
    self->of->count--;
    if (self->holds.count == 0) {
        list_remove(&self->in_list);
        table_remove(&self->by->holdings, &self->by_list);
        free(self);
    }
}

/* ---- holds --------------------------------------------------------------------------------- */

static bool is_released(const hold *self) {
    const point_word released = point_released_word(&self->at);
    return !self->is_on_its_way && point_is_reached(&released);
}

static void leave_holder(hold *self) {
    holder *by = self->in->by;
    if (by->next_look == self) {
        by->next_look = hold_of_holder(self->in_by.next);
    }
    list_remove(&self->in_by);
}

static void end_hold(hold *self, bool forked) {
    leave_holder(self);
    leave(self->in, self);
    point_page_unreference(self->at.page, forked);
    free(self);
}

/* Its holder ends with it, if it was the last one of one that has left. */
static void end_with_holder(hold *self, bool forked) {
    holder *by = self->in->by;
    end_hold(self, forked);
    if (by->holds.count == 0 && by->peer == NULL) {
        holder_free(by, forked);
    }
}

static bool is_over(const hold *self, bool gone) {
    return !self->is_on_its_way && (gone || is_released(self));
}

static bool is_gone(const holder *self) {
    return self->page != NULL && point_page_is_abandoned(self->page);
}

/* The holding ends with its last one, and maybe its holder. @return whether it has not */
static bool reap_holding(holding *self, size_t most) {
    const bool gone = is_gone(self->by);
    size_t left = self->holds.count;
    size_t looks = 0;
    hold *next = hold_of(self->holds.first);
    while (next != NULL &&
           is_over(next, gone)) { /* each of them once: what it costs, its opening has cost */
        hold *one = next;
        next = hold_of(one->link.next);
        left--;
        end_with_holder(one, false);
    }
    hold *at = next;
    if (left > most && self->next_look != NULL) {
        at = self->next_look;
    }
    for (; left > 0 && at != NULL && looks < most; looks++, at = next) {
        next = hold_of(at->link.next);
        if (is_over(at, gone)) {
            left--;
            end_with_holder(at, false);
        }
    }
    if (left > 0) {
        self->next_look = at;
    }
    return left > 0;
}

static void reap(hold_list *self) {
    list_link *next;
    for (list_link *at = self->holdings.first; at != NULL; at = next) {
        next = at->next;
        (void)reap_holding(holding_of(at), SIZE_MAX);
    }
    self->next_look = self->count * 2 < FEWEST_TO_LOOK ? FEWEST_TO_LOOK : self->count * 2;
}

/* Takes away what is over among some of a client's. @return how many it has looked at; less than @p most: it has
 * come to the end of them */
static uint32_t reap_some(holder *self, uint32_t most, bool gone) {
    uint32_t looks = 0;
    hold *at = self->next_look != NULL ? self->next_look : hold_of_holder(self->holds.first);
    for (; at != NULL && looks < most; looks++) {
        hold *next = hold_of_holder(at->in_by.next);
        if (is_over(at, gone)) {
            end_hold(at, false);
        }
        at = next;
    }
    self->next_look = at;
    return looks;
}

hold *hold_new(void) {
    hold *self = calloc(1, sizeof(*self));
    holding *in = calloc(1, sizeof(*in));
    if (self == NULL || in == NULL) {
        free(in);
        free(self);
        return NULL;
    }
    self->in = in;
    return self;
}

void hold_destroy(hold *self) {
    free(self->in);
    free(self);
}

void hold_begin(hold *self, hold_list *of, holder *by) {
    *self =
        (hold){.in = enter(by, of, self->in), .is_on_its_way = true, .since_ms = os_time_unix_ms()};
    list_prepend(&by->holds, &self->in_by);
    list_append(&self->in->holds, &self->link);
    of->count++;
    (void)reap_some(by, LOOKS_AT_OWN, false);
    if (of->count > of->next_look) {
        reap(of);
    }
}

void hold_settle(hold *self, const point *at) {
    if (at->page == NULL) {
        end_with_holder(self, false);
        return;
    }
    holder *by = self->in->by;
    if (by->page == NULL) {
        point_page_reference(at->page);
        by->page = at->page;
    }
    self->is_on_its_way = false;
    self->at = *at;
}

void hold_list_clear(hold_list *self, bool forked) {
    while (self->holdings.first != NULL) {
        end_with_holder(hold_of(holding_of(self->holdings.first)->holds.first), forked);
    }
}

/* ---- holders ------------------------------------------------------------------------------- */

/* Each of them once, and together at most so many of their hand-overs. One that was looked through goes to the end. */
static void sweep(linked_list *row, size_t most_holders, uint32_t most) {
    list_link *next = row->first;
    for (size_t left = row->count < most_holders ? row->count : most_holders; left > 0 && most > 0;
         left--) {
        holder *one = holder_of(next);
        next = next->next;
        most -= reap_some(one, most, point_page_is_abandoned(one->page));
        if (one->holds.count == 0) {
            holder_free(one, false);
        } else if (one->next_look == NULL) {
            list_remove(&one->in_row);
            list_append(row, &one->in_row);
        }
    }
}

void holder_sweep(linked_list *row) {
    sweep(row, HOLDERS_AT_ONCE, SWEPT_AT_ONCE);
}

gpuipc_status holder_new(places *of, const os_peer *peer, linked_list *left, holder **out_holder) {
    holder *self = calloc(1, sizeof(*self));
    places_user *place = NULL;
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
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

void holder_leave(holder *self, linked_list *row) {
    self->peer = NULL;
    known_process_unreference(self->process, false);
    self->process = NULL;
    (void)reap_some(self, SWEPT_AT_ONCE, false);
    if (self->holds.count == 0) {
        holder_free(self, false);
    } else {
        list_append(row, &self->in_row);
    }
}

void holder_abandon(holder *self) {
    self->peer = NULL;
    holder_free(self, true);
}

bool holder_is_full(holder *self) {
    if (self->holds.count >= HOLDER_MOST) {
        (void)reap_some(self, LOOKS_IF_FULL, false);
    }
    return self->holds.count >= HOLDER_MOST;
}

static void describe(const holding *self, gpuipc_holder *out) {
    const holder *by = self->by;
    const os_peer *peer = by->page == NULL ? by->peer : &by->page->peer->process;
    *out = (gpuipc_holder){.process_id = peer->process_id,
                           .since_ms = hold_of(self->holds.first)->since_ms,
                           .openings = (uint32_t)self->holds.count,
                           .is_running = os_peer_is_running(peer)};
    (void)snprintf(out->user, sizeof(out->user), "%s", peer->user);
}

size_t hold_list_describe(hold_list *self, gpuipc_holder *out_holders, size_t capacity) {
    size_t count = 0;
    list_link *next;
    for (list_link *at = self->holdings.first; at != NULL; at = next) {
        holding *one = holding_of(at);
        next = at->next;
        if (!reap_holding(one, LOOKS_TO_LIST)) {
            continue;
        }
        if (count < capacity) {
            describe(one, &out_holders[count]);
        }
        count++;
    }
    return count;
}

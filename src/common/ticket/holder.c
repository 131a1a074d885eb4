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
/* The same when processes have ended: what others wait for meanwhile is well below a millisecond. */
#define ENDED_AT_ONCE  64u
#define SWEPT_OF_ENDED 1024u
/* How many of a client's own are looked at with each that it gets, so that they become fewer; and when it has too many. */
#define LOOKS_AT_OWN  2u
#define LOOKS_IF_FULL 64u
/* How many hand-overs of a holder are looked at when it is listed, others each time. */
#define LOOKS_TO_LIST 64u
/* What a hand-over costs this process: a hold, a holding, the record and the words of its point, rounded up. */
static const quota_amount of_hold = {{[QUOTA_MEMORY] = 512}};
/* What it costs to be woken at the end of its process: on Linux a descriptor. */
static const quota_amount of_watch = {{[QUOTA_HANDLES] = 1}};

/* ---- the row ------------------------------------------------------------------------------- */

static holder *holder_of(list_link *at) {
    return LIST_ITEM(at, holder, in_row);
}

/* Nobody refers to it any more. */
static void holder_destroy(holder *self, bool forked) {
    list_remove(&self->in_row);
    os_process_watch_destroy(self->watch);
    quota_return(&self->charge);
    quota_unreference(self->quota);
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
    holding *found = NULL;
    for (table_link *at = table_find(&by->holdings, hash_of(of)); at != NULL && found == NULL;
         at = table_find_next(at)) {
        holding *one = TABLE_ITEM(at, holding, by_list);
        found = one->of == of ? one : NULL;
    }
    return found;
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
    return point_is_reached(&released);
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
    quota_return_some(&self->in->by->charge, &of_hold);
    leave(self->in, self);
    point_page_unreference(self->at.page, forked);
    free(self);
}

/* Its holder ends with it, if it was the last one of one that has left. */
static void end_with_holder(hold *self, bool forked) {
    holder *by = self->in->by;
    end_hold(self, forked);
    if (by->holds.count == 0 && by->peer == NULL) {
        holder_destroy(by, forked);
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

/* Of a holder, at most so many hand-overs. *io_most becomes less. @return whether it is over, or was looked through: of a
 * process that is gone all of it goes */
static bool sweep_one(linked_list *row, holder *one, uint32_t *io_most) {
    const bool gone = point_page_is_abandoned(one->page);
    *io_most -= reap_some(one, *io_most, gone);
    if (one->holds.count == 0) {
        holder_destroy(one, false);
        return true;
    }
    if (gone || one->next_look != NULL) {
        return false;
    }
    list_remove(&one->in_row);
    list_append(row, &one->in_row);
    return true;
}

/* Each of them once, and together at most so many of their hand-overs. One that was looked through goes to the end.
 * @return how many were */
static size_t sweep(linked_list *row, size_t most_holders, uint32_t most) {
    size_t done = 0;
    list_link *next = row->first;
    for (size_t left = row->count < most_holders ? row->count : most_holders; left > 0 && most > 0;
         left--) {
        holder *one = holder_of(next);
        next = next->next;
        done += sweep_one(row, one, &most);
    }
    return done;
}

void holder_sweep(linked_list *row) {
    (void)sweep(row, HOLDERS_AT_ONCE, SWEPT_AT_ONCE);
}

size_t holder_sweep_ended(linked_list *row) {
    return sweep(row, ENDED_AT_ONCE, SWEPT_OF_ENDED);
}

gpuipc_status holder_new(places *of, const os_peer *peer, linked_list *left, holder **out_holder) {
    holder *self = calloc(1, sizeof(*self));
    places_user *place = NULL;
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    gpuipc_status status = places_take(of, peer->user, os_clock_ns(), &place);
    if (status == GPUIPC_OK && place == NULL) {
        (void)sweep(left, SWEPT_FOR_PLACE, SWEPT_FOR_PLACE);
        status = places_take(of, peer->user, os_clock_ns(), &place);
    }
    if (status == GPUIPC_OK && place != NULL) {
        *self = (holder){.places = of, .place = place, .peer = peer};
        status = quota_open(peer, &self->quota);
    }
    if (status != GPUIPC_OK && place != NULL) {
        places_return(of, place);
    }
    if (status != GPUIPC_OK || place == NULL) {
        free(self);
        self = NULL;
    }
    if (status == GPUIPC_OK) {
        *out_holder = self;
    }
    return status;
}

/* Where its end cannot be waited for, it is noticed when somebody sweeps. */
static void wait_in_row(holder *self, linked_list *row, os_poller *woken) {
    const gpuipc_error why = status_save();
    if (woken != NULL && quota_take(self->quota, &of_watch, &self->charge) == GPUIPC_OK &&
        os_poller_watch(woken, &self->page->peer->process, &self->watch) != GPUIPC_OK) {
        quota_return_some(&self->charge, &of_watch);
    }
    status_restore(&why);
    list_append(row, &self->in_row);
}

void holder_leave(holder *self, linked_list *row, os_poller *woken) {
    self->peer = NULL;
    known_process_unreference(self->process, false);
    self->process = NULL;
    (void)is_gone(self); /* where its program has ended: from now on it is so */
    (void)reap_some(self, SWEPT_AT_ONCE, false);
    if (self->holds.count == 0) {
        holder_destroy(self, false);
    } else {
        wait_in_row(self, row, woken);
    }
}

void holder_abandon(holder *self) {
    self->peer = NULL;
    holder_destroy(self, true);
}

bool holder_take_room(holder *self) {
    const gpuipc_error why = status_save();
    gpuipc_status status = quota_take(self->quota, &of_hold, &self->charge);
    if (status != GPUIPC_OK) {
        (void)reap_some(self, LOOKS_IF_FULL, false);
        status = quota_take(self->quota, &of_hold, &self->charge);
    }
    status_restore(&why);
    return status == GPUIPC_OK;
}

void holder_return_room(holder *self) {
    quota_return_some(&self->charge, &of_hold);
}

static void describe(const holding *self, gpuipc_holder *out) {
    const holder *by = self->by;
    const os_peer *peer = by->page == NULL ? by->peer : &by->page->peer->process;
    *out = (gpuipc_holder){.process_id = peer->process_id,
                           .since_ms = hold_of(self->holds.first)->since_ms,
                           .openings = (uint32_t)self->holds.count,
                           .is_running = by->page == NULL ? os_peer_is_running(peer)
                                                          : point_peer_is_running(by->page->peer)};
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

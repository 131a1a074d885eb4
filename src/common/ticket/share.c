/* SPDX-License-Identifier: MIT */
/** @file See share.h. */
#include "ticket/share.h"

#include <stdlib.h>
#include <string.h>

/* How many shares that have expired or were revoked are remembered. */
#define MOST_BURIED 4096u
/* How many that have expired are given up at once. */
#define SWEPT_AT_ONCE 16u

struct share {
    table_link by_id;
    uint32_t id;
    uint8_t secret[TICKET_SECRET_BYTES];
    wire_answer state;      /* GRANTED; or what who asks is told */
    offer *offer;           /* NULL unless GRANTED */
    expiry expires;         /* UINT64_MAX: never */
    uint32_t max_processes; /* 0: any number */
    bool is_one_shot;       /* it is used up when so many have it open */
    admission *admitted;    /* while it is GRANTED, where there is a limit; else NULL */
    hold_list holds;
    unsigned in_use; /* by grants that are not settled; not in the table: the last one frees it */
    list_link in_buried;
};

/* ---- one of them ----------------------------------------------------------------------------- */

static share *share_of(table_link *at) {
    return TABLE_ITEM(at, share, by_id);
}

/* The numbers are this table's own: their low bits are as good as any. */
static share *find_id(const share_table *self, uint32_t id) {
    return share_of(table_find(&self->shares, id));
}

/* The share of a ticket, if the secret is right. Whether there is one with another secret cannot be told. */
static share *find(share_table *self, const ticket *wanted) {
    static const uint8_t nobodys[TICKET_SECRET_BYTES];
    share *found = find_id(self, wanted->share);
    const bool is_right = ticket_secret_is(found == NULL ? nobodys : found->secret, wanted->secret);
    return is_right ? found : NULL;
}

static void share_destroy(share *self, bool forked) {
    hold_list_clear(&self->holds, forked);
    admission_destroy(self->admitted, forked);
    free(self);
}

/* Takes it out of the table. Its offer is the caller's. The mutex is held. */
static void forget(share_table *self, share *gone) {
    table_remove(&self->shares, &gone->by_id);
    list_remove(&gone->in_buried);
    expiry_remove(&self->dated, &gone->expires);
    if (gone->in_use == 0) {
        share_destroy(gone, false);
    }
}

/* Nobody opens it any more. Gives what it offered, for the caller to give up without the mutex. */
static offer *bury(share_table *self, share *dead, wire_answer why) {
    offer *offered = dead->offer;
    dead->offer = NULL;
    dead->state = why;
    admission_destroy(dead->admitted, false);
    dead->admitted = NULL;
    expiry_remove(&self->dated, &dead->expires);
    list_remove(&dead->in_buried);
    list_append(&self->buried, &dead->in_buried);
    if (self->buried.count > MOST_BURIED) {
        forget(self, LIST_ITEM(self->buried.first, share, in_buried));
    }
    return offered;
}

/* Whether it is for nobody any more but those who got it and have not said yet that they have it open. */
static bool is_given(const share *self) {
    return self->is_one_shot && admission_count(self->admitted) >= self->max_processes;
}

static offer *bury_expired(share_table *self, share *at) {
    return bury(self, at, is_given(at) ? WIRE_USED_UP : WIRE_EXPIRED);
}

static offer *bury_if_expired(share_table *self, share *at, uint64_t now_ns) {
    return at->state == WIRE_GRANTED && now_ns >= at->expires.at_ns ? bury_expired(self, at) : NULL;
}

/* ---- the table ----------------------------------------------------------------------------- */

void share_table_clear(share_table *self) {
    linked_list offers = {0};
    list_link *given_up;
    os_mutex_lock(&self->mutex);
    for (table_link *at = table_first(&self->shares), *next; at != NULL; at = next) {
        share *gone = share_of(at);
        next = table_next(&self->shares, at);
        if (gone->offer != NULL) {
            list_append(&offers, &gone->offer->given_up);
            gone->offer = NULL;
        }
        forget(self, gone);
    }
    os_mutex_unlock(&self->mutex);
    while ((given_up = list_take(&offers)) != NULL) {
        offer_unreference(LIST_ITEM(given_up, offer, given_up), false);
    }
}

void share_table_destroy(share_table *self, bool forked) {
    for (table_link *at = table_first(&self->shares), *next; at != NULL; at = next) {
        share *gone = share_of(at);
        next = table_next(&self->shares, at);
        offer_unreference(gone->offer, forked);
        share_destroy(gone, forked);
    }
    table_clear(&self->shares);
    expiry_heap_destroy(&self->dated);
}

static uint32_t next_id(share_table *self) {
    do {
        self->next_id++;
    } while (self->next_id == 0 || find_id(self, self->next_id) != NULL);
    return self->next_id;
}

static uint64_t expires_at(uint64_t expires_ms) {
    const uint64_t now_ns = os_clock_ns();
    return expires_ms == 0 || expires_ms > (UINT64_MAX - now_ns) / 1000000u
               ? UINT64_MAX
               : now_ns + expires_ms * 1000000u;
}

static gpuipc_status make(offer *of, const share_limits *limits, share **out_share) {
    gpuipc_status status = GPUIPC_OK;
    share *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return status_out_of_memory(sizeof(*made));
    }
    *made = (share){.state = WIRE_GRANTED,
                    .offer = of,
                    .expires = {.at_ns = expires_at(limits->expires_ms), .of = made},
                    .max_processes = limits->max_processes,
                    .is_one_shot = limits->is_one_shot};
    status = os_random(made->secret, sizeof(made->secret));
    if (status == GPUIPC_OK && made->max_processes != 0) {
        status = admission_new(&made->admitted);
    }
    if (status != GPUIPC_OK) {
        free(made);
        return status;
    }
    *out_share = made;
    return GPUIPC_OK;
}

gpuipc_status share_add(share_table *self, offer *of, const share_limits *limits, ticket *out_share,
                        bool *out_is_next) {
    share *made = NULL;
    gpuipc_status status = make(of, limits, &made);
    if (status != GPUIPC_OK) {
        return status;
    }
    os_mutex_lock(&self->mutex);
    if (made->expires.at_ns != UINT64_MAX) {
        status = expiry_add(&self->dated, &made->expires);
    }
    if (status == GPUIPC_OK) {
        *out_is_next = expiry_next(&self->dated) == &made->expires;
        made->id = next_id(self);
        table_add(&self->shares, &made->by_id, made->id);
        out_share->share = made->id;
        memcpy(out_share->secret, made->secret, sizeof(out_share->secret));
    }
    os_mutex_unlock(&self->mutex);
    if (status != GPUIPC_OK) {
        share_destroy(made, false);
    }
    return status;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* Of a share with a limit: whether the client's process may have it; then it counts. */
static gpuipc_status admit(share_table *self, share *to, holder *by, wire_answer *out_answer,
                           admitted **out_new) {
    gpuipc_status status = GPUIPC_OK;
    if (by->process == NULL) {
        status = known_process_get(&self->processes, by->peer, by->quota, &by->process);
    }
    if (status == GPUIPC_ERR_LIMIT) {
        *out_answer = WIRE_BUSY;
        return GPUIPC_OK;
    }
    if (status != GPUIPC_OK || admission_find(to->admitted, by->process) != NULL) {
        return status;
    }
    if (admission_count(to->admitted) >= to->max_processes) {
        *out_answer = WIRE_USED_UP;
        return GPUIPC_OK;
    }
    return admission_add(to->admitted, by->process, out_new);
}

/* What a ticket is answered, whoever asks. *out_expired is for the caller to give up without the mutex. */
static wire_answer look_up(share_table *self, const ticket *wanted, share **out_share,
                           offer **out_expired) {
    share *found = find(self, wanted);
    if (found == NULL) {
        return WIRE_UNKNOWN;
    }
    *out_expired = bury_if_expired(self, found, os_clock_ns());
    *out_share = found;
    return found->state == WIRE_GRANTED && !offer_has(found->offer, wanted->offset, wanted->bytes)
               ? WIRE_OUT_OF_RANGE
               : found->state;
}

wire_answer share_find(share_table *self, const ticket *wanted, offer **out_offer) {
    share *found = NULL;
    offer *expired = NULL;
    os_mutex_lock(&self->mutex);
    wire_answer answer = look_up(self, wanted, &found, &expired);
    if (answer == WIRE_GRANTED && is_given(found)) {
        answer = WIRE_USED_UP;
    }
    if (answer == WIRE_GRANTED) {
        offer_reference(found->offer);
        *out_offer = found->offer;
    }
    os_mutex_unlock(&self->mutex);
    offer_unreference(expired, false);
    return answer;
}

/* GRANTED: it is in use, and the process counts. */
static gpuipc_status grant_to(share_table *self, share *of, holder *by, wire_answer *out_answer,
                              share_grant *grant) {
    gpuipc_status status = GPUIPC_OK;
    if (!holder_take_room(by)) {
        *out_answer = WIRE_BUSY;
        return GPUIPC_OK;
    }
    if (of->max_processes != 0) {
        status = admit(self, of, by, out_answer, &grant->admitted);
    }
    if (status != GPUIPC_OK || *out_answer != WIRE_GRANTED) {
        holder_return_room(by);
    } else {
        grant->of = of;
        grant->offer = of->offer;
        offer_reference(of->offer);
        of->in_use++;
        hold_begin(grant->noted, &of->holds, by);
    }
    return status;
}

gpuipc_status share_ask(share_table *self, const ticket *wanted, holder *by,
                        wire_answer *out_answer, share_grant *out_grant) {
    share_grant grant = {.noted = hold_new()};
    gpuipc_status status = GPUIPC_OK;
    share *found = NULL;
    offer *expired = NULL;
    if (grant.noted == NULL) {
        return status_out_of_memory(sizeof(hold));
    }
    os_mutex_lock(&self->mutex);
    wire_answer answer = look_up(self, wanted, &found, &expired);
    if (answer == WIRE_GRANTED) {
        status = grant_to(self, found, by, &answer, &grant);
    }
    os_mutex_unlock(&self->mutex);
    offer_unreference(expired, false);
    if (status != GPUIPC_OK || answer != WIRE_GRANTED) {
        hold_destroy(grant.noted);
    }
    if (status == GPUIPC_OK) {
        *out_answer = answer;
        *out_grant = grant;
    }
    return status;
}

/* The processes that it was for have got it: those who could not open it may come again for a while. @return what it
 * offered, if they may not; else NULL */
static offer *expire_if_given(share_table *self, share *at) {
    const uint64_t at_ns = os_clock_ns() + self->confirm_ns;
    if (at->state != WIRE_GRANTED || !is_given(at) || at_ns >= at->expires.at_ns) {
        return NULL;
    }
    expiry_remove(&self->dated, &at->expires);
    at->expires.at_ns = at_ns;
    return expiry_add(&self->dated, &at->expires) == GPUIPC_OK ? NULL
                                                               : bury(self, at, WIRE_USED_UP);
}

void share_settle(share_table *self, share_grant *grant, bool has_left, const point *at) {
    share *of = grant->of;
    offer *used_up = NULL;
    os_mutex_lock(&self->mutex);
    hold_settle(grant->noted, at);
    if (has_left) {
        used_up = expire_if_given(self, of);
    } else if (grant->admitted != NULL && of->admitted != NULL) { /* else forgotten with the rest */
        admission_remove(of->admitted, grant->admitted);
    }
    of->in_use--;
    if (of->in_use == 0 && !table_has(&of->by_id)) {
        share_destroy(of, false);
    }
    os_mutex_unlock(&self->mutex);
    offer_unreference(used_up, false);
    offer_unreference(grant->offer, false);
}

void share_confirm(share_table *self, const ticket *of, const holder *by) {
    offer *used_up = NULL;
    os_mutex_lock(&self->mutex);
    share *found = find(self, of);
    const bool counts = found != NULL && found->state == WIRE_GRANTED && found->is_one_shot;
    admitted *who = counts ? admission_find(found->admitted, by->process) : NULL;
    if (who != NULL && !who->is_confirmed) {
        who->is_confirmed = true;
        found->admitted->confirmed++;
        if (found->admitted->confirmed >= found->max_processes) {
            used_up = bury(self, found, WIRE_USED_UP);
        }
    }
    os_mutex_unlock(&self->mutex);
    offer_unreference(used_up, false);
}

gpuipc_status share_enter(share_table *self, const os_peer *peer, holder **out_holder) {
    os_mutex_lock(&self->mutex);
    gpuipc_status status = holder_new(&self->places, peer, &self->left, out_holder);
    os_mutex_unlock(&self->mutex);
    return status;
}

uint32_t share_limit(share_table *self, wire_busy *out_of) {
    os_mutex_lock(&self->mutex);
    const bool is_full = self->places.count >= self->places.most;
    const uint32_t limit = is_full ? self->places.most : self->places.most_of_user;
    os_mutex_unlock(&self->mutex);
    *out_of = is_full ? WIRE_BUSY_ALL : WIRE_BUSY_USER;
    return limit;
}

void share_leave(share_table *self, holder *by) {
    os_mutex_lock(&self->mutex);
    holder_leave(by, &self->left, self->woken);
    os_mutex_unlock(&self->mutex);
}

bool share_has_clients(share_table *self) {
    os_mutex_lock(&self->mutex);
    const bool has_clients = self->places.count > 0;
    os_mutex_unlock(&self->mutex);
    return has_clients;
}

uint32_t share_pause_ms(share_table *self, holder *by) {
    os_mutex_lock(&self->mutex);
    const uint32_t pause_ms = places_pause_ms(by->place, os_clock_ns());
    os_mutex_unlock(&self->mutex);
    return pause_ms;
}

void share_spend(share_table *self, holder *by, uint64_t ns) {
    os_mutex_lock(&self->mutex);
    places_spend(by->place, ns);
    os_mutex_unlock(&self->mutex);
}

void share_sweep(share_table *self) {
    offer *expired[SWEPT_AT_ONCE];
    uint32_t count = 0;
    os_mutex_lock(&self->mutex);
    const uint64_t now_ns = self->dated.count == 0 ? 0 : os_clock_ns();
    const expiry *next;
    while (count < SWEPT_AT_ONCE && (next = expiry_next(&self->dated)) != NULL &&
           next->at_ns <= now_ns) {
        expired[count++] = bury_expired(self, next->of);
    }
    if (self->left_to_look > 0 && self->left.count > 0) {
        const size_t done = holder_sweep_ended(&self->left);
        self->left_to_look -= done < self->left_to_look ? done : self->left_to_look;
    } else {
        self->left_to_look = 0;
        holder_sweep(&self->left);
    }
    known_processes_sweep(&self->processes);
    os_mutex_unlock(&self->mutex);
    while (count > 0) {
        offer_unreference(expired[--count], false);
    }
}

void share_notice_end(share_table *self) {
    os_mutex_lock(&self->mutex);
    self->left_to_look = self->left.count;
    os_mutex_unlock(&self->mutex);
}

os_deadline share_next_expiry(share_table *self) {
    os_deadline at = {.at_ns = 0};
    os_mutex_lock(&self->mutex);
    const expiry *next = expiry_next(&self->dated);
    if (self->left_to_look == 0) {
        at.at_ns = next == NULL ? UINT64_MAX : next->at_ns;
    }
    os_mutex_unlock(&self->mutex);
    return at;
}

/* ---- who shares ---------------------------------------------------------------------------- */

static gpuipc_status unknown(void) {
    return status_fail(GPUIPC_ERR_TICKET_UNKNOWN,
                       "the server has given out no such ticket, or forgot it long ago");
}

gpuipc_status share_revoke(share_table *self, const ticket *of) {
    gpuipc_status status = GPUIPC_OK;
    offer *offered = NULL;
    os_mutex_lock(&self->mutex);
    share *found = find(self, of);
    if (found == NULL) {
        status = unknown();
    } else if (found->state == WIRE_REVOKED) {
        status = status_fail(GPUIPC_ERR_TICKET_REVOKED, "the ticket was revoked before");
    } else {
        offered = bury(self, found, WIRE_REVOKED);
    }
    os_mutex_unlock(&self->mutex);
    offer_unreference(offered, false);
    return status;
}

void share_abandon(share_table *self, const ticket *of) {
    offer *offered = NULL;
    if (!os_mutex_try_lock(&self->mutex)) {
        return;
    }
    share *found = find(self, of);
    if (found != NULL) {
        offered = found->offer;
        found->offer = NULL;
        found->state = WIRE_REVOKED;
    }
    os_mutex_unlock(&self->mutex);
    offer_unreference(offered, true);
}

gpuipc_status share_holders(share_table *self, const ticket *of, gpuipc_holder *holders,
                            size_t capacity, size_t *out_count) {
    os_mutex_lock(&self->mutex);
    share *found = find(self, of);
    size_t count = 0;
    if (found != NULL) {
        count = hold_list_describe(&found->holds, holders, capacity);
    }
    os_mutex_unlock(&self->mutex);
    if (found == NULL) {
        return unknown();
    }
    *out_count = count;
    return count <= capacity
               ? GPUIPC_OK
               : status_fail(GPUIPC_ERR_TOO_SMALL,
                             "%zu processes have it open; there is room for %zu", count, capacity);
}

/* SPDX-License-Identifier: MIT */
/** @file See share.h. */
#include "share.h"

#include <stdlib.h>
#include <string.h>

#include "admission.h"

#define FIRST_SLOTS 64u /* a power of two */
/* How many shares that have expired or were revoked are remembered. */
#define MOST_BURIED 4096u
/* How many that have expired are given up at once. */
#define SWEPT_AT_ONCE 16u

struct share {
    share *next_in_slot;
    uint32_t id;
    uint8_t secret[TICKET_SECRET_BYTES];
    wire_answer state; /* GRANTED; or what who asks is told */
    offer *offer;      /* NULL unless GRANTED */
    expiry expires;    /* UINT64_MAX: never */
    uint32_t max_processes;
    admission admitted; /* while it is GRANTED, where there is a limit */
    hold_list holds;
    unsigned in_use;   /* by grants that are not settled */
    bool is_forgotten; /* not in the table any more: the last grant frees it */
    share_row *row;    /* that it is in; NULL: none */
    share *next;
    share *previous;
};

/* ---- rows and slots ------------------------------------------------------------------------ */

static void row_append(share_row *row, share *self) {
    self->row = row;
    self->next = NULL;
    self->previous = row->last;
    if (row->last != NULL) {
        row->last->next = self;
    } else {
        row->first = self;
    }
    row->last = self;
    row->count++;
}

static void row_remove(share *self) {
    share_row *row = self->row;
    if (row == NULL) {
        return;
    }
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
    row->count--;
    self->row = NULL;
}

static share **slot_of(share_table *self, uint32_t id) {
    return &self->slots[id & (self->slot_count - 1)];
}

static share *find_id(share_table *self, uint32_t id) {
    share *at = *slot_of(self, id);
    while (at != NULL && at->id != id) {
        at = at->next_in_slot;
    }
    return at;
}

/* The share of a ticket, if the secret is right. Whether there is one with another secret cannot be told. */
static share *find(share_table *self, const ticket *wanted) {
    static const uint8_t nobodys[TICKET_SECRET_BYTES];
    share *found = find_id(self, wanted->share);
    const bool is_right = ticket_secret_is(found == NULL ? nobodys : found->secret, wanted->secret);
    return is_right ? found : NULL;
}

/* Twice the slots; without memory the chains only get longer. */
static void grow(share_table *self) {
    const uint32_t old_count = self->slot_count;
    share **old = self->slots;
    share **slots = calloc((size_t)old_count * 2, sizeof(*slots));
    if (slots == NULL) {
        return;
    }
    self->slots = slots;
    self->slot_count = old_count * 2;
    for (uint32_t i = 0; i < old_count; i++) {
        for (share *at = old[i]; at != NULL;) {
            share *next = at->next_in_slot;
            share **slot = slot_of(self, at->id);
            at->next_in_slot = *slot;
            *slot = at;
            at = next;
        }
    }
    free(old);
}

static void free_share(share *self, bool forked) {
    hold_list_clear(&self->holds, forked);
    admission_clear(&self->admitted, forked);
    free(self);
}

/* Takes it out of the table. Its offer is the caller's. The mutex is held. */
static void forget(share_table *self, share *gone) {
    share **at = slot_of(self, gone->id);
    while (*at != gone) {
        at = &(*at)->next_in_slot;
    }
    *at = gone->next_in_slot;
    row_remove(gone);
    expiry_remove(&self->dated, &gone->expires);
    self->count--;
    gone->is_forgotten = true;
    if (gone->in_use == 0) {
        free_share(gone, false);
    }
}

/* Nobody opens it any more. Gives what it offered, for the caller to give up without the mutex. */
static offer *bury(share_table *self, share *dead, wire_answer why) {
    offer *offered = dead->offer;
    dead->offer = NULL;
    dead->state = why;
    admission_clear(&dead->admitted, false);
    expiry_remove(&self->dated, &dead->expires);
    row_remove(dead);
    row_append(&self->buried, dead);
    if (self->buried.count > MOST_BURIED) {
        forget(self, self->buried.first);
    }
    return offered;
}

static offer *bury_if_expired(share_table *self, share *at, uint64_t now_ns) {
    return at->state == WIRE_GRANTED && now_ns >= at->expires.at_ns ? bury(self, at, WIRE_EXPIRED)
                                                                    : NULL;
}

/* ---- the table ----------------------------------------------------------------------------- */

gpuipc_status share_table_init(share_table *self, uint32_t max_clients,
                               uint32_t max_clients_of_user) {
    *self = (share_table){.slot_count = FIRST_SLOTS,
                          .places = {.most = max_clients, .most_of_user = max_clients_of_user}};
    self->slots = calloc(FIRST_SLOTS, sizeof(*self->slots));
    if (self->slots == NULL) {
        return status_out_of_memory("share_table_init", FIRST_SLOTS * sizeof(*self->slots));
    }
    gpuipc_status status = os_mutex_init(&self->mutex);
    if (status != GPUIPC_OK) {
        free(self->slots);
    }
    return status;
}

/* Any of a slot, or NULL. @param slot its number; moved on over those that are empty */
static share *take_any(share_table *self, uint32_t *slot, offer **out_offer) {
    share *found = NULL;
    os_mutex_lock(&self->mutex);
    while (*slot < self->slot_count && (found = self->slots[*slot]) == NULL) {
        ++*slot;
    }
    if (found != NULL) {
        *out_offer = found->offer;
        found->offer = NULL;
        forget(self, found);
    }
    os_mutex_unlock(&self->mutex);
    return found;
}

void share_table_clear(share_table *self) {
    offer *offered = NULL;
    uint32_t slot = 0;
    while (take_any(self, &slot, &offered) != NULL) {
        offer_unreference(offered, false);
    }
}

void share_table_end(share_table *self, bool forked) {
    for (uint32_t i = 0; i < self->slot_count; i++) {
        while (self->slots[i] != NULL) {
            share *at = self->slots[i];
            self->slots[i] = at->next_in_slot;
            offer_unreference(at->offer, forked);
            free_share(at, forked);
        }
    }
    free(self->slots);
    expiry_end(&self->dated);
    if (!forked) { /* else another thread may have had it */
        os_mutex_destroy(&self->mutex);
    }
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

gpuipc_status share_add(share_table *self, offer *of, const share_limits *limits,
                        const char *operation, ticket *out_share, bool *out_is_next) {
    share *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return status_out_of_memory(operation, sizeof(*made));
    }
    gpuipc_status status = os_random(made->secret, sizeof(made->secret));
    if (status != GPUIPC_OK) {
        free(made);
        return status;
    }
    made->state = WIRE_GRANTED;
    made->offer = of;
    made->expires = (expiry){.at_ns = expires_at(limits->expires_ms), .of = made};
    made->max_processes = limits->max_processes;
    os_mutex_lock(&self->mutex);
    if (made->expires.at_ns != UINT64_MAX &&
        (status = expiry_add(&self->dated, &made->expires)) != GPUIPC_OK) {
        os_mutex_unlock(&self->mutex);
        free(made);
        return status;
    }
    *out_is_next = expiry_next(&self->dated) == &made->expires;
    made->id = next_id(self);
    if (self->count >= self->slot_count) {
        grow(self);
    }
    share **slot = slot_of(self, made->id);
    made->next_in_slot = *slot;
    *slot = made;
    self->count++;
    out_share->share = made->id;
    memcpy(out_share->secret, made->secret, sizeof(out_share->secret));
    os_mutex_unlock(&self->mutex);
    return GPUIPC_OK;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* Of a share with a limit: whether the process may have it; then it counts. */
static gpuipc_status admit(share_table *self, share *to, holder *by, wire_answer *out_answer,
                           bool *out_is_new) {
    gpuipc_status status = GPUIPC_OK;
    if (by != NULL && by->process == NULL) {
        status = known_process_get(&self->processes, by->peer, &by->process);
    }
    known_process *const process = by == NULL ? NULL : by->process;
    if (status != GPUIPC_OK || admission_has(&to->admitted, process)) {
        return status;
    }
    if (admission_count(&to->admitted) >= to->max_processes) {
        *out_answer = WIRE_USED_UP;
        return GPUIPC_OK;
    }
    status = admission_add(&to->admitted, process);
    *out_is_new = status == GPUIPC_OK;
    return status;
}

/* What a share says to who asks. GRANTED: it is in use, and the process counts. */
static gpuipc_status ask(share_table *self, share *of, const ticket *wanted, holder *by,
                         wire_answer *out_answer, share_grant *grant) {
    wire_answer answer = of->state;
    gpuipc_status status = GPUIPC_OK;
    if (answer == WIRE_GRANTED && !offer_has(of->offer, wanted->offset, wanted->bytes)) {
        answer = WIRE_OUT_OF_RANGE;
    }
    if (answer == WIRE_GRANTED && by != NULL && holder_is_full(by)) {
        answer = WIRE_BUSY;
    }
    if (answer == WIRE_GRANTED && of->max_processes != 0) {
        status = admit(self, of, by, &answer, &grant->is_new);
    }
    if (status == GPUIPC_OK && answer == WIRE_GRANTED) {
        grant->of = of;
        grant->offer = of->offer;
        offer_reference(of->offer);
        of->in_use++;
        if (by != NULL) {
            hold_begin(grant->noted, &of->holds, by);
        }
    }
    *out_answer = answer;
    return status;
}

gpuipc_status share_ask(share_table *self, const ticket *wanted, holder *by,
                        wire_answer *out_answer, share_grant *out_grant) {
    share_grant grant = {.noted = by == NULL ? NULL : hold_new()};
    wire_answer answer = WIRE_UNKNOWN;
    gpuipc_status status = GPUIPC_OK;
    offer *expired = NULL;
    if (by != NULL && grant.noted == NULL) {
        return status_out_of_memory("share_ask", sizeof(hold));
    }
    os_mutex_lock(&self->mutex);
    share *found = find(self, wanted);
    if (found != NULL) {
        expired = bury_if_expired(self, found, os_clock_ns());
        status = ask(self, found, wanted, by, &answer, &grant);
    }
    os_mutex_unlock(&self->mutex);
    offer_unreference(expired, false);
    if (status != GPUIPC_OK || answer != WIRE_GRANTED) {
        free(grant.noted);
    }
    if (status == GPUIPC_OK) {
        *out_answer = answer;
        *out_grant = grant;
    }
    return status;
}

void share_settle(share_table *self, share_grant *grant, holder *by, bool is_opened,
                  point_page *page, const point *at) {
    share *of = grant->of;
    os_mutex_lock(&self->mutex);
    if (grant->noted != NULL) {
        hold_settle(grant->noted, page, at);
    }
    if (!is_opened && grant->is_new) {
        admission_remove(&of->admitted, by == NULL ? NULL : by->process);
    }
    of->in_use--;
    if (of->in_use == 0 && of->is_forgotten) {
        free_share(of, false);
    }
    os_mutex_unlock(&self->mutex);
    offer_unreference(grant->offer, false);
}

gpuipc_status share_enter(share_table *self, const os_peer *peer, holder **out_holder) {
    os_mutex_lock(&self->mutex);
    gpuipc_status status = holder_new(&self->places, peer, &self->left, out_holder);
    os_mutex_unlock(&self->mutex);
    return status;
}

void share_leave(share_table *self, holder *by) {
    os_mutex_lock(&self->mutex);
    holder_leave(by, &self->left);
    os_mutex_unlock(&self->mutex);
}

int share_patience_ms(share_table *self, holder *by) {
    os_mutex_lock(&self->mutex);
    const int left_ms = places_patience_ms(by->place, os_clock_ns());
    os_mutex_unlock(&self->mutex);
    return left_ms;
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
        expired[count++] = bury(self, next->of, WIRE_EXPIRED);
    }
    holder_sweep(&self->left);
    os_mutex_unlock(&self->mutex);
    while (count > 0) {
        offer_unreference(expired[--count], false);
    }
}

os_deadline share_next_expiry(share_table *self) {
    os_mutex_lock(&self->mutex);
    const expiry *next = expiry_next(&self->dated);
    const os_deadline at = {next == NULL ? UINT64_MAX : next->at_ns};
    os_mutex_unlock(&self->mutex);
    return at;
}

/* ---- who shares ---------------------------------------------------------------------------- */

static gpuipc_status unknown(const char *operation) {
    return status_fail(GPUIPC_ERR_TICKET_UNKNOWN, operation,
                       "the server has given out no such ticket, or forgot it long ago");
}

gpuipc_status share_revoke(share_table *self, const ticket *of, const char *operation) {
    gpuipc_status status = GPUIPC_OK;
    offer *offered = NULL;
    os_mutex_lock(&self->mutex);
    share *found = find(self, of);
    if (found == NULL) {
        status = unknown(operation);
    } else if (found->state == WIRE_REVOKED) {
        status = status_fail(GPUIPC_ERR_TICKET_REVOKED, operation, "it was revoked before");
    } else {
        offered = bury(self, found, WIRE_REVOKED);
    }
    os_mutex_unlock(&self->mutex);
    offer_unreference(offered, false);
    return status;
}

gpuipc_status share_holders(share_table *self, const ticket *of, gpuipc_holder *holders,
                            size_t capacity, size_t *out_count, const char *operation) {
    os_mutex_lock(&self->mutex);
    share *found = find(self, of);
    size_t count = 0;
    if (found != NULL) {
        hold_list_reap(&found->holds);
        count = hold_list_describe(&found->holds, holders, capacity);
    }
    os_mutex_unlock(&self->mutex);
    if (found == NULL) {
        return unknown(operation);
    }
    *out_count = count;
    return count <= capacity
               ? GPUIPC_OK
               : status_fail(GPUIPC_ERR_TOO_SMALL, operation,
                             "%zu processes have it open; there is room for %zu", count, capacity);
}

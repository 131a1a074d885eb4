/* SPDX-License-Identifier: MIT */
/** @file See admission.h. */
#include "ticket/admission.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/status.h"

#define SECOND_NS      UINT64_C(1000000000)
#define MILLISECOND_NS UINT64_C(1000000)
/* How much of each second the clients of one user may keep the server waiting. What one of them takes beyond it is missing
 * in the next seconds. */
#define PATIENCE_NS UINT64_C(500000000)

/* ---- places of clients --------------------------------------------------------------------- */

static uint64_t seconds_since(const places_user *user, uint64_t now_ns) {
    return (now_ns - user->second_ns) / SECOND_NS;
}

/* How many seconds more give back what was taken; 0: the current one has some left. */
static uint64_t seconds_owed(const places_user *user) {
    return user->waited_ns / PATIENCE_NS;
}

static bool is_of_no_use(const places_user *user, uint64_t now_ns) {
    return user->count == 0 && seconds_since(user, now_ns) > seconds_owed(user);
}

/* A user without clients is forgotten on the way. Before its last second is over it is not, since a new client would begin
 * with a full second. */
static places_user *find_user(places *self, const char *name, uint64_t now_ns) {
    places_user *found = NULL;
    for (list_link *at = self->users.first, *next; at != NULL; at = next) {
        places_user *one = LIST_ITEM(at, places_user, link);
        next = at->next;
        if (strcmp(one->name, name) == 0) {
            found = one;
        } else if (is_of_no_use(one, now_ns)) {
            list_remove(at);
            free(one);
        }
    }
    return found;
}

gpuipc_status places_take(places *self, const char *user, uint64_t now_ns, places_user **out_user) {
    places_user *found = find_user(self, user, now_ns);
    *out_user = NULL;
    if (self->count >= self->most || (found != NULL && found->count >= self->most_of_user)) {
        return GPUIPC_OK;
    }
    if (found == NULL) {
        found = calloc(1, sizeof(*found));
        if (found == NULL) {
            return status_out_of_memory(sizeof(*found));
        }
        memcpy(found->name, user, strlen(user) + 1);
        list_append(&self->users, &found->link);
    }
    self->count++;
    found->count++;
    *out_user = found;
    return GPUIPC_OK;
}

void places_return(places *self, places_user *user) {
    self->count--;
    user->count--;
}

void places_destroy(places *self) {
    list_link *at;
    while ((at = list_take(&self->users)) != NULL) {
        free(LIST_ITEM(at, places_user, link));
    }
}

static void give_back(places_user *user, uint64_t now_ns) {
    const uint64_t seconds = seconds_since(user, now_ns);
    if (seconds > seconds_owed(user)) {
        user->second_ns = now_ns;
        user->waited_ns = 0;
    } else {
        user->second_ns += seconds * SECOND_NS;
        user->waited_ns -= seconds * PATIENCE_NS;
    }
}

uint32_t places_pause_ms(places_user *user, uint64_t now_ns) {
    give_back(user, now_ns);
    const uint64_t owed = seconds_owed(user);
    return owed == 0
               ? 0
               : (uint32_t)((user->second_ns + owed * SECOND_NS - now_ns) / MILLISECOND_NS + 1);
}

void places_spend(places_user *user, uint64_t ns) {
    user->waited_ns += ns;
}

/* ---- known processes ------------------------------------------------------------------------ */

/* So many are looked at for each newcomer: more than come, so that those that are over become fewer. */
#define PROCESSES_LOOKED_AT 2u
/* And so many when a user has too many handles here. */
#define PROCESSES_FOR_ROOM 64u

struct known_process {
    unsigned references;
    os_peer peer;        /* its process: none as soon as that is known to be over */
    quota_charge charge; /* for that handle */
    known_processes *in;
    table_link by_number;
    list_link in_turn;
    linked_list admitted; /* entries of shares, each with a reference */
};

static void entry_destroy(admitted *entry, bool forked) {
    table_remove(&entry->in->entries, &entry->by_process);
    list_remove(&entry->of_process);
    known_process_unreference(entry->process, forked);
    free(entry);
}

/* No connection has it. */
static void end_process(known_process *self) {
    table_remove(&self->in->by_number, &self->by_number);
    list_remove(&self->in_turn);
    os_peer_close(&self->peer);
    quota_return(&self->charge);
    self->references++;
    while (self->admitted.first != NULL) {
        admitted *entry = LIST_ITEM(self->admitted.first, admitted, of_process);
        entry->in->ended++;
        entry_destroy(entry, false);
    }
    known_process_unreference(self, false);
}

/* What a process has sent before its end may still be read from its connection. So it ends when no connection has it, and
 * nothing but shares. */
static bool is_over(const known_process *self) {
    return self->references == self->admitted.count && os_peer_is_running(&self->peer) == 0;
}

static void look_at_some(known_processes *self, size_t most) {
    for (size_t left = most < self->in_turn.count ? most : self->in_turn.count; left > 0; left--) {
        known_process *one = LIST_ITEM(list_turn(&self->in_turn), known_process, in_turn);
        if (is_over(one)) {
            end_process(one);
        }
    }
}

void known_processes_sweep(known_processes *self) {
    look_at_some(self, PROCESSES_LOOKED_AT);
}

static uint64_t hash_of(const os_peer *peer) {
    return hash_word(0, peer->process_id);
}

/* Where the system gives no handle, or the process has no number here, nothing tells it from others. The number of one that
 * has ended may be another's by now. */
static known_process *find_process(known_processes *self, const os_peer *peer) {
    table_link *at = peer->process_id == 0 ? NULL : table_find(&self->by_number, hash_of(peer));
    for (table_link *next; at != NULL; at = next) {
        known_process *one = TABLE_ITEM(at, known_process, by_number);
        next = table_find_next(at);
        if (one->peer.process_id != peer->process_id || !os_handle_is_valid(one->peer.process)) {
            continue;
        }
        if (os_peer_is_running(&one->peer) != 0) {
            return one;
        }
        table_remove(&self->by_number, &one->by_number);
    }
    return NULL;
}

/* The handle of @p peer is its connection's, which may go before. */
static gpuipc_status keep_handle(known_process *self, const os_peer *peer, quota *of) {
    gpuipc_status status = quota_take(of, &(quota_amount){{[QUOTA_HANDLES] = 1}}, &self->charge);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = os_handle_duplicate(peer->process, &self->peer.process);
    if (status != GPUIPC_OK) {
        quota_return(&self->charge);
    }
    return status;
}

static gpuipc_status make_process(const os_peer *peer, quota *of, known_process **out_process) {
    known_process *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    self->peer = *peer;
    self->peer.process = OS_HANDLE_NONE;
    gpuipc_status status =
        os_handle_is_valid(peer->process) ? keep_handle(self, peer, of) : GPUIPC_OK;
    if (status != GPUIPC_OK) {
        free(self);
        return status;
    }
    self->references = 1;
    *out_process = self;
    return GPUIPC_OK;
}

gpuipc_status known_process_get(known_processes *self, const os_peer *peer, quota *of,
                                known_process **out_process) {
    known_process *found = find_process(self, peer);
    if (found != NULL) {
        found->references++;
        *out_process = found;
        return GPUIPC_OK;
    }
    look_at_some(self, PROCESSES_LOOKED_AT);
    gpuipc_status status = make_process(peer, of, &found);
    if (status == GPUIPC_ERR_LIMIT) {
        look_at_some(self, PROCESSES_FOR_ROOM);
        status = make_process(peer, of, &found);
    }
    if (status == GPUIPC_OK) {
        found->in = self;
        table_add(&self->by_number, &found->by_number, hash_of(peer));
        list_append(&self->in_turn, &found->in_turn);
        *out_process = found;
    }
    return status;
}

void known_process_unreference(known_process *self, bool forked) {
    if (self == NULL || --self->references > 0) {
        return;
    }
    table_remove(&self->in->by_number, &self->by_number);
    list_remove(&self->in_turn);
    if (!forked) { /* in a child it is closed already */
        os_peer_close(&self->peer);
    }
    quota_return(&self->charge);
    free(self);
}

void known_processes_destroy(known_processes *self) {
    table_clear(&self->by_number);
}

/* ---- what a share admits ---------------------------------------------------------------------- */

static uint64_t hash_of_process(const known_process *process) {
    return hash_word(0, (uintptr_t)process);
}

uint32_t admission_count(const admission *self) {
    return (uint32_t)self->entries.count + self->ended;
}

gpuipc_status admission_new(admission **out_admission) {
    admission *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    *out_admission = self;
    return GPUIPC_OK;
}

admitted *admission_find(const admission *self, const known_process *process) {
    admitted *found = NULL;
    for (table_link *at = table_find(&self->entries, hash_of_process(process));
         at != NULL && found == NULL; at = table_find_next(at)) {
        admitted *one = TABLE_ITEM(at, admitted, by_process);
        found = one->process == process ? one : NULL;
    }
    return found;
}

gpuipc_status admission_add(admission *self, known_process *process, admitted **out_entry) {
    admitted *entry = calloc(1, sizeof(*entry));
    if (entry == NULL) {
        return status_out_of_memory(sizeof(*entry));
    }
    process->references++;
    entry->in = self;
    entry->process = process;
    list_append(&process->admitted, &entry->of_process);
    table_add(&self->entries, &entry->by_process, hash_of_process(process));
    *out_entry = entry;
    return GPUIPC_OK;
}

void admission_remove(admission *self, admitted *entry) {
    (void)self;
    entry_destroy(entry, false);
}

void admission_destroy(admission *self, bool forked) {
    if (self == NULL) {
        return;
    }
    for (table_link *at = table_first(&self->entries), *next; at != NULL; at = next) {
        admitted *entry = TABLE_ITEM(at, admitted, by_process);
        next = table_next(&self->entries, at);
        entry_destroy(entry, forked);
    }
    table_clear(&self->entries);
    free(self);
}

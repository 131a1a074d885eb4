/* SPDX-License-Identifier: MIT */
/** @file See quota.h. */
#include "base/quota.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/status.h"
#include "base/table.h"

/* The memory that this process keeps for all others together. */
#define MEMORY_BYTES (UINT64_C(512) << 20)
/* A user has one half, so that the other half is left to other users. */
#define PARTS_OF_USER 2u
/* quota_take_spare() leaves one half of an account to what cannot be spared. */
#define PARTS_SPARE 2u

struct quota {
    unsigned references;
    uint64_t used[QUOTA_KINDS];
    uint64_t most[QUOTA_KINDS];
    uint32_t fork_generation; /* a child begins at 0: the handles of its parent were closed in it */
    table_link by_name;
    char name[sizeof(((os_peer *)0)->user)];
};

static struct {
    os_static_mutex mutex; /* guards the rest, and all accounts; nothing else is locked under it */
    hash_table accounts;
    bool pretends;
    quota_amount totals; /* if so */
} all;

static const char *const kind_names[QUOTA_KINDS] = {"handles", "mappings", "bytes of addresses",
                                                    "bytes of memory"};

/* ---- accounts: the mutex is held ------------------------------------------------------------- */

static uint64_t hash_of(const char *user) {
    uint64_t hash = 0;
    for (const char *at = user; *at != '\0'; at++) {
        hash = hash_word(hash, (unsigned char)*at);
    }
    return hash;
}

static quota_amount totals(void) {
    os_limits limits;
    if (all.pretends) {
        return all.totals;
    }
    os_limits_get(&limits);
    return (quota_amount){{limits.handles, limits.mappings, limits.addresses, MEMORY_BYTES}};
}

static quota *find(const char *user) {
    quota *found = NULL;
    for (table_link *at = table_find(&all.accounts, hash_of(user)); at != NULL && found == NULL;
         at = table_find_next(at)) {
        quota *one = TABLE_ITEM(at, quota, by_name);
        if (strcmp(one->name, user) == 0 && one->fork_generation == os_fork_generation()) {
            found = one;
        }
    }
    return found;
}

/* Called for each connection: the limits of the system may change while this process runs. */
static void set_limits(quota *self) {
    const quota_amount have = totals();
    for (int kind = 0; kind < QUOTA_KINDS; kind++) {
        self->most[kind] = have.of[kind] / PARTS_OF_USER;
    }
}

/* With a reference. NULL: no memory */
static quota *get(const char *user) {
    quota *self = find(user);
    if (self == NULL) {
        self = calloc(1, sizeof(*self));
        if (self == NULL) {
            return NULL;
        }
        self->fork_generation = os_fork_generation();
        memcpy(self->name, user, strlen(user) + 1);
        table_add(&all.accounts, &self->by_name, hash_of(user));
    }
    self->references++;
    set_limits(self);
    return self;
}

static void put(quota *self) {
    if (self != NULL && --self->references == 0) {
        table_remove(&all.accounts, &self->by_name);
        free(self);
    }
    if (all.accounts.count == 0) {
        table_clear(&all.accounts);
    }
}

static bool is_this_process(const os_peer *peer) {
    return !all.pretends && !peer->other_pid_namespace && peer->process_id == os_process_id();
}

gpuipc_status quota_open(const os_peer *peer, quota **out_quota) {
    quota *made = NULL;
    os_static_mutex_lock(&all.mutex);
    const bool is_counted = !is_this_process(peer);
    if (is_counted) {
        made = get(peer->user);
    }
    os_static_mutex_unlock(&all.mutex);
    if (is_counted && made == NULL) {
        return status_out_of_memory(sizeof(*made));
    }
    *out_quota = made;
    return GPUIPC_OK;
}

void quota_unreference(quota *self) {
    os_static_mutex_lock(&all.mutex);
    put(self);
    os_static_mutex_unlock(&all.mutex);
}

/* ---- charges ----------------------------------------------------------------------------------- */

/* The kind of which there is too little left in a part of the account; QUOTA_KINDS: none. What is not wanted is not looked
 * at: a limit may have become less than what is taken. */
static int find_short(const quota *self, const quota_amount *wanted, unsigned part) {
    int kind = 0;
    while (kind < QUOTA_KINDS &&
           (wanted->of[kind] == 0 ||
            (self->used[kind] <= self->most[kind] / part &&
             wanted->of[kind] <= self->most[kind] / part - self->used[kind]))) {
        kind++;
    }
    return kind;
}

static gpuipc_status refuse(const quota *of, int kind) {
    return status_fail(GPUIPC_ERR_LIMIT,
                       "processes of user %s use %" PRIu64 " %s of this process; the limit of a "
                       "user is %" PRIu64,
                       of->name, of->used[kind], kind_names[kind], of->most[kind]);
}

/* @param part of the account that may be used afterwards
 * @param out_found the account as it was: another thread may change it before the caller reports it
 * @return the kind of which there is too little; QUOTA_KINDS: it is taken */
static int take(quota *self, const quota_amount *wanted, unsigned part, quota_charge *charge,
                quota *out_found) {
    os_static_mutex_lock(&all.mutex);
    const int short_of = find_short(self, wanted, part);
    *out_found = *self;
    if (short_of == QUOTA_KINDS) {
        self->references += charge->of == NULL;
        charge->of = self;
        for (int kind = 0; kind < QUOTA_KINDS; kind++) {
            self->used[kind] += wanted->of[kind];
            charge->amount.of[kind] += wanted->of[kind];
        }
    }
    os_static_mutex_unlock(&all.mutex);
    return short_of;
}

gpuipc_status quota_take(quota *self, const quota_amount *wanted, quota_charge *charge) {
    quota found;
    if (self == NULL) {
        return GPUIPC_OK;
    }
    const int short_of = take(self, wanted, 1, charge, &found);
    return short_of == QUOTA_KINDS ? GPUIPC_OK : refuse(&found, short_of);
}

bool quota_take_spare(quota *self, const quota_amount *wanted, quota_charge *charge) {
    quota found;
    return self == NULL || take(self, wanted, PARTS_SPARE, charge, &found) == QUOTA_KINDS;
}

/* The mutex is held. */
static void give_back(quota_charge *charge, const quota_amount *amount) {
    for (int kind = 0; kind < QUOTA_KINDS; kind++) {
        charge->of->used[kind] -= amount->of[kind];
        charge->amount.of[kind] -= amount->of[kind];
    }
}

void quota_return(quota_charge *charge) {
    if (charge->of != NULL) {
        const quota_amount all_of_it = charge->amount;
        os_static_mutex_lock(&all.mutex);
        give_back(charge, &all_of_it);
        put(charge->of);
        os_static_mutex_unlock(&all.mutex);
        charge->of = NULL;
    }
}

void quota_return_some(quota_charge *charge, const quota_amount *amount) {
    if (charge->of != NULL) {
        os_static_mutex_lock(&all.mutex);
        give_back(charge, amount);
        os_static_mutex_unlock(&all.mutex);
    }
}

void quota_pretend(const quota_amount *totals_in_place) {
    os_static_mutex_lock(&all.mutex);
    all.pretends = totals_in_place != NULL;
    if (all.pretends) {
        all.totals = *totals_in_place;
    }
    os_static_mutex_unlock(&all.mutex);
}

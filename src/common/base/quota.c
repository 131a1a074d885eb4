/* SPDX-License-Identifier: MIT */
/** @file See quota.h. */
#include "base/quota.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/status.h"
#include "base/table.h"

/* What all others together may make this process remember of them. */
#define MEMORY_BYTES (UINT64_C(512) << 20)
/* A user's part of all, and a process's: so that half is left to other users, and half of a user's to his other
 * processes. */
#define PARTS_OF_USER    2u
#define PARTS_OF_PROCESS 4u
/* Of an account: the part in which there may be what its owner can do without. */
#define PARTS_SPARE 2u

struct quota {
    unsigned references;
    quota *user; /* a reference; NULL: it is a user's */
    uint64_t used[QUOTA_KINDS];
    uint64_t most[QUOTA_KINDS];
    uint64_t process_id;      /* 0: it is a user's, or nobody else's */
    uint32_t fork_generation; /* a child counts anew: what its parent has was closed in it */
    table_link by_name; /* user and number; in the table but for those of whom no number is known */
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

static uint64_t hash_of(const char *user, uint64_t process_id) {
    uint64_t hash = process_id;
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

static quota *find(const char *user, uint64_t process_id) {
    quota *found = NULL;
    for (table_link *at = table_find(&all.accounts, hash_of(user, process_id));
         at != NULL && found == NULL; at = table_find_next(at)) {
        quota *one = TABLE_ITEM(at, quota, by_name);
        if (one->process_id == process_id && strcmp(one->name, user) == 0 &&
            one->fork_generation == os_fork_generation()) {
            found = one;
        }
    }
    return found;
}

/* The limits of the system may change while this process runs: whoever comes finds those of now. */
static void set_limits(quota *self) {
    const quota_amount have = totals();
    const unsigned parts = self->user == NULL ? PARTS_OF_USER : PARTS_OF_PROCESS;
    for (int kind = 0; kind < QUOTA_KINDS; kind++) {
        self->most[kind] = have.of[kind] / parts;
    }
}

/* With a reference. NULL: no memory */
static quota *get(quota *user, const char *name, uint64_t process_id) {
    const bool is_known = user == NULL || process_id != 0;
    quota *self = is_known ? find(name, process_id) : NULL;
    if (self == NULL) {
        self = calloc(1, sizeof(*self));
        if (self == NULL) {
            return NULL;
        }
        self->user = user;
        self->process_id = process_id;
        self->fork_generation = os_fork_generation();
        memcpy(self->name, name, strlen(name) + 1);
        if (user != NULL) {
            user->references++;
        }
        if (is_known) {
            table_add(&all.accounts, &self->by_name, hash_of(name, process_id));
        }
    }
    self->references++;
    set_limits(self);
    return self;
}

static void put(quota *self) {
    while (self != NULL && --self->references == 0) {
        quota *user = self->user;
        table_remove(&all.accounts, &self->by_name);
        free(self);
        self = user;
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
    quota *user = is_counted ? get(NULL, peer->user, 0) : NULL;
    if (user != NULL) {
        made = get(user, peer->user, peer->process_id);
        put(user);
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
    if (of->user == NULL) {
        return status_fail(GPUIPC_ERR_LIMIT,
                           "the processes of user %s have %" PRIu64 " %s of this one, and may have "
                           "%" PRIu64,
                           of->name, of->used[kind], kind_names[kind], of->most[kind]);
    }
    return status_fail(GPUIPC_ERR_LIMIT,
                       "process %" PRIu64 " of user %s has %" PRIu64
                       " %s of this one, and may have "
                       "%" PRIu64,
                       of->process_id, of->name, of->used[kind], kind_names[kind], of->most[kind]);
}

static void add(quota *self, const quota_amount *amount) {
    for (; self != NULL; self = self->user) {
        for (int kind = 0; kind < QUOTA_KINDS; kind++) {
            self->used[kind] += amount->of[kind];
        }
    }
}

static void subtract(quota *self, const quota_amount *amount) {
    for (; self != NULL; self = self->user) {
        for (int kind = 0; kind < QUOTA_KINDS; kind++) {
            self->used[kind] -= amount->of[kind];
        }
    }
}

/* @param part of each account which may be used afterwards
 * @param out_found the account that is short, as it was then: another thread may change it before it is told
 * @return of what; QUOTA_KINDS: it is taken */
static int take(quota *self, const quota_amount *wanted, unsigned part, quota_charge *charge,
                quota *out_found) {
    int short_of = QUOTA_KINDS;
    os_static_mutex_lock(&all.mutex);
    for (const quota *at = self; at != NULL && short_of == QUOTA_KINDS; at = at->user) {
        short_of = find_short(at, wanted, part);
        *out_found = *at;
    }
    if (short_of == QUOTA_KINDS) {
        add(self, wanted);
        self->references += charge->of == NULL;
        charge->of = self;
        for (int kind = 0; kind < QUOTA_KINDS; kind++) {
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

void quota_return(quota_charge *charge) {
    if (charge->of != NULL) {
        os_static_mutex_lock(&all.mutex);
        subtract(charge->of, &charge->amount);
        put(charge->of);
        os_static_mutex_unlock(&all.mutex);
        *charge = (quota_charge){0};
    }
}

void quota_return_some(quota_charge *charge, const quota_amount *amount) {
    if (charge->of != NULL) {
        os_static_mutex_lock(&all.mutex);
        subtract(charge->of, amount);
        os_static_mutex_unlock(&all.mutex);
        for (int kind = 0; kind < QUOTA_KINDS; kind++) {
            charge->amount.of[kind] -= amount->of[kind];
        }
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

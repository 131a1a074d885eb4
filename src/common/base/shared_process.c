/* SPDX-License-Identifier: MIT */
/** @file See shared_process.h. */
#include "base/shared_process.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/status.h"
#include "base/table.h"

struct shared_process {
    unsigned references;
    os_peer peer;
    quota_charge charge;
    uint32_t fork_generation; /* what its parent has was closed in a child */
    table_link by_number;     /* in the table but for those that cannot be told from others */
};

static struct {
    os_static_mutex mutex; /* guards the rest, and all counts of references */
    hash_table processes;
} all;

static uint64_t hash_of(const os_peer *peer) {
    return hash_word(0, peer->process_id);
}

static bool may_be_one(const shared_process *self, const os_peer *other) {
    return self->fork_generation == os_fork_generation() &&
           self->peer.process_id == other->process_id && strcmp(self->peer.user, other->user) == 0;
}

/* The known one is asked first: who runs still when that was seen to run had the number then, too, so that they are one. The
 * mutex is held. */
static shared_process *find_running(const os_peer *wanted) {
    for (table_link *at = table_find(&all.processes, hash_of(wanted)); at != NULL;
         at = table_find_next(at)) {
        shared_process *one = TABLE_ITEM(at, shared_process, by_number);
        if (may_be_one(one, wanted) && os_peer_is_running(&one->peer) == 1) {
            return os_peer_is_running(wanted) == 1 ? one : NULL;
        }
    }
    return NULL;
}

static gpuipc_status make(const os_peer *peer, quota *of, shared_process **out_process) {
    shared_process *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    gpuipc_status status = quota_take(of, &(quota_amount){{[QUOTA_HANDLES] = 1}}, &self->charge);
    if (status != GPUIPC_OK) {
        free(self);
        return status;
    }
    self->references = 1;
    self->fork_generation = os_fork_generation();
    self->peer = *peer;
    *out_process = self;
    return GPUIPC_OK;
}

gpuipc_status shared_process_get(os_peer *peer, quota *of, shared_process **out_process) {
    const bool can_share = peer->process_id != 0 && os_peer_is_running(peer) == 1;
    shared_process *found = NULL;
    os_static_mutex_lock(&all.mutex);
    if (can_share && (found = find_running(peer)) != NULL) {
        found->references++;
    }
    os_static_mutex_unlock(&all.mutex);
    if (found != NULL) {
        os_peer_close(peer);
        peer->process = found->peer.process;
        *out_process = found;
        return GPUIPC_OK;
    }
    gpuipc_status status = make(peer, of, out_process);
    if (status == GPUIPC_OK && can_share) {
        os_static_mutex_lock(&all.mutex);
        table_add(&all.processes, &(*out_process)->by_number, hash_of(peer));
        os_static_mutex_unlock(&all.mutex);
    }
    return status;
}

void shared_process_unreference(shared_process *self, bool forked) {
    if (self == NULL) {
        return;
    }
    os_static_mutex_lock(&all.mutex);
    const bool was_last = --self->references == 0;
    if (was_last) {
        table_remove(&all.processes, &self->by_number);
    }
    if (all.processes.count == 0) {
        table_clear(&all.processes);
    }
    os_static_mutex_unlock(&all.mutex);
    if (was_last) {
        if (!forked) {
            os_peer_close(&self->peer);
        }
        quota_return(&self->charge);
        free(self);
    }
}

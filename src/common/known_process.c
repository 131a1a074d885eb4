/* SPDX-License-Identifier: MIT */
/** @file See known_process.h. */
#include "known_process.h"

#include <stdlib.h>

#include "status.h"

struct known_process {
    unsigned references;
    os_peer peer; /* its process: none as soon as that is known to be over */
    bool is_over; /* its number may be another process's by now */
    known_process *next;
    known_process **link;
};

static bool is_running(known_process *self) {
    if (!self->is_over && os_peer_is_running(&self->peer) == 0) {
        self->is_over = true;
        os_peer_close(&self->peer);
    }
    return !self->is_over;
}

/* Gives the handles of those up that are over: one slot for each newcomer, in turn. */
static void look_at_some(known_processes *self) {
    const uint32_t slot = self->next_look++ % KNOWN_PROCESS_SLOTS;
    for (known_process *at = self->slots[slot]; at != NULL; at = at->next) {
        (void)is_running(at);
    }
}

/* Where the system gives no handle, or the process has no number here, nothing tells it from others. */
static known_process *find(known_process *first, const os_peer *peer) {
    for (known_process *at = first; at != NULL; at = at->next) {
        if (at->peer.process_id == peer->process_id && os_handle_is_valid(at->peer.process) &&
            is_running(at)) {
            return at;
        }
    }
    return NULL;
}

static gpuipc_status make(const os_peer *peer, known_process **out_process) {
    known_process *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory("known_process_get", sizeof(*self));
    }
    self->peer = *peer;
    self->peer.process = OS_HANDLE_NONE;
    if (os_handle_is_valid(peer->process)) {
        gpuipc_status status = os_handle_duplicate(peer->process, &self->peer.process);
        if (status != GPUIPC_OK) {
            free(self);
            return status;
        }
    }
    self->references = 1;
    *out_process = self;
    return GPUIPC_OK;
}

gpuipc_status known_process_get(known_processes *self, const os_peer *peer,
                                known_process **out_process) {
    known_process **slot = &self->slots[peer->process_id % KNOWN_PROCESS_SLOTS];
    known_process *found = peer->process_id == 0 ? NULL : find(*slot, peer);
    if (found != NULL) {
        found->references++;
        *out_process = found;
        return GPUIPC_OK;
    }
    look_at_some(self);
    gpuipc_status status = make(peer, out_process);
    if (status == GPUIPC_OK) {
        (*out_process)->next = *slot;
        (*out_process)->link = slot;
        if (*slot != NULL) {
            (*slot)->link = &(*out_process)->next;
        }
        *slot = *out_process;
    }
    return status;
}

void known_process_reference(known_process *self) {
    self->references++;
}

void known_process_unreference(known_process *self, bool forked) {
    if (self == NULL || --self->references > 0) {
        return;
    }
    *self->link = self->next;
    if (self->next != NULL) {
        self->next->link = self->link;
    }
    if (!forked) { /* in a child it is closed already */
        os_peer_close(&self->peer);
    }
    free(self);
}

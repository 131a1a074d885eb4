/* SPDX-License-Identifier: MIT */
/** @file See registry.h. */
#include "registry.h"

#include <string.h>

#include "transport.h"

#define SLOTS 4096u
/* How many that linger registry_sweep_some() looks at. */
#define SOME 8u

/* One for the process, since a buffer may come back to another of its contexts. It refers to its buffers
 * without keeping them. */
static struct {
    os_static_mutex mutex;
    buffer *slots[SLOTS]; /* by what they are called; a chain each */
    buffer *lingering;    /* the one not looked at for longest first */
    buffer **last_link;   /* of those, where the next one goes; NULL: not set yet */
    size_t lingering_count;
} all;

/* Both are this process's own: random, and counted from 1 on. */
static buffer **slot_of(const uint8_t exporter_id[16], uint64_t buffer_id) {
    uint64_t exporter;
    memcpy(&exporter, exporter_id, sizeof(exporter));
    return &all.slots[(exporter ^ buffer_id) % SLOTS];
}

/* The mutex is held in this and the next four. */
static void link_in(buffer *self, buffer **first) {
    self->registry_next = *first;
    self->registry_link = first;
    if (*first != NULL) {
        (*first)->registry_link = &self->registry_next;
    }
    *first = self;
}

static void link_out(buffer *self) {
    if (self->registry_link != NULL) {
        *self->registry_link = self->registry_next;
        if (self->registry_next != NULL) {
            self->registry_next->registry_link = self->registry_link;
        }
    }
}

static void begin_lingering(buffer *self) {
    if (all.last_link == NULL) {
        all.last_link = &all.lingering;
    }
    self->is_lingering = true;
    self->lingering_next = NULL;
    self->lingering_link = all.last_link;
    *all.last_link = self;
    all.last_link = &self->lingering_next;
    all.lingering_count++;
}

static void end_lingering(buffer *self) {
    self->is_lingering = false;
    *self->lingering_link = self->lingering_next;
    if (self->lingering_next != NULL) {
        self->lingering_next->lingering_link = self->lingering_link;
    } else {
        all.last_link = self->lingering_link;
    }
    all.lingering_count--;
}

void registry_add(buffer *self) {
    os_static_mutex_lock(&all.mutex);
    link_in(self, slot_of(self->exporter_id, self->buffer_id));
    os_static_mutex_unlock(&all.mutex);
}

/* Also one that has no references left: it lingers, or a thread is about to ask registry_leave(), which
 * then has to leave it alone. */
static void reference(buffer *self) {
    if (atomic_fetch_add(&self->object.references, 1u) != 0) {
        return;
    }
    if (self->is_lingering) {
        end_lingering(self);
    } else {
        self->revivals++;
    }
}

buffer *registry_find(const uint8_t exporter_id[16], uint64_t buffer_id) {
    buffer *found = NULL;
    os_static_mutex_lock(&all.mutex);
    for (buffer *at = *slot_of(exporter_id, buffer_id); at != NULL && found == NULL;
         at = at->registry_next) {
        if (at->buffer_id == buffer_id && memcmp(at->exporter_id, exporter_id, 16) == 0 &&
            !object_is_forked(&at->object)) {
            reference(at);
            found = at;
        }
    }
    os_static_mutex_unlock(&all.mutex);
    return found;
}

static bool must_linger(buffer *self) {
    return self->origin != GPUIPC_BUFFER_OPENED && self->transport->ends_with_owner &&
           lend_is_outstanding(self);
}

bool registry_leave(buffer *self, bool forked) {
    const bool lingers = !forked && must_linger(self);
    bool ends = false;
    os_static_mutex_lock(&all.mutex);
    if (self->revivals > 0 && !forked) {
        self->revivals--; /* somebody has it again, and will ask in his turn */
    } else if (lingers) {
        begin_lingering(self);
    } else {
        ends = true;
        link_out(self);
    }
    os_static_mutex_unlock(&all.mutex);
    return ends;
}

/* @return those of the next @p most that may end now, with a reference each */
static buffer *take_lingering(size_t most, bool may_wait) {
    buffer *taken = NULL;
    const bool ends_contexts = may_wait && deferred_is_quiet();
    os_static_mutex_lock(&all.mutex);
    for (size_t left = most < all.lingering_count ? most : all.lingering_count; left > 0; left--) {
        buffer *at = all.lingering;
        if (!object_is_forked(&at->object) &&
            (ends_contexts || !atomic_load(&at->context->is_over))) {
            reference(at);
            at->lingering_next = taken;
            taken = at;
        } else {
            end_lingering(at);
            begin_lingering(at); /* as the last */
        }
    }
    os_static_mutex_unlock(&all.mutex);
    return taken;
}

static bool sweep(size_t most, bool may_wait) {
    buffer *taken = take_lingering(most, may_wait);
    const bool are_some = taken != NULL;
    while (taken != NULL) {
        buffer *next = taken->lingering_next;
        buffer_unreference(taken); /* which ends it, or lets it linger on */
        taken = next;
    }
    return are_some;
}

bool registry_sweep(bool may_wait) {
    return sweep(SIZE_MAX, may_wait);
}

void registry_sweep_some(bool may_wait) {
    (void)sweep(SOME, may_wait);
}

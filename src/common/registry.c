/* SPDX-License-Identifier: MIT */
/** @file See registry.h. */
#include "registry.h"

#include <string.h>

#include "transport.h"

/* One list for the process, since a buffer may come back to another of its contexts. It refers to its
 * buffers without keeping them. */
static struct {
    os_static_mutex mutex;
    buffer *first;
} all;

void registry_add(buffer *self) {
    os_static_mutex_lock(&all.mutex);
    self->registry_next = all.first;
    self->registry_link = &all.first;
    if (all.first != NULL) {
        all.first->registry_link = &self->registry_next;
    }
    all.first = self;
    os_static_mutex_unlock(&all.mutex);
}

/* Also one that has no references left: it lingers, or a thread is about to ask registry_leave(), which
 * then has to leave it alone. */
static void reference(buffer *self) {
    if (atomic_fetch_add(&self->object.references, 1u) != 0) {
        return;
    }
    if (self->is_lingering) {
        self->is_lingering = false;
    } else {
        self->revivals++;
    }
}

buffer *registry_find(const uint8_t exporter_id[16], uint64_t buffer_id) {
    buffer *found = NULL;
    os_static_mutex_lock(&all.mutex);
    for (buffer *at = all.first; at != NULL && found == NULL; at = at->registry_next) {
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
        self->is_lingering = true;
    } else {
        ends = true;
        if (self->registry_link != NULL) {
            *self->registry_link = self->registry_next;
            if (self->registry_next != NULL) {
                self->registry_next->registry_link = self->registry_link;
            }
        }
    }
    os_static_mutex_unlock(&all.mutex);
    return ends;
}

bool registry_sweep(bool may_wait) {
    buffer *swept = NULL;
    const bool ends_contexts = may_wait && deferred_is_quiet();
    os_static_mutex_lock(&all.mutex);
    for (buffer *at = all.first; at != NULL; at = at->registry_next) {
        if (at->is_lingering && !object_is_forked(&at->object) &&
            (ends_contexts || !atomic_load(&at->context->is_over))) {
            reference(at);
            at->swept_next = swept;
            swept = at;
        }
    }
    os_static_mutex_unlock(&all.mutex);
    const bool are_some = swept != NULL;
    while (swept != NULL) {
        buffer *next = swept->swept_next;
        buffer_unreference(swept); /* which ends it, or lets it linger on */
        swept = next;
    }
    return are_some;
}

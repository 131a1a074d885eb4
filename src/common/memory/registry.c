/* SPDX-License-Identifier: MIT */
/** @file See registry.h. */
#include "memory/registry.h"

#include <stddef.h>
#include <string.h>

#include "memory/transport.h"
#include "sync/monitor.h"

/* How many that linger registry_sweep_some() looks at. */
#define SOME 8u

/* What linger of a context. Guarded by the mutex. */
typedef struct lingering_buffers {
    size_t count;
    bool is_attended; /* nobody calls for the context any more: a thread looks after them */
    monitored monitored;
} lingering_buffers;

/* One for the process, since a buffer may come back to another of its contexts. It refers to its buffers
 * without keeping them. */
static struct {
    os_static_mutex mutex;
    hash_table buffers; /* by what they are called */
    linked_list
        lingering; /* released, but other processes still have them open; not looked at for longest: first */
    atomic_size_t lingering_count; /* of that, for who has not taken the mutex */
} all;

/* With each change of that list. The mutex is held. */
static void tell_count(void) {
    atomic_store(&all.lingering_count, all.lingering.count);
}

/* Both are this process's own: random, and counted from 1 on. */
static uint64_t hash_of(const uint8_t exporter_id[16], uint64_t buffer_id) {
    uint64_t exporter;
    memcpy(&exporter, exporter_id, sizeof(exporter));
    return exporter ^ buffer_id;
}

void registry_add(buffer *self) {
    os_static_mutex_lock(&all.mutex);
    table_add(&all.buffers, &self->registered, hash_of(self->exporter_id, self->buffer_id));
    os_static_mutex_unlock(&all.mutex);
}

/* Also one that has no references left: it lingers, or a thread is about to ask registry_leave(), which
 * then has to leave it alone. The mutex is held. */
static void reference(buffer *self) {
    if (atomic_fetch_add(&self->object.references, 1u) != 0) {
        return;
    }
    if (list_has(&all.lingering, &self->lingering)) {
        list_remove(&self->lingering);
        tell_count();
        self->context->lingering->count--;
        atomic_store(&self->exports.is_lingering, false);
    } else {
        self->revivals++;
    }
}

buffer *registry_find(const uint8_t exporter_id[16], uint64_t buffer_id) {
    buffer *found = NULL;
    os_static_mutex_lock(&all.mutex);
    table_link *link = table_find(&all.buffers, hash_of(exporter_id, buffer_id));
    for (; link != NULL; link = table_find_next(link)) {
        buffer *at = TABLE_ITEM(link, buffer, registered);
        if (at->buffer_id == buffer_id && memcmp(at->exporter_id, exporter_id, 16) == 0 &&
            !object_is_forked(&at->object)) {
            reference(at);
            found = at;
            break;
        }
    }
    os_static_mutex_unlock(&all.mutex);
    return found;
}

/* It is marked before it is asked about: what is found to be returned from then on is found by take_returned(). */
static bool must_linger(buffer *self) {
    if (self->origin == GPUIPC_BUFFER_OPENED || !self->transport->ends_with_owner) {
        return false;
    }
    atomic_store(&self->exports.is_lingering, true);
    const bool must = export_is_outstanding(&self->exports);
    if (!must) {
        atomic_store(&self->exports.is_lingering, false);
    }
    return must;
}

static bool look(object *of);

/* Where no thread can be had, the next context does it. The mutex is held. */
static void attend_if_over(context *ctx) {
    lingering_buffers *own = ctx->lingering;
    if (own->count > 0 && !own->is_attended && atomic_load(&ctx->is_over)) {
        const gpuipc_error why = status_save();
        own->is_attended =
            monitor_begin(&own->monitored, MONITOR_FREES, &ctx->object, look, NULL) == GPUIPC_OK;
        status_restore(&why);
    }
}

bool registry_leave(buffer *self, bool forked) {
    bool ends = false;
    os_static_mutex_lock(&all.mutex);
    if (self->revivals > 0 && !forked) {
        self->revivals--; /* somebody has it again, and will ask in his turn */
    } else if (!forked && must_linger(self)) {
        list_append(&all.lingering, &self->lingering);
        tell_count();
        self->context->lingering->count++;
        attend_if_over(self->context);
    } else {
        ends = true;
        table_remove(&all.buffers, &self->registered);
    }
    os_static_mutex_unlock(&all.mutex);
    return ends;
}

/* With a reference, if it may end now; else it lingers on. The mutex is held in this and the next two.
 * @param ends_contexts also one that its context ends with */
static void take(buffer *self, bool ends_contexts, linked_list *taken) {
    if (list_has(&all.lingering, &self->lingering) && !object_is_forked(&self->object) &&
        (ends_contexts || !atomic_load(&self->context->is_over))) {
        reference(self);
        list_append(taken, &self->lingering);
    }
}

static void take_some(size_t most, bool ends_contexts, linked_list *taken) {
    for (size_t left = most < all.lingering.count ? most : all.lingering.count; left > 0; left--) {
        take(LIST_ITEM(list_turn(&all.lingering), buffer, lingering), ends_contexts, taken);
    }
}

/* Those of a context of which it is known that nobody has them open any more. */
static void take_returned(context *ctx, bool ends_contexts, linked_list *taken) {
    buffer_exports *found;
    os_mutex_lock(&ctx->points->mutex);
    while ((found = export_take_returned(ctx)) != NULL) {
        take(LIST_ITEM(found, buffer, exports), ends_contexts, taken);
    }
    os_mutex_unlock(&ctx->points->mutex);
}

static bool sweep(context *ctx, size_t most, bool may_wait) {
    linked_list taken = {0};
    if (atomic_load(&all.lingering_count) == 0) {
        return false; /* mostly so, and then a release takes no mutex more for it */
    }
    const bool ends_contexts = may_wait && deferred_is_quiet();
    os_static_mutex_lock(&all.mutex);
    if (ctx != NULL) {
        take_returned(ctx, ends_contexts, &taken);
    }
    take_some(most, ends_contexts, &taken);
    os_static_mutex_unlock(&all.mutex);
    const bool are_some = taken.count > 0;
    list_link *next;
    while ((next = list_take(&taken)) != NULL) {
        buffer_unreference(
            LIST_ITEM(next, buffer, lingering)); /* which ends it, or lets it linger on */
    }
    return are_some;
}

bool registry_sweep(void) {
    return sweep(NULL, SIZE_MAX, false);
}

void registry_sweep_some(context *ctx, bool may_wait) {
    (void)sweep(ctx, SOME, may_wait);
}

/* ---- of contexts that are over ------------------------------------------------------------------ */

static bool look(object *of) {
    context *ctx = (context *)of;
    (void)sweep(ctx, SOME, true);
    os_static_mutex_lock(&all.mutex);
    ctx->lingering->is_attended = ctx->lingering->count > 0;
    const bool is_done = !ctx->lingering->is_attended;
    os_static_mutex_unlock(&all.mutex);
    return is_done;
}

void registry_attend(context *ctx) {
    os_static_mutex_lock(&all.mutex);
    attend_if_over(ctx);
    os_static_mutex_unlock(&all.mutex);
}

static void end(context *ctx, bool is_forked) {
    (void)is_forked;
    monitor_end(&ctx->lingering->monitored);
}

const context_part registry_part = {CONTEXT_PART(lingering, lingering_buffers), .end = end};

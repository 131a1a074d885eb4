/* SPDX-License-Identifier: MIT */
/** @file See ticket_cache.h. */
#include "ticket/ticket_cache.h"

#include <stdlib.h>
#include <string.h>

#include "memory/buffer.h"
#include "message/peer.h"
#include "ticket/ticket_request.h"

#define WORDS (GPUIPC_TICKET_BYTES / 4)

static gpuipc_status begin(context *ctx) {
    return os_random(ctx->tickets->keys, sizeof(ctx->tickets->keys));
}

static void end_cache(context *ctx, bool is_forked) {
    (void)is_forked;
    table_clear(&ctx->tickets->entries);
}

const context_part ticket_cache_part = {CONTEXT_PART(tickets, ticket_cache), .begin = begin,
                                        .end = end_cache};

/* NH of J. Black and others, "UMAC: Fast and Secure Message Authentication" (1999): who does not know the keys
 * makes no tickets that share a place, and the products do not wait for each other. */
static uint64_t hash_of(const ticket_cache *self, const gpuipc_ticket *bytes) {
    uint32_t words[WORDS];
    uint64_t sum = 0;
    memcpy(words, bytes->bytes, sizeof(words));
    for (size_t i = 0; i < WORDS; i += 2) {
        const uint32_t first = words[i] + self->keys[i];
        const uint32_t second = words[i + 1] + self->keys[i + 1];
        sum += (uint64_t)first * second;
    }
    return sum ^ (sum >> 32);
}

/* ---- what its buffer tells it ---------------------------------------------------------------- */

static void leave(buffer *of) {
    ticket_cache *cache = of->context->tickets;
    os_mutex_lock(&cache->mutex);
    table_remove(&cache->entries, &of->cached->link);
    os_mutex_unlock(&cache->mutex);
}

static bool leave_alone(buffer *of) {
    ticket_cache *cache = of->context->tickets;
    os_mutex_lock(&cache->mutex);
    const bool is_alone = atomic_load(&of->handles) <= 1;
    if (is_alone) {
        table_remove(&cache->entries, &of->cached->link);
    }
    os_mutex_unlock(&cache->mutex);
    return is_alone;
}

static void end(buffer *of, bool forked) {
    if (forked) { /* nobody else changes the table here, and nobody looks into it */
        table_remove(&of->context->tickets->entries, &of->cached->link);
    }
    free(of->cached->attachment);
    free(of->cached);
    of->cached = NULL;
}

static const buffer_finder finder = {.leave = leave, .leave_alone = leave_alone, .end = end};

/* ---- the cache ------------------------------------------------------------------------------- */

gpuipc_status ticket_cache_add(buffer *of, const gpuipc_ticket *bytes,
                               const gpuipc_open_config *config, const os_peer *from,
                               const ticket_given *came, bool is_found) {
    ticket_cache *cache = of->context->tickets;
    cached_ticket *self = malloc(sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    *self = (cached_ticket){.ticket = *bytes,
                            .has_from = from != NULL,
                            .policy = config->policy,
                            .policy_user_data = config->policy_user_data,
                            .attachment = came->attachment,
                            .is_one_shot = came->is_one_shot,
                            .of = of};
    if (from != NULL) {
        self->from = *from;
        self->from.process = OS_HANDLE_NONE;
    }
    of->cached = self;
    of->attachment = came->attachment;
    of->attachment_bytes = came->attachment_bytes;
    of->is_attachment_withheld = came->is_attachment_withheld;
    of->finder = &finder;
    if (is_found) {
        os_mutex_lock(&cache->mutex);
        table_add(&cache->entries, &self->link, hash_of(cache, bytes));
        os_mutex_unlock(&cache->mutex);
    }
    return GPUIPC_OK;
}

static bool serves(const cached_ticket *self, const gpuipc_ticket *bytes,
                   const gpuipc_open_config *config) {
    const buffer *of = self->of;
    const uint32_t wanted = device_of_field(config->device, of->owner);
    const bool has_handles = of->keeps_handles || of->is_view;
    return memcmp(&self->ticket, bytes, sizeof(*bytes)) == 0 && of->access_device == wanted &&
           buffer_access(of) == buffer_settle_access(of, config->access) &&
           (has_handles || (config->flags & GPUIPC_RECEIVE_KEEP_HANDLES) == 0);
}

buffer *ticket_cache_find(context *ctx, const gpuipc_ticket *bytes,
                          const gpuipc_open_config *config) {
    ticket_cache *cache = ctx->tickets;
    buffer *found = NULL;
    os_mutex_lock(&cache->mutex);
    for (table_link *at = table_find(&cache->entries, hash_of(cache, bytes));
         at != NULL && found == NULL; at = table_find_next(at)) {
        const cached_ticket *one = TABLE_ITEM(at, cached_ticket, link);
        if (serves(one, bytes, config) && object_try_reference(&one->of->object)) {
            found = one->of;
            atomic_fetch_add(&found->handles, 1u);
        }
    }
    os_mutex_unlock(&cache->mutex);
    return found;
}

/* ---- what is kept ---------------------------------------------------------------------------- */

/* A handle's worth less; what it ends must not end under the mutex, and the error record stays. */
static void drop_one(buffer *of) {
    const gpuipc_error why = status_save();
    object_unreference(&of->object);
    status_restore(&why);
}

void ticket_cache_give_up(buffer *of, bool is_of_use) {
    ticket_cache *cache = of->context->tickets;
    os_mutex_lock(&cache->mutex);
    const bool is_last = atomic_fetch_sub(&of->handles, 1u) == 1;
    const bool is_kept = is_last && is_of_use && of->cached->is_one_shot && !cache->is_over;
    if (is_kept) {
        atomic_fetch_add(&of->handles, 1u);
        list_append(&cache->kept, &of->cached->kept);
    }
    os_mutex_unlock(&cache->mutex);
    if (!is_kept) {
        drop_one(of);
    }
}

void ticket_cache_settle(buffer *of) {
    ticket_cache *cache = of->context->tickets;
    if (!of->cached->is_one_shot) {
        return; /* no other is ever kept */
    }
    os_mutex_lock(&cache->mutex);
    const bool was_kept = list_has(&cache->kept, &of->cached->kept);
    if (was_kept) {
        list_remove(&of->cached->kept);
        atomic_fetch_sub(&of->handles, 1u);
    }
    os_mutex_unlock(&cache->mutex);
    if (was_kept) {
        drop_one(of);
    }
}

/* The next one that is kept; when there is none, there are no new ones any more. */
static buffer *take_kept(ticket_cache *cache) {
    os_mutex_lock(&cache->mutex);
    const cached_ticket *one = LIST_ITEM(list_take(&cache->kept), cached_ticket, kept);
    cache->is_over = true;
    os_mutex_unlock(&cache->mutex);
    return one == NULL ? NULL : one->of;
}

void ticket_cache_close(context *ctx, bool forked) {
    ticket_cache *cache = ctx->tickets;
    buffer *of;
    if (forked) {
        if (!os_mutex_try_lock(&cache->mutex)) {
            return; /* another thread of the parent's was in it */
        }
        os_mutex_unlock(&cache->mutex);
    }
    while ((of = take_kept(cache)) != NULL) {
        buffer_unreference_handle(of);
    }
}

gpuipc_status ticket_cache_check_peer(const buffer *of, const gpuipc_open_config *config) {
    const cached_ticket *self = of->cached;
    const gpuipc_endpoint_config whom = {.struct_size = sizeof(whom),
                                         .policy = config->policy,
                                         .policy_user_data = config->policy_user_data};
    if (!self->has_from ||
        (self->policy == config->policy && self->policy_user_data == config->policy_user_data)) {
        return GPUIPC_OK;
    }
    return peer_check(&self->from, &whom);
}

/* SPDX-License-Identifier: MIT */
/** @file See opening.h. */
#include "opening.h"

#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "peer.h"

#define FIRST_SLOTS 64u
#define WORDS       (GPUIPC_TICKET_BYTES / 4)

gpuipc_status opening_table_init(opening_table *self) {
    gpuipc_status status = os_random(self->keys, sizeof(self->keys));
    if (status != GPUIPC_OK) {
        return status;
    }
    self->slots = calloc(FIRST_SLOTS, sizeof(opening *));
    if (self->slots == NULL) {
        return status_out_of_memory("opening_table", FIRST_SLOTS * sizeof(opening *));
    }
    self->slot_count = FIRST_SLOTS;
    status = os_mutex_init(&self->mutex);
    if (status != GPUIPC_OK) {
        free(self->slots);
        self->slots = NULL;
    }
    return status;
}

void opening_table_end(opening_table *self) {
    free(self->slots);
    self->slots = NULL;
    os_mutex_destroy(&self->mutex);
}

/* NH of J. Black and others, "UMAC: Fast and Secure Message Authentication" (1999): who does not know the keys
 * makes no tickets that share a place, and the products do not wait for each other. */
static opening **slot_of(const opening_table *self, const gpuipc_ticket *bytes) {
    uint32_t words[WORDS];
    uint64_t sum = 0;
    memcpy(words, bytes->bytes, sizeof(words));
    for (size_t i = 0; i < WORDS; i += 2) {
        const uint32_t first = words[i] + self->keys[i];
        const uint32_t second = words[i + 1] + self->keys[i + 1];
        sum += (uint64_t)first * second;
    }
    return &self->slots[(sum ^ (sum >> 32)) & (self->slot_count - 1)];
}

static void put_in(opening_table *table, opening *self) {
    opening **slot = slot_of(table, &self->ticket);
    self->next = *slot;
    self->link = slot;
    if (self->next != NULL) {
        self->next->link = &self->next;
    }
    *slot = self;
}

/* Without memory for more places the chains grow. */
static void make_room(opening_table *table) {
    const uint32_t old_count = table->slot_count;
    opening **old = table->slots;
    if (table->count < old_count || old_count > UINT32_MAX / 4) {
        return;
    }
    opening **slots = calloc((size_t)old_count * 2, sizeof(opening *));
    if (slots == NULL) {
        return;
    }
    table->slots = slots;
    table->slot_count = old_count * 2;
    for (uint32_t i = 0; i < old_count; i++) {
        for (opening *at = old[i], *next; at != NULL; at = next) {
            next = at->next;
            put_in(table, at);
        }
    }
    free(old);
}

gpuipc_status opening_add(buffer *of, const gpuipc_ticket *bytes, const gpuipc_open_config *config,
                          const os_peer *from, void *attachment, size_t attachment_bytes,
                          bool is_found) {
    opening_table *table = &of->context->openings;
    opening *self = malloc(sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory("opening", sizeof(*self));
    }
    *self = (opening){.ticket = *bytes,
                      .has_from = from != NULL,
                      .policy = config->policy,
                      .policy_user_data = config->policy_user_data,
                      .attachment = attachment,
                      .attachment_bytes = attachment_bytes,
                      .of = of};
    if (from != NULL) {
        self->from = *from;
        self->from.process = OS_HANDLE_NONE;
    }
    os_mutex_lock(&table->mutex);
    of->opening = self;
    if (is_found) {
        make_room(table);
        put_in(table, self);
        table->count++;
    }
    os_mutex_unlock(&table->mutex);
    return GPUIPC_OK;
}

static bool serves(const opening *self, const gpuipc_ticket *bytes,
                   const gpuipc_open_config *config) {
    const buffer *of = self->of;
    const uint32_t wanted = config->device == GPUIPC_DEVICE_OWNER ? of->owner : config->device - 1;
    const bool has_handles = of->keeps_handles || of->is_view;
    return memcmp(&self->ticket, bytes, sizeof(*bytes)) == 0 && of->access_device == wanted &&
           buffer_access(of) == buffer_settle_access(of, config->access) &&
           (has_handles || (config->flags & GPUIPC_RECEIVE_KEEP_HANDLES) == 0);
}

/* False: its last reference is gone, and a thread is about to end it. */
static bool reference_if_alive(object *self) {
    unsigned references = atomic_load_explicit(&self->references, memory_order_relaxed);
    while (references != 0 &&
           !atomic_compare_exchange_weak(&self->references, &references, references + 1)) {
    }
    return references != 0;
}

buffer *opening_find(context *ctx, const gpuipc_ticket *bytes, const gpuipc_open_config *config) {
    opening_table *table = &ctx->openings;
    buffer *found = NULL;
    os_mutex_lock(&table->mutex);
    for (opening *at = *slot_of(table, bytes); at != NULL && found == NULL; at = at->next) {
        if (serves(at, bytes, config) && reference_if_alive(&at->of->object)) {
            found = at->of;
            atomic_fetch_add(&found->handles, 1u);
        }
    }
    os_mutex_unlock(&table->mutex);
    return found;
}

gpuipc_status opening_check_peer(const buffer *of, const gpuipc_open_config *config,
                                 const char *operation) {
    const opening *self = of->opening;
    const gpuipc_endpoint_config whom = {.struct_size = sizeof(whom),
                                         .policy = config->policy,
                                         .policy_user_data = config->policy_user_data};
    if (!self->has_from ||
        (self->policy == config->policy && self->policy_user_data == config->policy_user_data)) {
        return GPUIPC_OK;
    }
    return peer_check(&self->from, &whom, operation);
}

/* The mutex is held. */
static void take_out(opening_table *table, opening *self) {
    if (self->link != NULL) {
        *self->link = self->next;
        if (self->next != NULL) {
            self->next->link = self->link;
        }
        self->link = NULL;
        table->count--;
    }
}

void opening_leave(buffer *of) {
    if (of->opening != NULL) {
        os_mutex_lock(&of->context->openings.mutex);
        take_out(&of->context->openings, of->opening);
        os_mutex_unlock(&of->context->openings.mutex);
    }
}

bool opening_leave_alone(buffer *of) {
    bool is_alone = true;
    if (of->opening != NULL) {
        os_mutex_lock(&of->context->openings.mutex);
        is_alone = atomic_load(&of->handles) <= 1;
        if (is_alone) {
            take_out(&of->context->openings, of->opening);
        }
        os_mutex_unlock(&of->context->openings.mutex);
    }
    return is_alone;
}

void opening_end(buffer *of, bool forked) {
    if (of->opening == NULL) {
        return;
    }
    if (forked) { /* nobody else changes the table here, and nobody looks into it */
        take_out(&of->context->openings, of->opening);
    }
    free(of->opening->attachment);
    free(of->opening);
    of->opening = NULL;
}

/* SPDX-License-Identifier: MIT */
/** @file See memory.h. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "sharing.h"

/* The driver's own numbers are small. */
#define FIRST_ID (UINT64_C(1) << 62)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static range_node *by_address;
static hash_table tickets;
static uint64_t made;

void memory_lock(void) {
    pthread_mutex_lock(&mutex);
}

void memory_unlock(void) {
    pthread_mutex_unlock(&mutex);
}

void memory_lock_anew(void) {
    pthread_mutex_init(&mutex, NULL);
}

void memory_enter(memory *self) {
    if (self->id == 0) {
        self->id = FIRST_ID + ++made;
    }
    range_tree_add(&by_address, &self->at, hash_word(made, self->at.begin));
    self->is_entered = true;
    if (self->of_owner.in == NULL) {
        list_append(&self->owner->memories, &self->of_owner);
    }
}

static bool takes_any(range_node *node) {
    (void)node;
    return true;
}

memory *memory_find(CUdeviceptr address) {
    return list_item_at(range_tree_find(by_address, address, takes_any), offsetof(memory, at));
}

void memory_take_out(memory *self) {
    if (self->is_entered) {
        range_tree_remove(&by_address, &self->at);
        self->is_entered = false;
    }
    table_remove(&tickets, &self->by_ticket);
}

bool memory_describe(CUdeviceptr address, memory_facts *out_facts) {
    memory_lock();
    const memory *self = memory_find(address);
    if (self != NULL) {
        *out_facts = (memory_facts){
            .base = self->at.begin,
            .bytes = self->at.end - self->at.begin,
            .context = self->owner->context,
            .device = self->owner->device,
            .is_opened = self->chunk == NULL,
            .id = self->id,
        };
    }
    memory_unlock();
    return self != NULL;
}

/* Other processes choose tickets, but one that opens here has a secret of its maker's random numbers. */
static uint64_t hash_ticket(const gpuipc_ticket *ticket) {
    return hash_bytes((uint64_t)(uintptr_t)&tickets, ticket->bytes, sizeof(ticket->bytes));
}

void memory_enter_ticket(memory *self) {
    if (self->has_ticket && self->is_entered && !table_has(&self->by_ticket)) {
        table_add(&tickets, &self->by_ticket, hash_ticket(&self->ticket));
    }
}

void memory_forget_ticket(memory *self) {
    self->has_ticket = false;
    table_remove(&tickets, &self->by_ticket);
}

memory *memory_find_ticket(const gpuipc_ticket *ticket, const memory *after) {
    table_link *link = after == NULL ? table_find(&tickets, hash_ticket(ticket))
                                     : table_find_next(&after->by_ticket);
    while (link != NULL && memcmp(TABLE_ITEM(link, memory, by_ticket)->ticket.bytes, ticket->bytes,
                                  sizeof(ticket->bytes)) != 0) {
        link = table_find_next(link);
    }
    return TABLE_ITEM(link, memory, by_ticket);
}

static void leave_owner(memory *self) {
    memory_lock();
    list_remove(&self->of_owner);
    list_remove(&self->waiting);
    memory_forget_ticket(self); /* it may have been shared while it was freed */
    memory_unlock();
}

/* Of the slabs that nothing is in, one is kept for the next small allocation. */
static CUresult give_back_part(memory *self) {
    owner *of = self->owner;
    chunk *from = self->chunk;
    slab_give_back(&from->parts, self->first_part, self->part_count);
    list_remove(&from->link); /* first: what was just given back is asked for next */
    list_prepend(&of->open, &from->link);
    if (from->parts.taken_count > 0) {
        return CUDA_SUCCESS;
    }
    if (of->empty_count > 0) {
        return chunk_destroy(from);
    }
    of->empty_count++;
    return CUDA_SUCCESS;
}

CUresult memory_end(memory *self) {
    CUresult result = CUDA_SUCCESS;
    leave_owner(self);
    sharing_end(self);
    if (self->chunk != NULL) {
        pthread_mutex_lock(&self->owner->mutex);
        result = self->part_count > 0 ? give_back_part(self) : chunk_destroy(self->chunk);
        pthread_mutex_unlock(&self->owner->mutex);
    }
    free(self);
    return result;
}

/* SPDX-License-Identifier: MIT */
/** @file See table.h. */
#include "base/table.h"

#include <stdlib.h>

/* A power of two. */
static size_t slot_count_of(const hash_table *self) {
    return self->slots == NULL ? TABLE_FIRST_SLOTS : self->slot_count;
}

static size_t slot_of(const hash_table *self, uint64_t hash) {
    return (size_t)(hash & (slot_count_of(self) - 1));
}

static table_link *first_of(const hash_table *self, size_t slot) {
    return self->slots == NULL ? self->first_slots[slot] : self->slots[slot];
}

static void put_in(hash_table *self, table_link *link) {
    table_link **slots = self->slots == NULL ? self->first_slots : self->slots;
    table_link **slot = &slots[slot_of(self, link->hash)];
    link->next = *slot;
    link->at = slot;
    if (link->next != NULL) {
        link->next->at = &link->next;
    }
    *slot = link;
}

/* Puts a chain into the slots, each with those of its hash in the order they had. */
static void move(hash_table *self, table_link *chain) {
    table_link *last_first = NULL;
    for (table_link *at = chain, *next; at != NULL; at = next) {
        next = at->next;
        at->next = last_first;
        last_first = at;
    }
    for (table_link *at = last_first, *next; at != NULL; at = next) {
        next = at->next;
        put_in(self, at);
    }
}

static void make_room(hash_table *self) {
    const size_t old_count = slot_count_of(self);
    table_link **old = self->slots == NULL ? self->first_slots : self->slots;
    if (self->count < old_count) {
        return;
    }
    table_link **slots = calloc(old_count * 2, sizeof(table_link *));
    if (slots == NULL) {
        return;
    }
    self->slots = slots;
    self->slot_count = old_count * 2;
    for (size_t i = 0; i < old_count; i++) {
        move(self, old[i]);
    }
    if (old != self->first_slots) {
        free(old);
    }
}

void table_add(hash_table *self, table_link *link, uint64_t hash) {
    make_room(self);
    link->hash = hash;
    put_in(self, link);
    self->count++;
}

void table_remove(hash_table *self, table_link *link) {
    if (link->at == NULL) {
        return;
    }
    *link->at = link->next;
    if (link->next != NULL) {
        link->next->at = link->at;
    }
    *link = (table_link){0};
    self->count--;
}

static table_link *with_hash(table_link *at, uint64_t hash) {
    while (at != NULL && at->hash != hash) {
        at = at->next;
    }
    return at;
}

table_link *table_find(const hash_table *self, uint64_t hash) {
    return with_hash(first_of(self, slot_of(self, hash)), hash);
}

table_link *table_find_next(const table_link *link) {
    return with_hash(link->next, link->hash);
}

/* The first one from a slot on. */
static table_link *from_slot(const hash_table *self, size_t slot) {
    const size_t count = slot_count_of(self);
    table_link *found = NULL;
    while (slot < count && (found = first_of(self, slot)) == NULL) {
        slot++;
    }
    return found;
}

table_link *table_first(const hash_table *self) {
    return from_slot(self, 0);
}

table_link *table_next(const hash_table *self, const table_link *link) {
    return link->next != NULL ? link->next : from_slot(self, slot_of(self, link->hash) + 1);
}

void table_clear(hash_table *self) {
    free(self->slots);
    *self = (hash_table){0};
}

/* SPDX-License-Identifier: MIT */
/**
 * @file Hash tables through what is in them. They grow with what is in them, and where there is no memory for
 * that, the chains do: adding never fails. Nothing is locked.
 */
#ifndef GPUIPC_TABLE_H
#define GPUIPC_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

/** Lies in what can be in a table: one for each table that it can be in at once. All zero: in none. */
typedef struct table_link {
    struct table_link *next;
    struct table_link **at; /**< NULL: in none */
    uint64_t hash;
} table_link;

/** So many need no memory. */
#define TABLE_FIRST_SLOTS 64u

/** All zero is empty. It stays where it is as long as something is in it. */
typedef struct hash_table {
    table_link **slots; /**< a chain each; NULL: those of the last member */
    size_t slot_count;  /**< a power of two; 0: likewise */
    size_t count;
    table_link *first_slots[TABLE_FIRST_SLOTS];
} hash_table;

/** What a link lies in; NULL for NULL. */
#define TABLE_ITEM(link, type, member) ((type *)list_item_at((link), offsetof(type, member)))

/** @param hash of its key, equal for equal keys. The low bits count: hash.h makes them good, and where others
 *         choose the keys, a random seed does */
void table_add(hash_table *self, table_link *link, uint64_t hash);
/** Does nothing where it is in none. */
void table_remove(hash_table *self, table_link *link);
static inline bool table_has(const table_link *link) {
    return link->at != NULL;
}

/** The one added last of those with this hash, and the next of them: the caller compares keys. NULL: no more. */
table_link *table_find(const hash_table *self, uint64_t hash);
table_link *table_find_next(const table_link *link);

/** All, in no order. What is found may be removed once the next is known. */
table_link *table_first(const hash_table *self);
table_link *table_next(const hash_table *self, const table_link *link);

/** Frees what the table has, and forgets what was in it. */
void table_clear(hash_table *self);

#endif

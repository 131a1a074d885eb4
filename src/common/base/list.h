/* SPDX-License-Identifier: MIT */
/** @file Doubly linked lists through what is in them. Nothing is allocated, and nothing is locked. */
#ifndef GPUIPC_LIST_H
#define GPUIPC_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Lies in what can be in a list: one for each list that it can be in at once. All zero: in none. */
typedef struct list_link {
    struct list_link *next;
    struct list_link *previous;
    struct linked_list *in;
} list_link;

/** All zero is empty. */
typedef struct linked_list {
    list_link *first;
    list_link *last;
    size_t count;
} linked_list;

static inline void *list_item_at(const void *link, size_t offset) {
    return link == NULL ? NULL : (void *)((uintptr_t)link - offset);
}

/** What a link lies in; NULL for NULL. */
#define LIST_ITEM(link, type, member) ((type *)list_item_at((link), offsetof(type, member)))

static inline bool list_has(const linked_list *self, const list_link *link) {
    return link->in == self;
}

/** @param before in the list; NULL: the new one becomes the last */
static inline void list_insert(linked_list *self, list_link *link, list_link *before) {
    *link = (list_link){before, before != NULL ? before->previous : self->last, self};
    *(link->previous != NULL ? &link->previous->next : &self->first) = link;
    *(before != NULL ? &before->previous : &self->last) = link;
    self->count++;
}

static inline void list_append(linked_list *self, list_link *link) {
    list_insert(self, link, NULL);
}

static inline void list_prepend(linked_list *self, list_link *link) {
    list_insert(self, link, self->first);
}

/** Takes it out of the list that it is in. Does nothing where it is in none. */
static inline void list_remove(list_link *link) {
    linked_list *self = link->in;
    if (self != NULL) {
        *(link->previous != NULL ? &link->previous->next : &self->first) = link->next;
        *(link->next != NULL ? &link->next->previous : &self->last) = link->previous;
        self->count--;
        *link = (list_link){0};
    }
}

/** Takes the first out; NULL: there is none. */
static inline list_link *list_take(linked_list *self) {
    list_link *first = self->first;
    if (first != NULL) {
        list_remove(first);
    }
    return first;
}

/** The first becomes the last, so that a few at a time are looked at in turn. @return it; NULL: there is none */
static inline list_link *list_turn(linked_list *self) {
    list_link *first = list_take(self);
    if (first != NULL) {
        list_append(self, first);
    }
    return first;
}

#endif

/* SPDX-License-Identifier: MIT */
/** @file See expiry.h. Entry i is not later than 2i + 1 and 2i + 2. */
#include "ticket/expiry.h"

#include <stdlib.h>

#include "base/status.h"

static void put(expiry_heap *self, size_t at, expiry *entry) {
    self->entries[at] = entry;
    entry->place = at + 1;
}

static void sift_up(expiry_heap *self, size_t at, expiry *entry) {
    while (at > 0 && entry->at_ns < self->entries[(at - 1) / 2]->at_ns) {
        put(self, at, self->entries[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    put(self, at, entry);
}

static void sift_down(expiry_heap *self, size_t at, expiry *entry) {
    for (;;) {
        size_t child = at * 2 + 1;
        if (child + 1 < self->count &&
            self->entries[child + 1]->at_ns < self->entries[child]->at_ns) {
            child++;
        }
        if (child >= self->count || self->entries[child]->at_ns >= entry->at_ns) {
            break;
        }
        put(self, at, self->entries[child]);
        at = child;
    }
    put(self, at, entry);
}

gpuipc_status expiry_add(expiry_heap *self, expiry *entry) {
    if (self->count == self->capacity) {
        const size_t capacity = self->capacity == 0 ? 16 : self->capacity * 2;
        expiry **entries = realloc(self->entries, capacity * sizeof(*entries));
        if (entries == NULL) {
            return status_out_of_memory(capacity * sizeof(*entries));
        }
        self->entries = entries;
        self->capacity = capacity;
    }
    sift_up(self, self->count++, entry);
    return GPUIPC_OK;
}

void expiry_remove(expiry_heap *self, expiry *entry) {
    if (entry->place == 0) {
        return;
    }
    const size_t at = entry->place - 1;
    expiry *last = self->entries[--self->count];
    entry->place = 0;
    if (last == entry) {
        return;
    }
    if (at > 0 && last->at_ns < self->entries[(at - 1) / 2]->at_ns) {
        sift_up(self, at, last);
    } else {
        sift_down(self, at, last);
    }
}

expiry *expiry_next(const expiry_heap *self) {
    return self->count == 0 ? NULL : self->entries[0];
}

void expiry_heap_destroy(expiry_heap *self) {
    free(self->entries);
    *self = (expiry_heap){0};
}

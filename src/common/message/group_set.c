/* SPDX-License-Identifier: MIT */
/** @file See group_set.h. */
#include "message/group_set.h"

#include <stdlib.h>

bool group_set_has(const group_set *self, uint32_t group) {
    for (size_t i = 0; i < self->count; i++) {
        if (self->groups[i] == group) {
            return true;
        }
    }
    return false;
}

gpuipc_status group_set_add(group_set *self, uint32_t group) {
    if (self->count == self->capacity) {
        const size_t capacity = self->capacity == 0 ? 8 : self->capacity * 2;
        uint32_t *groups = realloc(self->groups, capacity * sizeof(*groups));
        if (groups == NULL) {
            return status_out_of_memory(capacity * sizeof(*groups));
        }
        self->groups = groups;
        self->capacity = capacity;
    }
    self->groups[self->count++] = group;
    return GPUIPC_OK;
}

void group_set_truncate(group_set *self, size_t count) {
    self->count = count;
}

void group_set_clear(group_set *self) {
    free(self->groups);
    *self = (group_set){0};
}

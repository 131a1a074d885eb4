/* SPDX-License-Identifier: MIT */
/** @file Which pools' handles a connection has sent: the peer keeps them, so each travels once. */
#ifndef GPUIPC_GROUP_SET_H
#define GPUIPC_GROUP_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct group_set {
    uint32_t *groups;
    size_t count;
    size_t capacity;
} group_set;

bool group_set_has(const group_set *self, uint32_t group);
gpuipc_status group_set_add(group_set *self, uint32_t group);
/** Takes back what was added after there were @p count: their packet did not leave. */
void group_set_truncate(group_set *self, size_t count);
void group_set_clear(group_set *self);

#endif

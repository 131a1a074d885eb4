/* SPDX-License-Identifier: MIT */
/**
 * @file The values that stand for contexts, streams, events, graphs and memory outside the driver. They are
 * numbers, not addresses of ours: none is given out twice, so a stale one is known for what it is,
 * and one that was never given out as well. The driver's lock is held in every call.
 */
#ifndef GPUIPC_EMULATED_HANDLE_TABLE_H
#define GPUIPC_EMULATED_HANDLE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum handle_kind {
    HANDLE_CONTEXT,
    HANDLE_STREAM,
    HANDLE_EVENT,
    HANDLE_MEMORY,
    HANDLE_POOL,
    HANDLE_GRAPH,
    HANDLE_GRAPH_NODE,
    HANDLE_GRAPH_EXEC
} handle_kind;

/** A new value for @p object, or 0 when there is no memory. */
uint64_t handle_add(handle_kind kind, void *object);

/** The object, or NULL: not given out, removed, or of another kind. */
void *handle_find(handle_kind kind, uint64_t value);

/** The next value above @p after (0: the first) of a kind, with its object; 0: there is none. */
uint64_t handle_next(handle_kind kind, uint64_t after, void **object);

/** Whether this value was ever given out for that kind. */
bool handle_was_given(handle_kind kind, uint64_t value);

void handle_remove(uint64_t value);

#endif

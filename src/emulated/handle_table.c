/* SPDX-License-Identifier: MIT */
/** @file See handle_table.h. */
#include "handle_table.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Above what x86-64 user code can address, so that a program that takes a handle for a pointer
 * faults, and away from the small numbers that CUDA uses for its default streams. */
#define HANDLE_BASE UINT64_C(0x0000800000000000)

typedef struct handle {
    uint64_t value;
    void *object;
} handle;

/* In the order of their values, because values only rise. */
static handle *handles;
static size_t handle_count;
static size_t handle_capacity;
static uint64_t next_serial = 1;

static size_t position_of(uint64_t value) {
    size_t low = 0;
    size_t high = handle_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (handles[middle].value < value) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint64_t handle_add(handle_kind kind, void *object) {
    if (handle_count == handle_capacity) {
        size_t capacity = handle_capacity == 0 ? 64 : handle_capacity * 2;
        handle *grown = realloc(handles, capacity * sizeof(*grown));
        if (grown == NULL) {
            return 0;
        }
        handles = grown;
        handle_capacity = capacity;
    }
    const uint64_t value = HANDLE_BASE + next_serial * 16 + (uint64_t)kind;
    next_serial++;
    handles[handle_count++] = (handle){value, object};
    return value;
}

bool handle_was_given(handle_kind kind, uint64_t value) {
    return value >= HANDLE_BASE + 16 && value < HANDLE_BASE + next_serial * 16 &&
           value % 16 == (uint64_t)kind;
}

void *handle_find(handle_kind kind, uint64_t value) {
    size_t position = position_of(value);
    if (value % 16 != (uint64_t)kind || position == handle_count ||
        handles[position].value != value) {
        return NULL;
    }
    return handles[position].object;
}

uint64_t handle_next(handle_kind kind, uint64_t after, void **object) {
    for (size_t i = position_of(after + 1); i < handle_count; i++) {
        if (handles[i].value % 16 == (uint64_t)kind) {
            *object = handles[i].object;
            return handles[i].value;
        }
    }
    return 0;
}

void handle_remove(uint64_t value) {
    size_t position = position_of(value);
    if (position == handle_count || handles[position].value != value) {
        return;
    }
    handle_count--;
    memmove(&handles[position], &handles[position + 1],
            (handle_count - position) * sizeof(*handles));
}

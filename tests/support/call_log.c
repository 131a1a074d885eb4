/* SPDX-License-Identifier: MIT */
/** @file The file of call_log.h: a table of functions by the hash of their names, which ci/check-errors reads. */
#include "call_log.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* More functions than there are, and more statuses. */
enum {
    SLOTS = 256,
    STATUSES = 120
};

/* Bytes, and a number in the order of the machine: ci/check-errors runs on the machine that has run the tests. */
typedef struct {
    _Atomic uint64_t name; /* 0: nobody has the slot */
    atomic_uchar answered[STATUSES];
} call_slot;

static call_slot *slots;

/* Before main(), so that no leak gate has begun. */
__attribute__((constructor)) static void call_log_begin(void) {
    const char *path = getenv("GPUIPC_TEST_CALL_LOG");
    if (path == NULL || path[0] == '\0') {
        return;
    }
    slots = call_log_map(path, SLOTS * sizeof(*slots));
    if (slots == NULL) {
        fprintf(stderr, "GPUIPC_TEST_CALL_LOG: %s cannot be mapped\n", path);
        abort();
    }
}

/* FNV-1a (draft-eastlake-fnv), and never 0. */
static uint64_t name_hash(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name != '\0'; name++) {
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    }
    return hash | 1;
}

void call_log_note(const char *name, gpuipc_status status) {
    if (slots == NULL) {
        return;
    }
    const uint64_t hash = name_hash(name);
    const int number = (int)status;
    for (size_t i = 0; i < SLOTS && number >= 0 && number < STATUSES; i++) {
        call_slot *slot = &slots[(hash + i) % SLOTS];
        uint64_t owner = 0;
        if (atomic_compare_exchange_strong(&slot->name, &owner, hash) || owner == hash) {
            atomic_store_explicit(&slot->answered[number], 1, memory_order_relaxed);
            return;
        }
    }
    fprintf(stderr, "%s answered %d, which cannot be noted\n", name, number);
    abort();
}

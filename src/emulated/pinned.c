/* SPDX-License-Identifier: MIT */
/** @file See pinned.h. */
#include "pinned.h"

#include <stddef.h>
#include <stdlib.h>

#include "stream.h"

/* What a host pins at a time. */
#define PAGE ((uint64_t)4096)
/* More than any host has. */
#define BYTES_MAX (UINT64_C(1) << 39)

static pinned *table;
/* The same, by address: a stream that writes the words of many processes looks for each. */
static range_node *tree;
static uint64_t last_id;

static uint64_t *count_of(pinned_kind kind) {
    return kind == PINNED_MANAGED ? &driver.live.managed : &driver.live.pinned;
}

static pinned *table_add(context *owner, pinned_kind kind, range at, unsigned flags) {
    pinned *one = calloc(1, sizeof(*one));
    if (one == NULL) {
        return NULL;
    }
    one->at = at;
    one->kind = kind;
    one->owner = owner;
    one->device = owner->device;
    one->flags = flags;
    one->id = ++last_id;
    one->references = 1;
    one->next = table;
    table = one;
    one->node = (range_node){.begin = at.base, .end = at.base + at.size};
    range_tree_add(&tree, &one->node, one->id * UINT64_C(0x9E3779B97F4A7C15));
    ++*count_of(kind);
    return one;
}

CUresult pinned_allocate(context *owner, pinned_kind kind, uint64_t bytes, unsigned flags,
                         pinned **out) {
    if (bytes > BYTES_MAX) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* Whole pages, so that no page belongs to two of them. */
    const uint64_t room = (bytes + PAGE - 1) / PAGE * PAGE;
    void *block = calloc(1, (size_t)(room + PAGE));
    if (block == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUdeviceptr base = ((uintptr_t)block + PAGE - 1) / PAGE * PAGE;
    pinned *one = table_add(owner, kind, (range){base, bytes}, flags);
    if (one == NULL) {
        free(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    one->block = block;
    *out = one;
    return CUDA_SUCCESS;
}

static uint64_t page_of(CUdeviceptr address) {
    return address / PAGE;
}

static bool takes_any(range_node *node) {
    (void)node;
    return true;
}

static bool has_pages(range_node *node) {
    return page_of(node->begin) != page_of(node->end - 1);
}

static pinned *pinned_of(range_node *node) {
    return node == NULL ? NULL : (pinned *)(void *)((char *)node - offsetof(pinned, node));
}

/* Pages are pinned whole: ranges that share one are in each other's way. Small pieces of one page are
 * not (both measured on an H200). */
static const pinned *find_overlap(CUdeviceptr base, CUdeviceptr last) {
    range_node *found = range_tree_find_between(tree, base, last, takes_any);
    if (found == NULL) {
        found = range_tree_find_between(tree, page_of(base) * PAGE, page_of(last) * PAGE + PAGE - 1,
                                        page_of(base) == page_of(last) ? has_pages : takes_any);
    }
    return pinned_of(found);
}

CUresult pinned_register(context *owner, CUdeviceptr base, uint64_t bytes, unsigned flags,
                         pinned **out) {
    const pinned *other = find_overlap(base, base + bytes - 1);
    if (other != NULL) {
        return other->kind == PINNED_REGISTERED ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                                : CUDA_ERROR_INVALID_VALUE;
    }
    *out = table_add(owner, PINNED_REGISTERED, (range){base, bytes}, flags);
    return *out == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

pinned *pinned_find(CUdeviceptr address) {
    return pinned_of(range_tree_find(tree, address, takes_any));
}

bool pinned_syncs(CUdeviceptr address) {
    const mapping *mapped = address_mapping(address);
    const pinned *host = mapped == NULL ? pinned_find(address) : NULL;
    return mapped != NULL ? mapped->syncs : host != NULL && host->syncs;
}

pinned *pinned_next(const pinned *one) {
    return one == NULL ? table : one->next;
}

void pinned_retain(pinned *one) {
    one->references++;
}

void pinned_release(pinned *one) {
    if (one == NULL || --one->references > 0) {
        return;
    }
    free(one->block);
    free(one);
}

static void forget(pinned *one) {
    pinned **link = &table;
    while (*link != one) {
        link = &(*link)->next;
    }
    *link = one->next;
    range_tree_remove(&tree, &one->node);
    one->owner = NULL;
    --*count_of(one->kind);
    pinned_release(one);
}

static pinned *find_start(CUdeviceptr base, pinned_kind kind) {
    pinned *one = pinned_find(base);
    return one != NULL && one->at.base == base && one->kind == kind ? one : NULL;
}

bool pinned_remove(CUdeviceptr base, pinned_kind kind) {
    pinned *one = find_start(base, kind);
    if (one == NULL) {
        return false;
    }
    stream_wait_context_alone(one->owner);
    /* It may be gone whenever the lock was released. */
    for (one = find_start(base, kind); one != NULL; one = find_start(base, kind)) {
        if (one->references == 1) {
            forget(one);
            return true;
        }
        state_wait();
    }
    return false;
}

void pinned_clear(const context *owner) {
    pinned *next;
    for (pinned *one = table; one != NULL; one = next) {
        next = one->next;
        if (one->owner == owner) {
            forget(one);
        }
    }
}

/* SPDX-License-Identifier: MIT */
/** @file See pool_chunk.h. */
#include "pool_chunk.h"

#include <stdlib.h>

CUresult pool_block_add(pool_chunk *chunk, uint64_t offset, uint64_t size, pool_block **out) {
    pool_block *block = calloc(1, sizeof(*block));
    if (block == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block->chunk = chunk;
    block->offset = offset;
    block->size = size;
    block->next = chunk->blocks;
    chunk->blocks = block;
    *out = block;
    return CUDA_SUCCESS;
}

CUresult pool_add_chunk(pool *to, allocation *memory, uint64_t offset, uint64_t size,
                        pool_chunk **out) {
    pool_block *whole;
    pool_chunk *chunk = calloc(1, sizeof(*chunk));
    if (chunk == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = address_reserve(size, STATE_GRANULE, 0, &chunk->at);
    if (result != CUDA_SUCCESS) {
        goto free_chunk;
    }
    chunk->owner = to;
    if (!to->is_imported) {
        result = pool_block_add(chunk, 0, size, &whole);
        if (result != CUDA_SUCCESS) {
            goto unreserve;
        }
    }
    chunk->at->is_plain = true;
    allocation_retain(memory);
    chunk->memory = memory;
    chunk->offset = offset;
    chunk->next = to->chunks;
    to->chunks = chunk;
    *out = chunk;
    return CUDA_SUCCESS;

unreserve:
    address_unreserve(chunk->at);
free_chunk:
    free(chunk);
    return result;
}

void pool_chunk_remove(pool_chunk *chunk) {
    pool *owner = chunk->owner;
    pool_chunk **link = &owner->chunks;
    pool_block *next;
    while (*link != chunk) {
        link = &(*link)->next;
    }
    *link = chunk->next;
    for (pool_block *block = chunk->blocks; block != NULL; block = next) {
        next = block->next;
        task_release(block->freed);
        free(block);
    }
    if (!owner->is_imported) {
        owner->reserved -= chunk->at->at.size;
        if (chunk->memory == owner->room) {
            driver.devices[owner->device].used_bytes -= chunk->at->at.size;
        }
    }
    address_unreserve(chunk->at);
    allocation_release(chunk->memory);
    free(chunk);
}

static bool is_free(const pool_block *block) {
    return block->mapped == NULL && block->freed == NULL;
}

void pool_chunk_merge(pool_chunk *chunk, bool done) {
    for (pool_block *block = chunk->blocks; done && block != NULL; block = block->next) {
        if (block->freed != NULL && block->freed->is_done) {
            task_release(block->freed);
            block->freed = NULL;
        }
    }
    for (pool_block *block = chunk->blocks; block != NULL; block = block->next) {
        while (is_free(block) && block->next != NULL && is_free(block->next)) {
            pool_block *merged = block->next;
            block->size += merged->size;
            block->next = merged->next;
            free(merged);
        }
    }
}

CUresult pool_block_cut(pool_block *block, uint64_t size) {
    if (block->size == size) {
        return CUDA_SUCCESS;
    }
    pool_block *rest = calloc(1, sizeof(*rest));
    if (rest == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *rest = *block;
    rest->offset += size;
    rest->size -= size;
    if (rest->freed != NULL) {
        task_retain(rest->freed);
    }
    block->size = size;
    block->next = rest;
    return CUDA_SUCCESS;
}

void pool_block_remove(pool_block *block) {
    pool_chunk *chunk = block->chunk;
    pool_block **link = &chunk->blocks;
    while (*link != block) {
        link = &(*link)->next;
    }
    *link = block->next;
    free(block);
}

/* SPDX-License-Identifier: MIT */
/** @file See pool.h. */
#include "pool.h"

#include <stdlib.h>
#include <string.h>

#include "handle_table.h"
#include "pool_chunk.h"

/* What an H200 takes from the device at a time; less when there is not as much. */
#define CHUNK_BYTES ((uint64_t)32 << 20)

static pool *pools;

CUresult pool_find(CUmemoryPool handle, pool **out) {
    pool *found = handle_find(HANDLE_POOL, (uintptr_t)handle);
    if (found == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = found;
    return CUDA_SUCCESS;
}

CUresult pool_create(int ordinal, int physical, allocation *room, pool **out) {
    pool *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->handle = (CUmemoryPool)(uintptr_t)handle_add(HANDLE_POOL, made);
    if (made->handle == NULL) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->device = ordinal;
    made->physical = physical;
    made->room = room;
    for (size_t i = 0; i < sizeof(made->reuse) / sizeof(made->reuse[0]); i++) {
        made->reuse[i] = 1; /* cuda.h: "(default enabled)" */
    }
    if (ordinal >= 0) {
        made->access[ordinal] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    made->next = pools;
    pools = made;
    *out = made;
    return CUDA_SUCCESS;
}

CUresult pool_default(device *of, pool **out) {
    if (of->default_pool == NULL) {
        const CUresult result =
            pool_create((int)(of - driver.devices), (int)of->physical, NULL, &of->default_pool);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        of->default_pool->is_default = true;
    }
    *out = of->default_pool;
    return CUDA_SUCCESS;
}

pool *pool_find_imported(const uint8_t id[16]) {
    for (pool *next = pools; next != NULL; next = next->next) {
        if (next->imports > 0 && memcmp(next->room->id, id, sizeof(next->room->id)) == 0) {
            return next;
        }
    }
    return NULL;
}

static void end_if_unused(pool *what) {
    pool **link = &pools;
    if (!what->is_destroyed || what->outstanding > 0) {
        return;
    }
    while (what->chunks != NULL) {
        pool_chunk_remove(what->chunks);
    }
    while (*link != what) {
        link = &(*link)->next;
    }
    *link = what->next;
    allocation_release(what->room);
    free(what);
}

void pool_destroy(pool *what) {
    driver.live.pools--;
    if (what->imports > 1) {
        what->imports--;
        return;
    }
    handle_remove((uintptr_t)what->handle); /* attributes name it still (measured) */
    what->is_destroyed = true;
    end_if_unused(what);
}

/* Whether a stream may have it without waiting. */
static bool is_free_for(const pool_block *block, const stream *on) {
    const bool takes_done = block->chunk->owner->reuse[1] != 0; /* ALLOW_OPPORTUNISTIC */
    if (block->mapped != NULL) {
        return false;
    }
    return block->freed == NULL ||
           (block->freed->is_done ? takes_done || block->freed_on == on : block->freed_on == on);
}

/* @param may_wait a block that is free only later is good as well */
static pool_block *find_block(const pool *from, uint64_t size, const stream *on, bool may_wait) {
    for (pool_chunk *chunk = from->chunks; chunk != NULL; chunk = chunk->next) {
        pool_chunk_merge(chunk, from->reuse[1] != 0);
        for (pool_block *block = chunk->blocks; block != NULL; block = block->next) {
            if (block->size >= size &&
                (is_free_for(block, on) || (may_wait && block->mapped == NULL))) {
                return block;
            }
        }
    }
    return NULL;
}

/* A part of the pool's room that no chunk has. The room is larger than the device's memory, so that
 * one is found between chunks that lie in the way. */
static CUresult find_room(const pool *of, uint64_t size, uint64_t *out) {
    uint64_t offset = 0;
    const pool_chunk *chunk = of->chunks;
    while (chunk != NULL) {
        const uint64_t end = chunk->offset + chunk->at->at.size;
        if (offset < end && chunk->offset < offset + size) {
            offset = end; /* behind this one, and once more past all */
            chunk = of->chunks;
        } else {
            chunk = chunk->next;
        }
    }
    if (offset > of->room->size || size > of->room->size - offset) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = offset;
    return CUDA_SUCCESS;
}

static CUresult create_in_room(pool *to, uint64_t size) {
    uint64_t offset;
    pool_chunk *chunk;
    device *owner = &driver.devices[to->device];
    if (size > driver.computer.memory_bytes - owner->used_bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = find_room(to, size, &offset);
    if (result == CUDA_SUCCESS) {
        result = pool_add_chunk(to, to->room, offset, size, &chunk);
    }
    if (result == CUDA_SUCCESS) {
        owner->used_bytes += size;
    }
    return result;
}

static CUresult create_by_itself(pool *to, uint64_t size) {
    allocation *memory;
    pool_chunk *chunk;
    CUresult result = allocation_create(to->device, size, 0, &memory);
    if (result == CUDA_SUCCESS) {
        result = pool_add_chunk(to, memory, 0, size, &chunk);
        allocation_release(memory); /* the chunk keeps it */
    }
    return result;
}

static CUresult create_chunk(pool *to, uint64_t size) {
    if (to->max_bytes != 0 &&
        (to->reserved > to->max_bytes || size > to->max_bytes - to->reserved)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result =
        to->room != NULL ? create_in_room(to, size) : create_by_itself(to, size);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    to->reserved += size;
    to->reserved_high = to->reserved > to->reserved_high ? to->reserved : to->reserved_high;
    return CUDA_SUCCESS;
}

/* Gets more memory from the device; what pools of it have and do not use is given back for that. */
static CUresult grow(pool *to, uint64_t size) {
    const uint64_t least = (size + STATE_GRANULE - 1) / STATE_GRANULE * STATE_GRANULE;
    CUresult result = create_chunk(to, (size + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        result = create_chunk(to, least);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        for (pool *other = pools; other != NULL; other = other->next) {
            if (other->device == to->device && !other->is_imported) {
                pool_trim(other, 0);
            }
        }
        result = create_chunk(to, least);
    }
    return result;
}

static CUresult find_or_grow(pool *from, uint64_t size, stream *on, pool_block **out) {
    CUresult result = CUDA_SUCCESS;
    pool_block *block = find_block(from, size, on, false);
    if (block == NULL) {
        result = grow(from, size);
        block = find_block(from, size, on, false);
    }
    if (block == NULL && from->reuse[2] != 0) { /* ALLOW_INTERNAL_DEPENDENCIES */
        block = find_block(from, size, on, true);
        result = block == NULL ? result : stream_wait_for(on, block->freed);
    }
    if (block == NULL || result != CUDA_SUCCESS) {
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    }
    *out = block;
    return CUDA_SUCCESS;
}

CUresult pool_map_block(pool_block *block, uint64_t bytes, CUdeviceptr *out) {
    mapping *mapped;
    pool *owner = block->chunk->owner;
    const CUresult result = address_map(block->chunk->at->at.base + block->offset, bytes,
                                        block->chunk->memory, &mapped);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    mapped->kind = MAPPING_POOLED;
    mapped->offset = block->chunk->offset + block->offset;
    mapped->block = block;
    for (int i = 0; i < MACHINE_DEVICES_MAX; i++) {
        mapped->access[i] = owner->access[i];
    }
    block->mapped = mapped;
    owner->outstanding++;
    owner->used += bytes;
    owner->used_high = owner->used > owner->used_high ? owner->used : owner->used_high;
    driver.live.pooled++;
    *out = mapped->at.base;
    return CUDA_SUCCESS;
}

CUresult pool_allocate(pool *from, uint64_t bytes, stream *on, CUdeviceptr *out) {
    pool_block *block;
    if (bytes > driver.computer.memory_bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const uint64_t size =
        (bytes + POOL_BLOCK_GRANULE - 1) / POOL_BLOCK_GRANULE * POOL_BLOCK_GRANULE;
    CUresult result = find_or_grow(from, size, on, &block);
    if (result == CUDA_SUCCESS) {
        result = pool_block_cut(block, size);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    task_release(block->freed);
    block->freed = NULL;
    return pool_map_block(block, bytes, out);
}

/* If all of it is one free block, and the pool keeps enough without it. */
static void give_back(pool_chunk *chunk, uint64_t keep) {
    const pool *owner = chunk->owner;
    if (chunk->blocks->next == NULL && chunk->blocks->mapped == NULL &&
        chunk->blocks->freed == NULL && owner->reserved > keep &&
        chunk->at->at.size <= owner->reserved - keep) {
        pool_chunk_remove(chunk);
    }
}

void pool_free(mapping *mapped, task *point, const stream *on) {
    pool_block *block = mapped->block;
    pool_chunk *chunk = block->chunk;
    pool *owner = chunk->owner;
    const uint64_t bytes = mapped->at.size;
    address_unmap(mapped);
    block->mapped = NULL;
    owner->outstanding--;
    owner->used -= bytes;
    driver.live.pooled--;
    if (owner->is_imported) {
        pool_block_remove(block);
    } else if (point != NULL) {
        task_retain(point);
        block->freed = point;
        block->freed_on = on;
    } else {
        pool_chunk_merge(chunk, false);
        give_back(chunk, owner->threshold);
    }
    end_if_unused(owner);
}

void pool_set_access(pool *what, int ordinal, CUmemAccess_flags flags) {
    what->access[ordinal] = (uint8_t)flags;
    for (pool_chunk *chunk = what->chunks; chunk != NULL; chunk = chunk->next) {
        for (pool_block *block = chunk->blocks; block != NULL; block = block->next) {
            if (block->mapped != NULL) {
                address_set_access(block->mapped, ordinal, flags);
            }
        }
    }
}

void pool_trim(pool *what, uint64_t keep) {
    pool_chunk *next;
    for (pool_chunk *chunk = what->chunks; chunk != NULL; chunk = next) {
        next = chunk->next;
        pool_chunk_merge(chunk, true);
        give_back(chunk, keep);
    }
}

void pool_synchronized(void) {
    for (pool *next = pools; next != NULL; next = next->next) {
        if (!next->is_imported) {
            pool_trim(next, next->threshold);
        }
    }
}

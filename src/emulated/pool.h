/* SPDX-License-Identifier: MIT */
/**
 * @file Memory pools: chunks of a device's memory, cut into blocks that are given out and taken back in
 * the order of streams. What is freed keeps its contents and is given out again. The driver's lock is
 * held in every call.
 */
#ifndef GPUIPC_EMULATED_POOL_H
#define GPUIPC_EMULATED_POOL_H

#include "address_space.h"
#include "stream.h"

/** Sizes of blocks are multiples of it. */
#define POOL_BLOCK_GRANULE 512

/** A part of a chunk. Those of a chunk lie side by side; those of an imported one are what was imported. */
typedef struct pool_block {
    struct pool_chunk *chunk;
    uint64_t offset;
    uint64_t size;
    mapping *mapped;        /**< NULL: free */
    task *freed;            /**< free from this point on, one reference; NULL: for everybody */
    const stream *freed_on; /**< in which it lies, while it is not done */
    struct pool_block *next;
} pool_block;

typedef struct pool_chunk {
    struct pool *owner;
    allocation *memory; /**< one reference */
    uint64_t offset;    /**< where in the memory it starts */
    reservation *at;
    pool_block *blocks;
    struct pool_chunk *next;
} pool_chunk;

typedef struct pool {
    CUmemoryPool handle;
    int device; /**< ordinal, or ALLOCATION_DEVICE_HIDDEN */
    int physical;
    bool is_default;
    bool is_imported;
    bool is_destroyed; /**< ends with its last allocation */
    unsigned imports;  /**< of an imported one: how often, less what was destroyed */
    bool was_exported;
    int handle_types; /**< mask of what it was made to be exported as */
    /** Of one that can be exported, or was imported: room for all that it may ever have, so that who has
     *  the pool can come to each chunk of it, even when its owner has ended (measured). Else NULL. */
    allocation *room;
    uint64_t max_bytes; /**< 0: as much as there is */
    uint64_t threshold; /**< what it keeps at a synchronization */
    int reuse[3];       /**< CU_MEMPOOL_ATTR_REUSE_... */
    uint64_t used;
    uint64_t used_high;
    uint64_t reserved;
    uint64_t reserved_high;
    uint64_t outstanding;                /**< allocations not freed */
    uint8_t access[MACHINE_DEVICES_MAX]; /**< CUmemAccess_flags of each ordinal */
    pool_chunk *chunks;
    struct pool *next;
} pool;

/** CUDA_ERROR_INVALID_VALUE */
CUresult pool_find(CUmemoryPool handle, pool **out);
/** The pool that a device has by itself, made when it is first asked for. */
CUresult pool_default(device *of, pool **out);
/** A pool without memory. @param room taken over on success, or NULL */
CUresult pool_create(int ordinal, int physical, allocation *room, pool **out);
/** What was imported as this, or NULL. */
pool *pool_find_imported(const uint8_t id[16]);
/** Its handle becomes invalid, if it was not imported more often; it ends when nothing of it is in use. */
void pool_destroy(pool *what);

/** Memory that may be used in @p on, and in other streams behind that. */
CUresult pool_allocate(pool *from, uint64_t bytes, stream *on, CUdeviceptr *out);
/** Takes a MAPPING_POOLED back. @param point from which on it is free, NULL: at once, and its chunk is given back
 *  if that holds nothing else @param on the stream in which that point lies */
void pool_free(mapping *mapped, task *point, const stream *on);

/** Gives a device access, or takes it, to what the pool has and will have. */
void pool_set_access(pool *what, int ordinal, CUmemAccess_flags flags);

/** Gives chunks in which nothing is in use back until no more than @p keep bytes are reserved. */
void pool_trim(pool *what, uint64_t keep);
/** A stream, an event or a context was synchronized: pools give back what is above their threshold. */
void pool_synchronized(void);

/** A chunk of memory that the pool has made or imported, with one free block if it was made; takes a
 *  reference. */
CUresult pool_add_chunk(pool *to, allocation *memory, uint64_t offset, uint64_t size,
                        pool_chunk **out);
/** Lets a block stand for memory. */
CUresult pool_map_block(pool_block *block, uint64_t bytes, CUdeviceptr *out);

#endif

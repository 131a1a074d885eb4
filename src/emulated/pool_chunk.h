/* SPDX-License-Identifier: MIT */
/** @file The blocks of a pool's chunk. The driver's lock is held in every call. */
#ifndef GPUIPC_EMULATED_POOL_CHUNK_H
#define GPUIPC_EMULATED_POOL_CHUNK_H

#include "pool.h"

/** Gives its memory and its addresses back. Nothing of it is in use. */
void pool_chunk_remove(pool_chunk *chunk);
/** Makes one of free blocks side by side, of those that are free for everybody.
 *  @param done those that were freed in a stream which has got there are so, too */
void pool_chunk_merge(pool_chunk *chunk, bool done);

/** Leaves @p size bytes in a block; the rest of it becomes another one. */
CUresult pool_block_cut(pool_block *block, uint64_t size);
/** One more block in an imported chunk. */
CUresult pool_block_add(pool_chunk *chunk, uint64_t offset, uint64_t size, pool_block **out);
/** Ends a block of an imported chunk. */
void pool_block_remove(pool_block *block);

#endif

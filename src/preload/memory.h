/* SPDX-License-Identifier: MIT */
/** @file What was given out under an address: allocations of this library, and what it opened of other processes. */
#ifndef GPUIPC_PRELOAD_MEMORY_H
#define GPUIPC_PRELOAD_MEMORY_H

#include <gpuipc/gpuipc.h>

#include "base/range_tree.h"
#include "base/table.h"
#include "chunk.h"

typedef struct memory {
    range_node at;         /**< the bytes that were asked for */
    bool is_entered;       /**< found under its address */
    list_link of_owner;    /**< in owner::memories */
    list_link waiting;     /**< among what is freed when no stream is captured any more */
    table_link by_ticket;  /**< in the table of tickets, where it has one */
    owner *owner;          /**< whose context it was made or opened in */
    chunk *chunk;          /**< NULL: opened */
    unsigned first_part;   /**< of a slab */
    unsigned part_count;   /**< 0: the whole chunk */
    uint64_t id;           /**< in this process, as CU_POINTER_ATTRIBUTE_BUFFER_ID */
    gpuipc_buffer *buffer; /**< shared or opened; else NULL */
    gpuipc_ticket ticket;  /**< likewise */
    bool has_ticket; /**< it may be found by that, as long as it is found at all; under the lock */
    unsigned opens;  /**< how often it was opened and not closed */
} memory;

/** What is known of the memory at an address. */
typedef struct memory_facts {
    CUdeviceptr base;
    size_t bytes;
    CUcontext context;
    int device; /**< of the context */
    bool is_opened;
    uint64_t id;
} memory_facts;

/** One lock for all that is in tables. No call of the driver, or of gpuipc, is made under it. */
void memory_lock(void);
void memory_unlock(void);
/** A forked child: nobody holds it. */
void memory_lock_anew(void);

/** Enters it under its address. Under the lock. */
void memory_enter(memory *self);
/** The one whose range has the address; NULL: none. Under the lock. */
memory *memory_find(CUdeviceptr address);
/** Takes it out, so that nobody else finds it; does nothing where it is out. Under the lock. */
void memory_take_out(memory *self);
/** False: it is none of ours. Takes the lock. */
bool memory_describe(CUdeviceptr address, memory_facts *out_facts);

/** The tickets. Under the lock. What has none, is taken out, or is entered already, is left as it is: one thread may share
 *  what another takes out and puts back. */
void memory_enter_ticket(memory *self);
void memory_forget_ticket(memory *self);
memory *memory_find_ticket(const gpuipc_ticket *ticket, const memory *after);

/** Ends what is found no more, and which no work uses: its share, its place, itself. Under ipc_lock(). */
CUresult memory_end(memory *self);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * @file Memory of the host that devices reach at its own addresses: of cuMemHostAlloc, of
 * cuMemHostRegister, and managed memory. The driver's lock is held in every call.
 */
#ifndef GPUIPC_EMULATED_PINNED_H
#define GPUIPC_EMULATED_PINNED_H

#include "address_space.h"
#include "base/range_tree.h"
#include "context.h"

typedef enum pinned_kind {
    PINNED_ALLOCATED,
    PINNED_REGISTERED,
    PINNED_MANAGED
} pinned_kind;

typedef struct pinned {
    range at;
    pinned_kind kind;
    context *owner;      /**< it ends with this one; NULL: it has */
    int device;          /**< ordinal of the owner */
    unsigned flags;      /**< as it was asked for */
    bool syncs;          /**< CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
    uint64_t id;         /**< unique in this process */
    uint64_t references; /**< one of the table, and pending work */
    void *block;         /**< what is given back with the last one, NULL: the caller's memory */
    struct pinned *next;
    range_node node; /**< in the tree by which an address is found */
} pinned;

/** Zeroed pages of the host. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult pinned_allocate(context *owner, pinned_kind kind, uint64_t bytes, unsigned flags,
                         pinned **out);
/** Makes the caller's memory known. CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: part of it is;
 *  CUDA_ERROR_INVALID_VALUE: it is the driver's. */
CUresult pinned_register(context *owner, CUdeviceptr base, uint64_t bytes, unsigned flags,
                         pinned **out);

/** What contains an address, or NULL. */
pinned *pinned_find(CUdeviceptr address);
/** All of them, the latest first: the one after @p one (NULL: the first), or NULL. */
pinned *pinned_next(const pinned *one);

/** Whether synchronous copies and fills of what is at an address, pinned or of a device, always wait until they are
 *  done: CU_POINTER_ATTRIBUTE_SYNC_MEMOPS. */
bool pinned_syncs(CUdeviceptr address);

void pinned_retain(pinned *one);
/** NULL is allowed. */
void pinned_release(pinned *one);

/** Waits for all work of its context, and for any other that touches it, and forgets what starts at
 *  an address. @return false: nothing of this kind starts there */
bool pinned_remove(CUdeviceptr base, pinned_kind kind);
/** Forgets what a context owns, whose work has ended. */
void pinned_clear(const context *owner);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * @file A CUDA context as the owner of memory: its device, what is made in it, and which other contexts were let at it
 * by cuCtxEnablePeerAccess(). Owners are never freed: one whose context has ended serves the next context.
 */
#ifndef GPUIPC_PRELOAD_OWNER_H
#define GPUIPC_PRELOAD_OWNER_H

#include <pthread.h>
#include <stdbool.h>

#include "base/list.h"
#include "real.h"

/** CUDA knows 64 devices at most. */
#define OWNER_DEVICES 64

/** A context that may use the owner's memory. */
typedef struct accessor {
    CUcontext context;
    int device;
} accessor;

typedef struct owner {
    list_link link;
    CUcontext context; /**< NULL: none, free for the next */
    int device;
    bool is_primary;          /**< the device's primary context */
    bool takes;               /**< false: memory of this device is left to the driver */
    CUmemAllocationProp prop; /**< of what is made in it */
    size_t granule;
    accessor accessors[OWNER_DEVICES];
    unsigned accessor_count;
    linked_list chunks;   /**< without free parts */
    linked_list open;     /**< with free parts */
    size_t empty_count;   /**< of these: nothing is in them */
    linked_list memories; /**< all that was given out, also what waits to be freed */
    /** Held while chunks are made, given access, and ended. Before the lock of memory.h. */
    pthread_mutex_t mutex;
} owner;

/** Of the calling thread's context; made when it is new. NULL: there is none, or no memory for an owner. */
owner *owner_current(void);
/** The owner of a context, which is made current for it where it is new. NULL: likewise. */
owner *owner_of(CUcontext context);
/** The one that is known, NULL otherwise. */
owner *owner_find(CUcontext context);
/** The one of a device's primary context that is known; NULL otherwise. */
owner *owner_find_primary(int device);
/** Goes through all that have a context. @param after NULL: the first */
owner *owner_next(const owner *after);

/** Waits for all work of the owner's context and of those that may use its memory. */
CUresult owner_wait(owner *self);
/** Its context is no more, and nothing is in it. */
void owner_forget(owner *self);
/** Whether any was ever made in this process. */
bool owner_was_made(void);

/** The rights of new memory: the owner's device and those let at it. @return how many */
size_t owner_rights(const owner *self, CUmemAccessDesc rights[OWNER_DEVICES + 1]);

#endif

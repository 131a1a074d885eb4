/* SPDX-License-Identifier: MIT */
/** @file One allocation of the driver's virtual memory management, mapped where it stays. */
#ifndef GPUIPC_PRELOAD_CHUNK_H
#define GPUIPC_PRELOAD_CHUNK_H

#include "owner.h"
#include "slab.h"

typedef struct chunk {
    list_link link; /**< in one of the owner's lists */
    CUdeviceptr base;
    size_t bytes;
    slab parts; /**< which ones are given out, where it is given out in parts */
} chunk;

/** Makes one, accessible as the owner's memory is. The caller holds the owner's mutex. */
CUresult chunk_create(owner *of, size_t bytes, chunk **out_chunk);
/** Ends one that no work uses. The caller holds the owner's mutex. */
CUresult chunk_destroy(chunk *self);
/** Lets a device at it or, with PROT_NONE, no more. */
CUresult chunk_set_access(const chunk *self, int device, CUmemAccess_flags flags);

#endif

/* SPDX-License-Identifier: MIT */
/** @file One contiguous range of device addresses over one or more segments. */
#ifndef GPUIPC_MAPPING_H
#define GPUIPC_MAPPING_H

#include "memory/segment.h"

typedef struct mapping {
    CUdeviceptr base; /**< 0: none */
    uint64_t bytes;   /**< the sum of the segments */
} mapping;

/** Reserves as much as is mapped, and maps the segments side by side. No device has access yet.
 *  ERR_SIZE_MISMATCH: a segment has not the size it says. */
gpuipc_status mapping_create(const driver *drv, const segment *segments, size_t count,
                             mapping *out_mapping);

/** Lets one device read, or read and write, all of it. ERR_PEER_ACCESS_UNSUPPORTED.
 *  @param ordinal as CUDA numbers devices */
gpuipc_status mapping_set_access(const driver *drv, const mapping *self, CUdevice ordinal,
                                 CUmemAccess_flags flags);

/** Unmaps and gives the addresses back. */
void mapping_destroy(const driver *drv, mapping *self);

#endif

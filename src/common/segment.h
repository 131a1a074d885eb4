/* SPDX-License-Identifier: MIT */
/** @file One physical allocation of device memory. */
#ifndef GPUIPC_SEGMENT_H
#define GPUIPC_SEGMENT_H

#include <stdbool.h>

#include "driver.h"

typedef struct segment {
    CUmemGenericAllocationHandle allocation; /**< 0: none held */
    uint64_t bytes;                          /**< its whole size */
    os_handle
        kept; /**< of an opened one that is to be sent on: the driver exports no import again */
} segment;

#define SEGMENT_NONE ((segment){.kept = {-1}})

/** Allocates. @p prop from device_allocation_prop(); @p bytes a multiple of the granularity */
gpuipc_status segment_create(const driver *drv, const CUmemAllocationProp *prop, uint64_t bytes,
                             segment *out_segment);

/** Imports what a native handle stands for; the handle stays the caller's. @p bytes is what the
 *  sender says, to be checked by mapping. ERR_NOT_GPU_MEMORY. Needs no CUDA context (measured). */
gpuipc_status segment_import(const driver *drv, intptr_t native, uint64_t bytes,
                             segment *out_segment);

/** ERR_NOT_SHAREABLE when segment_export() could make no handle of it for that reason. */
gpuipc_status segment_check_export(const segment *self, bool is_imported);

/** A fresh OS handle of it. @p is_imported: opened from another process.
 *  ERR_NOT_SHAREABLE, ERR_TOO_MANY_HANDLES. */
gpuipc_status segment_export(const driver *drv, const segment *self, bool is_imported,
                             os_handle *out_handle);

/** Gives up the allocation and the kept handle. @p forked: in a child, where no driver call may be
 *  made. Memory that is mapped stays until it is unmapped. */
void segment_release(const driver *drv, segment *self, bool forked);

#endif

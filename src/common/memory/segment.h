/* SPDX-License-Identifier: MIT */
/** @file One physical allocation. */
#ifndef GPUIPC_SEGMENT_H
#define GPUIPC_SEGMENT_H

#include <stdbool.h>

#include "base/quota.h"
#include "driver.h"
#include "memory/segment_record.h"

struct driver_reference;

typedef struct segment {
    CUmemGenericAllocationHandle allocation; /**< VMM and fabric; 0: none held */
    uint64_t bytes;                          /**< its whole size */
    /** Of an opened one that is to be sent on: the driver exports no import again. Of an own one: from its
     *  first hand-over on. Of host memory: its handle. */
    os_handle kept;
    bool has_place; /**< kept is one of the handles that the context counts: kept_handles.h */
    void *host;     /**< host memory: where this process has it; NULL: not mapped */
    struct driver_reference *pool; /**< imported from a pool: the pool; of our own pool: likewise */
    struct driver_reference *made; /**< opened once in this process however often it came */
    uint32_t group;                /**< which pool of the exporter */
    quota_charge charge;           /**< of the process that it came from */
    uint8_t name
        [SEGMENT_NAME_BYTES]; /**< what other processes know it by, where it is known by a name */
} segment;

#define SEGMENT_NONE ((segment){.kept = {-1}})

/** Allocates. @p prop from device_allocation_prop(); @p bytes a multiple of the granularity */
gpuipc_status segment_create(const driver *drv, const CUmemAllocationProp *prop, uint64_t bytes,
                             segment *out_segment);

/** Imports what a native handle stands for; the handle stays the caller's. @p bytes is what the
 *  sender says, to be checked by mapping. ERR_NOT_GPU_MEMORY. Needs no CUDA context (measured). */
gpuipc_status segment_import(const driver *drv, intptr_t native, uint64_t bytes,
                             segment *out_segment);

/** ERR_NOT_SHAREABLE when it was opened from another process (@p is_imported) and its handle is not kept. */
gpuipc_status segment_check_export(const segment *self, bool is_imported);

/** A handle of an own one, made by the driver. ERR_NOT_SHAREABLE, ERR_TOO_MANY_HANDLES. */
gpuipc_status segment_export(const driver *drv, const segment *self, os_handle *out_handle);

/** Gives up the allocation and the kept handle. @p forked: in a child, where no driver call may be
 *  made. Memory that is mapped stays until it is unmapped. */
void segment_release(const driver *drv, segment *self, bool forked);

#endif

/* SPDX-License-Identifier: MIT */
/** @file Which kind of memory an address is, as the driver tells. */
#ifndef GPUIPC_POINTER_H
#define GPUIPC_POINTER_H

#include "cuda/context.h"

/** One allocation; of VMM memory: one mapping. */
typedef struct pointer {
    gpuipc_memory_kind kind;
    bool is_host; /**< VMM memory that lies in the host */
    bool is_legacy_capable;
    uint32_t device;  /**< or GPUIPC_DEVICE_NONE */
    int ordinal;      /**< of the device, as the driver numbers it */
    int handle_types; /**< that it was allocated with; of imported memory: none */
    CUmemoryPool pool;
    uint64_t base;
    uint64_t bytes;
} pointer;

/** Looks at an address that cuMemRetainAllocationHandle does not take for VMM memory. What CUDA does not know is of kind
 *  UNKNOWN; that is no failure. */
gpuipc_status pointer_look_other(const context *ctx, uint64_t address, pointer *out_pointer);

/** How VMM memory was allocated: all but where it is mapped. */
gpuipc_status pointer_look_allocation(const context *ctx, CUmemGenericAllocationHandle allocation,
                                      pointer *out_pointer);
/** And how far the mapping reaches that has this address. */
gpuipc_status pointer_find_mapping(context *ctx, uint64_t address, pointer *self);

#endif

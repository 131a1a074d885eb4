/* SPDX-License-Identifier: MIT */
/**
 * @file The floor: the driver's calls that share memory, written out plainly, as a program without gpuipc has
 * them. Both ends.
 */
#ifndef GPUIPC_BENCH_FLOOR_H
#define GPUIPC_BENCH_FLOOR_H

#include "bench_call.h"
#include "courier.h"

/** One range of addresses over one or more allocations. */
typedef struct floor_memory {
    CUdeviceptr address;
    uint64_t segment_bytes;
    size_t segment_count;
    CUmemGenericAllocationHandle *segments;
} floor_memory;

/** What is shared. */
typedef struct floor_plan {
    uint32_t count;         /**< how many ranges */
    uint64_t bytes;         /**< of each */
    uint64_t segment_bytes; /**< of one allocation; 0: all of it */
} floor_plan;

/** Times on the clock of the machine. */
typedef struct floor_times {
    uint64_t begin_ns; /**< owner: before the first call; opener: when the last packet had come */
    uint64_t end_ns;   /**< owner: when all was sent; opener: after the last call */
    uint64_t calls_ns; /**< in calls of the driver */
} floor_times;

/** Makes memory, readable and writable on its own device. */
floor_memory *floor_make(const floor_plan *plan, int device);

/** Owner: exports and sends. */
floor_times floor_share(courier *by, const floor_memory *memory, uint32_t count);

/** Opener: receives, imports, maps and gives the device access. */
floor_times floor_open(courier *by, const floor_plan *plan, int device, floor_memory **out_memory);

/** Unmaps and releases. */
void floor_end(floor_memory *memory, uint32_t count);

#endif

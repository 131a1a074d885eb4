/* SPDX-License-Identifier: MIT */
/** @file What one process tells another of its memory: the fields, whatever bytes they become (message/wire.h). */
#ifndef GPUIPC_SEGMENT_RECORD_H
#define GPUIPC_SEGMENT_RECORD_H

#include <stdint.h>

/** As long as the longest name that the driver gives memory (CUmemPoolPtrExportData and others). */
#define SEGMENT_NAME_BYTES 64u

/** Which kind of memory another process is told of. The numbers are those of the wire (docs/wire-format.md). */
typedef enum segment_memory {
    SEGMENT_MEMORY_VMM = 1,    /**< virtual memory management */
    SEGMENT_MEMORY_LEGACY = 2, /**< cuMemAlloc; a segment's name is its CUipcMemHandle */
    SEGMENT_MEMORY_POOL = 3,   /**< stream-ordered; its name is its CUmemPoolPtrExportData */
    SEGMENT_MEMORY_HOST = 4,   /**< host memory that both sides register */
    SEGMENT_MEMORY_FABRIC = 5  /**< its name is its CUmemFabricHandle */
} segment_memory;

/** How another process is told which memory it is. Likewise. */
typedef enum segment_naming {
    SEGMENT_NAMED_BY_HANDLE = 0, /**< a handle goes along */
    SEGMENT_NAMED_BY_NAME = 1,   /**< by its name; no handle goes along */
    SEGMENT_NAMED_BY_BOTH =
        2 /**< the name, and the handle of what it lies in (a pool, the first time) */
} segment_naming;

/** What another process is told of a segment. */
typedef struct segment_record {
    uint64_t bytes;
    uint16_t naming; /**< segment_naming */
    uint32_t group;  /**< which pool of the exporter; 0 where there are none */
    uint8_t name[SEGMENT_NAME_BYTES];
} segment_record;

#endif

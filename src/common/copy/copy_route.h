/* SPDX-License-Identifier: MIT */
/** @file Which way a copy between two buffers goes: what reaches what decides, not what could. */
#ifndef GPUIPC_COPY_ROUTE_H
#define GPUIPC_COPY_ROUTE_H

#include "memory/buffer.h"

typedef enum copy_way {
    COPY_WAY_DIRECT,  /**< the driver's own copy, on the stream itself */
    COPY_WAY_BESIDES, /**< likewise, but on a stream of the device that reaches both */
    COPY_WAY_STAGED   /**< no device reaches both: staging.h */
} copy_way;

typedef struct copy_route {
    copy_way way;
    uint32_t device; /**< BESIDES: the one that reaches both */
} copy_route;

/** Finds it. The CUDA context of the stream is the current one. */
gpuipc_status copy_route_find(const buffer *destination, uint64_t destination_offset,
                              const buffer *source, uint64_t source_offset, copy_route *out_route);

#endif

/* SPDX-License-Identifier: MIT */
/** @file How fast a transport probably is, from what joins the devices, until it is measured. */
#ifndef GPUIPC_ESTIMATE_H
#define GPUIPC_ESTIMATE_H

#include "cuda/context.h"

/** 0: nothing is known that it could be estimated from. */
typedef struct estimate {
    uint64_t bandwidth_bytes_per_second; /**< of one large copy, one way; payload */
    uint64_t latency_ns;                 /**< of one small copy on the device */
} estimate;

estimate estimate_make(const context *ctx, gpuipc_transport which, uint32_t owner, uint32_t user);

#endif

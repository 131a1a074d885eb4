/* SPDX-License-Identifier: MIT */
/** @file The process that memory comes from, and what is kept of it while its connection lasts. */
#ifndef GPUIPC_IMPORT_SOURCE_H
#define GPUIPC_IMPORT_SOURCE_H

#include "base/quota.h"
#include "cuda/context.h"
#include "cuda/driver_reference.h"

/** The most pools that one connection may bring: each takes memory of the driver. */
#define IMPORT_SOURCE_POOLS_MAX 256u

typedef struct import_source {
    context *context;             /**< of this side */
    uint64_t connection;          /**< its number */
    const os_peer *peer;          /**< NULL: not known */
    struct point_peer *other_end; /**< the same; NULL: not known */
    quota *quota;                 /**< the account of its user; NULL: it is this process */
    const uint8_t *exporter_id;   /**< of the buffer that the segment coming in is of; 16 bytes */
    uint32_t segment_count;       /**< of that buffer, as the peer says */
    driver_reference *
        *pools; /**< opened pools that it sent: it sends the handle of each but once */
    uint32_t pool_count;
} import_source;

/** Whether it has ended. When that cannot be known: no. */
bool import_source_has_ended(const import_source *self);

/** Gives up its pools. @param forked no driver calls */
void import_source_release(import_source *self, bool forked);

#endif

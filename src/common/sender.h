/* SPDX-License-Identifier: MIT */
/** @file The process that memory comes from, and what is kept of it while its connection lasts. */
#ifndef GPUIPC_SENDER_H
#define GPUIPC_SENDER_H

#include "context.h"
#include "counted.h"

/** The most pools that one connection may bring: each takes memory of the driver. */
#define SENDER_POOLS_MAX 256u

typedef struct sender {
    context *context;                 /**< of this side */
    uint64_t connection;              /**< its number */
    const os_peer *peer;              /**< NULL: not known */
    const struct wire_buffer *record; /**< the buffer that the segment coming in is of */
    counted **pools; /**< opened pools that it sent: it sends the handle of each but once */
    uint32_t pool_count;
} sender;

/** Whether it has ended. When that cannot be known: no. */
bool sender_has_ended(const sender *self);

/** Gives up its pools. @param forked no driver calls */
void sender_end(sender *self, bool forked);

#endif

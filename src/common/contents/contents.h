/* SPDX-License-Identifier: MIT */
/** @file What a connection has of contents on their way: the rings, and memory that is just copied from. */
#ifndef GPUIPC_CONTENTS_H
#define GPUIPC_CONTENTS_H

#include "memory/buffer.h"
#include "message/connection.h"

/** A buffer of the peer's that contents are copied out of, until the stream has passed the copy. */
typedef struct contents_opened {
    gpuipc_buffer *buffer;
    uint32_t device; /**< its event's */
    CUevent passed;
    struct contents_opened *next;
} contents_opened;

/** Takes in a packet with the words of the peer's ring. ERR_PROTOCOL for a second one, one inside a
 *  message, or what is no such page.
 *  @param handle stays the caller's */
gpuipc_status contents_take_words(connection *from, os_handle handle);

/** Closes the peer's memory that the streams have passed. The receive mutex is held. */
void contents_close_opened(connection *from);

/** The range, the stream and the reserved parts of what a caller wants. Takes a reference on the buffer. */
gpuipc_status contents_check(const connection *of, const gpuipc_contents *wanted,
                             buffer **out_buffer);

/** The range on its way through a ring. */
contents_flow contents_flow_of(const buffer *self, const gpuipc_contents *wanted,
                               const atomic_bool *interrupted);

/** Nothing more is received: what the peer sends goes nowhere, and its streams go on. The receive mutex is held. */
void contents_end_receiving(connection *self, bool forked);

/** At the end of a connection. Memory that is still copied from is waited for a little. */
void contents_end(connection *self, bool forked);

#endif

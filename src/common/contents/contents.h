/* SPDX-License-Identifier: MIT */
/** @file What a connection has of contents on their way: the rings, and memory that is just copied from. */
#ifndef GPUIPC_CONTENTS_H
#define GPUIPC_CONTENTS_H

#include "contents/contents_ring.h"
#include "memory/buffer.h"
#include "message/connection.h"

/** A buffer of the peer's that contents are copied out of, until the stream has passed the copy. */
typedef struct contents_opened {
    gpuipc_buffer *buffer;
    uint32_t device; /**< its event's */
    CUevent passed;
    struct contents_opened *next;
} contents_opened;

/** What the connections of a context ask of it. */
extern const connection_contents contents_of_connections;

/** Closes the peer's memory that the streams have passed. The receive mutex is held. */
void contents_close_opened(connection *from);

/** The range, the stream and the reserved parts of what a caller wants. Takes a reference on the buffer. */
gpuipc_status contents_check(const connection *of, const gpuipc_contents *wanted,
                             buffer **out_buffer);

/** The range on its way through a ring. */
contents_flow contents_flow_of(const buffer *self, const gpuipc_contents *wanted,
                               const atomic_bool *interrupted);

#endif

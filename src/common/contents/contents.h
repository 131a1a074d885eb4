/* SPDX-License-Identifier: MIT */
/** @file What a connection has of contents on their way: the rings, one in each direction. */
#ifndef GPUIPC_CONTENTS_H
#define GPUIPC_CONTENTS_H

#include "contents/contents_ring.h"
#include "memory/buffer.h"
#include "message/connection.h"

/** What the connections of a context ask of it. */
extern const connection_contents contents_of_connections;

/** The range, the stream and the reserved parts of what a caller wants. Takes a reference on the buffer. */
gpuipc_status contents_check(const connection *of, const gpuipc_contents *wanted,
                             buffer **out_buffer);

/** buffer_work.h, of a call that is not in the stream's CUDA context. */
gpuipc_status contents_work_begin(buffer *of, gpuipc_stream stream, work_place **out_place);
void contents_work_end(buffer *of, work_place *place, gpuipc_stream stream);

/** The range on its way through a ring. */
contents_flow contents_flow_of(const buffer *self, const gpuipc_contents *wanted,
                               const atomic_bool *interrupted, os_deadline deadline);

#endif

/* SPDX-License-Identifier: MIT */
/** @file The transports, as the floors above see them: found by number, each a table of memory/transport.h. */
#ifndef GPUIPC_TRANSPORT_INTERNAL_H
#define GPUIPC_TRANSPORT_INTERNAL_H

#include "memory/transport.h"

/** The transport with this number; NULL for any other number. DEFAULT is vmm. */
const transport *transport_find(gpuipc_transport id);
/** The transport of a kind of memory (segment_memory); NULL when there is none. */
const transport *transport_of_memory(uint16_t memory);

/** Makes a buffer of host memory with the contents that @p of has when the stream comes to this place, and
 *  waits for that. */
gpuipc_status transport_staged_copy(const buffer *of, gpuipc_stream stream, buffer **out_copy);

/** Lets a device reach memory of another CUDA context, until it is released as often as it was taken. */
gpuipc_status transport_plain_enable(context *ctx, uint32_t user, CUcontext reached,
                                     struct driver_reference **out_access);

#endif

/* SPDX-License-Identifier: MIT */
/** @file Sending a copy of memory that no transport carries. */
#ifndef GPUIPC_TRANSPORT_STAGED_H
#define GPUIPC_TRANSPORT_STAGED_H

#include "transport.h"

/** Makes a buffer of host memory with the contents that @p of has when the stream comes to this place, and
 *  waits for that. */
gpuipc_status transport_staged_copy(const buffer *of, gpuipc_stream stream, buffer **out_copy);

/** Makes shared host memory for a buffer, as transport_host has it, without registering it with the driver. */
gpuipc_status transport_host_make(buffer *self, uint64_t bytes);

#endif

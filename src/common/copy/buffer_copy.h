/* SPDX-License-Identifier: MIT */
/** @file Copying between buffers, for calls that do it among other things. */
#ifndef GPUIPC_BUFFER_COPY_H
#define GPUIPC_BUFFER_COPY_H

#include "memory/buffer.h"

/** As gpuipc_buffer_copy_async(). */
gpuipc_status buffer_copy(buffer *destination, uint64_t destination_offset, buffer *source,
                          uint64_t source_offset, uint64_t bytes, gpuipc_stream stream);

#endif

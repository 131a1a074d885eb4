/* SPDX-License-Identifier: MIT */
/** @file What the ways of making a buffer (buffer_create.c, buffer_wrap.c, buffer_open.c) share. */
#ifndef GPUIPC_BUFFER_INTERNAL_H
#define GPUIPC_BUFFER_INTERNAL_H

#include "buffer.h"

/** An empty buffer with one reference, which buffer_unreference() ends at any stage of filling. */
gpuipc_status buffer_new(context *ctx, gpuipc_buffer_origin origin,
                         const struct transport *transport, buffer **out_buffer);

/** ERR_PEER_ACCESS_UNSUPPORTED when a device cannot reach the memory of the buffer's owner. */
gpuipc_status buffer_check_peer(const buffer *self, uint32_t index);

/** Answers a buffer that has come back to its own process from the original: sets self->original and the
 *  mapping; where this process has none, does nothing. ERR_NOT_GPU_MEMORY when the peer names it without
 *  having got it. */
gpuipc_status buffer_open_original(buffer *self);

/** Fills in a wrapped buffer over memory that is none of virtual memory management. */
gpuipc_status buffer_wrap_other(buffer *self, uint64_t address, uint64_t bytes);

/** What stands behind the mappings of a range that goes on, when it is none: ERR_NOT_DEVICE_MEMORY for
 *  nothing, ERR_NOT_SHAREABLE for memory of another kind. */
gpuipc_status buffer_wrap_check_next(const buffer *self, uint64_t address);

/** Room for one segment more, which is SEGMENT_NONE and not counted yet. */
gpuipc_status buffer_grow(buffer *self, const char *operation);

#endif

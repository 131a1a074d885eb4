/* SPDX-License-Identifier: MIT */
/** @file What the ways of making a buffer (buffer_create.c, buffer_wrap.c, buffer_open.c) share. */
#ifndef GPUIPC_BUFFER_INTERNAL_H
#define GPUIPC_BUFFER_INTERNAL_H

#include "buffer.h"

/** An empty buffer with one reference, which buffer_unreference() ends at any stage of filling. */
gpuipc_status buffer_new(context *ctx, gpuipc_buffer_origin origin, buffer **out_buffer);

/** Gives a device access to the whole mapping. ERR_PEER_ACCESS_UNSUPPORTED. */
gpuipc_status buffer_give_access(buffer *self, uint32_t index, gpuipc_access access);

#endif

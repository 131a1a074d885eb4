/* SPDX-License-Identifier: MIT */
/** @file Making a mark of a buffer, and finding the buffer that one is about: for marks and loans alike. */
#ifndef GPUIPC_BUFFER_MARK_H
#define GPUIPC_BUFFER_MARK_H

#include "memory/buffer.h"
#include "sync/mark.h"

/** What a public call does that makes one. @param make in the stream's CUDA context */
gpuipc_status buffer_make_mark(gpuipc_buffer *handle, gpuipc_stream stream, gpuipc_mark *out_mark,
                               gpuipc_status (*make)(buffer *self, gpuipc_stream stream,
                                                     mark *out_mark));

/** The buffer behind a handle, with a reference for the caller, and what a mark says. */
gpuipc_status buffer_find_mark(gpuipc_buffer *handle, const gpuipc_mark *bytes, buffer **out_buffer,
                               mark *out_mark);

#endif

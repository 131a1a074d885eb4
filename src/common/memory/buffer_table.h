/* SPDX-License-Identifier: MIT */
/** @file What a context knows of its buffers: which one has an address, and who changes the access to one. */
#ifndef GPUIPC_BUFFER_TABLE_H
#define GPUIPC_BUFFER_TABLE_H

#include "memory/buffer.h"

extern const context_part buffer_table_part;

/** Enters a buffer that has memory of its own: it is found by any address in its range from now on. */
void buffer_table_enter(buffer *self);
/** Before its memory ends. Does nothing for one that was not entered. */
void buffer_table_leave(buffer *self);

/** A buffer of this context that has this address and has not ended, with a reference for the caller; NULL: there
 *  is none. */
buffer *buffer_table_find(const context *ctx, uint64_t address);

/** One at a time changes what devices may do, so that driver and library agree about it. */
void buffer_table_lock_access(const context *ctx);
void buffer_table_unlock_access(const context *ctx);

#endif

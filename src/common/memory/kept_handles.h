/* SPDX-License-Identifier: MIT */
/** @file Handles of own memory that are kept from their first hand-over on: a bounded number in a context. */
#ifndef GPUIPC_KEPT_HANDLES_H
#define GPUIPC_KEPT_HANDLES_H

#include <gpuipc/gpuipc.h>

#include "memory/segment.h"

struct context;

typedef struct kept_handles {
    os_mutex mutex; /**< guards segment.kept and has_place of own segments, too */
    uint32_t count;
} kept_handles;

extern const struct context_part kept_handles_part;

/** A handle of a segment that may be exported, to be used for a moment: the kept one or, of an own segment where there is room for
 *  one more, one that is kept from now on; else a fresh one. However many threads want it at once, one that is
 *  kept is exported once.
 *  @param is_imported opened from another process
 *  @param out_is_kept whether it stays the segment's: not to be closed, and good while the buffer is referenced
 *  ERR_TOO_MANY_HANDLES */
gpuipc_status kept_handles_export(struct context *ctx, segment *of, bool is_imported,
                                  os_handle *out_handle, bool *out_is_kept);

/** Makes the handle of a new own segment that will be handed over, ahead of that, where there is room for one more to
 *  be kept. A failure leaves it to the hand-over, which says why; the thread's error record is as before. */
void kept_handles_prepare(struct context *ctx, segment *of);

/** The same of one that may be exported, to be the caller's: a duplicate of the kept handle, or a fresh one. Keeps nothing. */
gpuipc_status kept_handles_copy(struct context *ctx, const segment *of, os_handle *out_handle);

/** Before segment_release(): its place, if it has one, is free for another. */
void kept_handles_remove(struct context *ctx, const segment *of);

#endif

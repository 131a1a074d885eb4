/* SPDX-License-Identifier: MIT */
/** @file The buffers of this process that it must recognise when they come back to it. */
#ifndef GPUIPC_REGISTRY_H
#define GPUIPC_REGISTRY_H

#include "memory/buffer.h"

/** Enters a buffer; registry_leave() takes it out. */
void registry_add(buffer *self);

/** The living buffer of these two, in any context of this process, with a reference for the caller; NULL:
 *  there is none. */
buffer *registry_find(const uint8_t exporter_id[16], uint64_t buffer_id);

/** To be asked when a buffer has no references left. Where its memory ends with it and another process may
 *  still have it open, it lingers until a later registry_sweep() finds that nobody has; and it may have come
 *  back meanwhile.
 *  @param forked in a child, where nothing lingers
 *  @return true: it ends now, and is out; false: it is not the caller's any more */
bool registry_leave(buffer *self, bool forked);

/** Ends the buffers that nobody has open any more. It looks at all that linger.
 *  @return whether there were some that lingered */
bool registry_sweep(void);
/** The same of those of a context (NULL: of none) that are known to be returned, and of a few others in turn: what it costs
 *  does not depend on how many linger.
 *  @param may_wait also the last ones of a context, with which it ends: that waits for the devices */
void registry_sweep_some(context *ctx, bool may_wait);

extern const context_part registry_part;

/** From now on a thread of the library's does that for what lingers of a context that is over, until nothing does. */
void registry_attend(context *ctx);

#endif

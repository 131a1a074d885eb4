/* SPDX-License-Identifier: MIT */
/**
 * @file gpuipc inside this library: for each device whose memory is shared or opened, a context and, where memory is
 * shared, a server. They end before the device's primary context does, since they have parts in it. All of it under
 * ipc_lock(), but for sharing_open().
 */
#ifndef GPUIPC_PRELOAD_SHARING_H
#define GPUIPC_PRELOAD_SHARING_H

#include "memory.h"

/** Makes a memory's ticket; does nothing where it has one. */
gpuipc_status sharing_share(memory *self);
/** The context of a device, made where there is none. */
gpuipc_status sharing_find(int device, gpuipc_context **out_context);
/** Opens another process's memory for a device, and fills buffer, ticket and range in. It takes as long as that process
 *  takes to answer, so no lock is held. */
gpuipc_status sharing_open(gpuipc_context *context, const gpuipc_ticket *ticket, int device,
                           memory *self);
/** Ends what a memory has of that: nobody opens it any more, or it is not mapped any more. */
void sharing_end(memory *self);
/** Ends a device's part. What still has a buffer of it has been ended. */
void sharing_end_device(int device);

#endif

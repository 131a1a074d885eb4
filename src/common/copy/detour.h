/* SPDX-License-Identifier: MIT */
/** @file Work that leaves the caller's stream for streams of the library's and comes back to it, so that it
 *  happens in the caller's order. Nothing waits on the host. */
#ifndef GPUIPC_DETOUR_H
#define GPUIPC_DETOUR_H

#include <gpuipc/gpuipc.h>

#include "driver.h"

/** A stream of the library's, and an event, in the current CUDA context. */
gpuipc_status detour_stream_new(const driver *drv, CUstream *out_stream);
gpuipc_status detour_event_new(const driver *drv, CUevent *out_event);
/** NULL does nothing. What a stream was given goes on, and what waits for an event (cuda.h). */
void detour_stream_destroy(const driver *drv, CUstream stream);
void detour_event_destroy(const driver *drv, CUevent event);

/** Marks the place where the caller's stream is left; its CUDA context is the current one.
 *  @param out_left for detour_enter(); detour_event_destroy() ends it, as soon as nothing more enters
 *  ERR_CUDA also when the stream is being captured: work on others does not fit into its graph. */
gpuipc_status detour_leave(const driver *drv, gpuipc_stream stream, CUevent *out_left);

/** What is put on @p other from now on comes after that place. */
gpuipc_status detour_enter(const driver *drv, CUevent left, CUstream other);

/** The caller's stream goes on after what is on @p other so far. Its CUDA context is the current one: a
 *  default stream is that of whichever context that is.
 *  @param marker an event of the context of @p other */
gpuipc_status detour_return(const driver *drv, CUstream other, CUevent marker,
                            gpuipc_stream stream);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * @file Events that outlive the streams behind which they are recorded. An event ends with its CUDA context, and a program
 * may end one that it has made. To ask such an event afterwards crashes at times (cuEventQuery, an H200, driver 580). So
 * these are of primary contexts, which the library holds, also behind streams of others.
 */
#ifndef GPUIPC_DEVICE_EVENT_H
#define GPUIPC_DEVICE_EVENT_H

#include "cuda/device.h"

/** The device whose CUDA context is current, whoever made that. */
gpuipc_status device_current(const struct context *ctx, uint32_t *out_index);

/** Makes an event of the current device. cuEventDestroy() is owed.
 *  @param flags of cuEventCreate
 *  @param out_index the device's number */
gpuipc_status device_event_new(struct context *ctx, unsigned flags, CUevent *out_event,
                               uint32_t *out_index);

/** For device_event_enter() alone: of a context that is no primary one in use here. */
GPUIPC_COLD gpuipc_status device_event_enter_unknown(struct context *ctx, gpuipc_stream stream,
                                                     uint32_t index, device_scope *scope);
/** Enters the CUDA context of a stream as device_enter_uncaptured_briefly() does. If that is the primary one of a device which
 *  the library has not used yet, it does so from here on.
 *  @param scope of no use after a failure */
static inline gpuipc_status device_event_enter(struct context *ctx, gpuipc_stream stream,
                                               uint32_t index, device_scope *scope) {
    const gpuipc_status status = device_enter_uncaptured_briefly(ctx, stream, index, scope);
    return status == GPUIPC_OK && scope->index == GPUIPC_DEVICE_NONE
               ? device_event_enter_unknown(ctx, stream, index, scope)
               : status;
}

/** Records it behind what a stream was given, in the stream's CUDA context. Behind a stream of a context that is no
 *  primary one it comes some microseconds late. @param index the event's device */
gpuipc_status device_event_record(struct context *ctx, CUevent event, uint32_t index,
                                  gpuipc_stream stream);

#endif

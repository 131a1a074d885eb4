/* SPDX-License-Identifier: MIT */
/** @file See device_event.h. */
#include "cuda/device_event.h"

#include "cuda/context.h"

gpuipc_status device_current(const struct context *ctx, uint32_t *out_index) {
    CUdevice ordinal = -1;
    *out_index = device_entered(ctx);
    if (*out_index != GPUIPC_DEVICE_NONE) {
        return GPUIPC_OK;
    }
    gpuipc_status status =
        DRIVER_CALL(&ctx->driver, cuCtxGetDevice, (&ordinal), "asking which device a stream is of");
    if (status != GPUIPC_OK) {
        return status;
    }
    for (uint32_t i = 0; i < ctx->device_count; i++) {
        if (ctx->devices[i].ordinal == ordinal) {
            *out_index = i;
            return GPUIPC_OK;
        }
    }
    return status_fail(GPUIPC_ERR_DEVICE_NOT_FOUND,
                       "the stream is of device %d, which this process does not see", ordinal);
}

/* Whether the current device's primary context is unknown, and might be the one that is current. */
static gpuipc_status hold_primary(context *ctx, bool *out_is_new) {
    uint32_t index;
    device_scope scope;
    gpuipc_status status = device_current(ctx, &index);
    *out_is_new = status == GPUIPC_OK && atomic_load(&ctx->devices[index].primary) == NULL;
    if (*out_is_new && (status = device_enter(ctx, index, &scope)) == GPUIPC_OK) {
        device_leave(&scope);
    }
    return status;
}

gpuipc_status device_event_enter_unknown(struct context *ctx, gpuipc_stream stream, uint32_t index,
                                         device_scope *scope) {
    bool is_new = false;
    gpuipc_status status = hold_primary(ctx, &is_new);
    if (status == GPUIPC_OK && !is_new) {
        return GPUIPC_OK;
    }
    device_leave(scope);
    return status == GPUIPC_OK ? device_enter_uncaptured_briefly(ctx, stream, index, scope)
                               : status;
}

static gpuipc_status make(const context *ctx, unsigned flags, CUevent *out_event) {
    return DRIVER_CALL(&ctx->driver, cuEventCreate, (out_event, flags),
                       "making an event behind a stream's work");
}

static gpuipc_status record(const context *ctx, CUevent event, gpuipc_stream stream) {
    return DRIVER_CALL(&ctx->driver, cuEventRecord, (event, stream), "marking a place in a stream");
}

gpuipc_status device_event_new(struct context *ctx, unsigned flags, CUevent *out_event,
                               uint32_t *out_index) {
    device_scope scope;
    gpuipc_status status = device_current(ctx, out_index);
    if (status != GPUIPC_OK || *out_index == device_entered(ctx)) {
        return status == GPUIPC_OK ? make(ctx, flags, out_event) : status;
    }
    status = device_enter(ctx, *out_index, &scope);
    if (status == GPUIPC_OK) {
        status = make(ctx, flags, out_event);
        device_leave(&scope);
    }
    return status;
}

/* A stream of the primary context waits for the other one's event, and is done when it has. cuda.h, cuStreamDestroy and
 * cuEventDestroy: what is left to do is done, and the call does not wait for it. */
static gpuipc_status record_behind(context *ctx, CUevent event, CUevent other) {
    const driver *drv = &ctx->driver;
    CUstream follows;
    gpuipc_status status = DRIVER_CALL(drv, cuStreamCreate, (&follows, CU_STREAM_NON_BLOCKING),
                                       "marking a place in a stream of another context");
    if (status != GPUIPC_OK) {
        return status;
    }
    status = DRIVER_CALL(drv, cuStreamWaitEvent, (follows, other, 0),
                         "marking a place in a stream of another context");
    if (status == GPUIPC_OK) {
        status = record(ctx, event, follows);
    }
    (void)drv->cuStreamDestroy(follows);
    return status;
}

GPUIPC_COLD static gpuipc_status record_of_other(struct context *ctx, CUevent event, uint32_t index,
                                                 gpuipc_stream stream) {
    CUevent other;
    device_scope scope;
    gpuipc_status status = make(ctx, CU_EVENT_DISABLE_TIMING, &other);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = record(ctx, other, stream);
    if (status == GPUIPC_OK && (status = device_enter(ctx, index, &scope)) == GPUIPC_OK) {
        status = record_behind(ctx, event, other);
        device_leave(&scope);
    }
    (void)ctx->driver.cuEventDestroy(other);
    return status;
}

gpuipc_status device_event_record(struct context *ctx, CUevent event, uint32_t index,
                                  gpuipc_stream stream) {
    return index == device_entered(ctx) ? record(ctx, event, stream)
                                        : record_of_other(ctx, event, index, stream);
}

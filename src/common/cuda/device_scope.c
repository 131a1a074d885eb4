/* SPDX-License-Identifier: MIT */
/** @file Making a device's CUDA context current for a few calls, and putting the caller's back. */
#include "cuda/context.h"
#include "cuda/device.h"

/* The number of the device that it is the primary context of; GPUIPC_DEVICE_NONE: of none that is in use here. Without
 * the mutex, which another thread holds while the driver starts a device. */
static uint32_t find_primary(context *ctx, CUcontext cuda_context) {
    for (uint32_t i = 0; i < ctx->device_count; i++) {
        if (atomic_load(&ctx->devices[i].primary) == cuda_context) {
            return i;
        }
    }
    return GPUIPC_DEVICE_NONE;
}

/* From here on nothing fails any more. */
static void begin(const context *ctx, uint32_t index, device_scope *scope) {
    thread_scope *entered = status_thread_scope();
    scope->outer_of = entered->of;
    scope->outer_index = entered->index;
    entered->of = ctx;
    entered->index = index;
    scope->index = index;
}

/* The primary context of a device, retained at its first use and no earlier: retaining it costs
 * some 100 ms and hundreds of MiB of the device. */
static gpuipc_status primary_of(context *ctx, uint32_t index, CUcontext *out_primary) {
    device *self = &ctx->devices[index];
    gpuipc_status status = GPUIPC_OK;
    CUcontext primary = atomic_load(&self->primary);
    if (primary != NULL) { /* it stays */
        *out_primary = primary;
        return GPUIPC_OK;
    }
    os_mutex_lock(&ctx->device_mutex);
    primary = atomic_load(&self->primary);
    if (primary == NULL) {
        status = DRIVER_CALL(&ctx->driver, cuDevicePrimaryCtxRetain, (&primary, self->ordinal),
                             "starting to use a device");
        atomic_store(&self->primary, primary);
    }
    *out_primary = primary;
    os_mutex_unlock(&ctx->device_mutex);
    return status;
}

bool device_is_default_stream(gpuipc_stream stream) {
    return stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

bool device_is_active(const struct context *ctx, uint32_t index) {
    unsigned int flags = 0;
    int active = 0;
    return ctx->driver.cuDevicePrimaryCtxGetState(ctx->devices[index].ordinal, &flags, &active) !=
               CUDA_SUCCESS ||
           active != 0;
}

static gpuipc_status enter(const context *ctx, CUcontext cuda_context, uint32_t index,
                           device_scope *out_scope) {
    const driver *drv = &ctx->driver;
    device_scope scope = {.driver = drv,
                          .outer_mode = CU_STREAM_CAPTURE_MODE_RELAXED,
                          .is_pushed = true,
                          .is_relaxed = true};
    gpuipc_status status =
        DRIVER_CALL(drv, cuCtxPushCurrent, (cuda_context), "entering a device's context");
    if (status != GPUIPC_OK) {
        return status;
    }
    status = DRIVER_CALL(drv, cuThreadExchangeStreamCaptureMode, (&scope.outer_mode),
                         "relaxing the capture mode");
    if (status != GPUIPC_OK) {
        CUcontext popped;
        (void)drv->cuCtxPopCurrent(&popped);
        return status;
    }
    begin(ctx, index, &scope);
    *out_scope = scope;
    return GPUIPC_OK;
}

gpuipc_status device_enter(struct context *ctx, uint32_t index, device_scope *out_scope) {
    CUcontext primary;
    gpuipc_status status = primary_of(ctx, index, &primary);
    return status == GPUIPC_OK ? enter(ctx, primary, index, out_scope) : status;
}

static gpuipc_status context_of(const context *ctx, gpuipc_stream stream, CUcontext *out_context) {
    return DRIVER_CALL(&ctx->driver, cuStreamGetCtx, (stream, out_context),
                       "asking for the context of the caller's stream");
}

uint64_t device_stream_id(const struct context *ctx, gpuipc_stream stream) {
    const driver *drv = &ctx->driver;
    unsigned long long id = 0;
    return drv->has_streamid && drv->cuStreamGetId(stream, &id) == CUDA_SUCCESS ? id : 0;
}

/* Which device's primary context a stream is of never changes, and no other stream gets its id: so who is asked for the id
 * need not be asked for the context. An entry is an id and, in its last byte, the number of a device. */
static uint32_t find_known(const context *ctx, uint64_t id) {
    const uint64_t known =
        atomic_load_explicit(&ctx->known_streams[id % CONTEXT_KNOWN_STREAMS], memory_order_acquire);
    return id != 0 && known >> 8 == id ? (uint32_t)(known & 255u) : GPUIPC_DEVICE_NONE;
}

static void remember(context *ctx, uint64_t id, uint32_t index) {
    if (id != 0 && id <= UINT64_MAX >> 8 && index <= 255u) {
        atomic_store_explicit(&ctx->known_streams[id % CONTEXT_KNOWN_STREAMS], id << 8 | index,
                              memory_order_release);
    }
}

gpuipc_status device_enter_stream(struct context *ctx, gpuipc_stream stream, uint32_t index,
                                  device_scope *out_scope) {
    if (device_is_default_stream(stream)) {
        return device_enter(ctx, index, out_scope);
    }
    CUcontext cuda_context;
    gpuipc_status status = context_of(ctx, stream, &cuda_context);
    return status == GPUIPC_OK
               ? enter(ctx, cuda_context, find_primary(ctx, cuda_context), out_scope)
               : status;
}

/* @param out_index the number of the device whose primary context it is, or GPUIPC_DEVICE_NONE */
static gpuipc_status find_context(context *ctx, gpuipc_stream stream, uint64_t id,
                                  CUcontext *out_context, uint32_t *out_index) {
    uint32_t index = find_known(ctx, id);
    if (index != GPUIPC_DEVICE_NONE) {
        *out_context = atomic_load(&ctx->devices[index].primary);
        *out_index = index;
        return GPUIPC_OK;
    }
    gpuipc_status status = context_of(ctx, stream, out_context);
    if (status == GPUIPC_OK) {
        *out_index = find_primary(ctx, *out_context);
        remember(ctx, id, *out_index);
    }
    return status;
}

static gpuipc_status push(const driver *drv, CUcontext wanted, device_scope *scope) {
    CUcontext current = NULL;
    gpuipc_status status =
        DRIVER_CALL(drv, cuCtxGetCurrent, (&current), "asking for the thread's own context");
    if (status == GPUIPC_OK && current != wanted) {
        status = DRIVER_CALL(drv, cuCtxPushCurrent, (wanted), "entering a stream's context");
        scope->is_pushed = true;
    }
    return status;
}

gpuipc_status device_enter_stream_briefly(struct context *ctx, gpuipc_stream stream, uint32_t index,
                                          device_scope *out_scope) {
    device_scope scope = {.driver = &ctx->driver};
    CUcontext wanted;
    if (device_is_default_stream(stream)) {
        return device_enter(ctx, index, out_scope);
    }
    gpuipc_status status = context_of(ctx, stream, &wanted);
    if (status == GPUIPC_OK && (status = push(&ctx->driver, wanted, &scope)) == GPUIPC_OK) {
        begin(ctx, find_primary(ctx, wanted), &scope);
        *out_scope = scope;
    }
    return status;
}

/* A default stream is that of the current CUDA context. @param scope begun already */
static gpuipc_status enter_default_briefly(struct context *ctx, gpuipc_stream stream,
                                           uint32_t index, device_scope *scope) {
    const driver *drv = &ctx->driver;
    CUcontext primary;
    gpuipc_status status = primary_of(ctx, index, &primary);
    if (status != GPUIPC_OK || (status = push(drv, primary, scope)) != GPUIPC_OK) {
        return status;
    }
    begin(ctx, index, scope);
    if ((status = device_check_capture(ctx, stream)) != GPUIPC_OK) {
        device_leave(scope);
        return status;
    }
    scope->stream_id = device_stream_id(ctx, stream);
    return GPUIPC_OK;
}

/* Once or twice for each frame of a channel, so it is filled where it stays: a copy of what was just stored waits for that. */
gpuipc_status device_enter_uncaptured_briefly(struct context *ctx, gpuipc_stream stream,
                                              uint32_t index, device_scope *scope) {
    const driver *drv = &ctx->driver;
    CUcontext wanted;
    uint32_t of;
    *scope = (device_scope){.driver = drv};
    if (device_is_default_stream(stream)) {
        return enter_default_briefly(ctx, stream, index, scope);
    }
    gpuipc_status status = device_check_capture(ctx, stream);
    if (status != GPUIPC_OK) {
        return status;
    }
    scope->stream_id = device_stream_id(ctx, stream);
    status = find_context(ctx, stream, scope->stream_id, &wanted, &of);
    if (status == GPUIPC_OK && (status = push(drv, wanted, scope)) == GPUIPC_OK) {
        begin(ctx, of, scope);
    }
    return status;
}

bool device_is_capture_error(CUresult result) {
    return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_CAPTURED_EVENT;
}

bool device_is_captured(const struct context *ctx, gpuipc_stream stream) {
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    return ctx->driver.cuStreamIsCapturing(stream, &capture) == CUDA_SUCCESS &&
           capture == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

gpuipc_status device_check_capture(const struct context *ctx, gpuipc_stream stream) {
    const driver *drv = &ctx->driver;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = drv->cuStreamIsCapturing(stream, &capture);
    if (result == CUDA_SUCCESS && capture != CU_STREAM_CAPTURE_STATUS_NONE) {
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return driver_status(drv, result, "cuStreamIsCapturing",
                         "handing over on a stream (one that is being captured cannot do that)");
}

bool device_stream_is_idle(const struct context *ctx, gpuipc_stream stream) {
    return ctx->driver.cuStreamQuery(stream) == CUDA_SUCCESS;
}

gpuipc_status device_enter_uncaptured(struct context *ctx, gpuipc_stream stream, uint32_t index,
                                      device_scope *out_scope) {
    gpuipc_status status = device_enter_stream(ctx, stream, index, out_scope);
    if (status == GPUIPC_OK && (status = device_check_capture(ctx, stream)) != GPUIPC_OK) {
        device_leave(out_scope);
    }
    return status;
}

/* They undo what device_enter did on this thread; there is nothing to do about a failure. */
void device_leave_driver(const device_scope *scope) {
    CUstreamCaptureMode mode = scope->outer_mode;
    CUcontext popped;
    if (scope->is_relaxed) {
        (void)scope->driver->cuThreadExchangeStreamCaptureMode(&mode);
    }
    if (scope->is_pushed) {
        (void)scope->driver->cuCtxPopCurrent(&popped);
    }
}

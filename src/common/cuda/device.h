/* SPDX-License-Identifier: MIT */
/** @file A GPU, known by its UUID outside the process and by its number inside. */
#ifndef GPUIPC_DEVICE_H
#define GPUIPC_DEVICE_H

#include <gpuipc/gpuipc.h>
#include <stdatomic.h>

#include "driver.h"

struct context;

/** The most devices whose ways to each other are remembered. */
#define DEVICE_REMEMBERED_MAX 64u

typedef struct device {
    CUdevice ordinal;
    gpuipc_device_info info;
    CUmemAllocationHandleType handle_type; /**< this system's, or NONE when the device has not it */
    gpuipc_status why_not; /**< what to answer when memory cannot be shared; OK when it can */
    bool rdma_capable;     /**< memory may be asked for with GPUDirect RDMA capability */
    atomic_uint_least64_t reaches; /**< a bit for each device whose memory it is known to reach */
    _Atomic(CUcontext) primary;    /**< retained when first used; NULL before */
    atomic_int has_words;          /**< streams wait for words: 1 yes, -1 no; 0: nobody has asked */
    struct driver_reference *
        *accesses; /**< peer access that it was given for buffers: transport_p2p.c */
    uint32_t access_count;
    struct driver_reference
        *pool; /**< a pool that can be shared, from its first use on: transport_pool.c */
    struct driver_reference *pool_group; /**< what it is called by other processes */
} device;

/** Finds every device of a context's driver. */
gpuipc_status device_list_create(struct context *ctx);
/** Gives up what the devices were given for buffers. @param is_forked no driver calls */
void device_list_destroy(struct context *ctx, bool is_forked);

/** ERR_DEVICE_NOT_FOUND when there is no such number. */
gpuipc_status device_check(const struct context *ctx, uint32_t index);

/** ERR_INVALID_ARGUMENT when a field `device` of a public struct is neither 0 nor GPUIPC_DEVICE(n) (ADR 9);
 *  ERR_DEVICE_NOT_FOUND when there is no such number. For the beginning of a call, before it takes what it could not give
 *  back. */
gpuipc_status device_check_field(const struct context *ctx, uint32_t field);
/** The number that such a field names, which device_check_field() has let pass. @param fallback for 0 */
uint32_t device_of_field(uint32_t field, uint32_t fallback);

/** The number of a UUID, or GPUIPC_DEVICE_NONE. */
uint32_t device_find(const struct context *ctx, const gpuipc_uuid *uuid);

/** The properties of shareable memory on this device: the one place where the handle type is picked.
 *  ERR_VMM_UNSUPPORTED or ERR_HANDLE_TYPE_UNSUPPORTED with the reason. */
gpuipc_status device_allocation_prop(const device *self, CUmemAllocationProp *out_prop);

/** A CUDA context made current for a few calls: the caller's is back after device_leave. Capture
 *  mode is relaxed meanwhile, so that waiting for a default stream does not invalidate a capture of a
 *  non-blocking stream (measured on driver 580; one of a blocking stream ends all the same). */
typedef struct device_scope {
    const driver *driver;
    CUstreamCaptureMode outer_mode;
    bool is_pushed;  /**< it was not current before */
    bool is_relaxed; /**< the capture mode is */
    uint64_t
        stream_id; /**< of a stream that is not being captured, which no other one gets, as its handle; 0: not known */
    uint32_t index; /**< what device_entered() says inside */
    const void *outer_of;
    uint32_t outer_index; /**< and outside */
} device_scope;

/** Enters a device's primary context, retaining it when it is used first. */
gpuipc_status device_enter(struct context *ctx, uint32_t index, device_scope *out_scope);

/** Whether a stream handle names no stream but a default one: NULL, CU_STREAM_LEGACY or
 *  CU_STREAM_PER_THREAD. Which device's it is depends on the context that is current. */
bool device_is_default_stream(gpuipc_stream stream);

/** Whether anybody in this process uses the device's primary context, so that there may be work in
 *  it. When the driver does not say: yes. */
bool device_is_active(const struct context *ctx, uint32_t index);

/** Enters the context of a stream; for a default one, that of device @p index. */
gpuipc_status device_enter_stream(struct context *ctx, gpuipc_stream stream, uint32_t index,
                                  device_scope *out_scope);

/** The same with as few calls of the driver as can be, for what no capture forbids: to ask about a stream, and to put
 *  something on it. The capture mode is relaxed for a default stream alone. */
gpuipc_status device_enter_stream_briefly(struct context *ctx, gpuipc_stream stream, uint32_t index,
                                          device_scope *out_scope);

/** The same for one that is not being captured, else ERR_CUDA. Its id is known then. The capture mode stays as it is.
 *  @param scope of no use after a failure */
gpuipc_status device_enter_uncaptured_briefly(struct context *ctx, gpuipc_stream stream,
                                              uint32_t index, device_scope *scope);

/** The device whose primary context this thread has entered and not left, of those of this context; GPUIPC_DEVICE_NONE:
 *  none, or the context of a stream that is no primary one. */
static inline uint32_t device_entered(const struct context *ctx) {
    const thread_scope *entered = status_thread_scope();
    return entered->of == ctx ? entered->index : GPUIPC_DEVICE_NONE;
}

/** ERR_CUDA when a stream of the current CUDA context is being captured, or is a default one that a capture
 *  of another forbids to be used: what is put on it would run when the graph does, as often as that does.
 *  Does not end the capture (cuda.h, cuStreamIsCapturing). */
gpuipc_status device_check_capture(const struct context *ctx, gpuipc_stream stream);
/** Enters the context of a stream that is not being captured, so that what is put on it is done once. */
gpuipc_status device_enter_uncaptured(struct context *ctx, gpuipc_stream stream, uint32_t index,
                                      device_scope *out_scope);
/** What no other stream gets, as its handle may be given out again. Not of a stream that is being captured: to ask ends the
 *  capture (measured on an H100, driver 580). A default one is that of the current CUDA context.
 *  @return 0 where the driver does not say */
uint64_t device_stream_id(const struct context *ctx, gpuipc_stream stream);
/** Whether a stream that is not being captured has done all that it was given, in its CUDA context. The legacy default
 *  stream answers for all blocking ones. To look takes 0.15 us on an H200 and 0.32 to 0.39 on an H100, and to let a stream write
 *  a word 1 to 2 (driver 580). */
bool device_stream_is_idle(const struct context *ctx, gpuipc_stream stream);
/** Whether the driver refuses a call for a capture that goes on: it may do it later. */
bool device_is_capture_error(CUresult result);
/** Whether a stream is being captured into a graph, and the capture is good. */
bool device_is_captured(const struct context *ctx, gpuipc_stream stream);

/** For device_leave() alone: what the driver has to put back. */
void device_leave_driver(const device_scope *scope);
static inline void device_leave(const device_scope *scope) {
    thread_scope *entered = status_thread_scope();
    entered->of = scope->outer_of;
    entered->index = scope->outer_index;
    if (scope->is_pushed || scope->is_relaxed) {
        device_leave_driver(scope);
    }
}

#endif

/* SPDX-License-Identifier: MIT */
/** @file The entry points for contexts. */
#include "capture.h"
#include "context.h"
#include "entry.h"
#include "pool.h"
#include "stream.h"

#define CONTEXT_FLAGS_MASK 0xffu /* CU_CTX_FLAGS_MASK */
#define CONTEXT_SCHED_MASK 0x07u /* CU_CTX_SCHED_MASK: one of its bits at most */
/* Says what a context can do; it last changed with CUDA 3.2. */
#define CONTEXT_API_VERSION 3020

static bool flags_are_valid(unsigned flags) {
    const unsigned sched = flags & CONTEXT_SCHED_MASK;
    return (flags & ~CONTEXT_FLAGS_MASK) == 0 && (sched & (sched - 1)) == 0;
}

/* cuda.h, CUDA_ERROR_DEVICE_UNAVAILABLE: "due to use of ... CU_COMPUTEMODE_PROHIBITED". */
static CUresult check_compute_mode(void) {
    return driver.computer.compute_mode == MACHINE_COMPUTE_PROHIBITED
               ? CUDA_ERROR_DEVICE_UNAVAILABLE
               : CUDA_SUCCESS;
}

static CUresult primary_retain(CUcontext *out, CUdevice ordinal) {
    device *of;
    context *primary;
    CUresult result = state_device(ordinal, &of);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = check_compute_mode();
    if (result == CUDA_SUCCESS) {
        result = context_primary(of, &primary);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    while (primary->is_clearing) {
        state_wait();
    }
    primary->retains++;
    primary->is_active = true;
    driver.live.primary++;
    *out = primary->handle;
    return CUDA_SUCCESS;
}

static CUresult primary_release(CUdevice ordinal) {
    device *of;
    CUresult result = state_device(ordinal, &of);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (of->primary == NULL || of->primary->retains == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    driver.live.primary--;
    if (--of->primary->retains == 0) {
        context_clear(of->primary);
    }
    return CUDA_SUCCESS;
}

static CUresult primary_reset(CUdevice ordinal) {
    device *of;
    CUresult result = state_device(ordinal, &of);
    if (result == CUDA_SUCCESS && of->primary != NULL) {
        context_clear(of->primary);
    }
    return result;
}

static CUresult primary_set_flags(CUdevice ordinal, unsigned flags) {
    device *of;
    context *primary;
    CUresult result = state_device(ordinal, &of);
    if (result == CUDA_SUCCESS && !flags_are_valid(flags)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        result = context_primary(of, &primary);
    }
    if (result == CUDA_SUCCESS) {
        primary->flags = flags;
    }
    return result;
}

static CUresult primary_state(CUdevice ordinal, unsigned *flags, int *active) {
    device *of;
    CUresult result = state_device(ordinal, &of);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags == NULL || active == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = of->primary == NULL ? 0 : of->primary->flags;
    *active = of->primary != NULL && of->primary->is_active;
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *out, unsigned flags, CUdevice ordinal) {
    device *of;
    context *made;
    CUresult result = state_device(ordinal, &of);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL || !flags_are_valid(flags)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = check_compute_mode();
    if (result == CUDA_SUCCESS) {
        result = context_create(ordinal, flags, &made);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = context_push(made->handle);
    if (result != CUDA_SUCCESS) {
        context_destroy(made);
        return result;
    }
    *out = made->handle;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUcontext handle) {
    context *ctx;
    CUcontext popped;
    CUresult result = context_find(handle, &ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (ctx->is_primary) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    context_destroy(ctx);
    if (context_top() == handle) {
        result = context_pop(&popped);
    }
    return result;
}

static CUresult pop(CUcontext *out) {
    CUcontext handle;
    const CUresult result = context_pop(&handle);
    if (result == CUDA_SUCCESS && out != NULL) {
        *out = handle;
    }
    return result;
}

/* cuda.h: replaces the top of the stack; NULL takes it off, if there is one. */
static CUresult set_current(CUcontext handle) {
    context *ctx;
    CUcontext popped;
    CUresult result = handle == NULL ? CUDA_SUCCESS : context_find(handle, &ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (context_top() != NULL) {
        result = context_pop(&popped);
    }
    return result != CUDA_SUCCESS || handle == NULL ? result : context_push(handle);
}

/* @param handle NULL: the current one */
static CUresult find_or_current(CUcontext handle, context **out) {
    return handle == NULL ? context_current(out) : context_find_healthy(handle, out);
}

static CUresult get_device(CUdevice *out, CUcontext handle) {
    context *ctx;
    const CUresult result = find_or_current(handle, &ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = ctx->device;
    return CUDA_SUCCESS;
}

static CUresult get_flags(unsigned *out) {
    context *ctx;
    const CUresult result = context_current(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = ctx->flags;
    return CUDA_SUCCESS;
}

static CUresult get_api_version(CUcontext handle, unsigned *out) {
    context *ctx;
    const CUresult result = find_or_current(handle, &ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = CONTEXT_API_VERSION;
    return CUDA_SUCCESS;
}

static CUresult synchronize(CUcontext handle) {
    context *ctx;
    const CUresult result = find_or_current(handle, &ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const CUresult captured = capture_check_context(ctx);
    if (captured != CUDA_SUCCESS) {
        return captured;
    }
    const CUcontext waited_for = ctx->handle; /* it may be destroyed meanwhile */
    stream_wait_context(ctx);
    pool_synchronized();
    return context_health(waited_for);
}

GPUIPC_EXPORTED CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice ordinal) {
    const CUresult refused = ENTER(cuDevicePrimaryCtxRetain);
    return refused != CUDA_SUCCESS ? refused : entry_leave(primary_retain(out, ordinal));
}

GPUIPC_EXPORTED CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
    const CUresult refused = ENTER(cuDevicePrimaryCtxRelease_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(primary_release(ordinal));
}

GPUIPC_EXPORTED CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
    const CUresult refused = ENTER(cuDevicePrimaryCtxReset_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(primary_reset(ordinal));
}

GPUIPC_EXPORTED CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags) {
    const CUresult refused = ENTER(cuDevicePrimaryCtxSetFlags_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(primary_set_flags(ordinal, flags));
}

GPUIPC_EXPORTED CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags,
                                                    int *active) {
    const CUresult refused = ENTER(cuDevicePrimaryCtxGetState);
    return refused != CUDA_SUCCESS ? refused : entry_leave(primary_state(ordinal, flags, active));
}

GPUIPC_EXPORTED CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice ordinal) {
    const CUresult refused = ENTER(cuCtxCreate_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(create(out, flags, ordinal));
}

GPUIPC_EXPORTED CUresult cuCtxCreate_v3(CUcontext *out, CUexecAffinityParam *affinity, int count,
                                        unsigned int flags, CUdevice ordinal) {
    const CUresult refused = ENTER(cuCtxCreate_v3);
    if (refused != CUDA_SUCCESS) {
        return refused;
    }
    const bool plain = affinity == NULL && count == 0;
    return entry_leave(plain ? create(out, flags, ordinal) : CUDA_ERROR_NOT_SUPPORTED);
}

GPUIPC_EXPORTED CUresult cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params,
                                        unsigned int flags, CUdevice ordinal) {
    const CUresult refused = ENTER(cuCtxCreate_v4);
    if (refused != CUDA_SUCCESS) {
        return refused;
    }
    const bool plain =
        params == NULL || (params->execAffinityParams == NULL &&
                           params->numExecAffinityParams == 0 && params->cigParams == NULL);
    return entry_leave(plain ? create(out, flags, ordinal) : CUDA_ERROR_NOT_SUPPORTED);
}

GPUIPC_EXPORTED CUresult cuCtxDestroy_v2(CUcontext handle) {
    const CUresult refused = ENTER(cuCtxDestroy_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(destroy(handle));
}

GPUIPC_EXPORTED CUresult cuCtxPushCurrent_v2(CUcontext handle) {
    const CUresult refused = ENTER(cuCtxPushCurrent_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(context_push(handle));
}

GPUIPC_EXPORTED CUresult cuCtxPopCurrent_v2(CUcontext *out) {
    const CUresult refused = ENTER(cuCtxPopCurrent_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(pop(out));
}

GPUIPC_EXPORTED CUresult cuCtxGetCurrent(CUcontext *out) {
    const CUresult refused = ENTER(cuCtxGetCurrent);
    if (refused != CUDA_SUCCESS) {
        return refused;
    }
    if (out == NULL) {
        return entry_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *out = context_top();
    return entry_leave(CUDA_SUCCESS);
}

GPUIPC_EXPORTED CUresult cuCtxSetCurrent(CUcontext handle) {
    const CUresult refused = ENTER(cuCtxSetCurrent);
    return refused != CUDA_SUCCESS ? refused : entry_leave(set_current(handle));
}

GPUIPC_EXPORTED CUresult cuCtxGetDevice(CUdevice *out) {
    const CUresult refused = ENTER(cuCtxGetDevice);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_device(out, NULL));
}

GPUIPC_EXPORTED CUresult cuCtxGetDevice_v2(CUdevice *out, CUcontext handle) {
    const CUresult refused = ENTER(cuCtxGetDevice_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_device(out, handle));
}

GPUIPC_EXPORTED CUresult cuCtxGetFlags(unsigned int *flags) {
    const CUresult refused = ENTER(cuCtxGetFlags);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_flags(flags));
}

GPUIPC_EXPORTED CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int *version) {
    const CUresult refused = ENTER(cuCtxGetApiVersion);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_api_version(handle, version));
}

GPUIPC_EXPORTED CUresult cuCtxSynchronize(void) {
    const CUresult refused = ENTER(cuCtxSynchronize);
    return refused != CUDA_SUCCESS ? refused : entry_leave(synchronize(NULL));
}

GPUIPC_EXPORTED CUresult cuCtxSynchronize_v2(CUcontext handle) {
    const CUresult refused = ENTER(cuCtxSynchronize_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(synchronize(handle));
}

/* SPDX-License-Identifier: MIT */
/** @file Contexts that end, with the memory in them. */
#include <stdatomic.h>

#include "capture.h"
#include "ipc.h"
#include "peers.h"
#include "state.h"

/* Before a context ends: what gpuipc has in it. Its work ends first; where that cannot be waited for, it ends with
 * the context. */
static void leave(owner *of) {
    if (!capture_is_underway()) {
        (void)owner_wait(of);
    }
    ipc_leave(of);
}

/* One that nobody finds any more; NULL: there is none left. */
static memory *take_one(owner *of) {
    memory_lock();
    memory *taken = LIST_ITEM(of->memories.first, memory, of_owner);
    if (taken != NULL) { /* what was freed during a capture is out already */
        memory_take_out(taken);
    }
    memory_unlock();
    return taken;
}

/* When it has ended: its memory, and its access to that of others. */
static void end(owner *of) {
    memory *self;
    const CUcontext context = of->context;
    ipc_lock();
    while ((self = take_one(of)) != NULL) {
        (void)memory_end(self);
    }
    ipc_unlock();
    pthread_mutex_lock(&of->mutex);
    while (of->open.first != NULL) { /* the slab that was kept */
        (void)chunk_destroy(LIST_ITEM(of->open.first, chunk, link));
    }
    of->empty_count = 0;
    of->accessor_count = 0;
    pthread_mutex_unlock(&of->mutex);
    capture_forget(context);
    for (owner *other = owner_next(NULL); other != NULL; other = owner_next(other)) {
        peers_let_no_more(other, context);
    }
    owner_forget(of);
}

static CUresult destroyed(CUresult (*destroy)(CUcontext context), CUcontext context) {
    if (destroy == NULL) {
        return CUDA_ERROR_NOT_FOUND;
    }
    owner *of = context != NULL && state_is_on() ? owner_find(context) : NULL;
    if (of != NULL && !of->is_primary) {
        leave(of);
    }
    const CUresult result = destroy(context);
    if (of != NULL && !of->is_primary && result == CUDA_SUCCESS) {
        end(of);
    }
    return result;
}

GPUIPC_EXPORTED CUresult cuCtxDestroy(CUcontext context) {
    return real_get() == NULL ? CUDA_ERROR_NOT_FOUND : destroyed(real_get()->cuCtxDestroy, context);
}

GPUIPC_EXPORTED CUresult cuCtxDestroy_v2(CUcontext context) {
    return real_get() == NULL ? CUDA_ERROR_NOT_FOUND
                              : destroyed(real_get()->cuCtxDestroy_v2, context);
}

/* How often the program holds each primary context. gpuipc inside holds those that it uses, too, and must let go
 * with the program. */
static atomic_int holds[OWNER_DEVICES];

static bool is_counted(CUdevice device) {
    return device >= 0 && device < OWNER_DEVICES && state_is_on();
}

static bool is_active(CUdevice device) {
    unsigned flags;
    int active = 0;
    const CUresult result = real_get()->cuDevicePrimaryCtxGetState(device, &flags, &active);
    return result != CUDA_SUCCESS || active;
}

GPUIPC_EXPORTED CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    const CUresult result = REAL_CALL(cuDevicePrimaryCtxRetain, (context, device));
    if (result == CUDA_SUCCESS && is_counted(device)) {
        atomic_fetch_add(&holds[device], 1);
    }
    return result;
}

static CUresult released(CUresult (*release)(CUdevice device), CUdevice device, bool is_reset) {
    if (release == NULL) {
        return CUDA_ERROR_NOT_FOUND;
    }
    owner *of = is_counted(device) ? owner_find_primary(device) : NULL;
    if (of != NULL && (is_reset || atomic_load(&holds[device]) <= 1)) {
        leave(of);
    }
    const CUresult result = release(device);
    if (result != CUDA_SUCCESS || !is_counted(device)) {
        return result;
    }
    if (!is_reset) {
        atomic_fetch_sub(&holds[device], 1);
    }
    if (of != NULL && (is_reset || !is_active(device))) {
        end(of);
    }
    return result;
}

GPUIPC_EXPORTED CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    return real_get() == NULL ? CUDA_ERROR_NOT_FOUND
                              : released(real_get()->cuDevicePrimaryCtxRelease, device, false);
}

GPUIPC_EXPORTED CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return real_get() == NULL ? CUDA_ERROR_NOT_FOUND
                              : released(real_get()->cuDevicePrimaryCtxRelease_v2, device, false);
}

GPUIPC_EXPORTED CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    return real_get() == NULL ? CUDA_ERROR_NOT_FOUND
                              : released(real_get()->cuDevicePrimaryCtxReset, device, true);
}

GPUIPC_EXPORTED CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    return real_get() == NULL ? CUDA_ERROR_NOT_FOUND
                              : released(real_get()->cuDevicePrimaryCtxReset_v2, device, true);
}

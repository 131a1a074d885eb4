/* SPDX-License-Identifier: MIT */
/**
 * @file Copies. A program may copy memory of cuMemAlloc() whatever its current context is, and without access between
 * the devices; memory of cuMemCreate() only where the device of the current context has access (measured). So a
 * copy that the driver refuses is tried again when the device has been let at the memory. Where it cannot be,
 * because the two do not reach each other, it is made between the two contexts, or in the memory's own.
 */
#include "memory.h"
#include "peers.h"
#include "state.h"

static owner *owner_at(CUdeviceptr address) {
    memory_lock();
    const memory *self = memory_find(address);
    owner *of = self == NULL ? NULL : self->owner;
    memory_unlock();
    return of;
}

/* One of the two whose memory is of another device than the current context's; NULL: none is. */
static owner *find_foreign(CUdeviceptr to, CUdeviceptr from, const owner *by) {
    owner *of = owner_at(to);
    if (of == NULL || of->device == by->device) {
        of = owner_at(from);
    }
    return of == NULL || of->device == by->device ? NULL : of;
}

/* Whether it is worth trying again. Host addresses are no device's. */
static bool reach(CUdeviceptr to, CUdeviceptr from) {
    bool is_reached = false;
    owner *by = state_is_on() ? owner_current() : NULL;
    if (by == NULL) {
        return false;
    }
    owner *const both[] = {owner_at(to), owner_at(from)};
    for (int i = 0; i < 2; i++) {
        if (both[i] != NULL && both[i]->device != by->device) {
            is_reached = peers_let_at(both[i], by) == CUDA_SUCCESS;
            if (!is_reached) {
                return false;
            }
        }
    }
    return is_reached;
}

/* Makes the context of memory that is of another device current. False: there is none such. */
static bool go_there(CUdeviceptr to, CUdeviceptr from) {
    const owner *by = state_is_on() ? owner_current() : NULL;
    const owner *of = by == NULL ? NULL : find_foreign(to, from, by);
    return of != NULL && real_get()->cuCtxPushCurrent_v2(of->context) == CUDA_SUCCESS;
}

static CUresult come_back(CUresult result) {
    CUcontext there;
    const CUresult popped = real_get()->cuCtxPopCurrent_v2(&there);
    return result != CUDA_SUCCESS ? result : popped;
}

/* Between memory of two devices that do not reach each other. False: it is not that. */
static bool copy_between(CUdeviceptr to, CUdeviceptr from, size_t bytes, const CUstream *stream,
                         CUresult *out_result) {
    const owner *const there = state_is_on() ? owner_at(to) : NULL;
    const owner *const here = there == NULL ? NULL : owner_at(from);
    if (here == NULL || here->device == there->device) {
        return false;
    }
    *out_result = stream == NULL
                      ? REAL_CALL(cuMemcpyPeer, (to, there->context, from, here->context, bytes))
                      : REAL_CALL(cuMemcpyPeerAsync,
                                  (to, there->context, from, here->context, bytes, *stream));
    return true;
}

#define ADDRESS(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

/* One that the program waits for. */
#define DEFINE_COPY(call, to_type, from_type)                                                      \
    GPUIPC_EXPORTED CUresult call(to_type to, from_type from, size_t bytes) {                      \
        CUresult result = REAL_CALL(call, (to, from, bytes));                                      \
        if (result != CUDA_ERROR_INVALID_VALUE) {                                                  \
            return result;                                                                         \
        }                                                                                          \
        if (reach(ADDRESS(to), ADDRESS(from))) {                                                   \
            result = REAL_CALL(call, (to, from, bytes));                                           \
        } else if (!copy_between(ADDRESS(to), ADDRESS(from), bytes, NULL, &result) &&              \
                   go_there(ADDRESS(to), ADDRESS(from))) {                                         \
            result = come_back(REAL_CALL(call, (to, from, bytes)));                                \
        }                                                                                          \
        return result;                                                                             \
    }

/* One that stays on its stream. @param on the stream that 0 is here */
#define DEFINE_COPY_ASYNC(call, to_type, from_type, on)                                            \
    GPUIPC_EXPORTED CUresult call(to_type to, from_type from, size_t bytes, CUstream stream) {     \
        const CUstream named = stream == NULL ? (on) : stream;                                     \
        CUresult result = REAL_CALL(call, (to, from, bytes, stream));                              \
        if (result != CUDA_ERROR_INVALID_VALUE) {                                                  \
            return result;                                                                         \
        }                                                                                          \
        if (reach(ADDRESS(to), ADDRESS(from))) {                                                   \
            result = REAL_CALL(call, (to, from, bytes, stream));                                   \
        } else {                                                                                   \
            (void)copy_between(ADDRESS(to), ADDRESS(from), bytes, &named, &result);                \
        }                                                                                          \
        return result;                                                                             \
    }

DEFINE_COPY(cuMemcpy, CUdeviceptr, CUdeviceptr)
DEFINE_COPY(cuMemcpy_ptds, CUdeviceptr, CUdeviceptr)
DEFINE_COPY(cuMemcpyHtoD_v2, CUdeviceptr, const void *)
DEFINE_COPY(cuMemcpyHtoD_v2_ptds, CUdeviceptr, const void *)
DEFINE_COPY(cuMemcpyDtoH_v2, void *, CUdeviceptr)
DEFINE_COPY(cuMemcpyDtoH_v2_ptds, void *, CUdeviceptr)
DEFINE_COPY(cuMemcpyDtoD_v2, CUdeviceptr, CUdeviceptr)
DEFINE_COPY(cuMemcpyDtoD_v2_ptds, CUdeviceptr, CUdeviceptr)
DEFINE_COPY_ASYNC(cuMemcpyAsync, CUdeviceptr, CUdeviceptr, NULL)
DEFINE_COPY_ASYNC(cuMemcpyAsync_ptsz, CUdeviceptr, CUdeviceptr, CU_STREAM_PER_THREAD)
DEFINE_COPY_ASYNC(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *, NULL)
DEFINE_COPY_ASYNC(cuMemcpyHtoDAsync_v2_ptsz, CUdeviceptr, const void *, CU_STREAM_PER_THREAD)
DEFINE_COPY_ASYNC(cuMemcpyDtoHAsync_v2, void *, CUdeviceptr, NULL)
DEFINE_COPY_ASYNC(cuMemcpyDtoHAsync_v2_ptsz, void *, CUdeviceptr, CU_STREAM_PER_THREAD)
DEFINE_COPY_ASYNC(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, NULL)
DEFINE_COPY_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, CUdeviceptr, CUdeviceptr, CU_STREAM_PER_THREAD)

/* SPDX-License-Identifier: MIT */
/** @file The entry points for streams. */
#include "capture.h"
#include "entry.h"
#include "pool.h"
#include "stream.h"

/* What NVIDIA's GPUs answer. All priorities are served alike here, which CUDA allows ("a hint"). */
#define PRIORITY_LEAST    0
#define PRIORITY_GREATEST (-5)

static CUresult create(CUstream *out, unsigned flags, int priority) {
    context *current;
    stream *made;
    CUresult result = context_current(&current);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (priority > PRIORITY_LEAST) {
        priority = PRIORITY_LEAST;
    }
    if (priority < PRIORITY_GREATEST) {
        priority = PRIORITY_GREATEST;
    }
    result = stream_create(current, flags, priority, &made);
    if (result == CUDA_SUCCESS) {
        *out = made->handle;
    }
    return result;
}

static CUresult destroy(CUstream handle) {
    stream *on;
    CUresult result = stream_find(handle, &on);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (on->kind != STREAM_MADE) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    stream_close(on);
    return CUDA_SUCCESS;
}

static CUresult query(CUstream handle) {
    stream *on;
    CUresult result = stream_find(handle, &on);
    return result == CUDA_SUCCESS ? stream_query(on) : result;
}

static CUresult synchronize(CUstream handle) {
    stream *on;
    CUresult result = stream_find(handle, &on);
    if (result == CUDA_SUCCESS) {
        result = stream_synchronize(on);
        pool_synchronized();
    }
    return result;
}

/* A stream that is asked something, whose answer goes to @p out. */
static CUresult find_to_ask(CUstream handle, const void *out, stream **out_stream) {
    const CUresult result = stream_find(handle, out_stream);
    return result == CUDA_SUCCESS && out == NULL ? CUDA_ERROR_INVALID_VALUE : result;
}

static CUresult get_context(CUstream handle, CUcontext *out) {
    stream *on;
    const CUresult result = find_to_ask(handle, out, &on);
    if (result == CUDA_SUCCESS) {
        *out = on->owner->handle;
    }
    return result;
}

/* Unlike what else is asked it makes a capture invalid (measured on an H100, driver 580). */
static CUresult get_id(CUstream handle, unsigned long long *out) {
    stream *on;
    CUresult result = find_to_ask(handle, out, &on);
    if (result == CUDA_SUCCESS) {
        result = capture_check(on);
    }
    if (result == CUDA_SUCCESS) {
        *out = on->id;
    }
    return result;
}

static CUresult get_flags(CUstream handle, unsigned *out) {
    stream *on;
    const CUresult result = find_to_ask(handle, out, &on);
    if (result == CUDA_SUCCESS) {
        *out = on->flags;
    }
    return result;
}

static CUresult get_priority(CUstream handle, int *out) {
    stream *on;
    const CUresult result = find_to_ask(handle, out, &on);
    if (result == CUDA_SUCCESS) {
        *out = on->priority;
    }
    return result;
}

GPUIPC_EXPORTED CUresult cuStreamCreate(CUstream *out, unsigned int flags) {
    const CUresult refused = ENTER(cuStreamCreate);
    return refused != CUDA_SUCCESS ? refused : entry_leave(create(out, flags, PRIORITY_LEAST));
}

GPUIPC_EXPORTED CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags,
                                                    int priority) {
    const CUresult refused = ENTER(cuStreamCreateWithPriority);
    return refused != CUDA_SUCCESS ? refused : entry_leave(create(out, flags, priority));
}

GPUIPC_EXPORTED CUresult cuStreamDestroy_v2(CUstream handle) {
    const CUresult refused = ENTER(cuStreamDestroy_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(destroy(handle));
}

GPUIPC_EXPORTED CUresult cuStreamQuery(CUstream handle) {
    const CUresult refused = ENTER(cuStreamQuery);
    return refused != CUDA_SUCCESS ? refused : entry_leave(query(handle));
}

GPUIPC_EXPORTED CUresult cuStreamSynchronize(CUstream handle) {
    const CUresult refused = ENTER(cuStreamSynchronize);
    return refused != CUDA_SUCCESS ? refused : entry_leave(synchronize(handle));
}

GPUIPC_EXPORTED CUresult cuStreamGetCtx(CUstream handle, CUcontext *out) {
    const CUresult refused = ENTER(cuStreamGetCtx);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_context(handle, out));
}

GPUIPC_EXPORTED CUresult cuStreamGetId(CUstream handle, unsigned long long *out) {
    const CUresult refused = ENTER(cuStreamGetId);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_id(handle, out));
}

GPUIPC_EXPORTED CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *out, CUgreenCtx *green) {
    const CUresult refused = ENTER(cuStreamGetCtx_v2);
    if (refused != CUDA_SUCCESS) {
        return refused;
    }
    const CUresult result = get_context(handle, out);
    if (result == CUDA_SUCCESS && green != NULL) {
        *green = NULL; /* no stream of a green context exists here */
    }
    return entry_leave(result);
}

GPUIPC_EXPORTED CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags) {
    const CUresult refused = ENTER(cuStreamGetFlags);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_flags(handle, flags));
}

GPUIPC_EXPORTED CUresult cuStreamGetPriority(CUstream handle, int *priority) {
    const CUresult refused = ENTER(cuStreamGetPriority);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_priority(handle, priority));
}

GPUIPC_EXPORTED CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    const CUresult refused = ENTER(cuCtxGetStreamPriorityRange);
    if (refused != CUDA_SUCCESS) {
        return refused;
    }
    context *current;
    const CUresult result = context_current(&current);
    if (result == CUDA_SUCCESS && least != NULL) {
        *least = PRIORITY_LEAST;
    }
    if (result == CUDA_SUCCESS && greatest != NULL) {
        *greatest = PRIORITY_GREATEST;
    }
    return entry_leave(result);
}

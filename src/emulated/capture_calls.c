/* SPDX-License-Identifier: MIT */
/** @file The entry points for stream capture. */
#include "capture_calls.h"

#include "entry.h"

static CUresult begin(CUstream handle, CUstreamCaptureMode mode) {
    stream *on;
    const CUresult result = stream_find(handle, &on);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return capture_begin(on, mode);
}

static CUresult end(CUstream handle, CUgraph *out) {
    stream *on;
    graph *made;
    CUresult result = stream_find(handle, &on);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = capture_end(on, &made);
    *out = result == CUDA_SUCCESS ? made->handle : NULL;
    return result;
}

static CUstreamCaptureStatus status_of(const stream *on) {
    if (on->captured.capture == NULL) {
        return CU_STREAM_CAPTURE_STATUS_NONE;
    }
    return on->captured.capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                            : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static CUresult find_to_ask(CUstream handle, const CUstreamCaptureStatus *status, stream **out) {
    CUresult result = stream_find(handle, out);
    if (result == CUDA_SUCCESS && status == NULL) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    return result == CUDA_SUCCESS ? capture_check_legacy(*out) : result;
}

static CUresult is_capturing(CUstream handle, CUstreamCaptureStatus *status) {
    stream *on;
    const CUresult result = find_to_ask(handle, status, &on);
    if (result == CUDA_SUCCESS) {
        *status = status_of(on);
    }
    return result;
}

typedef struct capture_info {
    CUstreamCaptureStatus *status;
    cuuint64_t *id;
    CUgraph *made;
    const CUgraphNode **after;
    size_t *after_count;
} capture_info;

/* cuda.h: all but the status is told of a capture that is active alone. */
static CUresult get_info(CUstream handle, capture_info out) {
    stream *on;
    const CUresult result = find_to_ask(handle, out.status, &on);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *out.status = status_of(on);
    if (*out.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return CUDA_SUCCESS;
    }
    if (out.id != NULL) {
        *out.id = on->captured.capture->id;
    }
    if (out.made != NULL) {
        *out.made = on->captured.capture->made->handle;
    }
    if (out.after != NULL) {
        *out.after = on->captured.after;
    }
    if (out.after_count != NULL) {
        *out.after_count = on->captured.after_count;
    }
    return CUDA_SUCCESS;
}

GPUIPC_EXPORTED CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
    const CUresult refused = ENTER(cuStreamBeginCapture_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(begin(handle, mode));
}

GPUIPC_EXPORTED CUresult cuStreamEndCapture(CUstream handle, CUgraph *out) {
    const CUresult refused = ENTER(cuStreamEndCapture);
    return refused != CUDA_SUCCESS ? refused : entry_leave(end(handle, out));
}

GPUIPC_EXPORTED CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    const CUresult refused = ENTER(cuStreamIsCapturing);
    return refused != CUDA_SUCCESS ? refused : entry_leave(is_capturing(handle, status));
}

GPUIPC_EXPORTED CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *status,
                                                cuuint64_t *id) {
    const CUresult refused = ENTER(cuStreamGetCaptureInfo);
    const capture_info out = {.status = status, .id = id};
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_info(handle, out));
}

GPUIPC_EXPORTED CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status,
                                                   cuuint64_t *id, CUgraph *made,
                                                   const CUgraphNode **after, size_t *count) {
    const CUresult refused = ENTER(cuStreamGetCaptureInfo_v2);
    const capture_info out = {status, id, made, after, count};
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_info(handle, out));
}

GPUIPC_EXPORTED CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status,
                                                   cuuint64_t *id, CUgraph *made,
                                                   const CUgraphNode **after,
                                                   const CUgraphEdgeData **edges, size_t *count) {
    const CUresult refused = ENTER(cuStreamGetCaptureInfo_v3);
    const capture_info out = {status, id, made, after, count};
    if (refused != CUDA_SUCCESS) {
        return refused;
    }
    if (edges != NULL) {
        *edges = NULL; /* cuda.h: only kernels have edges with data */
    }
    return entry_leave(get_info(handle, out));
}

GPUIPC_EXPORTED CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    const CUresult refused = ENTER(cuThreadExchangeStreamCaptureMode);
    if (refused != CUDA_SUCCESS) {
        return refused;
    }
    if (mode == NULL) {
        return entry_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *mode = capture_exchange_mode(*mode); /* any value is taken: measured */
    return entry_leave(CUDA_SUCCESS);
}

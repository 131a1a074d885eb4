/* SPDX-License-Identifier: MIT */
/** @file A capture from its beginning to its end, for the entry points. The driver's lock is held in every
 *  call. */
#ifndef GPUIPC_EMULATED_CAPTURE_CALLS_H
#define GPUIPC_EMULATED_CAPTURE_CALLS_H

#include "capture.h"
#include "graph.h"

typedef struct capture {
    unsigned references; /**< one while it is active, and events */
    uint64_t id;         /**< unique in this process */
    CUstreamCaptureMode mode;
    const void *thread; /**< that began it */
    stream *origin;     /**< where it began; NULL: it has ended */
    stream **streams;   /**< by lane; NULL: gone */
    graph *made;        /**< what has been captured */
    bool is_invalid;
    struct capture *next;
} capture;

/** CUDA_ERROR_ILLEGAL_STATE: it is captured already; CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: the legacy one. */
CUresult capture_begin(stream *on, CUstreamCaptureMode mode);

/** CUDA_ERROR_ILLEGAL_STATE: it is not captured; CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, _WRONG_THREAD: the
 *  capture goes on; _INVALIDATED, _UNJOINED: it is over, without a graph. @param out the caller's */
CUresult capture_end(stream *on, graph **out);

/** CUDA_ERROR_STREAM_CAPTURE_IMPLICIT for the legacy stream, without making a capture invalid. */
CUresult capture_check_legacy(const stream *on);

/** Sets the calling thread's mode. @return the one before */
CUstreamCaptureMode capture_exchange_mode(CUstreamCaptureMode mode);

#endif

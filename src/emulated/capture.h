/* SPDX-License-Identifier: MIT */
/**
 * @file Streams that are being captured: what they are asked to do goes into a graph. What CUDA forbids
 * meanwhile, and what it answers, are the rules of "Prohibited and Unhandled Operations" (CUDA programming
 * guide) and of cuThreadExchangeStreamCaptureMode (cuda.h). The driver's lock is held in every call.
 */
#ifndef GPUIPC_EMULATED_CAPTURE_H
#define GPUIPC_EMULATED_CAPTURE_H

#include "operation.h"

/** Work that goes to a stream and cannot be captured: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, _INVALIDATED;
 *  _IMPLICIT: it is the legacy stream, and a blocking stream of the context is captured. A capture that
 *  is disturbed becomes invalid. */
CUresult capture_check(const stream *on);
/** The same for a call that concerns all of a context. */
CUresult capture_check_context(const context *all_of);
/** The same for a call that is potentially unsafe, by the calling thread's mode. */
CUresult capture_check_unsafe(void);

/** Adds a node to the graph of a stream that is captured. The answers of operation_check, and
 *  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED. */
CUresult capture_add(stream *on, const operation *todo);

/** Makes an event stand for what a captured stream has come to. */
CUresult capture_mark(const stream *on, capture_place *event);
/** Makes a stream depend on that, which draws it into the capture if it is in none. Also where the stream is
 *  captured and the event is of no capture, which is refused. */
CUresult capture_wait(stream *on, const capture_place *event);
/** For calls that ask an event how far it is: CUDA_ERROR_CAPTURED_EVENT if it is of a capture. */
CUresult capture_check_event(const capture_place *event);
/** The event is of no capture any more. */
void capture_forget(capture_place *event);

/** The stream is going away; a capture that it is in cannot succeed any more. */
void capture_leave(stream *on);

#endif

/* SPDX-License-Identifier: MIT */
/** @file Events: points in streams. The driver's lock is held in every call. */
#ifndef GPUIPC_EMULATED_EVENT_H
#define GPUIPC_EMULATED_EVENT_H

#include "capture.h"
#include "event_state.h"
#include "stream.h"

typedef struct event {
    CUevent handle;
    context *owner;
    unsigned flags;
    task *recorded;         /**< the point, one reference; NULL: never recorded in this process */
    event_state shared;     /**< of one that other processes may have; else none */
    uint64_t record;        /**< the number of that point there */
    capture_place captured; /**< recorded in a stream that was captured: what it stands for */
    struct event *next;
} event;

/** CUDA_ERROR_INVALID_HANDLE; CUDA_ERROR_ILLEGAL_ADDRESS: its context is dead. */
CUresult event_find(CUevent handle, event **out);

/** @param shared taken over on success */
CUresult event_create(context *owner, unsigned flags, event_state shared, event **out);

/** Records it in a stream that is not captured. */
CUresult event_record_on(event *what, stream *on);
/** Makes a stream that is not captured wait for its latest record, whichever process made it. */
CUresult event_wait_on(stream *on, event *what);

/** Frees it and what it refers to. */
void event_free(event *what);

#endif

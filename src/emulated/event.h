/* SPDX-License-Identifier: MIT */
/** @file Events: points in streams. The driver's lock is held in every call. */
#ifndef GPUIPC_EMULATED_EVENT_H
#define GPUIPC_EMULATED_EVENT_H

#include "event_state.h"
#include "stream.h"

typedef struct event {
    CUevent handle;
    context *owner;
    unsigned flags;
    task *recorded;     /**< the point, one reference; NULL: never recorded in this process */
    event_state shared; /**< of one that other processes may have; else none */
    uint64_t record;    /**< the number of that point there */

    struct event *next;
} event;

/** CUDA_ERROR_INVALID_HANDLE; CUDA_ERROR_ILLEGAL_ADDRESS: its context is dead. */
CUresult event_find(CUevent handle, event **out);

/** @param shared taken over on success */
CUresult event_create(context *owner, unsigned flags, event_state shared, event **out);

/** Frees it and what it refers to. */
void event_free(event *what);

#endif

/* SPDX-License-Identifier: MIT */
/** @file Events: points in streams. The driver's lock is held in every call. */
#ifndef GPUIPC_EMULATED_EVENT_H
#define GPUIPC_EMULATED_EVENT_H

#include "stream.h"

typedef struct event {
    CUevent handle;
    context *owner;
    unsigned flags;
    task *recorded; /**< the point, one reference; NULL: never recorded */
    struct event *next;
} event;

/** Frees it and what it refers to. */
void event_free(event *what);

#endif

/* SPDX-License-Identifier: MIT */
/** @file CUDA graphs as a program beside gpuipc makes them: captured from a stream, and launched again and again. */
#ifndef GPUIPC_TEST_GRAPHS_H
#define GPUIPC_TEST_GRAPHS_H

#include <stdbool.h>

#include "driver.h"

typedef struct captured {
    void *graph;
    void *exec;
} captured;

/** The entry points that only tests need. False: the driver has not all of them. */
bool graphs_find(const driver *drv);

/** These are true when the driver has done it. A capture that something made invalid does not end so. */
bool graphs_begin(CUstream stream, CUstreamCaptureMode mode);
bool graphs_end(CUstream stream, captured *out_made);
bool graphs_launch(const captured *self, CUstream stream);
/** May be tried again. */
bool graphs_destroy(captured *self);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * @file Streams that are being captured. Meanwhile nobody may wait for their context, and so nothing can be freed; and
 * whether memory may be allocated is for the driver to say.
 */
#ifndef GPUIPC_PRELOAD_CAPTURE_H
#define GPUIPC_PRELOAD_CAPTURE_H

#include <stdbool.h>

#include "memory.h"

/** Whether any stream of this process is being captured. */
bool capture_is_underway(void);

/** The captures of a context's streams have ended with it. */
void capture_forget(CUcontext context);

/** Frees later what was freed during a capture. */
void capture_hold_back(memory *freed);
/** Frees what was held back, if no stream is being captured any more. */
void capture_work_off(void);

#endif

/* SPDX-License-Identifier: MIT */
/** @file Functions of the caller's that a stream calls in its turn. */
#ifndef GPUIPC_EMULATED_HOST_FUNCTION_H
#define GPUIPC_EMULATED_HOST_FUNCTION_H

#include <stdbool.h>

#include "cuda/cuda_api.h"

/** Calls it; the driver's lock is not held. */
void host_function_run(CUhostFn function, void *data);

/** Whether one of them runs in this thread: "Host functions must not make any CUDA API calls"
 *  (cuda.h, cuLaunchHostFunc). */
bool host_function_is_running(void);

#endif

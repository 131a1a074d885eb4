/* SPDX-License-Identifier: MIT */
/** @file Whether this library does anything in this process. */
#ifndef GPUIPC_PRELOAD_STATE_H
#define GPUIPC_PRELOAD_STATE_H

#include <stdbool.h>

/** False: every call goes to the driver as it is. There is no driver, it was asked for (GPUIPC_PRELOAD_OFF=1), or
 *  this is the forked child of a process with memory of ours: CUDA does not survive fork(), and the driver says so. */
bool state_is_on(void);

/** Before anything is made: from now on forked children are known as such. False: they would not be. */
bool state_watch_forks(void);

#endif

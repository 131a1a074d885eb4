/* SPDX-License-Identifier: MIT */
/** @file What is live in this process: counted, listed, and reported at its end. */
#ifndef GPUIPC_EMULATED_LIVE_LIST_H
#define GPUIPC_EMULATED_LIVE_LIST_H

#include "state.h"

/** The process is about to end without exit handlers: nothing is reported. On Windows the handlers of a
 *  library run at every end but a kill. */
void live_report_cancel(void);

/** Reads GPUIPC_EMULATED_REPORT; if it is 1, what is live at the exit of the process is printed.
 *  CUDA_ERROR_INVALID_VALUE, with a line printed: it is malformed. */
CUresult live_report_at_exit(void);

#endif

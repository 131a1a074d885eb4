/* SPDX-License-Identifier: MIT */
/** @file Failures that are not told, and why: fault_calls' table. */
#ifndef GPUIPC_TEST_FAULT_TOLERATED_H
#define GPUIPC_TEST_FAULT_TOLERATED_H

#include "fault_point.h"

/** @return the reason why the failure of a call need not be told, or NULL */
const char *fault_tolerated(const char *scenario, const fault_event *event);

/** Whether handles may stay open: nothing that closes them can be had. */
bool fault_may_leave_handles(const char *scenario, const fault_plan *plan, const fault_row *row);

/** Whether the call was interrupted, so that it is to be made again. */
bool fault_is_interruption(const fault_event *event);

#endif

/* SPDX-License-Identifier: MIT */
/** @file One point: a scenario is run while calls of it fail, and what came of that is judged. Criterion's assertions end it
 *  where not even the scenario's beginning works. */
#ifndef GPUIPC_TEST_FAULT_RUN_H
#define GPUIPC_TEST_FAULT_RUN_H

#include "fault_point.h"
#include "scenario.h"

/** What came of a run. */
typedef struct fault_outcome {
    gpuipc_status status;
    gpuipc_error error;
    int64_t memory; /**< allocations that are left */
    const fault_row *row;
    fault_plan plan; /**< by which it failed */
    char left[2048]; /**< what is left besides */
} fault_outcome;

/** The exit code of a process in which a point took too long. */
#define FAULT_HANG_EXIT_CODE 97

/** Starts the honest process, what it is served, the layers, and the watchdog: a point that takes longer than @p most_ms ends
 *  the process. */
void fault_begin_all(uint64_t most_ms);
void fault_end_all(void);

/** Between these two the watchdog looks at the clock; @p text says at what. */
void fault_point_begin(const char *text);
void fault_point_end(void);

/** Runs it once, so that what is made once in a process is made. */
void fault_warm(const scenario *what);
void fault_run(const scenario *what, const fault_plan *plan, fault_outcome *out);

/** Whether all is as it must be: a failure is told or has its reason (fault_tolerated.h), by a record that says what
 *  failed, and nothing is left. @p why what is not */
bool fault_judge(const scenario *what, const fault_outcome *got, char *why, size_t capacity);

/** Whether the honest process can open what this one has served all along. */
bool fault_is_peer_served(void);

#endif

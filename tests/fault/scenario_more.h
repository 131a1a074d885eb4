/* SPDX-License-Identifier: MIT */
/** @file Scenarios of single steps, and those in which another process takes part: fault_peer.c. Their failures are looked at
 *  by the test that counts every call. */
#ifndef GPUIPC_TEST_SCENARIO_MORE_H
#define GPUIPC_TEST_SCENARIO_MORE_H

#include "child.h"
#include "scenario.h"

extern const scenario more_scenarios[];
extern const size_t more_scenario_count;

/** A process that serves a ticket, and opens tickets when it is told to. */
typedef struct fault_peer {
    child_process *child;
    char directory[RUNTIME_DIRECTORY_MAX]; /**< where its server is */
    gpuipc_ticket ticket;                  /**< that it serves */
} fault_peer;

/** The one that the scenarios speak to. */
extern fault_peer scenario_peer;

/** Starts it. */
gpuipc_status scenario_peer_start(void);
/** Tells it to open a ticket that is served in a directory, from a new context. */
gpuipc_status scenario_peer_visit(const char *directory, const gpuipc_ticket *ticket);
/** What came of it: "ok", or a status with its sentence. */
gpuipc_status scenario_peer_answer(char line[CHILD_LINE_MAX]);
void scenario_peer_end(void);

#endif

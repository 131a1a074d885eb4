/* SPDX-License-Identifier: MIT */
/** @file The end of `doctor --peer` that prints the line, and a run of the other one. */
#ifndef GPUIPC_TEST_SELFTEST_PEER_H
#define GPUIPC_TEST_SELFTEST_PEER_H

#include "selftest_run.h"

/* A line has the UUIDs of all GPUs. */
#define SELFTEST_OPTION_MAX 4096

/** Starts it, and reads up to the line.
 *  @param option set to "--peer=LINE" */
child_process *selftest_peer_start(char option[SELFTEST_OPTION_MAX]);

/** The same with more of its options and its environment.
 *  @param more up to two options, and a NULL
 *  @param option set to "--peer=LINE"; what stands behind the line is left out */
child_process *selftest_peer_start_as(const char *const *more, const char *const *environment,
                                      char option[SELFTEST_OPTION_MAX]);

/** Reads its output up to a line that begins so, and asserts that it ends with this code; frees. */
void selftest_peer_expect(child_process *giver, const char *line, int code);

#endif

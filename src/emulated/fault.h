/* SPDX-License-Identifier: MIT */
/** @file Calls that fail on demand, and the count of calls. The form of the text: emulated.h. */
#ifndef GPUIPC_EMULATED_FAULT_H
#define GPUIPC_EMULATED_FAULT_H

#include "entry.h"

/** Counts the call; applies the rules to it: the code it must answer, or CUDA_SUCCESS to go on.
 *  May sleep, may end the process. The first cuInit reads GPUIPC_EMULATED_FAIL. */
CUresult fault_check(entry_id id);

/** Replaces the rules and sets every count to 0; -1, and no change, when @p text is malformed. */
int fault_set(const char *text);

/** Who is asked about every call besides; NULL: nobody. */
void fault_set_judge(int (*judge)(const char *name));

/** Calls of one entry point (all its versions), or of all for NULL, since the last fault_set. */
uint64_t fault_calls(const char *name);

#endif

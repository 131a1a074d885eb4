/* SPDX-License-Identifier: MIT */
/** @file What a run without --verbose prints: one line for each kind of check and for each transport, whatever the number of
 *  devices. The other formats always have everything. */
#ifndef GPUIPC_SELFTEST_BRIEF_H
#define GPUIPC_SELFTEST_BRIEF_H

#include "options.h"
#include "report.h"

/** Whether a run is told so: it looks at every pair of devices, and --verbose was not given. */
bool brief_is_wanted(const options *wanted);

/** A line for devices that are alike. */
void brief_devices(const report *from);
/** Lines for the checks of shared memory that passed, and how many others have no line of their own. */
void brief_shared(const report *from);
/** Lines for what is tried once. */
void brief_once(const report *from);
/** A line for each transport. */
void brief_ways(const report *from);

#endif

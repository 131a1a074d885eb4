/* SPDX-License-Identifier: MIT */
/** @file What keeps processes on this machine from sharing GPU memory, in words, with what to do. */
#ifndef GPUIPC_SELFTEST_DOCTOR_H
#define GPUIPC_SELFTEST_DOCTOR_H

#include "options.h"
#include "report.h"

/** Prints what gpuipc_diagnose() finds.
 *  @return EXIT_PASS, or EXIT_FAIL when something blocks sharing */
int doctor(const options *wanted);

/** Adds to the report of a run or a matrix what gpuipc_diagnose() finds by looking alone, once, with the driver that the
 *  command doctor would ask. Nothing is tried, so it takes no time worth mentioning. */
void doctor_look(const options *wanted);
/** One line, where something was found. */
void doctor_print_count(const report *from);

#endif

/* SPDX-License-Identifier: MIT */
/** @file What keeps processes on this machine from sharing GPU memory, in words, with what to do. */
#ifndef GPUIPC_SELFTEST_DOCTOR_H
#define GPUIPC_SELFTEST_DOCTOR_H

#include "options.h"

/** Prints what gpuipc_diagnose() finds.
 *  @return EXIT_PASS, or EXIT_FAIL when something blocks sharing */
int doctor(const options *wanted);

#endif

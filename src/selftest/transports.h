/* SPDX-License-Identifier: MIT */
/** @file Which transports work between which devices, how fast, and why not. */
#ifndef GPUIPC_SELFTEST_TRANSPORTS_H
#define GPUIPC_SELFTEST_TRANSPORTS_H

#include "options.h"

/** Prints a line for each pair of devices and each transport; measures them when asked to.
 *  @return EXIT_PASS, EXIT_FAIL when something that is available could not be measured, EXIT_USAGE */
int transports(const options *wanted);

#endif

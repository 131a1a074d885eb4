/* SPDX-License-Identifier: MIT */
/** @file Starts a producer and a consumer for every pair of devices, and adds up what they find. */
#ifndef GPUIPC_SELFTEST_RUN_H
#define GPUIPC_SELFTEST_RUN_H

#include "options.h"

/** @return EXIT_PASS, EXIT_FAIL, EXIT_USAGE, or EXIT_NOTHING when no case could be tried */
int run(const options *wanted);

#endif

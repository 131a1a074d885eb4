/* SPDX-License-Identifier: MIT */
/** @file The program that opens the memory, checks it, and writes there. */
#ifndef GPUIPC_SELFTEST_CONSUME_H
#define GPUIPC_SELFTEST_CONSUME_H

#include "options.h"

/** Connects to a producer and does what it asks for until it ends.
 *  @return EXIT_PASS, EXIT_FAIL, EXIT_USAGE */
int consume(const options *wanted);

#endif

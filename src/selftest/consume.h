/* SPDX-License-Identifier: MIT */
/** @file The program that opens the memory, checks it, and writes there. */
#ifndef GPUIPC_SELFTEST_CONSUME_H
#define GPUIPC_SELFTEST_CONSUME_H

#include "role.h"

/** Connects to a producer and does what it asks for until it ends.
 *  @return EXIT_PASS, EXIT_FAIL, EXIT_USAGE */
int consume(const options *wanted);

/** The device that opens memory, as the options say; a complaint is printed.
 *  @return EXIT_PASS, EXIT_USAGE */
int consume_choose_device(role *self);

#endif

/* SPDX-License-Identifier: MIT */
/** @file A ring of programs, each of which writes into the memory of the next one. */
#ifndef GPUIPC_SELFTEST_RING_H
#define GPUIPC_SELFTEST_RING_H

#include "options.h"

/** Runs a ring of programs, one for each device (at least two), over every transport, and then a ring of
 *  the devices inside this program.
 *  @return EXIT_PASS, EXIT_FAIL, EXIT_USAGE, or EXIT_NOTHING when no case could be tried */
int ring(const options *wanted);

/** One program of the ring, started by ring(). @return EXIT_PASS or EXIT_FAIL */
int ring_member(const options *wanted);

#endif

/* SPDX-License-Identifier: MIT */
/** @file One producer and one consumer, each a program of its own, watched until both have ended. */
#ifndef GPUIPC_SELFTEST_PAIR_H
#define GPUIPC_SELFTEST_PAIR_H

#include "crew.h"

/** Runs the cases of one pair of devices and prints a line for each.
 *  @param choice as --driver takes it  @param cases how many there are */
void pair_run(const options *wanted, const char *choice, uint32_t owner, uint32_t peer,
              unsigned cases, tally *total);

#endif

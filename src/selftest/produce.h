/* SPDX-License-Identifier: MIT */
/** @file The program that makes the memory, and checks what the other one wrote there. */
#ifndef GPUIPC_SELFTEST_PRODUCE_H
#define GPUIPC_SELFTEST_PRODUCE_H

#include "role.h"

/** Waits for a consumer, goes through all cases with it, and prints one line for each.
 *  @return EXIT_PASS, EXIT_FAIL, EXIT_USAGE, or EXIT_NOTHING when every case was skipped */
int produce(const options *wanted);

/** Whether a device is there and can share memory; a complaint is printed.
 *  @return EXIT_PASS, EXIT_FAIL, EXIT_USAGE, EXIT_NOTHING */
int produce_check_device(role *self, uint32_t device, uint64_t *out_granularity);

/** The sizes to be shared: those of the options, else the driver's defaults.
 *  @param sizes room for SIZES_MAX  @return how many */
size_t produce_sizes(const options *wanted, bool is_emulated, uint64_t *sizes);

#endif

/* SPDX-License-Identifier: MIT */
/** @file How fast every transport is between all devices, as matrices. */
#ifndef GPUIPC_SELFTEST_MATRIX_H
#define GPUIPC_SELFTEST_MATRIX_H

#include "options.h"

/** Measures everything that is available, and prints it.
 *  @return EXIT_PASS, EXIT_FAIL when something could not be measured or is slower than demanded, EXIT_NOTHING */
int matrix(const options *wanted);

#endif

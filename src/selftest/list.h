/* SPDX-License-Identifier: MIT */
/** @file Which checks there are. */
#ifndef GPUIPC_SELFTEST_LIST_H
#define GPUIPC_SELFTEST_LIST_H

#include "options.h"

/** Prints the ids of the checks, with what each is, and of the doctor's findings. @return EXIT_PASS */
int list(const options *wanted);

#endif

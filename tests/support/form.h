/* SPDX-License-Identifier: MIT */
/** @file How much a test of docs/reliability.md does: the short form of every run, or the full one that its figures are of
 *  (ctest --preset reliability, which sets GPUIPC_TEST_FORM=full). */
#ifndef GPUIPC_TEST_FORM_H
#define GPUIPC_TEST_FORM_H

#include <stdbool.h>
#include <stdint.h>

bool form_is_full(void);
/** The first in every run, the second in the full form. */
uint64_t form_choose(uint64_t in_short, uint64_t in_full);

#endif

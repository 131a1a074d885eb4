/* SPDX-License-Identifier: MIT */
/** @file A ring of the devices inside one program. */
#ifndef GPUIPC_SELFTEST_RING_INSIDE_H
#define GPUIPC_SELFTEST_RING_INSIDE_H

#include "crew.h"

/** Each device writes into memory of the next one, over peer access and over virtual memory. */
void ring_inside(const options *wanted, const session *at, tally *total);

/** How much each member's memory is. */
uint64_t ring_bytes(const options *wanted, bool is_emulated);

#endif

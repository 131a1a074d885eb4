/* SPDX-License-Identifier: MIT */
/** @file A kernel that reads and writes device memory in place, without any copy by the driver. */
#ifndef GPUIPC_SELFTEST_KERNEL_H
#define GPUIPC_SELFTEST_KERNEL_H

#include "session.h"

/** Runs word[i] = word[i] * 5 + i on a device for every word, and waits for its end. The memory must
 *  be mapped for that device. */
gpuipc_status kernel_transform(session *on, uint32_t device, uint64_t address, uint64_t words);

#endif

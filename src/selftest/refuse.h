/* SPDX-License-Identifier: MIT */
/** @file Whether wrong input is refused: tickets that are damaged or revoked, names that nobody has; and right input then
 *  still taken. */
#ifndef GPUIPC_SELFTEST_REFUSE_H
#define GPUIPC_SELFTEST_REFUSE_H

#include <gpuipc/gpuipc.h>

/** @param device on which memory is shared for it
 *  @return NULL, or what was not as it must be */
const char *refuse_check(gpuipc_context *context, uint32_t device);

#endif

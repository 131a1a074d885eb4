/* SPDX-License-Identifier: MIT */
/** @file When memory that was dropped is unmapped. */
#ifndef GPUIPC_TEST_DROP_ENDS_H
#define GPUIPC_TEST_DROP_ENDS_H

#include "core_fixture.h"

/** Whether something is mapped there. */
bool drop_exists(CUdeviceptr at);
/** Asserts that it is unmapped soon. */
void drop_check_ends(CUdeviceptr at);

#endif

/* SPDX-License-Identifier: MIT */
/** @file An operation while each allocation, and then each call of the driver, fails in turn. Asserts that a failure is told by
 *  a status with its record, or made up for, that some are told, and that it works before and afterwards. */
#ifndef GPUIPC_TEST_SHORTAGE_CASE_H
#define GPUIPC_TEST_SHORTAGE_CASE_H

#include <gpuipc/gpuipc.h>

typedef struct shortage_operation {
    void (*begin)(void); /**< nothing is denied in it; NULL: there is none */
    gpuipc_status (*run)(void);
    void (*end)(void); /**< likewise */
} shortage_operation;

/** Allocations and calls. */
void shortage_in_turn(const shortage_operation *what);
/** Allocations alone. */
void shortage_of_memory(const shortage_operation *what);

#endif

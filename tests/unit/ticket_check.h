/* SPDX-License-Identifier: MIT */
/** @file A ticket that a test has changed. */
#ifndef GPUIPC_TEST_TICKET_CHECK_H
#define GPUIPC_TEST_TICKET_CHECK_H

#include <gpuipc/gpuipc.h>

/** The same with a check that is right: CRC-32, bit by bit. */
gpuipc_ticket ticket_with_check(gpuipc_ticket of);

#endif

/* SPDX-License-Identifier: MIT */
/** @file Descriptors of dma-bufs, which Windows has not: posix_range.c, win32_range.c. */
#ifndef GPUIPC_TEST_CONFORMANCE_RANGE_H
#define GPUIPC_TEST_CONFORMANCE_RANGE_H

#include <stdint.h>

/** Closes one. @return how long it was, as lseek(2) says of any dma-buf; 0: it does not say */
uint64_t range_close(int number);

#endif

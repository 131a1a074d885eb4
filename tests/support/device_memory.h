/* SPDX-License-Identifier: MIT */
/** @file How much memory of a device is in use, for tests that ask whether all came back. Other programs must not use it. */
#ifndef GPUIPC_TEST_DEVICE_MEMORY_H
#define GPUIPC_TEST_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/** Bytes of device 0 that are not free, as the driver under test says. One thread. @return whether it says so */
bool device_memory_get_used(uint64_t *out_bytes);

#endif

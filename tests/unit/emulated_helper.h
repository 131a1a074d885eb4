/* SPDX-License-Identifier: MIT */
/** @file What the helper programs of the emulated driver's tests share. */
#ifndef GPUIPC_TEST_EMULATED_HELPER_H
#define GPUIPC_TEST_EMULATED_HELPER_H

#include "driver.h"
#include "helper.h"

/** The driver, after emulated_helper_open. */
extern driver drv;

/** Opens it, as GPUIPC_CUDA_DRIVER would name it, and makes the primary context of device 0 current.
 *  Says what went wrong, and ends the process with code 4, when that fails. */
void emulated_helper_open(const char *choice);

/** Standard error goes to standard output from now on, since the test reads one pipe.
 *  posix_outputs.c, win32_outputs.c */
bool outputs_join(void);

#endif

/* SPDX-License-Identifier: MIT */
/** @file Calls that must succeed: a program that measures ends when one fails. */
#ifndef GPUIPC_BENCH_CALL_H
#define GPUIPC_BENCH_CALL_H

#include <gpuipc/gpuipc.h>

#include "base/compiler.h"
#include "driver.h"

/** The driver's own entry points. */
extern driver bench_driver;

/** Loads the driver that GPUIPC_CUDA_DRIVER names, or the installed one. */
void bench_driver_open(void);

/** Ends the program when something fails. */
void bench_check(gpuipc_status status, const char *what);
void bench_check_cuda(CUresult result, const char *what);

/** Says why on standard error, and ends the program. */
_Noreturn void bench_fail(const char *format, ...) GPUIPC_PRINTF(1, 2);

/** Calls of the driver so far, of one entry point or (NULL) of all: the emulated driver counts them. 0 on
 *  any other. */
uint64_t bench_driver_calls(const char *name);

/** Bytes of addresses that this process has reserved and mapped: the emulated driver tells. False on any other. */
bool bench_address_space(uint64_t *out_reserved, uint64_t *out_mapped);

/** Ends the program if this process has any shareable memory left, as far as the emulated driver tells. */
void bench_check_nothing_kept(void);

/** Makes a device's primary context current. */
void bench_enter(int ordinal);

#endif

/* SPDX-License-Identifier: MIT */
/** @file The functions of the emulated CUDA runtime, and what its files share. */
#ifndef GPUIPC_RUNTIME_API_H
#define GPUIPC_RUNTIME_API_H

#include "base/compiler.h"
#include "runtime_entry_points.h"
#include "runtime_types.h"

#define RUNTIME_DECLARE(name, parameters) GPUIPC_EXPORTED cudaError_t name parameters;
RUNTIME_API_LIST(RUNTIME_DECLARE)
#if RUNTIME_MAJOR >= 13
RUNTIME_API_LIST_13(RUNTIME_DECLARE)
#else
RUNTIME_API_LIST_12(RUNTIME_DECLARE)
#endif
#undef RUNTIME_DECLARE

GPUIPC_EXPORTED const char *cudaGetErrorName(cudaError_t error);
GPUIPC_EXPORTED const char *cudaGetErrorString(cudaError_t error);

/** Its presence marks the emulated runtime. @return RUNTIME_MAJOR */
GPUIPC_EXPORTED int gpuipc_emulated_runtime_mark(void);

#endif

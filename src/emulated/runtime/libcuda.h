/* SPDX-License-Identifier: MIT */
/**
 * @file The driver under the runtime, whichever the loader finds as libcuda.so.1: by dlopen, dlsym and
 * cuGetProcAddress, as NVIDIA's runtime looks for it. What stands between a program and its driver there stands
 * between them here as well.
 */
#ifndef GPUIPC_RUNTIME_LIBCUDA_H
#define GPUIPC_RUNTIME_LIBCUDA_H

#include <stdbool.h>

#include "emulated_api.h"

#define LIBCUDA_MEMBER(group, name, suffix, version, parameters)                                   \
    EMULATED_HAS_##group(CUresult(*name##suffix) parameters;)
/** Its entry points; one that it does not have is NULL. */
typedef struct libcuda_entry_points {
    CUDA_API_LIST(LIBCUDA_MEMBER)
    EMULATED_API_LIST(LIBCUDA_MEMBER)
} libcuda_entry_points;
#undef LIBCUDA_MEMBER

/** Set for good once libcuda_load has answered true. */
extern libcuda_entry_points libcuda;

/** Loads it, once in a process. False: there is none, or it is older than CUDA 11.3. */
bool libcuda_load(void);

/** Opens the library; NULL: there is none. @return what libcuda_symbol takes */
void *libcuda_open(void);
/** The address of one of its symbols, or NULL. */
void *libcuda_symbol(void *library, const char *name);

#endif

/* SPDX-License-Identifier: MIT */
/** @file The driver behind this library: its entry points as it has them, and none of ours. */
#ifndef GPUIPC_PRELOAD_REAL_H
#define GPUIPC_PRELOAD_REAL_H

#include <stdbool.h>

#include "hook_list.h"

/** Filled once. An entry point that this driver has not is NULL. */
typedef struct real_driver {
#define REAL_HOOKED(name, suffix, version, flags, parameters) CUresult(*name##suffix) parameters;
    HOOK_LIST(REAL_HOOKED)
#undef REAL_HOOKED
#define REAL_NEEDED(symbol, parameters) CUresult(*symbol) parameters;
    NEED_LIST(REAL_NEEDED)
#undef REAL_NEEDED
    bool has_vmm;    /**< all that NEED_LIST has is there */
    char path[4096]; /**< the file, absolute */
} real_driver;

/** The driver that this process has loaded; NULL: none. Loads nothing. */
const real_driver *real_if_loaded(void);
/** The driver; loaded where it is not yet. NULL: there is none. */
const real_driver *real_get(void);

/** The C library's own dlsym(). */
void *real_look_up(void *handle, const char *name);
/** Its address, to be jumped to. */
void *real_look_up_address(void);

/** Passes a call on; CUDA_ERROR_NOT_FOUND where the driver has none such. */
#define REAL_CALL(call, arguments)                                                                 \
    (real_get() == NULL || real_get()->call == NULL ? CUDA_ERROR_NOT_FOUND                         \
                                                    : real_get()->call arguments)

#endif

/* SPDX-License-Identifier: MIT */
/**
 * @file Which function stands before which of the driver's, and the ways by which programs find the driver's: linked
 * directly, dlsym(), cuGetProcAddress().
 */
#ifndef GPUIPC_PRELOAD_INTERPOSE_H
#define GPUIPC_PRELOAD_INTERPOSE_H

#include "real.h"

/**
 * What dlsym_*.S asks. @param caller the return address of who called dlsym()
 * @return NULL: *out_symbol is the answer; else what to jump to, with the arguments as they came
 */
void *interpose_look_up(void *handle, const char *name, const void *caller, void **out_symbol);

/** Notes the driver's entry points, once, before anybody else sees the driver. */
void interpose_learn(const real_driver *driver);

/** Whether an entry point found by a caller is the driver's, and ours stands before it. @return ours, or NULL */
void *interpose_replacement(const void *symbol);

#endif

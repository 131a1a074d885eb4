/* SPDX-License-Identifier: MIT */
/** @file A context without a public handle: for a question that is asked without one. */
#ifndef GPUIPC_CONTEXT_CREATE_H
#define GPUIPC_CONTEXT_CREATE_H

#include "cuda/context.h"

/** As gpuipc_context_create(), with one reference, which context_destroy() takes. */
gpuipc_status context_create(const gpuipc_context_config *config, context **out_context);

/** Which driver a context of this config is for: the config's, else the environment's (empty counts as unset), else
 *  "auto". */
const char *context_driver_choice(const gpuipc_context_config *config);

/** As gpuipc_context_destroy(): ends what keeps it alive, and gives up the caller's reference. */
void context_destroy(context *self);

#endif

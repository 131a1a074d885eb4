/* SPDX-License-Identifier: MIT */
/** @file What a context has found out about transports between its devices: asked once, then known. */
#ifndef GPUIPC_ANSWERS_H
#define GPUIPC_ANSWERS_H

#include <stdbool.h>

#include <gpuipc/gpuipc.h>

#include "os.h"

struct context;

typedef struct answers {
    os_mutex trial;                 /**< held by the one who finds out; never inside the other */
    os_mutex mutex;                 /**< guards the rest, for no longer than a copy takes */
    gpuipc_transport_info *entries; /**< by transport, owner and user; NULL: nothing is known yet */
    uint32_t device_count;
} answers;

extern const struct context_part answers_part;

/** @return whether it is known */
bool answers_find(answers *self, gpuipc_transport transport, uint32_t owner, uint32_t user,
                  gpuipc_transport_info *out_info);

/** From now on it is known, or known to be otherwise. */
gpuipc_status answers_keep(answers *self, uint32_t owner, uint32_t user,
                           const gpuipc_transport_info *info);

#endif

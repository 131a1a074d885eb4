/* SPDX-License-Identifier: MIT */
/** @file What the two sides of the manifest have in common. */
#ifndef GPUIPC_BENCH_PARTNER_MANIFEST_H
#define GPUIPC_BENCH_PARTNER_MANIFEST_H

#include <stdint.h>
#include <stdio.h>

#define MANIFEST_NAME_MAX 48

static inline void manifest_name(char name[MANIFEST_NAME_MAX], uint32_t index) {
    (void)snprintf(name, MANIFEST_NAME_MAX, "model.layers.%u.self_attn.weight", (unsigned)index);
}

#endif

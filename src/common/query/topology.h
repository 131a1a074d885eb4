/* SPDX-License-Identifier: MIT */
/** @file What joins two devices, and a device with the host. */
#ifndef GPUIPC_TOPOLOGY_INTERNAL_H
#define GPUIPC_TOPOLOGY_INTERNAL_H

#include "cuda/context.h"

/** See gpuipc_topology_get(). Both devices are there. */
gpuipc_status topology_find(const context *ctx, uint32_t owner, uint32_t user,
                            gpuipc_topology *out_topology);

/** A device's PCIe link. */
typedef struct topology_pcie {
    uint32_t generation;
    uint32_t width;
    bool is_from_nvml; /**< false: guessed from the device's compute capability */
} topology_pcie;

topology_pcie topology_find_pcie(const context *ctx, uint32_t index);

#endif

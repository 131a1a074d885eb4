/* SPDX-License-Identifier: MIT */
/**
 * @file NVML (NVIDIA Management Library), found when the program runs and needed for nothing: it knows the
 * links of a GPU, which the CUDA driver does not tell. Loaded once in a process, and never unloaded.
 */
#ifndef GPUIPC_NVML_LIBRARY_H
#define GPUIPC_NVML_LIBRARY_H

#include <gpuipc/gpuipc.h>

#include "driver.h"
#include "query/nvml_api.h"

/** Every entry point; NULL where the library is too old to have it. */
typedef struct nvml {
#define NVML_MEMBER(name, suffix, result, parameters) result(*name) parameters;
    NVML_API_LIST(NVML_MEMBER)
#undef NVML_MEMBER
} nvml;

/** The NVML that belongs to a driver: the installed one, or for the emulated driver the emulated one
 *  beside it, never the other. NULL when there is none, or it did not start. */
const nvml *nvml_find(const driver *drv);

/** NVML's handle of a device. False when it does not know it. */
bool nvml_device(const nvml *self, const gpuipc_device_info *info, nvmlDevice_t *out_device);

/** Where a device sits. */
typedef struct nvml_place {
    unsigned domain;
    unsigned bus;
    unsigned slot;
} nvml_place;

/** A device's active NVLinks. */
typedef struct nvml_links {
    unsigned active;
    unsigned direct;     /**< of these, those that end at the other device, not in a switch */
    unsigned generation; /**< 0: not told */
} nvml_links;

/** @param other where the other device sits */
nvml_links nvml_count_links(const nvml *self, nvmlDevice_t device, const nvml_place *other);

/** Whether two devices reach each other through NVLink, as NVML says. @return 1, 0, -1: not told */
int nvml_has_nvlink(const nvml *self, nvmlDevice_t first, nvmlDevice_t second);

/** Generation and width of a device's PCIe link. False when not told. */
bool nvml_pcie(const nvml *self, nvmlDevice_t device, unsigned *out_generation,
               unsigned *out_width);

#endif

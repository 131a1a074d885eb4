/* SPDX-License-Identifier: MIT */
/** @file What the GPUs, and what joins them, do to sharing memory. docs/doctor.md says of each where it was seen. */
#include <stdio.h>
#include <string.h>

#include "diagnose/diagnosis.h"

/* cuda.h, CUcomputemode */
#define COMPUTE_MODE_DEFAULT    0
#define COMPUTE_MODE_PROHIBITED 2

static void find_hidden(diagnosis *self, const os_facts *facts, const gpus_facts *gpus) {
    const char *visible = os_environment("CUDA_VISIBLE_DEVICES");
    uint32_t there = gpus->nvml_count;
    if (gpus->has_slices) {
        return; /* slices are more than GPUs */
    }
    if (visible != NULL && there > gpus->visible) {
        diagnosis_add(self, FINDING_GPU_HIDDEN, GPUIPC_SEVERITY_NOTE,
                      "CUDA_VISIBLE_DEVICES=\"%.120s\": this process sees %u of %u GPUs", visible,
                      gpus->visible, there);
    }
    if (there == 0 && visible == NULL) {
        there = gpus->visible;
    }
    if (!gpus->is_emulated && there > 0 && facts->gpu_count > there) {
        diagnosis_add(self, FINDING_GPU_WITHHELD, GPUIPC_SEVERITY_NOTE,
                      "the kernel's driver lists %llu GPUs, and %u are here",
                      (unsigned long long)facts->gpu_count, there);
    }
}

/* The library has its version in the name of its file, libcuda.so.580.159.03. A path of the compatibility package is
 * right where the kernel's driver is older than the image wants, and a mismatch all the same. */
static void find_mismatch(diagnosis *self, const os_facts *facts, const gpus_facts *gpus) {
    char library[64];
    char kernel[64];
    const char *name = strrchr(gpus->driver_file, '/');
    if (!gpus->is_emulated && name != NULL && diagnosis_version(name, library, sizeof(library)) &&
        diagnosis_version(facts->gpu_driver, kernel, sizeof(kernel)) &&
        strcmp(library, kernel) != 0) {
        diagnosis_add(self, FINDING_DRIVER_MISMATCH, GPUIPC_SEVERITY_NOTE,
                      "the library is %.200s, the kernel's driver %s", gpus->driver_file, kernel);
    }
}

void rules_gpus(diagnosis *self, const os_facts *facts, const gpus_facts *gpus) {
    find_hidden(self, facts, gpus);
    find_mismatch(self, facts, gpus);
    if (gpus->is_emulated) {
        diagnosis_add(self, FINDING_EMULATED, GPUIPC_SEVERITY_NOTE, "the driver is %.200s",
                      gpus->driver_file);
    }
}

/* exclusive: one process at a time; prohibited: none. */
static void find_compute_mode(diagnosis *self, const gpu_facts *gpu) {
    if (gpu->compute_mode == COMPUTE_MODE_DEFAULT) {
        return;
    }
    diagnosis_add(self, FINDING_COMPUTE_MODE, GPUIPC_SEVERITY_BLOCKS, "device %u: %s", gpu->number,
                  gpu->compute_mode == COMPUTE_MODE_PROHIBITED ? "prohibited"
                                                               : "exclusive process");
}

void rules_gpu(diagnosis *self, const gpu_facts *gpu) {
    const gpuipc_device_info *info = gpu->info;
    find_compute_mode(self, gpu);
    if (info->is_mig) {
        diagnosis_add(self, FINDING_MIG, GPUIPC_SEVERITY_SLOWS, "device %u is %.80s", gpu->number,
                      info->name);
    }
    if (gpu->is_integrated) {
        diagnosis_add(self, FINDING_INTEGRATED, GPUIPC_SEVERITY_NOTE, "device %u is %.80s",
                      gpu->number, info->name);
    }
    if (info->driver_model == GPUIPC_DRIVER_MODEL_TCC) {
        diagnosis_add(self, FINDING_TCC, GPUIPC_SEVERITY_BLOCKS, "device %u, %.80s", gpu->number,
                      info->name);
    } else if (!info->can_share) {
        diagnosis_add(self, FINDING_NOT_SHAREABLE, GPUIPC_SEVERITY_BLOCKS, "device %u: %s",
                      gpu->number, info->why_not);
    }
}

/* Only what is joined by PCIe goes where the IOMMU and BAR1 are in the way. Linux calls a domain that translates "DMA" or
 * "DMA-FQ", and one that does not "identity": Documentation/ABI/testing/sysfs-kernel-iommu_groups. */
static void find_pcie(diagnosis *self, const pair_facts *pair) {
    if (pair->way.link != GPUIPC_LINK_PCIE) {
        return;
    }
    if (strncmp(pair->pci.iommu, "DMA", 3) == 0) {
        diagnosis_add(self, FINDING_IOMMU, GPUIPC_SEVERITY_SLOWS,
                      "device %u is in an IOMMU group of type %s", pair->owner, pair->pci.iommu);
    }
    if (pair->pci.bar1_bytes != 0 && pair->pci.bar1_bytes < pair->memory_bytes) {
        diagnosis_add(self, FINDING_SMALL_BAR1, GPUIPC_SEVERITY_NOTE,
                      "device %u shows %llu MiB of %llu", pair->owner,
                      (unsigned long long)(pair->pci.bar1_bytes >> 20),
                      (unsigned long long)(pair->memory_bytes >> 20));
    }
    if (pair->common == NVML_TOPOLOGY_SYSTEM) {
        diagnosis_add(self, FINDING_FAR_APART, GPUIPC_SEVERITY_SLOWS,
                      "devices %u and %u: the link between two NUMA nodes", pair->owner,
                      pair->user);
    } else if (pair->common == NVML_TOPOLOGY_NODE) { /* how much slower is the processor's affair */
        diagnosis_add(self, FINDING_FAR_APART, GPUIPC_SEVERITY_NOTE,
                      "devices %u and %u: two host bridges of one NUMA node", pair->owner,
                      pair->user);
    }
}

void rules_pair(diagnosis *self, const pair_facts *pair) {
    find_pcie(self, pair);
    if (pair->way.peer_access && pair->has_pools) {
        diagnosis_add(self, FINDING_POOL_ACROSS_GPUS, GPUIPC_SEVERITY_NOTE,
                      "device %u reaches pool memory of %u", pair->user, pair->owner);
    }
    if (!pair->way.peer_access) {
        diagnosis_add(self, FINDING_NO_P2P, GPUIPC_SEVERITY_SLOWS, "device %u does not reach %u",
                      pair->user, pair->owner);
    }
}

/* What a finding of its own says already is not told again. */
void rules_trial(diagnosis *self, const os_facts *facts, uint32_t owner, uint32_t user,
                 const gpuipc_transport_info *answer) {
    char where[64];
    (void)snprintf(where, sizeof(where), "memory of device %u used by %u", owner, user);
    switch (answer->reason) {
    case GPUIPC_REASON_NONE:
    case GPUIPC_REASON_NO_P2P:
    case GPUIPC_REASON_MIG:
    case GPUIPC_REASON_TCC:
    case GPUIPC_REASON_NO_VMM:
    case GPUIPC_REASON_HANDLE_TYPE:
    case GPUIPC_REASON_WSL:
    case GPUIPC_REASON_COMPUTE_MODE:
        break;
    case GPUIPC_REASON_NO_IMEX_CHANNEL:
        diagnosis_add(self, FINDING_NO_IMEX_CHANNEL, GPUIPC_SEVERITY_NOTE,
                      "device %u has fabric handles; %s", owner,
                      facts->imex_channel[0] != '\0'    ? facts->imex_channel
                      : facts->imex_is_loaded == OS_YES ? "no channel opens"
                                                        : "the driver has no channels");
        break;
    case GPUIPC_REASON_WRONG_DATA:
        diagnosis_add(self, FINDING_WRONG_DATA, GPUIPC_SEVERITY_BLOCKS, "%s", where);
        break;
    case GPUIPC_REASON_DEVICE_MEMORY:
        diagnosis_add(self, FINDING_NO_DEVICE_MEMORY, GPUIPC_SEVERITY_BLOCKS, "%s", where);
        break;
    case GPUIPC_REASON_HANDLE_LIMIT:
        diagnosis_add(self, FINDING_HANDLE_LIMIT, GPUIPC_SEVERITY_BLOCKS, "%s: none was left",
                      where);
        break;
    default:
        diagnosis_add(self, FINDING_TRIAL_REFUSED, GPUIPC_SEVERITY_BLOCKS, "%s: %s", where,
                      answer->sentence);
        break;
    }
}

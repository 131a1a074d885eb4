/* SPDX-License-Identifier: MIT */
/** @file A diagnosis being made: what was found so far, and the rules that find. A rule only judges what it is given, so
 *  that machines of every kind can be judged in a test. */
#ifndef GPUIPC_DIAGNOSIS_H
#define GPUIPC_DIAGNOSIS_H

#include <gpuipc/gpuipc_diagnose.h>

#include "base/compiler.h"
#include "os.h"
#include "query/nvml_api.h"

/** The numbers of GPUIPC_FINDING_LIST. */
typedef enum finding_number {
#define FINDING_NUMBER(number, name, severity, cause, remedy, cost) FINDING_##name = (number),
    GPUIPC_FINDING_LIST(FINDING_NUMBER)
#undef FINDING_NUMBER
} finding_number;

typedef struct diagnosis {
    gpuipc_finding findings[GPUIPC_FINDING_COUNT + 1]; /**< by number; of severity 0: not found */
} diagnosis;

/** Notes something. Found again, the evidence is added to the earlier one's, and the graver severity counts. */
void diagnosis_add(diagnosis *self, finding_number number, gpuipc_severity severity,
                   const char *evidence, ...) GPUIPC_PRINTF(4, 5);

bool diagnosis_has(const diagnosis *self, finding_number number);

/** The first version number in a text, such as "580.159.03" of "libcuda.so.580.159.03"; false where there is none. */
bool diagnosis_version(const char *text, char *version, size_t capacity);

/** What runs the GPUs, as far as the system tells: "WSL", "open kernel module", "proprietary kernel module", "unknown". */
const char *diagnosis_driver_model(const os_facts *facts);

/* ---- rules_system.c ------------------------------------------------------------------------ */

/** What the system's facts and the environment say.
 *  @param directory the runtime directory */
void rules_system(diagnosis *self, const os_facts *facts, const char *directory);

/** Why there is no context.
 *  @param error as context_create() left it
 *  @param choice the driver that was asked for, as gpuipc_context_config::driver has it
 *  @return false: that has nothing to do with the machine */
bool rules_no_context(diagnosis *self, const os_facts *facts, const gpuipc_error *error,
                      const char *choice);

/* ---- rules_gpu.c --------------------------------------------------------------------------- */

/** What is known of the GPUs together. */
typedef struct gpus_facts {
    uint32_t visible; /**< to this process */
    uint32_t
        nvml_count; /**< GPUs that NVML sees, which knows nothing of CUDA_VISIBLE_DEVICES; 0: not known */
    bool is_emulated;              /**< then the system's driver and PCI devices are not theirs */
    bool has_slices;               /**< some are MIG slices, which NVML does not count */
    char driver_file[OS_PATH_MAX]; /**< the CUDA library, all links followed; empty: not known */
} gpus_facts;

void rules_gpus(diagnosis *self, const os_facts *facts, const gpus_facts *gpus);

/** One GPU. */
typedef struct gpu_facts {
    uint32_t number; /**< in this process */
    const gpuipc_device_info *info;
    bool is_integrated;
    int compute_mode; /**< cuda.h, CUcomputemode */
} gpu_facts;

void rules_gpu(diagnosis *self, const gpu_facts *gpu);

/** Two GPUs, of which one uses the other's memory. */
typedef struct pair_facts {
    uint32_t owner;
    uint32_t user;
    gpuipc_topology way;
    bool has_pools;        /**< the owner's pools can be exported */
    int common;            /**< nvmlGpuTopologyLevel_t; -1: not known */
    uint64_t memory_bytes; /**< the owner's */
    os_pci pci;            /**< the owner's */
} pair_facts;

void rules_pair(diagnosis *self, const pair_facts *pair);

/** What came of trying a transport between two of them. */
void rules_trial(diagnosis *self, const os_facts *facts, uint32_t owner, uint32_t user,
                 const gpuipc_transport_info *answer);

#endif

/* SPDX-License-Identifier: MIT */
/** @file gpuipc_diagnose(): looks at the system, the driver and the GPUs, tries what can be tried, and has it judged by the
 *  rules of diagnosis.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/context_create.h"
#include "base/struct_size.h"
#include "diagnose/diagnosis.h"
#include "query/nvml_library.h"
#include "query/topology.h"
#include "query/transport_query.h"

/* What one call has at hand. */
typedef struct machine {
    diagnosis found;
    os_facts facts;
    char directory[OS_PATH_MAX];
    gpuipc_context_config config;
    bool looks_only;
} machine;

/* A name that nobody has: what a server does, and what finds it. */
static gpuipc_status meet(const os_directory *directory) {
    uint64_t random;
    char name[64];
    os_listener *listener;
    os_connection *connection;
    gpuipc_status status = os_random(&random, sizeof(random));
    if (status != GPUIPC_OK) {
        return status;
    }
    (void)snprintf(name, sizeof(name), "diagnose-%016llx", (unsigned long long)random);
    status = os_listener_open(directory, name, NULL, &listener);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = os_connection_open(directory, name, os_deadline_after(1000), &connection);
    if (status == GPUIPC_OK) {
        os_connection_destroy(connection);
    }
    os_listener_destroy(listener);
    return status;
}

static gpuipc_status try_directory(machine *self) {
    const os_directory directory = {
        .path = self->directory,
        .shared = (self->config.flags & GPUIPC_CONTEXT_SHARED_DIRECTORY) != 0};
    const gpuipc_status status = meet(&directory);
    if (status == GPUIPC_ERR_OUT_OF_MEMORY) {
        return status;
    }
    if (status != GPUIPC_OK) {
        diagnosis_add(&self->found,
                      status == GPUIPC_ERR_TOO_MANY_HANDLES ? FINDING_HANDLE_LIMIT
                                                            : FINDING_RUNTIME_DIRECTORY,
                      GPUIPC_SEVERITY_BLOCKS, "%s", gpuipc_error_get()->sentence);
    }
    return GPUIPC_OK;
}

/* The context's own path is only written down, so another stands in for one that cannot be used.
 *  @return false: there is none */
static bool settle_directory(machine *self) {
    const os_directory given = {.path = self->config.runtime_directory};
    if (os_directory_resolve(&given, self->directory, sizeof(self->directory)) == GPUIPC_OK) {
        return true;
    }
    diagnosis_add(&self->found, FINDING_RUNTIME_DIRECTORY, GPUIPC_SEVERITY_BLOCKS, "%s",
                  gpuipc_error_get()->sentence);
    return false;
}

static int attribute(const context *ctx, uint32_t index, CUdevice_attribute which) {
    int value = 0;
    return ctx->driver.cuDeviceGetAttribute(&value, which, ctx->devices[index].ordinal) ==
                   CUDA_SUCCESS
               ? value
               : 0;
}

static void look_at_gpus(machine *self, const context *ctx) {
    const nvml *library = nvml_find(&ctx->driver);
    unsigned count = 0;
    gpus_facts gpus = {.visible = ctx->device_count, .is_emulated = ctx->driver.is_emulated};
    if (!os_path_real(os_library_path(ctx->driver.library), gpus.driver_file,
                      sizeof(gpus.driver_file))) {
        gpus.driver_file[0] = '\0';
    }
    if (library != NULL && library->nvmlDeviceGetCount != NULL &&
        library->nvmlDeviceGetCount(&count) == NVML_SUCCESS) {
        gpus.nvml_count = count;
    }
    for (uint32_t i = 0; i < ctx->device_count; i++) {
        const gpu_facts gpu = {.number = i,
                               .info = &ctx->devices[i].info,
                               .is_integrated =
                                   attribute(ctx, i, CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0,
                               .compute_mode = attribute(ctx, i, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)};
        gpus.has_slices = gpus.has_slices || gpu.info->is_mig;
        rules_gpu(&self->found, &gpu);
    }
    rules_gpus(&self->found, &self->facts, &gpus);
}

static int common_of(const context *ctx, uint32_t first, uint32_t second) {
    const nvml *library = nvml_find(&ctx->driver);
    nvmlDevice_t one;
    nvmlDevice_t other;
    nvmlGpuTopologyLevel_t level;
    return library != NULL && library->nvmlDeviceGetTopologyCommonAncestor != NULL &&
                   nvml_device(library, &ctx->devices[first].info, &one) &&
                   nvml_device(library, &ctx->devices[second].info, &other) &&
                   library->nvmlDeviceGetTopologyCommonAncestor(one, other, &level) == NVML_SUCCESS
               ? (int)level
               : -1;
}

/* An emulated GPU has no place in this machine. */
static os_pci pci_of(const context *ctx, uint32_t index) {
    if (ctx->driver.is_emulated) {
        const os_pci nowhere = {.bar1_bytes = 0};
        return nowhere;
    }
    return os_pci_find((unsigned)attribute(ctx, index, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                       (unsigned)attribute(ctx, index, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
                       (unsigned)attribute(ctx, index, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
}

static gpuipc_status try_way(machine *self, context *ctx, gpuipc_transport which, uint32_t owner,
                             uint32_t user) {
    const query_pair pair = {.owner = owner, .user = user};
    gpuipc_transport_info answer;
    gpuipc_status status = query_answer(ctx, which, &pair, &answer);
    if (status == GPUIPC_OK) {
        rules_trial(&self->found, &self->facts, owner, user, &answer);
    }
    return status;
}

static gpuipc_status look_at_pair(machine *self, context *ctx, uint32_t owner, uint32_t user) {
    pair_facts pair = {.owner = owner,
                       .user = user,
                       .common = -1,
                       .memory_bytes = ctx->devices[owner].info.memory_bytes};
    gpuipc_status status = GPUIPC_OK;
    if (owner != user && (status = topology_find(ctx, owner, user, &pair.way)) == GPUIPC_OK) {
        pair.common = common_of(ctx, owner, user);
        pair.pci = pci_of(ctx, owner);
        pair.has_pools =
            attribute(ctx, owner, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES) != 0;
        rules_pair(&self->found, &pair);
    }
    return status == GPUIPC_OK && !self->looks_only
               ? try_way(self, ctx, GPUIPC_TRANSPORT_VMM, owner, user)
               : status;
}

static gpuipc_status look_inside(machine *self, context *ctx) {
    gpuipc_status status = GPUIPC_OK;
    look_at_gpus(self, ctx);
    for (uint32_t owner = 0; owner < ctx->device_count && status == GPUIPC_OK; owner++) {
        for (uint32_t user = 0; user < ctx->device_count && status == GPUIPC_OK; user++) {
            status = look_at_pair(self, ctx, owner, user);
        }
    }
    for (uint32_t i = 0; i < ctx->device_count && status == GPUIPC_OK && !self->looks_only; i++) {
        const bool has_fabric =
            attribute(ctx, i, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED) != 0;
        status = has_fabric ? try_way(self, ctx, GPUIPC_TRANSPORT_FABRIC, i, i) : GPUIPC_OK;
    }
    return status;
}

static gpuipc_status look_at_driver(machine *self) {
    context *ctx;
    gpuipc_status status = context_create(&self->config, &ctx);
    if (status != GPUIPC_OK) {
        return rules_no_context(&self->found, &self->facts, gpuipc_error_get(),
                                context_driver_choice(&self->config))
                   ? GPUIPC_OK
                   : status;
    }
    status = look_inside(self, ctx);
    gpuipc_error saved = status_save();
    context_destroy(ctx);
    status_restore(&saved);
    return status;
}

static gpuipc_status look(machine *self) {
    char stand_in[OS_PATH_MAX];
    const bool has_directory = settle_directory(self);
    os_facts_find(self->directory, &self->facts);
    rules_system(&self->found, &self->facts, self->directory);
    if (has_directory && !self->looks_only) {
        const gpuipc_status status = try_directory(self);
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    if (!has_directory) {
        if (!os_cache_directory(stand_in, sizeof(stand_in))) {
            return GPUIPC_OK;
        }
        self->config.runtime_directory = stand_in;
    }
    return look_at_driver(self);
}

/* The gravest first, and of those alike by number. */
static void write_findings(const diagnosis *found, gpuipc_finding *findings, size_t capacity,
                           size_t *out_count) {
    size_t count = 0;
    for (int severity = GPUIPC_SEVERITY_BLOCKS; severity >= GPUIPC_SEVERITY_NOTE; severity--) {
        for (size_t i = 1; i <= GPUIPC_FINDING_COUNT; i++) {
            if (found->findings[i].number != 0 && (int)found->findings[i].severity == severity) {
                if (count < capacity) {
                    findings[count] = found->findings[i];
                }
                count++;
            }
        }
    }
    *out_count = count;
}

static gpuipc_status read_config(const gpuipc_context_config *config,
                                 gpuipc_context_config *out_config) {
    *out_config = (gpuipc_context_config){.struct_size = sizeof(*out_config)};
    return config == NULL
               ? GPUIPC_OK
               : struct_size_read(config, STRUCT_SIZE_UP_TO(gpuipc_context_config, log_user_data),
                                  out_config, sizeof(*out_config));
}

gpuipc_status gpuipc_diagnose(const gpuipc_context_config *config, uint32_t flags,
                              gpuipc_finding *findings, size_t capacity, size_t *out_count) {
    status_enter(__func__);
    if (out_count == NULL || (findings == NULL && capacity > 0) ||
        (flags & ~GPUIPC_DIAGNOSE_LOOK_ONLY) != 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "out_count is NULL, there is no room for findings, or flags (0x%x) has "
                           "bits that this library does not know",
                           flags);
    }
    machine *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    self->looks_only = (flags & GPUIPC_DIAGNOSE_LOOK_ONLY) != 0;
    gpuipc_status status = read_config(config, &self->config);
    if (status == GPUIPC_OK) {
        status = look(self);
    }
    if (status == GPUIPC_OK) {
        write_findings(&self->found, findings, capacity, out_count);
        if (*out_count > capacity) {
            status =
                status_fail(GPUIPC_ERR_TOO_SMALL, "there are %zu findings; there is room for %zu",
                            *out_count, capacity);
        }
    }
    free(self);
    return status;
}

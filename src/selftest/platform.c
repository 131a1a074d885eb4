/* SPDX-License-Identifier: MIT */
/** @file See platform.h. */
#include "platform.h"

#include <stdio.h>
#include <string.h>

#include "diagnose/diagnosis.h"
#include "query/nvml_library.h"

static const struct {
    const char *name;
    const char *label;
    const char *none; /* what people read where there is no value */
} rows[PLATFORM_COUNT] = {
    [PLATFORM_GPUIPC] = {"gpuipc", "gpuipc", "unknown"},
    [PLATFORM_DRIVER_VERSION] = {"driver_version", "driver", "unknown"},
    [PLATFORM_DRIVER_MODEL] = {"driver_model", "driver model", "unknown"},
    [PLATFORM_SYSTEM] = {"system", "system", "unknown"},
    [PLATFORM_CONTAINER] = {"container", "container", "none"},
    [PLATFORM_PID_NAMESPACE] = {"pid_namespace", "PID namespace", "none known"}};

const char *platform_name(platform_fact which) {
    return rows[which].name;
}

const char *platform_label(platform_fact which) {
    return rows[which].label;
}

const char *platform_text(const platform *self, platform_fact which) {
    const char *value = self->values[which];
    return value[0] != '\0'                                          ? value
           : which == PLATFORM_PID_NAMESPACE && self->has_namespaces ? "the machine's first"
                                                                     : rows[which].none;
}

static void set(platform *self, platform_fact which, const char *text) {
    (void)snprintf(self->values[which], sizeof(self->values[which]), "%s", text);
}

void platform_begin(platform *self, const os_facts *facts) {
    char version[OS_FACT_MAX];
    *self = (platform){.has_namespaces = facts->mount_namespace[0] != '\0'};
    (void)snprintf(version, sizeof(version), "%d.%d.%d", GPUIPC_VERSION_MAJOR, GPUIPC_VERSION_MINOR,
                   GPUIPC_VERSION_PATCH);
    set(self, PLATFORM_GPUIPC, version);
    if (diagnosis_version(facts->gpu_driver, version, sizeof(version))) {
        set(self, PLATFORM_DRIVER_VERSION, version);
    }
    set(self, PLATFORM_DRIVER_MODEL, diagnosis_driver_model(facts));
    set(self, PLATFORM_SYSTEM, facts->system);
    set(self, PLATFORM_CONTAINER, facts->container);
    set(self, PLATFORM_PID_NAMESPACE, facts->pid_namespace);
}

/* What NVML says, which alone knows MCDM; else the CUDA driver. NULL: it is not Windows. */
static const char *model_of(const nvml *library, const gpuipc_device_info *info) {
    static const char *const names[] = {
        [NVML_DRIVER_WDDM] = "WDDM", [NVML_DRIVER_WDM] = "TCC", [NVML_DRIVER_MCDM] = "MCDM"};
    nvmlDevice_t device;
    nvmlDriverModel_t model = NVML_DRIVER_WDDM;
    if (library != NULL && library->nvmlDeviceGetDriverModel != NULL &&
        nvml_device(library, info, &device) &&
        library->nvmlDeviceGetDriverModel(device, &model, NULL) == NVML_SUCCESS &&
        (size_t)model < sizeof(names) / sizeof(names[0])) {
        return names[model];
    }
    return info->driver_model == GPUIPC_DRIVER_MODEL_WDDM  ? "WDDM"
           : info->driver_model == GPUIPC_DRIVER_MODEL_TCC ? "TCC"
                                                           : NULL;
}

/* "WDDM", or "WDDM, device 1: TCC" where they differ. */
static void ask_devices(platform *self, const session *at, const nvml *library) {
    char *text = self->values[PLATFORM_DRIVER_MODEL];
    const char *first = NULL;
    for (uint32_t i = 0; i < at->info.device_count; i++) {
        gpuipc_device_info info;
        const char *model =
            session_device(at, i, &info) == GPUIPC_OK ? model_of(library, &info) : NULL;
        const size_t used = strlen(text);
        if (model != NULL && first == NULL) {
            set(self, PLATFORM_DRIVER_MODEL, first = model);
        } else if (model != NULL && strcmp(model, first) != 0) {
            (void)snprintf(text + used, OS_FACT_MAX - used, ", device %u: %s", i, model);
        }
    }
}

void platform_ask(platform *self, const session *at, const os_facts *facts) {
    char version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE] = "";
    const nvml *library = nvml_find(&at->driver);
    if (at->info.is_emulated) {
        set(self, PLATFORM_DRIVER_VERSION, "emulated");
        set(self, PLATFORM_DRIVER_MODEL, "emulated");
    }
    if (library != NULL && library->nvmlSystemGetDriverVersion != NULL &&
        library->nvmlSystemGetDriverVersion(version, sizeof(version)) == NVML_SUCCESS) {
        set(self, PLATFORM_DRIVER_VERSION, version);
    }
    /* Under WSL the driver is that of Windows behind a device of its own, whatever it says. */
    if (at->info.is_emulated || facts->is_wsl != OS_YES) {
        ask_devices(self, at, library);
    }
}

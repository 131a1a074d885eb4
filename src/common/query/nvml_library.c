/* SPDX-License-Identifier: MIT */
/** @file See nvml_library.h. */
#include "query/nvml_library.h"

#include <stdio.h>
#include <string.h>

/* One for the installed driver and one for the emulated one. */
typedef struct slot {
    bool is_settled;
    bool is_there;
    nvml library;
    os_library *loaded; /**< never closed, as the driver */
} slot;

static struct {
    os_static_mutex mutex;
    slot slots[2];
} all;

/* The emulated NVML lies beside the emulated driver, whichever that is. A path that were cut would name no file. */
static gpuipc_status open_emulated(const driver *drv, os_library **out_library) {
    char path[OS_PATH_MAX + 64];
    const char *driver_path = os_library_path(drv->library);
    size_t folder = 0;
    for (size_t i = 0; driver_path[i] != '\0'; i++) {
        if (driver_path[i] == '/' || driver_path[i] == '\\') {
            folder = i + 1;
        }
    }
    (void)snprintf(path, sizeof(path), "%.*s%s", (int)folder, driver_path, os_emulated_nvml_name);
    return os_library_open_path(path, out_library);
}

static void find_symbols(os_library *from, nvml *into) {
    void *symbol;
    /* ISO C has no cast from an object pointer to a function pointer; POSIX and Windows have the same
     * representation for both. */
#define NVML_FIND(name, suffix, result, parameters)                                                \
    symbol = os_library_symbol(from, #name #suffix);                                               \
    memcpy(&into->name, &symbol, sizeof(symbol));
    NVML_API_LIST(NVML_FIND)
#undef NVML_FIND
}

/* Loads and starts it without the lock: a library's constructors may fork, and fork waits for the lock.
 * False when there is none. A start is counted by NVML, so one too many does no harm. */
static bool start(const driver *drv, slot *out_slot) {
    os_library *library;
    nvml found;
    gpuipc_status status = drv->is_emulated ? open_emulated(drv, &library)
                                            : os_library_open_system(os_nvml_name, &library);
    if (status != GPUIPC_OK) {
        return false;
    }
    find_symbols(library, &found);
    if (found.nvmlInit == NULL || found.nvmlDeviceGetHandleByUUID == NULL ||
        found.nvmlInit() != NVML_SUCCESS) {
        os_library_close(library);
        return false;
    }
    out_slot->library = found;
    out_slot->loaded = library;
    return true;
}

const nvml *nvml_find(const driver *drv) {
    slot *const mine = &all.slots[drv->is_emulated ? 1 : 0];
    slot made = {.is_settled = true};
    os_static_mutex_lock(&all.mutex);
    bool is_settled = mine->is_settled;
    os_static_mutex_unlock(&all.mutex);
    if (!is_settled) {
        gpuipc_error saved = status_save();
        made.is_there = start(drv, &made);
        status_restore(&saved); /* its absence is no failure */
        os_static_mutex_lock(&all.mutex);
        if (!mine->is_settled) {
            *mine = made;
            made.is_there = false;
        }
        os_static_mutex_unlock(&all.mutex);
        if (made.is_there) {
            os_library_close(made.loaded); /* another thread was faster, and holds it */
        }
    }
    return mine->is_there ? &mine->library : NULL;
}

/* nvml.h: "GPU-" or "MIG-" and a UUID as text, in lower case. */
bool nvml_device(const nvml *self, const gpuipc_device_info *info, nvmlDevice_t *out_device) {
    const uint8_t *b = info->uuid.bytes;
    char text[64];
    (void)snprintf(text, sizeof(text),
                   "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                   info->is_mig ? "MIG" : "GPU", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7],
                   b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    return self->nvmlDeviceGetHandleByUUID(text, out_device) == NVML_SUCCESS;
}

/* Measured on an H200, driver 580: links of generation 4 say NVML_NVLINK_VERSION_4_0. */
static unsigned generation_of(unsigned version) {
    switch (version) {
    case NVML_NVLINK_VERSION_1_0:
        return 1;
    case NVML_NVLINK_VERSION_2_0:
    case NVML_NVLINK_VERSION_2_2:
        return 2;
    case NVML_NVLINK_VERSION_3_0:
    case NVML_NVLINK_VERSION_3_1:
        return 3;
    case NVML_NVLINK_VERSION_4_0:
        return 4;
    case NVML_NVLINK_VERSION_5_0:
        return 5;
    default:
        return 0;
    }
}

/* A switch has no place ("FFFFFFFF:FF:FF.0", measured on an H200, driver 580). */
static bool ends_at(const nvml *self, nvmlDevice_t device, unsigned link, const nvml_place *other) {
    nvmlPciInfo_t pci;
    memset(&pci, 0, sizeof(pci));
    return self->nvmlDeviceGetNvLinkRemotePciInfo != NULL &&
           self->nvmlDeviceGetNvLinkRemotePciInfo(device, link, &pci) == NVML_SUCCESS &&
           pci.domain == other->domain && pci.bus == other->bus && pci.device == other->slot;
}

nvml_links nvml_count_links(const nvml *self, nvmlDevice_t device, const nvml_place *other) {
    nvml_links links = {0, 0, 0};
    if (self->nvmlDeviceGetNvLinkState == NULL) {
        return links;
    }
    for (unsigned link = 0; link < NVML_NVLINK_MAX_LINKS; link++) {
        nvmlEnableState_t active = NVML_FEATURE_DISABLED;
        unsigned version = NVML_NVLINK_VERSION_INVALID;
        if (self->nvmlDeviceGetNvLinkState(device, link, &active) != NVML_SUCCESS ||
            active != NVML_FEATURE_ENABLED) {
            continue;
        }
        links.active++;
        links.direct += ends_at(self, device, link, other) ? 1 : 0;
        if (self->nvmlDeviceGetNvLinkVersion != NULL &&
            self->nvmlDeviceGetNvLinkVersion(device, link, &version) == NVML_SUCCESS) {
            links.generation = generation_of(version);
        }
    }
    return links;
}

int nvml_has_nvlink(const nvml *self, nvmlDevice_t first, nvmlDevice_t second) {
    nvmlGpuP2PStatus_t status = NVML_P2P_STATUS_UNKNOWN;
    if (self->nvmlDeviceGetP2PStatus == NULL ||
        self->nvmlDeviceGetP2PStatus(first, second, NVML_P2P_CAPS_INDEX_NVLINK, &status) !=
            NVML_SUCCESS ||
        status == NVML_P2P_STATUS_UNKNOWN) {
        return -1;
    }
    return status == NVML_P2P_STATUS_OK ? 1 : 0;
}

/* The highest generation of device and slot: an idle link is run at a lower one. */
bool nvml_pcie(const nvml *self, nvmlDevice_t device, unsigned *out_generation,
               unsigned *out_width) {
    unsigned generation = 0;
    unsigned width = 0;
    if (self->nvmlDeviceGetMaxPcieLinkGeneration == NULL ||
        self->nvmlDeviceGetCurrPcieLinkWidth == NULL ||
        self->nvmlDeviceGetMaxPcieLinkGeneration(device, &generation) != NVML_SUCCESS ||
        self->nvmlDeviceGetCurrPcieLinkWidth(device, &width) != NVML_SUCCESS || generation == 0 ||
        width == 0) {
        return false;
    }
    *out_generation = generation;
    *out_width = width;
    return true;
}

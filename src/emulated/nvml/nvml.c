/* SPDX-License-Identifier: MIT */
/**
 * @file NVML (NVIDIA Management Library) for the emulated machine: as much of it as nvml_api.h lists, a
 * library of its own. It reads GPUIPC_EMULATED_MACHINE when it is initialised, and knows all GPUs of
 * the machine, whatever CUDA_VISIBLE_DEVICES says.
 */
#include <stdio.h>
#include <string.h>

#include "../machine.h"
#include "base/compiler.h"
#include "os.h"
#include "query/nvml_api.h"

#define NVML_DECLARE(name, suffix, result, parameters)                                             \
    GPUIPC_EXPORTED result name##suffix parameters;
NVML_API_LIST(NVML_DECLARE)
#undef NVML_DECLARE

/* Device and vendor of an H200. */
#define GPU_ID 0x233510deu
/* The largest index of nvmlDeviceGetP2PStatus: NVML_P2P_CAPS_INDEX_UNKNOWN. */
#define P2P_INDEX_MAX 5

struct nvmlDevice_st {
    unsigned number;  /* in the machine */
    bool is_instance; /* of MIG, not the GPU */
};

/* Which are in use is for the machine to say; a handle is the address of one of them. */
static struct nvmlDevice_st gpus[MACHINE_DEVICES_MAX];
static struct nvmlDevice_st instances[MACHINE_DEVICES_MAX];

static os_static_mutex mutex;
static unsigned init_count;
static machine computer;

/* The mutex is held. */
static nvmlReturn_t start(void) {
    char complaint[600];
    if (!machine_parse(os_environment("GPUIPC_EMULATED_MACHINE"), &computer, complaint,
                       sizeof(complaint))) {
        fprintf(stderr, "gpuipc emulated NVML: GPUIPC_EMULATED_MACHINE: %s\n", complaint);
        return NVML_ERROR_UNKNOWN;
    }
    if (!computer.has_nvml) {
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    for (unsigned i = 0; i < MACHINE_DEVICES_MAX; i++) {
        gpus[i] = (struct nvmlDevice_st){i, false};
        instances[i] = (struct nvmlDevice_st){i, true};
    }
    return NVML_SUCCESS;
}

/* Opens a call that needs nvmlInit; on success the mutex is held. */
static nvmlReturn_t enter(void) {
    os_static_mutex_lock(&mutex);
    if (init_count > 0) {
        return NVML_SUCCESS;
    }
    os_static_mutex_unlock(&mutex);
    return NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn_t leave(nvmlReturn_t result) {
    os_static_mutex_unlock(&mutex);
    return result;
}

/* A GPU behind a handle: what is asked of links is nothing that an instance has. */
static nvmlReturn_t find(nvmlDevice_t device, unsigned *out_number) {
    for (unsigned i = 0; i < computer.devices; i++) {
        if (device == &gpus[i]) {
            *out_number = i;
            return NVML_SUCCESS;
        }
        if (device == &instances[i]) {
            return NVML_ERROR_NOT_SUPPORTED;
        }
    }
    return NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t find_two(nvmlDevice_t first, nvmlDevice_t second, unsigned out_numbers[2]) {
    const nvmlReturn_t result = find(first, &out_numbers[0]);
    return result == NVML_SUCCESS ? find(second, &out_numbers[1]) : result;
}

static bool is_named(unsigned number, bool instance, const char *uuid) {
    uint8_t bytes[16];
    char text[MACHINE_UUID_TEXT_SIZE];
    machine_uuid(&computer, number, !instance, bytes);
    machine_uuid_text(bytes, text);
    return strncmp(uuid, instance ? "MIG-" : "GPU-", 4) == 0 && strcmp(uuid + 4, text) == 0;
}

static nvmlReturn_t find_uuid(const char *uuid, nvmlDevice_t *out) {
    if (uuid == NULL || out == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (unsigned i = 0; i < computer.devices; i++) {
        if (is_named(i, false, uuid)) {
            *out = &gpus[i];
            return NVML_SUCCESS;
        }
        if (computer.is_mig && is_named(i, true, uuid)) {
            *out = &instances[i];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

static bool are_peers(unsigned first, unsigned second) {
    return first != second && (computer.p2p[first] >> second & 1) != 0;
}

/* How many devices a GPU of a list of pairs is joined with; *out_peer is the one at @p position. */
static unsigned count_peers(unsigned number, unsigned position, unsigned *out_peer) {
    unsigned count = 0;
    for (unsigned i = 0; i < computer.devices; i++) {
        if (are_peers(number, i)) {
            if (count == position) {
                *out_peer = i;
            }
            count++;
        }
    }
    return count;
}

/* Whether anything is at the other end of a GPU's links. */
static bool is_linked(unsigned number) {
    unsigned peer;
    return count_peers(number, 0, &peer) > 0;
}

/* A GPU that has this link. */
static nvmlReturn_t find_link(nvmlDevice_t device, unsigned link, unsigned *out_number) {
    const nvmlReturn_t result = find(device, out_number);
    if (result != NVML_SUCCESS) {
        return result;
    }
    /* Measured: one H200 alone in a virtual machine has none. */
    if (computer.link != MACHINE_LINK_NVLINK || computer.link_count == 0 || computer.devices == 1) {
        return link < NVML_NVLINK_MAX_LINKS ? NVML_ERROR_NOT_SUPPORTED
                                            : NVML_ERROR_INVALID_ARGUMENT;
    }
    return link < computer.link_count ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t link_state(nvmlDevice_t device, unsigned link, nvmlEnableState_t *out) {
    unsigned number;
    const nvmlReturn_t result = find_link(device, link, &number);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (out == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *out = is_linked(number) ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

static nvmlReturn_t link_version(nvmlDevice_t device, unsigned link, unsigned *out) {
    static const nvmlNvlinkVersion_t versions[] = {
        NVML_NVLINK_VERSION_INVALID, NVML_NVLINK_VERSION_1_0, NVML_NVLINK_VERSION_2_0,
        NVML_NVLINK_VERSION_3_1,     NVML_NVLINK_VERSION_4_0, NVML_NVLINK_VERSION_5_0};
    unsigned number;
    const nvmlReturn_t result = find_link(device, link, &number);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (out == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *out = versions[computer.link_version];
    return NVML_SUCCESS;
}

/* The other end: a switch, of which no address is told (measured), where every GPU reaches every other;
 * else the GPUs of the pairs in turn. */
static nvmlReturn_t link_remote(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *out) {
    unsigned number;
    unsigned peer = 0;
    const nvmlReturn_t result = find_link(device, link, &number);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (out == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (!is_linked(number)) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    nvmlPciInfo_t pci = {.domain = 0xffffffffu, .bus = 0xff, .device = 0xff};
    if (computer.has_p2p_list) {
        count_peers(number, link % count_peers(number, 0, &peer), &peer);
        pci.domain = 0;
        pci.bus = MACHINE_BUS_FIRST + peer;
        pci.device = 0;
        pci.pciDeviceId = GPU_ID;
    }
    snprintf(pci.busIdLegacy, sizeof(pci.busIdLegacy), "%04X:%02X:%02X.0", pci.domain & 0xffff,
             pci.bus & 0xff, pci.device & 0xff);
    snprintf(pci.busId, sizeof(pci.busId), "%08X:%02X:%02X.0", pci.domain, pci.bus, pci.device);
    *out = pci;
    return NVML_SUCCESS;
}

/* Something that all GPUs have alike. */
static nvmlReturn_t get_same(nvmlDevice_t device, unsigned value, unsigned *out) {
    unsigned number;
    const nvmlReturn_t result = find(device, &number);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (out == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *out = value;
    return NVML_SUCCESS;
}

/* nvml.h: not supported "if the platform is not windows". Measured on an H100, driver 580, as is the code that comes
 * before it. */
static nvmlReturn_t driver_model(nvmlDevice_t device, nvmlDriverModel_t *current,
                                 nvmlDriverModel_t *pending) {
    static const nvmlDriverModel_t models[] = {[MACHINE_MODEL_WDDM] = NVML_DRIVER_WDDM,
                                               [MACHINE_MODEL_TCC] = NVML_DRIVER_WDM,
                                               [MACHINE_MODEL_MCDM] = NVML_DRIVER_MCDM};
    unsigned number;
    const nvmlReturn_t result = find(device, &number);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (current == NULL && pending == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (computer.model == MACHINE_MODEL_NONE) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    if (current != NULL) {
        *current = models[computer.model];
    }
    if (pending != NULL) {
        *pending = models[computer.model];
    }
    return NVML_SUCCESS;
}

/* nvml.h: "Supported on Linux only". A GPU and itself have none (measured). */
static nvmlReturn_t ancestor(nvmlDevice_t first, nvmlDevice_t second, nvmlGpuTopologyLevel_t *out) {
    unsigned numbers[2];
    const nvmlReturn_t result = find_two(first, second, numbers);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (out == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (computer.model != MACHINE_MODEL_NONE || computer.is_wsl || numbers[0] == numbers[1]) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *out = NVML_TOPOLOGY_HOSTBRIDGE;
    return NVML_SUCCESS;
}

/* Of two GPUs that reach each other. Measured with NVLink: PCI is not supported. */
static bool has_way(nvmlGpuP2PCapsIndex_t index) {
    const bool linked = computer.link == MACHINE_LINK_NVLINK && computer.link_count > 0;
    switch (index) {
    case NVML_P2P_CAPS_INDEX_NVLINK:
    case NVML_P2P_CAPS_INDEX_ATOMICS:
        return linked;
    case NVML_P2P_CAPS_INDEX_PCI:
        return !linked;
    default:
        return true;
    }
}

static nvmlReturn_t p2p_status(nvmlDevice_t first, nvmlDevice_t second, nvmlGpuP2PCapsIndex_t index,
                               nvmlGpuP2PStatus_t *out) {
    unsigned numbers[2];
    const nvmlReturn_t result = find_two(first, second, numbers);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (out == NULL || (int)index < 0 || (int)index > P2P_INDEX_MAX) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (are_peers(numbers[0], numbers[1])) {
        *out = has_way(index) ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    } else {
        *out = numbers[0] == numbers[1] ? NVML_P2P_STATUS_NOT_SUPPORTED
                                        : NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
}

GPUIPC_EXPORTED nvmlReturn_t nvmlInit_v2(void) {
    os_static_mutex_lock(&mutex);
    const nvmlReturn_t result = init_count == 0 ? start() : NVML_SUCCESS;
    if (result == NVML_SUCCESS) {
        init_count++; /* nvml.h: counted, and shut down as often */
    }
    return leave(result);
}

GPUIPC_EXPORTED nvmlReturn_t nvmlShutdown(void) {
    const nvmlReturn_t refused = enter();
    if (refused != NVML_SUCCESS) {
        return refused;
    }
    init_count--;
    return leave(NVML_SUCCESS);
}

GPUIPC_EXPORTED const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
    case NVML_SUCCESS:
        return "success";
    case NVML_ERROR_UNINITIALIZED:
        return "uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "invalid argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "not supported";
    case NVML_ERROR_NOT_FOUND:
        return "not found";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "driver not loaded";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "insufficient size";
    default:
        return "unknown error";
    }
}

GPUIPC_EXPORTED nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    static const char text[] = "emulated";
    const nvmlReturn_t refused = enter();
    if (refused != NVML_SUCCESS) {
        return refused;
    }
    if (version == NULL) {
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    }
    if (length < sizeof(text)) {
        return leave(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    memcpy(version, text, sizeof(text));
    return leave(NVML_SUCCESS);
}

GPUIPC_EXPORTED nvmlReturn_t nvmlDeviceGetDriverModel_v2(nvmlDevice_t device,
                                                         nvmlDriverModel_t *current,
                                                         nvmlDriverModel_t *pending) {
    const nvmlReturn_t refused = enter();
    return refused != NVML_SUCCESS ? refused : leave(driver_model(device, current, pending));
}

GPUIPC_EXPORTED nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    const nvmlReturn_t refused = enter();
    if (refused != NVML_SUCCESS) {
        return refused;
    }
    if (count == NULL) {
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    }
    *count = computer.devices; /* nvml.h: GPUs, not their MIG slices */
    return leave(NVML_SUCCESS);
}

GPUIPC_EXPORTED nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    const nvmlReturn_t refused = enter();
    return refused != NVML_SUCCESS ? refused : leave(find_uuid(uuid, device));
}

GPUIPC_EXPORTED nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                                      nvmlEnableState_t *active) {
    const nvmlReturn_t refused = enter();
    return refused != NVML_SUCCESS ? refused : leave(link_state(device, link, active));
}

GPUIPC_EXPORTED nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link,
                                                        unsigned int *version) {
    const nvmlReturn_t refused = enter();
    return refused != NVML_SUCCESS ? refused : leave(link_version(device, link, version));
}

GPUIPC_EXPORTED nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device,
                                                                 unsigned int link,
                                                                 nvmlPciInfo_t *pci) {
    const nvmlReturn_t refused = enter();
    return refused != NVML_SUCCESS ? refused : leave(link_remote(device, link, pci));
}

GPUIPC_EXPORTED nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device,
                                                                unsigned int *generation) {
    const nvmlReturn_t refused = enter();
    return refused != NVML_SUCCESS ? refused
                                   : leave(get_same(device, computer.pcie_generation, generation));
}

GPUIPC_EXPORTED nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device,
                                                           unsigned int *width) {
    const nvmlReturn_t refused = enter();
    return refused != NVML_SUCCESS ? refused : leave(get_same(device, computer.pcie_width, width));
}

GPUIPC_EXPORTED nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device,
                                                                 unsigned int *generation) {
    const nvmlReturn_t refused = enter();
    return refused != NVML_SUCCESS ? refused
                                   : leave(get_same(device, computer.pcie_generation, generation));
}

GPUIPC_EXPORTED nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device,
                                                            unsigned int *width) {
    const nvmlReturn_t refused = enter();
    return refused != NVML_SUCCESS ? refused : leave(get_same(device, computer.pcie_width, width));
}

GPUIPC_EXPORTED nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t first,
                                                                 nvmlDevice_t second,
                                                                 nvmlGpuTopologyLevel_t *level) {
    const nvmlReturn_t refused = enter();
    return refused != NVML_SUCCESS ? refused : leave(ancestor(first, second, level));
}

GPUIPC_EXPORTED nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t first, nvmlDevice_t second,
                                                    nvmlGpuP2PCapsIndex_t index,
                                                    nvmlGpuP2PStatus_t *status) {
    const nvmlReturn_t refused = enter();
    return refused != NVML_SUCCESS ? refused : leave(p2p_status(first, second, index, status));
}

/* SPDX-License-Identifier: MIT */
/** @file The emulated NVML: it describes the same machine as the emulated driver. */
#include <stdio.h>
#include <string.h>

#include "emulated_test.h"
#include "machine.h"
#include "query/nvml_api.h"

TestSuite(emulated_nvml, .timeout = 60);

#define MEMBER(name, suffix, result, parameters) result(*name) parameters;
static struct { NVML_API_LIST(MEMBER) } nvml;
#undef MEMBER

static machine computer;

/* Loads the library for this machine, without nvmlInit. */
static void load(const char *description) {
    static os_library *library;
    char complaint[600];
    environment_set("GPUIPC_EMULATED_MACHINE", description);
    cr_assert(machine_parse(description, &computer, complaint, sizeof(complaint)), "%s", complaint);
    if (library == NULL) {
        check_ok(os_library_open_own(NVML_FILE, &library));
    }
#define FIND(name, suffix, result, parameters) emulated_symbol(library, #name #suffix, &nvml.name);
    NVML_API_LIST(FIND)
#undef FIND
}

#define check_nvml(expected, call)                                                                 \
    do {                                                                                           \
        const nvmlReturn_t nvml_got = (call);                                                      \
        cr_assert_eq(nvml_got, (expected), "%s answered %d, not %d", #call, (int)nvml_got,         \
                     (int)(expected));                                                             \
    } while (0)

static void start(const char *description) {
    load(description);
    check_nvml(NVML_SUCCESS, nvml.nvmlInit());
}

static nvmlReturn_t find(unsigned number, bool whole_gpu, nvmlDevice_t *out) {
    uint8_t uuid[16];
    char text[MACHINE_UUID_TEXT_SIZE];
    char name[48];
    machine_uuid(&computer, number, whole_gpu, uuid);
    machine_uuid_text(uuid, text);
    snprintf(name, sizeof(name), "%s%s", whole_gpu ? "GPU-" : "MIG-", text);
    return nvml.nvmlDeviceGetHandleByUUID(name, out);
}

static nvmlDevice_t gpu(unsigned number) {
    nvmlDevice_t device = NULL;
    check_nvml(NVML_SUCCESS, find(number, true, &device));
    return device;
}

Test(emulated_nvml, must_be_initialised) {
    nvmlDevice_t device = NULL;
    load(NULL);
    check_nvml(NVML_ERROR_UNINITIALIZED, nvml.nvmlShutdown());
    check_nvml(NVML_ERROR_UNINITIALIZED, find(0, true, &device));
    check_nvml(NVML_SUCCESS, nvml.nvmlInit());
    check_nvml(NVML_SUCCESS, nvml.nvmlInit());
    check_nvml(NVML_SUCCESS, nvml.nvmlShutdown());
    check_nvml(NVML_SUCCESS, find(0, true, &device));
    check_nvml(NVML_SUCCESS, nvml.nvmlShutdown());
    check_nvml(NVML_ERROR_UNINITIALIZED, find(0, true, &device));
    check_nvml(NVML_ERROR_UNINITIALIZED, nvml.nvmlShutdown());
}

Test(emulated_nvml, counts_gpus_whatever_is_visible) {
    unsigned count = 0;
    environment_set("CUDA_VISIBLE_DEVICES", "1");
    load("devices=3");
    check_nvml(NVML_ERROR_UNINITIALIZED, nvml.nvmlDeviceGetCount(&count));
    check_nvml(NVML_SUCCESS, nvml.nvmlInit());
    check_nvml(NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetCount(NULL));
    check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetCount(&count));
    cr_assert_eq(count, 3);
}

Test(emulated_nvml, may_have_no_driver) {
    load("nvml=0");
    check_nvml(NVML_ERROR_DRIVER_NOT_LOADED, nvml.nvmlInit());
    check_nvml(NVML_ERROR_UNINITIALIZED, nvml.nvmlShutdown());
}

Test(emulated_nvml, refuses_a_malformed_machine) {
    load(NULL);
    environment_set("GPUIPC_EMULATED_MACHINE", "devices=many");
    check_nvml(NVML_ERROR_UNKNOWN, nvml.nvmlInit());
    environment_set("GPUIPC_EMULATED_MACHINE", "devices=1");
    check_nvml(NVML_SUCCESS, nvml.nvmlInit());
}

Test(emulated_nvml, has_words_for_results) {
    load(NULL);
    cr_assert_str_eq(nvml.nvmlErrorString(NVML_SUCCESS), "success");
    cr_assert_str_eq(nvml.nvmlErrorString(NVML_ERROR_NOT_FOUND), "not found");
    cr_assert_str_eq(nvml.nvmlErrorString((nvmlReturn_t)4711), "unknown error");
}

Test(emulated_nvml, finds_devices_by_the_uuid_of_cuda) {
    CUuuid uuid;
    uint8_t expected[16];
    nvmlDevice_t device = NULL;
    emulated_start(NULL);
    start(NULL);
    check_success(drv.cuDeviceGetUuid(&uuid, 1));
    machine_uuid(&computer, 1, true, expected);
    cr_assert_eq(memcmp(uuid.bytes, expected, 16), 0);
    const nvmlDevice_t first = gpu(0);
    cr_assert_neq(gpu(1), first);
    cr_assert_eq(gpu(0), first);
    check_nvml(NVML_ERROR_NOT_FOUND, find(2, true, &device));
    check_nvml(NVML_ERROR_NOT_FOUND, find(0, false, &device));
    check_nvml(NVML_ERROR_NOT_FOUND, nvml.nvmlDeviceGetHandleByUUID("GPU-", &device));
    check_nvml(NVML_ERROR_NOT_FOUND, nvml.nvmlDeviceGetHandleByUUID("", &device));
    check_nvml(NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetHandleByUUID(NULL, &device));
    check_nvml(NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetHandleByUUID("GPU-", NULL));
    cr_assert_null(device);
}

Test(emulated_nvml, tells_of_links) {
    nvmlEnableState_t state = NVML_FEATURE_DISABLED;
    unsigned version = 0;
    nvmlPciInfo_t pci;
    start("links=4;link-version=3");
    for (unsigned link = 0; link < 4; link++) {
        check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetNvLinkState(gpu(0), link, &state));
        cr_assert_eq(state, NVML_FEATURE_ENABLED);
        check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetNvLinkVersion(gpu(0), link, &version));
        cr_assert_eq(version, NVML_NVLINK_VERSION_3_1);
        check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu(0), link, &pci));
        cr_assert_str_eq(pci.busId, "FFFFFFFF:FF:FF.0", "a switch");
    }
    check_nvml(NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetNvLinkState(gpu(0), 4, &state));
    check_nvml(NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetNvLinkState(gpu(0), 18, &state));
    check_nvml(NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetNvLinkState(gpu(0), 0, NULL));
    check_nvml(NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetNvLinkState(NULL, 0, &state));
    check_nvml(NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetNvLinkVersion(gpu(0), 0, NULL));
    check_nvml(NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu(0), 0, NULL));
}

Test(emulated_nvml, tells_generations_of_links) {
    static const struct {
        const char *machine;
        unsigned version;
    } rows[] = {{"link-version=1", NVML_NVLINK_VERSION_1_0},
                {"link-version=2", NVML_NVLINK_VERSION_2_0},
                {"", NVML_NVLINK_VERSION_4_0},
                {"link-version=5", NVML_NVLINK_VERSION_5_0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned version = 0;
        start(rows[i].machine);
        check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetNvLinkVersion(gpu(0), 0, &version));
        cr_assert_eq(version, rows[i].version, "%s: %u", rows[i].machine, version);
        check_nvml(NVML_SUCCESS, nvml.nvmlShutdown());
    }
}

Test(emulated_nvml, links_of_pairs_lead_to_the_other_gpu) {
    nvmlPciInfo_t pci;
    nvmlEnableState_t state = NVML_FEATURE_ENABLED;
    unsigned to_third = 0;
    start("devices=4;p2p=0-1,1-2");
    for (unsigned link = 0; link < 18; link++) {
        check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu(0), link, &pci));
        cr_assert_eq(pci.bus, 0x11);
        cr_assert_str_eq(pci.busIdLegacy, "0000:11:00.0");
        cr_assert_str_eq(pci.busId, "00000000:11:00.0");
        check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu(1), link, &pci));
        to_third += pci.bus == 0x12;
    }
    cr_assert_eq(to_third, 9, "half of them lead to either");
    check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetNvLinkState(gpu(3), 0, &state));
    cr_assert_eq(state, NVML_FEATURE_DISABLED);
    check_nvml(NVML_ERROR_NOT_SUPPORTED, nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu(3), 0, &pci));
}

Test(emulated_nvml, without_nvlink) {
    static const char *const machines[] = {"link=pcie;pcie-gen=4;pcie-width=8",
                                           "links=0;pcie-gen=4;pcie-width=8"};
    for (size_t i = 0; i < 2; i++) {
        nvmlEnableState_t state = NVML_FEATURE_DISABLED;
        unsigned value = 0;
        start(machines[i]);
        check_nvml(NVML_ERROR_NOT_SUPPORTED, nvml.nvmlDeviceGetNvLinkState(gpu(1), 0, &state));
        check_nvml(NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetNvLinkState(gpu(1), 18, &state));
        check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu(1), &value));
        cr_assert_eq(value, 4);
        check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu(1), &value));
        cr_assert_eq(value, 4);
        check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu(1), &value));
        cr_assert_eq(value, 8);
        check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu(1), &value));
        cr_assert_eq(value, 8);
        check_nvml(NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu(1), NULL));
        check_nvml(NVML_SUCCESS, nvml.nvmlShutdown());
    }
}

static nvmlGpuP2PStatus_t status_of(unsigned first, unsigned second, nvmlGpuP2PCapsIndex_t index) {
    nvmlGpuP2PStatus_t status = NVML_P2P_STATUS_UNKNOWN;
    check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetP2PStatus(gpu(first), gpu(second), index, &status));
    return status;
}

Test(emulated_nvml, tells_of_peer_access) {
    nvmlGpuP2PStatus_t status;
    start("devices=3;p2p=0-1");
    for (unsigned i = NVML_P2P_CAPS_INDEX_READ; i <= NVML_P2P_CAPS_INDEX_PCI; i++) {
        cr_assert_eq(status_of(0, 1, (nvmlGpuP2PCapsIndex_t)i), i == NVML_P2P_CAPS_INDEX_PCI
                                                                    ? NVML_P2P_STATUS_NOT_SUPPORTED
                                                                    : NVML_P2P_STATUS_OK);
        cr_assert_neq(status_of(0, 2, (nvmlGpuP2PCapsIndex_t)i), NVML_P2P_STATUS_OK);
    }
    cr_assert_eq(status_of(0, 0, NVML_P2P_CAPS_INDEX_READ), NVML_P2P_STATUS_NOT_SUPPORTED);
    check_nvml(NVML_ERROR_INVALID_ARGUMENT,
               nvml.nvmlDeviceGetP2PStatus(gpu(0), gpu(1), (nvmlGpuP2PCapsIndex_t)6, &status));
    check_nvml(NVML_ERROR_INVALID_ARGUMENT,
               nvml.nvmlDeviceGetP2PStatus(gpu(0), NULL, NVML_P2P_CAPS_INDEX_READ, &status));
    check_nvml(NVML_SUCCESS, nvml.nvmlShutdown());
    start("link=pcie");
    cr_assert_eq(status_of(0, 1, NVML_P2P_CAPS_INDEX_READ), NVML_P2P_STATUS_OK);
    cr_assert_eq(status_of(0, 1, NVML_P2P_CAPS_INDEX_PCI), NVML_P2P_STATUS_OK);
    cr_assert_eq(status_of(0, 1, NVML_P2P_CAPS_INDEX_ATOMICS), NVML_P2P_STATUS_NOT_SUPPORTED);
    cr_assert_eq(status_of(0, 1, NVML_P2P_CAPS_INDEX_NVLINK), NVML_P2P_STATUS_NOT_SUPPORTED);
}

Test(emulated_nvml, knows_the_topology_on_linux) {
    nvmlGpuTopologyLevel_t level = NVML_TOPOLOGY_SYSTEM;
    start("driver-model=none");
    check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetTopologyCommonAncestor(gpu(0), gpu(1), &level));
    cr_assert_eq(level, NVML_TOPOLOGY_HOSTBRIDGE);
    check_nvml(NVML_ERROR_NOT_SUPPORTED,
               nvml.nvmlDeviceGetTopologyCommonAncestor(gpu(1), gpu(1), &level));
    check_nvml(NVML_ERROR_INVALID_ARGUMENT,
               nvml.nvmlDeviceGetTopologyCommonAncestor(gpu(0), gpu(1), NULL));
    check_nvml(NVML_SUCCESS, nvml.nvmlShutdown());
    start("driver-model=wddm");
    check_nvml(NVML_ERROR_NOT_SUPPORTED,
               nvml.nvmlDeviceGetTopologyCommonAncestor(gpu(0), gpu(1), &level));
}

Test(emulated_nvml, tells_the_driver_model) {
    static const struct {
        const char *machine;
        nvmlDriverModel_t model;
    } rows[] = {{"driver-model=wddm", NVML_DRIVER_WDDM},
                {"driver-model=tcc", NVML_DRIVER_WDM},
                {"driver-model=mcdm", NVML_DRIVER_MCDM}};
    nvmlDriverModel_t current = NVML_DRIVER_WDDM;
    nvmlDriverModel_t pending = NVML_DRIVER_WDDM;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        start(rows[i].machine);
        check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetDriverModel(gpu(0), &current, &pending));
        cr_assert_eq(current, rows[i].model, "%s", rows[i].machine);
        cr_assert_eq(pending, rows[i].model, "%s", rows[i].machine);
        check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetDriverModel(gpu(0), &current, NULL));
        check_nvml(NVML_SUCCESS, nvml.nvmlShutdown());
    }
    start("driver-model=none");
    check_nvml(NVML_ERROR_NOT_SUPPORTED, nvml.nvmlDeviceGetDriverModel(gpu(0), &current, NULL));
    check_nvml(NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetDriverModel(gpu(0), NULL, NULL));
    check_nvml(NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetDriverModel(NULL, &current, NULL));
}

Test(emulated_nvml, tells_the_driver_s_version) {
    char text[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE] = "";
    load(NULL);
    check_nvml(NVML_ERROR_UNINITIALIZED, nvml.nvmlSystemGetDriverVersion(text, sizeof(text)));
    check_nvml(NVML_SUCCESS, nvml.nvmlInit());
    check_nvml(NVML_SUCCESS, nvml.nvmlSystemGetDriverVersion(text, sizeof(text)));
    cr_assert_str_eq(text, "emulated");
    check_nvml(NVML_ERROR_INSUFFICIENT_SIZE, nvml.nvmlSystemGetDriverVersion(text, 8));
    check_nvml(NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlSystemGetDriverVersion(NULL, sizeof(text)));
}

Test(emulated_nvml, a_gpu_alone_has_no_links) {
    nvmlEnableState_t state = NVML_FEATURE_DISABLED;
    start("devices=1");
    check_nvml(NVML_ERROR_NOT_SUPPORTED, nvml.nvmlDeviceGetNvLinkState(gpu(0), 0, &state));
}

Test(emulated_nvml, has_no_links_for_mig_instances) {
    nvmlDevice_t instance = NULL;
    nvmlEnableState_t state = NVML_FEATURE_DISABLED;
    start("mig=1");
    check_nvml(NVML_SUCCESS, find(0, false, &instance));
    check_nvml(NVML_ERROR_NOT_SUPPORTED, nvml.nvmlDeviceGetNvLinkState(instance, 0, &state));
    check_nvml(NVML_SUCCESS, nvml.nvmlDeviceGetNvLinkState(gpu(0), 0, &state));
}

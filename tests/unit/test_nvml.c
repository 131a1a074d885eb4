/* SPDX-License-Identifier: MIT */
/** @file NVML: found beside the driver it belongs to, and not missed. */
#include <string.h>

#include "base/status.h"
#include "query/nvml_library.h"
#include "transport_machine.h"

TestSuite(nvml, .fini = core_finish, .timeout = 60);

/* An installed NVML opens descriptors at its start, and more at its first questions, and keeps them as long as
 * the process: they are there before the gate looks. */
static void start_behind_the_installed_one(void) {
    const driver not_emulated = {.is_emulated = false};
    const gpuipc_device_info nobody = {.struct_size = sizeof(nobody)};
    const nvml *installed = nvml_find(&not_emulated);
    nvmlDevice_t handle;
    if (installed != NULL) {
        cr_assert_not(nvml_device(installed, &nobody, &handle));
    }
    core_start_without_context();
}

static const driver *on_machine(const char *machine) {
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", machine);
    return core_driver();
}

static gpuipc_device_info device_of(gpuipc_context *made, uint32_t index) {
    gpuipc_device_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_device_get_info(made, index, &info));
    return info;
}

Test(nvml, it_is_found_once, .init = core_start_without_context) {
    const nvml *first = nvml_find(on_machine(""));
    cr_assert_not_null(first);
    cr_assert_eq(nvml_find(core_driver()), first);
}

Test(nvml, its_absence_is_no_failure, .init = core_start_without_context) {
    const driver *drv = on_machine("nvml=0");
    check_status(GPUIPC_ERR_TIMEOUT, status_fail(GPUIPC_ERR_TIMEOUT, "earlier"));
    cr_assert_null(nvml_find(drv));
    cr_assert_null(nvml_find(drv));
    cr_assert_eq(gpuipc_error_get()->status, GPUIPC_ERR_TIMEOUT, "the record was overwritten");
}

Test(nvml, a_real_driver_never_gets_the_emulated_one, .init = start_behind_the_installed_one) {
    driver other = *on_machine("");
    gpuipc_device_info info = device_of(core_context = core_context_new(), 0);
    nvmlDevice_t handle;
    other.is_emulated = false;
    const nvml *installed = nvml_find(&other);
    cr_assert(installed == NULL || installed != nvml_find(core_driver()));
    cr_assert(installed == NULL || !nvml_device(installed, &info, &handle));
}

Test(nvml, devices_are_known_by_their_uuid, .init = core_start_without_context) {
    const nvml *library = nvml_find(on_machine("devices=3"));
    core_context = core_context_new();
    nvmlDevice_t handles[3];
    for (uint32_t i = 0; i < 3; i++) {
        const gpuipc_device_info info = device_of(core_context, i);
        cr_assert(nvml_device(library, &info, &handles[i]));
        cr_assert(i == 0 || handles[i] != handles[i - 1]);
    }
    gpuipc_device_info unknown = device_of(core_context, 0);
    unknown.uuid.bytes[3] ^= 1;
    cr_assert_not(nvml_device(library, &unknown, &handles[0]));
}

Test(nvml, links_are_counted, .init = core_start_without_context) {
    const nvml *library = nvml_find(on_machine("links=12;link-version=3;compute=8.0"));
    core_context = core_context_new();
    const gpuipc_device_info first = device_of(core_context, 0);
    const gpuipc_device_info second = device_of(core_context, 1);
    const nvml_place nowhere = {77, 77, 77};
    nvmlDevice_t handle;
    nvmlDevice_t other;
    unsigned generation = 0;
    unsigned width = 0;
    cr_assert(nvml_device(library, &first, &handle));
    cr_assert(nvml_device(library, &second, &other));
    const nvml_links links = nvml_count_links(library, handle, &nowhere);
    cr_assert_eq(links.active, 12, "%u", links.active);
    cr_assert_eq(links.direct, 0);
    cr_assert_eq(links.generation, 3, "%u", links.generation);
    cr_assert_eq(nvml_has_nvlink(library, handle, other), 1);
    cr_assert(nvml_pcie(library, handle, &generation, &width));
    cr_assert_eq(generation, 5);
    cr_assert_eq(width, 16);
}

static nvmlReturn_t not_supported(void) {
    return NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t no_state(nvmlDevice_t device, unsigned link, nvmlEnableState_t *active) {
    (void)device;
    (void)link;
    (void)active;
    return not_supported();
}

static nvmlReturn_t no_pcie(nvmlDevice_t device, unsigned *value) {
    (void)device;
    (void)value;
    return not_supported();
}

static nvmlReturn_t no_status(nvmlDevice_t first, nvmlDevice_t second, nvmlGpuP2PCapsIndex_t index,
                              nvmlGpuP2PStatus_t *status) {
    (void)first;
    (void)second;
    (void)index;
    (void)status;
    return not_supported();
}

/* As in virtual machines, where it knows the device and nothing of its links. */
Test(nvml, one_that_does_not_tell_is_as_good_as_none, .init = core_start_without_context) {
    nvml library = *nvml_find(on_machine(""));
    core_context = core_context_new();
    const gpuipc_device_info info = device_of(core_context, 0);
    const nvml_place nowhere = {77, 77, 77};
    nvmlDevice_t handle;
    unsigned generation = 0;
    unsigned width = 0;
    cr_assert(nvml_device(&library, &info, &handle));
    library.nvmlDeviceGetNvLinkState = no_state;
    library.nvmlDeviceGetMaxPcieLinkGeneration = no_pcie;
    library.nvmlDeviceGetP2PStatus = no_status;
    cr_assert_eq(nvml_count_links(&library, handle, &nowhere).active, 0);
    cr_assert_eq(nvml_has_nvlink(&library, handle, handle), -1);
    cr_assert_not(nvml_pcie(&library, handle, &generation, &width));
    /* and an old one, which has not the functions at all */
    library.nvmlDeviceGetNvLinkState = NULL;
    library.nvmlDeviceGetMaxPcieLinkGeneration = NULL;
    library.nvmlDeviceGetP2PStatus = NULL;
    cr_assert_eq(nvml_count_links(&library, handle, &nowhere).active, 0);
    cr_assert_eq(nvml_has_nvlink(&library, handle, handle), -1);
    cr_assert_not(nvml_pcie(&library, handle, &generation, &width));
}

/* ---- an NVML that tells what the emulated one does not --------------------------------------------- */

static unsigned said_version;
static nvmlPciInfo_t said_place;
static unsigned said_generation;
static unsigned said_width;
static nvmlGpuP2PStatus_t said_status;

static nvmlReturn_t say_version(nvmlDevice_t device, unsigned link, unsigned *version) {
    (void)device;
    (void)link;
    *version = said_version;
    return NVML_SUCCESS;
}

static nvmlReturn_t say_no_version(nvmlDevice_t device, unsigned link, unsigned *version) {
    (void)device;
    (void)link;
    (void)version;
    return not_supported();
}

static nvmlReturn_t say_place(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *place) {
    (void)device;
    (void)link;
    *place = said_place;
    return NVML_SUCCESS;
}

static nvmlReturn_t say_no_place(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *place) {
    (void)device;
    (void)link;
    (void)place;
    return not_supported();
}

static nvmlReturn_t say_disabled(nvmlDevice_t device, unsigned link, nvmlEnableState_t *active) {
    (void)device;
    (void)link;
    *active = NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

static nvmlReturn_t say_generation(nvmlDevice_t device, unsigned *value) {
    (void)device;
    *value = said_generation;
    return NVML_SUCCESS;
}

static nvmlReturn_t say_width(nvmlDevice_t device, unsigned *value) {
    (void)device;
    *value = said_width;
    return NVML_SUCCESS;
}

static nvmlReturn_t say_status(nvmlDevice_t first, nvmlDevice_t second, nvmlGpuP2PCapsIndex_t index,
                               nvmlGpuP2PStatus_t *status) {
    (void)first;
    (void)second;
    (void)index;
    *status = said_status;
    return NVML_SUCCESS;
}

/* A copy of the emulated one, and a device of it. */
static nvml copy_of_library(nvmlDevice_t *out_handle) {
    const nvml library = *nvml_find(on_machine(""));
    core_context = core_context_new();
    const gpuipc_device_info info = device_of(core_context, 0);
    cr_assert(nvml_device(&library, &info, out_handle));
    return library;
}

Test(nvml, versions_of_links_are_generations, .init = core_start_without_context) {
    static const struct {
        unsigned version;
        unsigned generation;
    } rows[] = {{NVML_NVLINK_VERSION_1_0, 1},
                {NVML_NVLINK_VERSION_2_0, 2},
                {NVML_NVLINK_VERSION_2_2, 2},
                {NVML_NVLINK_VERSION_3_0, 3},
                {NVML_NVLINK_VERSION_3_1, 3},
                {NVML_NVLINK_VERSION_4_0, 4},
                {NVML_NVLINK_VERSION_5_0, 5},
                {NVML_NVLINK_VERSION_INVALID, 0},
                {4711, 0}};
    const nvml_place nowhere = {77, 77, 77};
    nvmlDevice_t handle;
    nvml library = copy_of_library(&handle);
    library.nvmlDeviceGetNvLinkVersion = say_version;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        said_version = rows[i].version;
        cr_assert_eq(nvml_count_links(&library, handle, &nowhere).generation, rows[i].generation,
                     "version %u", rows[i].version);
    }
    library.nvmlDeviceGetNvLinkVersion = say_no_version;
    cr_assert_eq(nvml_count_links(&library, handle, &nowhere).generation, 0);
    library.nvmlDeviceGetNvLinkVersion = NULL;
    cr_assert_eq(nvml_count_links(&library, handle, &nowhere).generation, 0);
    cr_assert_eq(nvml_count_links(&library, handle, &nowhere).active, 18);
}

Test(nvml, links_that_end_at_the_other_device_are_direct, .init = core_start_without_context) {
    const nvml_place other = {1, 2, 3};
    nvmlDevice_t handle;
    nvml library = copy_of_library(&handle);
    library.nvmlDeviceGetNvLinkRemotePciInfo = say_place;
    said_place = (nvmlPciInfo_t){.domain = 1, .bus = 2, .device = 3};
    cr_assert_eq(nvml_count_links(&library, handle, &other).direct, 18);
    said_place.device = 4;
    cr_assert_eq(nvml_count_links(&library, handle, &other).direct, 0);
    said_place.bus = 4;
    cr_assert_eq(nvml_count_links(&library, handle, &other).direct, 0);
    said_place.domain = 4;
    cr_assert_eq(nvml_count_links(&library, handle, &other).direct, 0);
    library.nvmlDeviceGetNvLinkRemotePciInfo = say_no_place;
    cr_assert_eq(nvml_count_links(&library, handle, &other).direct, 0);
    library.nvmlDeviceGetNvLinkRemotePciInfo = NULL;
    cr_assert_eq(nvml_count_links(&library, handle, &other).direct, 0);
    library.nvmlDeviceGetNvLinkState = say_disabled;
    cr_assert_eq(nvml_count_links(&library, handle, &other).active, 0);
}

Test(nvml, a_pcie_link_of_which_one_figure_is_missing, .init = core_start_without_context) {
    unsigned generation = 99;
    unsigned width = 99;
    nvmlDevice_t handle;
    nvml library = copy_of_library(&handle);
    library.nvmlDeviceGetMaxPcieLinkGeneration = say_generation;
    library.nvmlDeviceGetCurrPcieLinkWidth = say_width;
    said_generation = 4;
    said_width = 8;
    cr_assert(nvml_pcie(&library, handle, &generation, &width));
    cr_assert(generation == 4 && width == 8);
    said_width = 0;
    cr_assert_not(nvml_pcie(&library, handle, &generation, &width));
    said_width = 8;
    said_generation = 0;
    cr_assert_not(nvml_pcie(&library, handle, &generation, &width));
    said_generation = 4;
    library.nvmlDeviceGetCurrPcieLinkWidth = no_pcie;
    cr_assert_not(nvml_pcie(&library, handle, &generation, &width));
    library.nvmlDeviceGetCurrPcieLinkWidth = NULL;
    cr_assert_not(nvml_pcie(&library, handle, &generation, &width));
    cr_assert(generation == 4 && width == 8, "what failed has answered");
}

Test(nvml, what_is_said_of_two_devices, .init = core_start_without_context) {
    nvmlDevice_t handle;
    nvml library = copy_of_library(&handle);
    library.nvmlDeviceGetP2PStatus = say_status;
    said_status = NVML_P2P_STATUS_OK;
    cr_assert_eq(nvml_has_nvlink(&library, handle, handle), 1);
    said_status = NVML_P2P_STATUS_NOT_SUPPORTED;
    cr_assert_eq(nvml_has_nvlink(&library, handle, handle), 0);
    said_status = NVML_P2P_STATUS_UNKNOWN;
    cr_assert_eq(nvml_has_nvlink(&library, handle, handle), -1);
}

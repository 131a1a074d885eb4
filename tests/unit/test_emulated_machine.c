/* SPDX-License-Identifier: MIT */
/** @file Descriptions of machines: what is read, what is refused, and what devices come of it. */
#include <string.h>

#include "emulated_test.h"
#include "machine.h"

TestSuite(emulated_machine, .timeout = 60);

static machine parse(const char *text) {
    machine computer;
    char complaint[600] = "";
    cr_assert(machine_parse(text, &computer, complaint, sizeof(complaint)), "%s", complaint);
    return computer;
}

Test(emulated_machine, has_defaults) {
    const char *const texts[] = {NULL, ""};
    for (size_t i = 0; i < 2; i++) {
        const machine computer = parse(texts[i]);
        cr_assert_eq(computer.devices, 2);
        cr_assert_eq(computer.memory_bytes, UINT64_C(4) << 30);
        cr_assert_eq(computer.version, 13000);
        cr_assert(computer.has_vmm && computer.has_shareable_handles && !computer.is_mig);
        cr_assert(computer.has_stream_words && computer.has_nvml);
        cr_assert(!computer.has_imex && !computer.is_wsl);
        cr_assert_eq(computer.compute_mode, MACHINE_COMPUTE_DEFAULT);
        cr_assert(computer.compute_major == 9 && computer.compute_minor == 0);
        cr_assert(computer.link_count == 18 && computer.link_version == 4);
        cr_assert(computer.pcie_generation == 5 && computer.pcie_width == 16);
        cr_assert_eq(computer.p2p[0] >> 1 & 1, 1);
        cr_assert_eq(computer.stream_delay_ms, 0);
        cr_assert_eq(computer.model, os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32
                                         ? MACHINE_MODEL_WDDM
                                         : MACHINE_MODEL_NONE);
    }
}

Test(emulated_machine, reads_every_key) {
    const machine computer =
        parse("devices=5;memory=3M;p2p=0-1,4-2;link=pcie;driver-model=wddm;vmm=0;fd-handles=0;"
              "version=12020;mig=0;uuid-seed=elsewhere;stream-delay-ms=70;links=12;link-version=3;"
              "pcie-gen=4;pcie-width=8;compute=12.1;compute-mode=exclusive;stream-words=0;imex=1;"
              "nvml=0");
    cr_assert_eq(computer.devices, 5);
    cr_assert_eq(computer.memory_bytes, 3u << 20);
    cr_assert_eq(computer.p2p[0], UINT64_C(1) << 1);
    cr_assert_eq(computer.p2p[1], UINT64_C(1) << 0);
    cr_assert_eq(computer.p2p[2], UINT64_C(1) << 4);
    cr_assert_eq(computer.p2p[3], 0);
    cr_assert_eq(computer.link, MACHINE_LINK_PCIE);
    cr_assert_eq(computer.model, MACHINE_MODEL_WDDM);
    cr_assert(!computer.has_vmm && !computer.has_shareable_handles);
    cr_assert(!computer.is_mig && parse("mig=1;p2p=all").is_mig);
    cr_assert_eq(parse("mig=1;p2p=all").p2p[0], 0); /* no instance reaches another */
    cr_assert_eq(computer.version, 12020);
    cr_assert_eq(computer.stream_delay_ms, 70);
    cr_assert_str_eq(computer.uuid_seed, "elsewhere");
    cr_assert(computer.link_count == 12 && computer.link_version == 3);
    cr_assert(computer.pcie_generation == 4 && computer.pcie_width == 8);
    cr_assert(computer.compute_major == 12 && computer.compute_minor == 1);
    cr_assert_eq(computer.compute_mode, MACHINE_COMPUTE_EXCLUSIVE);
    cr_assert(!computer.has_stream_words && computer.has_imex && !computer.has_nvml);
}

Test(emulated_machine, reads_sizes) {
    cr_assert_eq(parse("memory=0").memory_bytes, 0);
    cr_assert_eq(parse("memory=4096").memory_bytes, 4096);
    cr_assert_eq(parse("memory=8K").memory_bytes, 8192);
    cr_assert_eq(parse("memory=141G").memory_bytes, UINT64_C(141) << 30);
}

Test(emulated_machine, refuses_what_is_malformed) {
    const char *const wrong[] = {
        "devices",
        "devices=",
        "devices=65",
        "devices=-1",
        "devices=2x",
        "devices= 2",
        "memory=4T",
        "memory=G",
        "memory=99999999G",
        "memory=99999999999999999999",
        "p2p=some",
        "p2p=0-",
        "p2p=0-0",
        "p2p=0-64",
        "p2p=0-1;p2p=0-1,",
        "devices=2;p2p=0-5",
        "p2p=0-5;devices=5",
        "link=usb",
        "driver-model=x",
        "vmm=2",
        "vmm=yes",
        "fd-handles=",
        "version=1",
        "version=130000",
        "mig=maybe",
        "stream-delay-ms=60001",
        "links=19",
        "links=-1",
        "link-version=0",
        "link-version=6",
        "pcie-gen=0",
        "pcie-gen=8",
        "pcie-width=33",
        "compute=9",
        "compute=9.",
        "compute=.9",
        "compute=0.1",
        "compute=9.10",
        "compute=100.0",
        "compute-mode=none",
        "compute-mode=0",
        "stream-words=2",
        "imex=yes",
        "wsl=",
        "nvml=2",
        "colour=blue",
        "=1",
        "devices=1;;memory=1G",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        machine computer;
        char complaint[600] = "";
        memset(&computer, 0x5a, sizeof(computer));
        cr_assert_not(machine_parse(wrong[i], &computer, complaint, sizeof(complaint)),
                      "'%s' was read", wrong[i]);
        cr_assert_neq(complaint[0], '\0');
        cr_assert_eq(computer.devices, 0x5a5a5a5au, "the machine was written for '%s'", wrong[i]);
    }
}

/* Whatever else is said, before it or behind it. */
Test(emulated_machine, wsl_has_neither_peers_nor_handles) {
    const char *const texts[] = {"wsl=1", "wsl=1;p2p=0-1;fd-handles=1", "p2p=all;wsl=1"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const machine computer = parse(texts[i]);
        cr_assert(computer.is_wsl && !computer.has_shareable_handles, "%s", texts[i]);
        cr_assert_eq(computer.p2p[0], 0, "%s", texts[i]);
    }
    cr_assert_not(parse("wsl=0").is_wsl);
}

Test(emulated_machine, complains_by_the_name_of_the_key) {
    machine computer;
    char complaint[600] = "";
    cr_assert_not(machine_parse("devices=1;memory=lots", &computer, complaint, sizeof(complaint)));
    cr_assert(strstr(complaint, "memory=lots") != NULL, "%s", complaint);
}

Test(emulated_machine, gives_every_device_its_uuid) {
    const machine here = parse(NULL);
    const machine there = parse("uuid-seed=there");
    uint8_t uuids[MACHINE_DEVICES_MAX][16];
    uint8_t again[16];
    for (unsigned i = 0; i < MACHINE_DEVICES_MAX; i++) {
        machine_uuid(&here, i, false, uuids[i]);
        machine_uuid(&here, i, false, again);
        cr_assert_eq(memcmp(uuids[i], again, 16), 0);
        machine_uuid(&there, i, false, again);
        cr_assert_neq(memcmp(uuids[i], again, 16), 0, "another seed, the same UUID");
        for (unsigned j = 0; j < i; j++) {
            cr_assert_neq(memcmp(uuids[i], uuids[j], 16), 0, "devices %u and %u", i, j);
        }
    }
}

Test(emulated_machine, shows_what_is_visible) {
    const struct {
        const char *list;
        unsigned count;
        unsigned devices[4];
    } cases[] = {
        {NULL, 4, {0, 1, 2, 3}}, {"", 0, {0}},           {"2", 1, {2}},
        {"3,0", 2, {3, 0}},      {" 1 , 2 ", 2, {1, 2}}, {"0,2,-1,1", 2, {0, 2}},
        {"1,4,0", 1, {1}},       {"-1", 0, {0}},         {"0,x", 1, {0}},
        {"0,0,1", 1, {0}},       {"1x", 0, {0}},         {"1,", 1, {1}},
        {"GPU-", 0, {0}},        {"GPU-zz", 0, {0}},     {"99999999999999999999", 0, {0}},
    };
    const machine computer = parse("devices=4");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        unsigned devices[MACHINE_DEVICES_MAX] = {0};
        const unsigned count = machine_visible(&computer, cases[i].list, devices);
        cr_assert_eq(count, cases[i].count, "case %zu shows %u devices", i, count);
        for (unsigned j = 0; j < count; j++) {
            cr_assert_eq(devices[j], cases[i].devices[j], "case %zu, device %u", i, j);
        }
    }
}

/* "GPU-" and the UUID as nvidia-smi writes it, cut to @p length characters. */
static void uuid_name(const machine *computer, unsigned device, size_t length, char *out) {
    static const char digits[] = "0123456789abcdef";
    char text[64] = "GPU-";
    uint8_t uuid[16];
    size_t at = 4;
    machine_uuid(computer, device, false, uuid);
    for (unsigned i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            text[at++] = '-';
        }
        text[at++] = digits[uuid[i] >> 4];
        text[at++] = digits[uuid[i] & 15];
    }
    text[at] = '\0';
    text[length < at ? length : at] = '\0';
    memcpy(out, text, strlen(text) + 1);
}

Test(emulated_machine, finds_devices_by_uuid) {
    const machine computer = parse("devices=4");
    unsigned devices[MACHINE_DEVICES_MAX];
    const size_t lengths[] = {16, 40};
    for (size_t i = 0; i < 2; i++) {
        char list[128];
        uuid_name(&computer, 2, lengths[i], list);
        strcat(list, ",1");
        cr_assert_eq(machine_visible(&computer, list, devices), 2, "%s", list);
        cr_assert(devices[0] == 2 && devices[1] == 1);
    }
}

/* What a started driver makes of it. */

Test(emulated_machine, malformed_description_fails_init) {
    check_result(CUDA_ERROR_INVALID_VALUE, emulated_init("devices=many"));
}

Test(emulated_machine, mended_description_can_be_tried_again) {
    check_result(CUDA_ERROR_INVALID_VALUE, emulated_init("devices=many"));
    check_success(emulated_init("devices=1"));
}

Test(emulated_machine, no_devices) {
    check_result(CUDA_ERROR_NO_DEVICE, emulated_init("devices=0"));
}

Test(emulated_machine, nothing_visible) {
    environment_set("CUDA_VISIBLE_DEVICES", "");
    check_result(CUDA_ERROR_NO_DEVICE, emulated_init(NULL));
}

Test(emulated_machine, devices_are_as_described) {
    int count = 0;
    size_t bytes = 0;
    int value = -1;
    char name[64] = "";
    environment_set("CUDA_VISIBLE_DEVICES", "2,1");
    emulated_start("devices=3;memory=64M;mig=1;p2p=0-1;link=pcie;version=12080");
    check_success(drv.cuDeviceGetCount(&count));
    cr_assert_eq(count, 2);
    check_success(drv.cuDeviceTotalMem(&bytes, 1));
    cr_assert_eq(bytes, 64u << 20);
    check_success(drv.cuDeviceGetName(name, sizeof(name), 0));
    cr_assert(strstr(name, " MIG 1g.18gb") != NULL, "%s", name);
    check_success(drv.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0));
    cr_assert_eq(value, 0x12, "the number in the machine decides, not the ordinal: %x", value);
    check_success(drv.cuDeviceCanAccessPeer(&value, 0, 1));
    cr_assert_eq(value, 0, "devices 2 and 1 of the machine are no peers");
    cr_assert_eq(drv.version, 12080);
}

Test(emulated_machine, mig_instance_has_a_uuid_of_its_own) {
    CUresult (*get_first)(CUuuid *, CUdevice);
    CUuuid gpu;
    CUuuid instance;
    emulated_start("mig=1");
    emulated_symbol(drv.library, "cuDeviceGetUuid", &get_first);
    check_success(get_first(&gpu, 0));
    check_success(drv.cuDeviceGetUuid(&instance, 0));
    cr_assert_neq(memcmp(&gpu, &instance, sizeof(gpu)), 0);
}

Test(emulated_machine, pcie_has_no_native_atomics) {
    int value = -1;
    emulated_start("link=pcie");
    check_success(
        drv.cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 0, 1));
    cr_assert_eq(value, 0);
    check_success(
        drv.cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    cr_assert_eq(value, 1);
}

static int attribute(CUdevice_attribute which) {
    int value = -1;
    check_success(drv.cuDeviceGetAttribute(&value, which, 0));
    return value;
}

Test(emulated_machine, attributes_are_as_described) {
    emulated_start("compute=8.6;compute-mode=exclusive");
    cr_assert_eq(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 8);
    cr_assert_eq(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 6);
    cr_assert_eq(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE), 3);
    cr_assert_eq(attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE), 3201000);
    cr_assert_eq(attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH), 6016);
    cr_assert_eq(attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY), 1);
    cr_assert_eq(attribute(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED), 1);
    cr_assert_eq(attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY), 1);
}

Test(emulated_machine, prohibited_devices_give_no_context) {
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    CUcontext context = NULL;
    check_success(emulated_init("compute-mode=prohibited"));
    check_ok(driver_open("emulated", &drv));
    emulated_symbol(drv.library, "cuDevicePrimaryCtxRetain", &retain);
    emulated_symbol(drv.library, "cuCtxCreate_v2", &create);
    cr_assert_eq(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE), 2);
    check_result(CUDA_ERROR_DEVICE_UNAVAILABLE, retain(&context, 0));
    check_result(CUDA_ERROR_DEVICE_UNAVAILABLE, create(&context, 0, 1));
    cr_assert_null(context);
}

static void check_without_vmm(const char *description) {
    CUmemAllocationProp prop = shareable_on(0);
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    int value = -1;
    emulated_start(description);
    check_success(drv.cuDeviceGetAttribute(
        &value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    cr_assert_eq(value, 0);
    check_result(CUDA_ERROR_NOT_SUPPORTED, drv.cuMemCreate(&handle, GRANULE, &prop, 0));
    check_result(CUDA_ERROR_NOT_SUPPORTED, drv.cuMemAddressReserve(&address, GRANULE, 0, 0, 0));
    check_success(drv.cuMemAlloc(&address, 4));
    check_success(drv.cuMemFree(address));
}

Test(emulated_machine, without_vmm) {
    check_without_vmm("vmm=0");
}

Test(emulated_machine, tcc_has_no_vmm) {
    int value = -1;
    check_without_vmm("driver-model=tcc");
    check_success(drv.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_TCC_DRIVER, 0));
    cr_assert_eq(value, 1);
    check_success(drv.cuDeviceGetAttribute(
        &value, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED, 0));
    cr_assert_eq(value, 0);
}

Test(emulated_machine, shares_as_its_system_does) {
    int descriptors = -1;
    int handles = -1;
    int tcc = -1;
    emulated_start(NULL);
    check_success(drv.cuDeviceGetAttribute(
        &descriptors, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
    check_success(drv.cuDeviceGetAttribute(
        &handles, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED, 0));
    check_success(drv.cuDeviceGetAttribute(&tcc, CU_DEVICE_ATTRIBUTE_TCC_DRIVER, 0));
    cr_assert_eq(descriptors, os_shareable_handle_type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    cr_assert_eq(handles, os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32);
    cr_assert_eq(tcc, 0);
}

Test(emulated_machine, without_shareable_handles) {
    CUmemAllocationProp prop = shareable_on(0);
    CUmemGenericAllocationHandle handle = 0;
    emulated_start("fd-handles=0");
    check_result(CUDA_ERROR_NOT_SUPPORTED, drv.cuMemCreate(&handle, GRANULE, &prop, 0));
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    prop.win32HandleMetaData = NULL;
    check_success(drv.cuMemCreate(&handle, GRANULE, &prop, 0));
    check_success(drv.cuMemRelease(handle));
}

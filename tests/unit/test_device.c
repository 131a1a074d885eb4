/* SPDX-License-Identifier: MIT */
/** @file Devices: numbered here, named by their UUID everywhere. */
#include "core_fixture.h"

#include <string.h>

TestSuite(device, .init = core_start, .fini = core_finish, .timeout = 60);
TestSuite(device_machine, .init = core_start_without_context, .fini = core_finish, .timeout = 60);

static gpuipc_device_info info_of(gpuipc_context *context, uint32_t device) {
    gpuipc_device_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_device_get_info(context, device, &info));
    return info;
}

Test(device, every_device_is_found_by_its_uuid) {
    for (uint32_t i = 0; i < core_device_count; i++) {
        const gpuipc_device_info info = info_of(core_context, i);
        uint32_t found = GPUIPC_DEVICE_NONE;
        check_ok(gpuipc_device_find(core_context, &info.uuid, &found));
        cr_assert_eq(found, i);
        for (uint32_t j = 0; j < i; j++) {
            const gpuipc_device_info other = info_of(core_context, j);
            cr_assert_neq(memcmp(&info.uuid, &other.uuid, sizeof(info.uuid)), 0);
        }
    }
}

Test(device, an_unknown_uuid_is_not_found) {
    gpuipc_uuid uuid = info_of(core_context, 0).uuid;
    uint32_t found = 4711;
    uuid.bytes[15] ^= 1;
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND, gpuipc_device_find(core_context, &uuid, &found));
    cr_assert_eq(found, 4711);
}

Test(device, a_number_beyond_the_last_is_not_found) {
    gpuipc_device_info info = {.struct_size = sizeof(info)};
    check_refused(GPUIPC_ERR_DEVICE_NOT_FOUND, "this process sees",
                  gpuipc_device_get_info(core_context, core_device_count, &info));
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND,
                 gpuipc_device_get_info(core_context, GPUIPC_DEVICE_NONE, &info));
    cr_assert_eq(info.memory_bytes, 0);
}

Test(device, info_agrees_with_the_driver) {
    const driver *drv = core_driver();
    for (uint32_t i = 0; i < core_device_count; i++) {
        const gpuipc_device_info info = info_of(core_context, i);
        char name[256] = "";
        CUuuid uuid;
        size_t memory = 0;
        int major = 0;
        CUdevice number;
        cr_assert_eq(drv->cuDeviceGet(&number, (int)i), CUDA_SUCCESS);
        cr_assert_eq(drv->cuDeviceGetName(name, (int)sizeof(name), number), CUDA_SUCCESS);
        cr_assert_eq(drv->cuDeviceGetUuid(&uuid, number), CUDA_SUCCESS);
        cr_assert_eq(drv->cuDeviceTotalMem(&memory, number), CUDA_SUCCESS);
        cr_assert_eq(
            drv->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, number),
            CUDA_SUCCESS);
        cr_assert_str_eq(info.name, name);
        cr_assert_eq(memcmp(info.uuid.bytes, uuid.bytes, 16), 0);
        cr_assert_eq(info.memory_bytes, memory);
        cr_assert_eq(info.compute_major, major);
        cr_assert_eq(info.can_share, info.why_not[0] == '\0');
        cr_assert_eq(info.can_share, info.granularity_bytes != 0);
        cr_assert_eq(info.struct_size, sizeof(info));
    }
}

Test(device, info_needs_a_struct_size) {
    gpuipc_device_info info = {.struct_size = 8};
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_device_get_info(core_context, 0, &info));
    cr_assert_eq(info.name[0], '\0');
}

/* ---- machines of other kinds, which only the emulated driver can be ---------------------- */

static gpuipc_context *on_machine(const char *machine) {
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", machine);
    return core_context_new();
}

static void check_cannot_share(gpuipc_context *context, gpuipc_status expected, const char *why) {
    const gpuipc_device_info info = info_of(context, 0);
    gpuipc_buffer *buffer = NULL;
    cr_assert_eq(info.can_share, 0);
    cr_assert_eq(info.granularity_bytes, 0);
    cr_assert(strstr(info.why_not, why) != NULL, "%s", info.why_not);
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 1};
    check_refused(expected, info.why_not, gpuipc_buffer_create(context, &config, &buffer));
    cr_assert_null(buffer);
    check_ok(gpuipc_context_destroy(context));
}

Test(device_machine, without_virtual_memory_management) {
    check_cannot_share(on_machine("vmm=0"), GPUIPC_ERR_VMM_UNSUPPORTED,
                       "no virtual memory management");
}

Test(device_machine, without_handles_of_this_system) {
    check_cannot_share(on_machine("fd-handles=0"), GPUIPC_ERR_HANDLE_TYPE_UNSUPPORTED,
                       "this system's kind of handle");
}

Test(device_machine, a_slice_is_recognised_by_its_name) {
    gpuipc_context *context = on_machine("mig=1");
    cr_assert_eq(info_of(context, 0).is_mig, 1);
    check_ok(gpuipc_context_destroy(context));
}

Test(device_machine, a_whole_gpu_is_no_slice) {
    gpuipc_context *context = on_machine("devices=3");
    uint32_t count = 0;
    check_ok(gpuipc_device_count(context, &count));
    cr_assert_eq(count, 3);
    cr_assert_eq(info_of(context, 2).is_mig, 0);
    check_ok(gpuipc_context_destroy(context));
}

Test(device_machine, hidden_devices_are_not_counted) {
    core_environment_set("CUDA_VISIBLE_DEVICES", "1");
    gpuipc_context *context = on_machine("devices=3");
    uint32_t count = 0;
    check_ok(gpuipc_device_count(context, &count));
    cr_assert_eq(count, 1);
    check_ok(gpuipc_context_destroy(context));
}

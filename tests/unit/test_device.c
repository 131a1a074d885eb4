/* SPDX-License-Identifier: MIT */
/** @file Devices: numbered here, named by their UUID everywhere. */
#include "core_fixture.h"

#include <string.h>

#include "cuda/context.h"
#include "cuda/device_event.h"
#include "memory/mapping.h"

TestSuite(device, .init = core_start, .fini = core_finish, .timeout = 60);
TestSuite(device_machine, .init = core_start_without_context, .fini = core_finish, .timeout = 60);

static gpuipc_device_info info_of(gpuipc_context *made, uint32_t index) {
    gpuipc_device_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_device_get_info(made, index, &info));
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
    check_refused(GPUIPC_ERR_DEVICE_NOT_FOUND, "device 99",
                  gpuipc_device_get_info(core_context, 99, &info));
    check_refused(GPUIPC_ERR_DEVICE_NOT_FOUND, "write 0, the plain number",
                  gpuipc_device_get_info(core_context, GPUIPC_DEVICE(0), &info));
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

/* ---- what the driver is asked for -------------------------------------------------------- */

/** What cuMemCreate got, and what its metadata pointed to then. */
static struct {
    CUresult (*call)(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *prop, unsigned long long flags);
    unsigned calls;
    size_t bytes;
    unsigned long long flags;
    CUmemAllocationProp prop;
    unsigned char attributes[48];
} recorded;

static CUresult record_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                              const CUmemAllocationProp *prop, unsigned long long flags) {
    recorded.calls++;
    recorded.bytes = bytes;
    recorded.flags = flags;
    recorded.prop = *prop;
    if (prop->win32HandleMetaData != NULL) {
        memcpy(recorded.attributes, prop->win32HandleMetaData, sizeof(recorded.attributes));
    }
    return recorded.call(handle, bytes, prop, flags);
}

static void record_memory_of(uint32_t index) {
    context *ctx;
    check_ok(context_acquire(core_context, &ctx));
    recorded.call = ctx->driver.cuMemCreate;
    ctx->driver.cuMemCreate = record_create;
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(index), .bytes = 1};
    gpuipc_buffer *buffer = NULL;
    gpuipc_status status = gpuipc_buffer_create(core_context, &config, &buffer);
    ctx->driver.cuMemCreate = recorded.call;
    context_unreference(ctx);
    check_ok(status);
    check_ok(gpuipc_buffer_release(buffer));
}

/* An OBJECT_ATTRIBUTES of 64-bit Windows, by the offsets of ntdef.h. */
static uint64_t attribute_at(size_t offset, size_t bytes) {
    uint64_t value = 0;
    memcpy(&value, recorded.attributes + offset, bytes);
    return value;
}

static void check_attributes(void) {
    cr_assert_eq(attribute_at(0, 4), 48, "Length is %u", (unsigned)attribute_at(0, 4));
    cr_assert_eq(attribute_at(8, 8), 0, "there is a RootDirectory");
    cr_assert_eq(attribute_at(16, 8), 0, "there is an ObjectName");
    cr_assert_eq(attribute_at(24, 4), 0, "Attributes are 0x%x", (unsigned)attribute_at(24, 4));
    cr_assert_eq(attribute_at(40, 8), 0, "there is a SecurityQualityOfService");
    /* In one piece, whatever the driver does with it. winnt.h, SECURITY_DESCRIPTOR_RELATIVE: Revision,
     * Sbz1, Control with SE_DACL_PRESENT, SE_DACL_PROTECTED and SE_SELF_RELATIVE; then where the owner,
     * group, SACL and DACL are. Who is in it: test_win32_security.c. */
    const unsigned char *descriptor = (const unsigned char *)(uintptr_t)attribute_at(32, 8);
    uint16_t control;
    uint32_t dacl;
    cr_assert_not_null(descriptor, "there is no SecurityDescriptor");
    cr_assert_eq(descriptor[0], 1);
    memcpy(&control, descriptor + 2, sizeof(control));
    memcpy(&dacl, descriptor + 16, sizeof(dacl));
    cr_assert_eq(control & 0x9004, 0x9004, "Control is 0x%x", control);
    cr_assert_neq(dacl, 0, "a DACL that is absent admits everybody");
}

Test(device, memory_is_asked_for_as_this_system_shares_it) {
    for (uint32_t i = 0; i < core_device_count; i++) {
        CUdevice ordinal = -1;
        int rdma = -1;
        cr_assert_eq(core_driver()->cuDeviceGet(&ordinal, (int)i), CUDA_SUCCESS);
        cr_assert_eq(
            core_driver()->cuDeviceGetAttribute(
                &rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, ordinal),
            CUDA_SUCCESS);
        memset(&recorded, 0, sizeof(recorded));
        record_memory_of(i);
        cr_assert_eq(recorded.calls, 1);
        cr_assert_eq(recorded.bytes, info_of(core_context, i).granularity_bytes);
        cr_assert_eq(recorded.flags, 0);

        CUmemAllocationProp expected;
        memset(&expected, 0, sizeof(expected));
        expected.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        expected.requestedHandleTypes = (CUmemAllocationHandleType)os_shareable_handle_type;
        expected.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        expected.location.id = ordinal;
        expected.allocFlags.gpuDirectRDMACapable = (unsigned char)rdma;
        expected.win32HandleMetaData = recorded.prop.win32HandleMetaData;
        cr_assert_eq(memcmp(&recorded.prop, &expected, sizeof(expected)), 0);
        if (os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32) {
            check_attributes();
        } else {
            cr_assert_eq(os_shareable_handle_type, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
            cr_assert_null(recorded.prop.win32HandleMetaData);
        }
    }
}

/* ---- machines of other kinds, which only the emulated driver can be ---------------------- */

static gpuipc_context *on_machine(const char *machine) {
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", machine);
    return core_context_new();
}

/* What was picked for device 0. */
static void check_picked(gpuipc_context *made, int handle_type, gpuipc_status why_not) {
    context *ctx;
    check_ok(context_acquire(made, &ctx));
    cr_assert_eq((int)ctx->devices[0].handle_type, handle_type);
    cr_assert_eq(ctx->devices[0].why_not, why_not);
    context_unreference(ctx);
}

static gpuipc_driver_model on_windows(gpuipc_driver_model model) {
    return os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32 ? model
                                                                : GPUIPC_DRIVER_MODEL_NOT_WINDOWS;
}

static void check_cannot_share(gpuipc_context *made, gpuipc_status expected, const char *why) {
    const gpuipc_device_info info = info_of(made, 0);
    gpuipc_buffer *buffer = NULL;
    check_picked(made, CU_MEM_HANDLE_TYPE_NONE, expected);
    cr_assert_eq(info.can_share, 0);
    cr_assert_eq(info.granularity_bytes, 0);
    cr_assert(strstr(info.why_not, why) != NULL, "%s", info.why_not);
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 1};
    check_refused(expected, info.why_not, gpuipc_buffer_create(made, &config, &buffer));
    cr_assert_null(buffer);
    check_ok(gpuipc_context_destroy(made));
}

Test(device_machine, of_the_usual_kind_shares_as_the_system_does) {
    gpuipc_context *made = on_machine("");
    const gpuipc_device_info info = info_of(made, 0);
    cr_assert_eq(info.can_share, 1);
    cr_assert_eq(info.driver_model, on_windows(GPUIPC_DRIVER_MODEL_WDDM));
    check_picked(made, os_shareable_handle_type, GPUIPC_OK);
    check_ok(gpuipc_context_destroy(made));
}

/* TCC is a kind of driver on Windows; elsewhere the machine only lacks what that driver lacks. */
Test(device_machine, of_the_tcc_kind_cannot_share) {
    gpuipc_context *made = on_machine("driver-model=tcc");
    const bool is_windows = os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32;
    cr_assert_eq(info_of(made, 0).driver_model, on_windows(GPUIPC_DRIVER_MODEL_TCC));
    check_cannot_share(made, GPUIPC_ERR_VMM_UNSUPPORTED,
                       is_windows ? "TCC" : "no virtual memory management");
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
    gpuipc_context *made = on_machine("mig=1");
    cr_assert_eq(info_of(made, 0).is_mig, 1);
    check_ok(gpuipc_context_destroy(made));
}

Test(device_machine, a_whole_gpu_is_no_slice) {
    gpuipc_context *made = on_machine("devices=3");
    uint32_t count = 0;
    check_ok(gpuipc_device_count(made, &count));
    cr_assert_eq(count, 3);
    cr_assert_eq(info_of(made, 2).is_mig, 0);
    check_ok(gpuipc_context_destroy(made));
}

Test(device_machine, hidden_devices_are_not_counted) {
    core_environment_set("CUDA_VISIBLE_DEVICES", "1");
    gpuipc_context *made = on_machine("devices=3");
    uint32_t count = 0;
    check_ok(gpuipc_device_count(made, &count));
    cr_assert_eq(count, 1);
    check_ok(gpuipc_context_destroy(made));
}

/* ---- streams ------------------------------------------------------------------------------- */

/* As where the program's own CUDA has devices that were hidden when the context was made. */
Test(device, a_stream_of_a_device_that_is_not_seen) {
    context *ctx;
    CUevent event;
    uint32_t index = 4711;
    check_ok(context_acquire(core_context, &ctx));
    core_enter_device(0);
    const CUdevice ordinal = ctx->devices[0].ordinal;
    ctx->devices[0].ordinal = 99;
    check_refused(GPUIPC_ERR_DEVICE_NOT_FOUND, "does not see",
                  device_event_new(ctx, CU_EVENT_DISABLE_TIMING, &event, &index));
    ctx->devices[0].ordinal = ordinal;
    check_ok(device_event_new(ctx, CU_EVENT_DISABLE_TIMING, &event, &index));
    cr_assert_eq(index, 0);
    cr_assert_eq(ctx->driver.cuEventDestroy(event), CUDA_SUCCESS);
    context_unreference(ctx);
}

/* ---- mappings ------------------------------------------------------------------------------ */

Test(device, sizes_that_cannot_be_are_not_mapped) {
    segment segments[2] = {SEGMENT_NONE, SEGMENT_NONE};
    mapping made = {.base = 0};
    check_refused(GPUIPC_ERR_SIZE_MISMATCH, "segment 0",
                  mapping_create(core_driver(), segments, 2, &made));
    segments[0].bytes = UINT64_MAX;
    segments[1].bytes = 1;
    check_refused(GPUIPC_ERR_SIZE_MISMATCH, "segment 1",
                  mapping_create(core_driver(), segments, 2, &made));
    cr_assert_eq(made.base, 0);
}

static CUresult say_no_unit(size_t *unit, const CUmemAllocationProp *prop,
                            CUmemAllocationGranularity_flags which) {
    (void)prop;
    (void)which;
    *unit = 0;
    return CUDA_SUCCESS;
}

/* Nothing could be allocated, and who divides by it would end the process. */
Test(device, of_a_driver_that_says_no_unit_are_not_used) {
    context *ctx;
    check_ok(context_acquire(core_context, &ctx));
    if (ctx->devices[0].info.can_share) {
        context odd = {.driver = ctx->driver};
        odd.driver.cuMemGetAllocationGranularity = say_no_unit;
        check_refused(GPUIPC_ERR_CUDA, "units of 0 bytes", device_list_create(&odd));
        cr_assert(odd.devices == NULL && odd.device_count == 0);
    }
    context_unreference(ctx);
}

/* CUDA 12.0 numbers streams. Before, each is asked for its device each time. */
Test(device_machine, of_a_driver_that_does_not_number_streams) {
    CUstream stream;
    gpuipc_buffer *buffer = NULL;
    gpuipc_context *made = on_machine("version=11080");
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 65536};
    core_enter_device(0);
    cr_assert_eq(core_driver()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_create(made, &config, &buffer));
    core_set_failures("");
    for (uint64_t i = 1; i <= 2; i++) {
        check_ok(gpuipc_buffer_fill_async(buffer, 0, 65536, 7, 1, stream));
        cr_assert_geq(core_calls("cuStreamGetCtx"), i);
    }
    check_ok(gpuipc_buffer_fill_async(buffer, 0, 65536, 7, 1, NULL));
    cr_assert_eq(core_calls("cuStreamGetId"), 0);
    cr_assert_eq(core_driver()->cuStreamSynchronize(stream), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamDestroy(stream), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_context_destroy(made));
}

Test(device_machine, of_a_driver_that_does_not_tell_the_number_of_a_stream) {
    CUstream stream;
    gpuipc_buffer *buffer = NULL;
    gpuipc_context *made = on_machine("");
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 65536};
    core_enter_device(0);
    cr_assert_eq(core_driver()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_create(made, &config, &buffer));
    core_set_failures("cuStreamGetId:*=999");
    for (uint64_t i = 1; i <= 2; i++) {
        check_ok(gpuipc_buffer_fill_async(buffer, 0, 65536, 7, 1, stream));
        cr_assert_geq(core_calls("cuStreamGetCtx"), i);
    }
    core_set_failures("");
    cr_assert_eq(core_driver()->cuStreamSynchronize(stream), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamDestroy(stream), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_context_destroy(made));
}

/* SPDX-License-Identifier: MIT */
/** @file Buffers: made, looked at, held and given up, and which devices reach them. */
#include "core_fixture.h"

#include <string.h>

TestSuite(buffer, .init = core_start, .fini = core_finish, .timeout = 120);

static gpuipc_status create(uint64_t bytes, uint64_t segment_bytes, gpuipc_buffer **out_buffer) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .bytes = bytes, .segment_bytes = segment_bytes};
    return gpuipc_buffer_create(core_context, &config, out_buffer);
}

Test(buffer, sizes_are_rounded_up_to_the_granularity) {
    const struct {
        uint64_t bytes;
        uint64_t segment_bytes;
        uint64_t allocated;
        uint32_t segments;
    } rows[] = {
        {1, 0, 1, 1},
        {core_unit - 1, 0, 1, 1},
        {core_unit, 0, 1, 1},
        {core_unit + 1, 0, 2, 1},
        {core_unit * 5, core_unit * 2, 5, 3}, /* the last one is shorter */
        {core_unit * 4, core_unit * 2, 4, 2},
        {core_unit * 3, 1, 3, 3}, /* a segment has at least the granularity */
        {core_unit * 3, core_unit + 1, 3, 2},
        {core_unit, core_unit * 8, 1, 1},
        {core_unit * 2, UINT64_MAX, 2, 1}, /* one segment, however large it may be */
        {core_unit * 2, UINT64_MAX - core_unit + 1, 2, 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gpuipc_buffer *buffer;
        check_ok(create(rows[i].bytes, rows[i].segment_bytes, &buffer));
        const gpuipc_buffer_info info = core_info(buffer);
        cr_assert_eq(info.bytes, rows[i].bytes, "row %zu", i);
        cr_assert_eq(info.allocated_bytes, rows[i].allocated * core_unit, "row %zu", i);
        cr_assert_eq(info.segment_count, rows[i].segments, "row %zu", i);
        check_ok(gpuipc_buffer_release(buffer));
    }
}

Test(buffer, info_tells_all_of_it) {
    gpuipc_buffer *buffer = core_buffer(core_unit + 4, core_unit);
    gpuipc_buffer *second = core_buffer(1, 0);
    const gpuipc_buffer_info info = core_info(buffer);
    gpuipc_context_info context = {.struct_size = sizeof(context)};
    gpuipc_device_info device = {.struct_size = sizeof(device)};
    check_ok(gpuipc_context_get_info(core_context, &context));
    check_ok(gpuipc_device_get_info(core_context, 0, &device));
    cr_assert_neq(info.address, 0);
    cr_assert_eq(info.address % core_unit, 0);
    cr_assert_eq(info.device, 0);
    cr_assert_eq(info.access_device, 0);
    cr_assert_eq(info.access, GPUIPC_ACCESS_READ_WRITE);
    cr_assert_eq(info.origin, GPUIPC_BUFFER_CREATED);
    cr_assert_eq(memcmp(&info.device_uuid, &device.uuid, sizeof(device.uuid)), 0);
    cr_assert_eq(memcmp(info.exporter_id, context.instance_id, 16), 0);
    cr_assert_neq(info.buffer_id, core_info(second).buffer_id);
    cr_assert_neq(info.address, core_info(second).address);

    /* one byte less than the first release had */
    gpuipc_buffer_info small = {.struct_size = offsetof(gpuipc_buffer_info, buffer_id) + 7};
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_buffer_get_info(buffer, &small));
    cr_assert_eq(small.bytes, 0);
    check_ok(gpuipc_buffer_release(second));
    check_ok(gpuipc_buffer_release(buffer));
}

Test(buffer, segments_are_one_range_of_memory) {
    gpuipc_buffer *buffer = core_buffer(core_unit * 3, core_unit);
    core_write_pattern(buffer, 9);
    core_check_pattern(buffer, 9);
    /* a fill across the seam of two segments */
    check_ok(gpuipc_buffer_fill_async(buffer, core_unit - 8, 16, 0x01020304, 4, NULL));
    uint32_t words[6];
    check_ok(gpuipc_buffer_read(buffer, core_unit - 12, words, sizeof(words)));
    for (size_t i = 1; i < 5; i++) {
        cr_assert_eq(words[i], 0x01020304);
    }
    cr_assert_neq(words[0], 0x01020304);
    cr_assert_neq(words[5], 0x01020304);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(buffer, wrong_configs_are_refused) {
    gpuipc_buffer *buffer = NULL;
    gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 0};
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "bytes is 0",
                  gpuipc_buffer_create(core_context, &config, &buffer));
    config.bytes = 1;
    config.transport = (gpuipc_transport)99;
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "99",
                  gpuipc_buffer_create(core_context, &config, &buffer));
    config.transport = GPUIPC_TRANSPORT_DEFAULT;
    config.device = GPUIPC_DEVICE(core_device_count);
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND, gpuipc_buffer_create(core_context, &config, &buffer));
    config.device = GPUIPC_DEVICE_NONE;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "write GPUIPC_DEVICE(1)",
                  gpuipc_buffer_create(core_context, &config, &buffer));
    config.device = 9;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "write GPUIPC_DEVICE(9)",
                  gpuipc_buffer_create(core_context, &config, &buffer));
    config.device = 0;
    config.struct_size = 4;
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_buffer_create(core_context, &config, &buffer));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "65536",
                  create(core_unit * 65537, core_unit, &buffer));
    /* so many that their number does not come out of a rounded sum of 64 bits */
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "segments; the most is",
                  create(UINT64_MAX - core_unit + 1, core_unit * 2, &buffer));
    cr_assert_null(buffer);
}

Test(buffer, holds_are_counted) {
    gpuipc_buffer *buffer = core_buffer(1, 0);
    check_ok(gpuipc_buffer_retain(buffer));
    check_ok(gpuipc_buffer_release(buffer));
    cr_assert_eq(core_info(buffer).bytes, 1);
    check_ok(gpuipc_buffer_release(buffer));

    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    uint32_t word = 0;
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_release(buffer));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_retain(buffer));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_get_info(buffer, &info));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_read(buffer, 0, &word, 1));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_write(buffer, 0, &word, 1));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_fill_async(buffer, 0, 1, 0, 1, NULL));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_copy_async(buffer, 0, buffer, 0, 1, NULL));
    check_status(GPUIPC_ERR_RELEASED,
                 gpuipc_buffer_set_access(buffer, 0, GPUIPC_ACCESS_READ_WRITE));
    check_ok(gpuipc_buffer_release(NULL));
}

/* ---- access ------------------------------------------------------------------------------ */

Test(buffer, a_buffer_can_be_made_read_only_and_writable_again) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    uint32_t word = 1;
    core_write_pattern(buffer, 2);
    check_ok(gpuipc_buffer_set_access(buffer, 0, GPUIPC_ACCESS_READ));
    cr_assert_eq(core_info(buffer).access, GPUIPC_ACCESS_READ);
    core_check_pattern(buffer, 2);
    check_refused(GPUIPC_ERR_ACCESS_DENIED, "may only be read",
                  gpuipc_buffer_write(buffer, 0, &word, sizeof(word)));
    core_check_pattern(buffer, 2);
    check_ok(gpuipc_buffer_set_access(buffer, 0, GPUIPC_ACCESS_DEFAULT));
    cr_assert_eq(core_info(buffer).access, GPUIPC_ACCESS_READ_WRITE);
    core_write_pattern(buffer, 3);
    core_check_pattern(buffer, 3);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(buffer, access_for_no_device_is_refused) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND,
                 gpuipc_buffer_set_access(buffer, core_device_count, GPUIPC_ACCESS_READ));
    static const int values[] = {2, 4, -1, 0x103};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "gpuipc_access",
                      gpuipc_buffer_set_access(buffer, 0, (gpuipc_access)values[i]));
    }
    cr_assert_eq(core_info(buffer).access, GPUIPC_ACCESS_READ_WRITE);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(buffer, a_second_device_is_given_access) {
    core_need_devices(2);
    int can = 0;
    cr_assert_eq(core_driver()->cuDeviceCanAccessPeer(&can, 1, 0), CUDA_SUCCESS);
    if (!can) {
        cr_skip_test("no P2P between devices 0 and 1");
    }
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(1), .bytes = core_unit};
    gpuipc_buffer *there;
    check_ok(gpuipc_buffer_create(core_context, &config, &there));
    cr_assert_eq(core_info(there).device, 1);
    check_ok(gpuipc_buffer_set_access(buffer, 1, GPUIPC_ACCESS_READ));
    cr_assert_eq(core_info(buffer).access, GPUIPC_ACCESS_READ_WRITE); /* device 0 keeps its own */
    core_write_pattern(buffer, 5);
    /* the destination's device makes the copy */
    check_ok(gpuipc_buffer_copy_async(there, 0, buffer, 0, core_unit, NULL));
    core_check_pattern(there, 5);
    check_ok(gpuipc_buffer_release(there));
    check_ok(gpuipc_buffer_release(buffer));
}

Test(buffer, codes_of_the_driver_have_their_status) {
    static const struct {
        const char *failures;
        gpuipc_status expected;
    } rows[] = {
        {"cuMemSetAccess:1=217", GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED},
        {"cuMemSetAccess:1=2", GPUIPC_ERR_OUT_OF_DEVICE_MEMORY},
        {"cuMemSetAccess:1=101", GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED},
        {"cuMemSetAccess:1=100", GPUIPC_ERR_CUDA},
        {"cuMemSetAccess:1=999", GPUIPC_ERR_CUDA},
    };
    core_need_emulated();
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        core_set_failures(rows[i].failures);
        check_status(rows[i].expected, gpuipc_buffer_set_access(buffer, 0, GPUIPC_ACCESS_READ));
        cr_assert_str_eq(gpuipc_error_get()->native_call, "cuMemSetAccess");
    }
    core_set_failures("");
    check_ok(gpuipc_buffer_release(buffer));
}

TestSuite(buffer_machine, .init = core_start_without_context, .fini = core_finish, .timeout = 60);

Test(buffer_machine, a_device_without_peer_access_is_refused) {
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", "devices=2;p2p=none");
    gpuipc_context *context = core_context_new();
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 1};
    gpuipc_buffer *buffer;
    check_ok(gpuipc_buffer_create(context, &config, &buffer));
    check_refused(GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED, "device 1 cannot reach",
                  gpuipc_buffer_set_access(buffer, 1, GPUIPC_ACCESS_READ));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_context_destroy(context));
}

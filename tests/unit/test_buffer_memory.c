/* SPDX-License-Identifier: MIT */
/** @file Buffers that a device has no memory for. They take much of a GPU's memory, which all processes
 *  share, so they run alone. */
#include "core_fixture.h"

TestSuite(buffer_memory, .init = core_start, .fini = core_finish, .timeout = 120);

static gpuipc_status create(uint64_t bytes, uint64_t segment_bytes, gpuipc_buffer **out_buffer) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .bytes = bytes, .segment_bytes = segment_bytes};
    return gpuipc_buffer_create(core_context, &config, out_buffer);
}

Test(buffer_memory, more_than_there_is_of_memory) {
    gpuipc_device_info device = {.struct_size = sizeof(device)};
    check_ok(gpuipc_device_get_info(core_context, 0, &device));
    const uint64_t sizes[] = {device.memory_bytes + core_unit, UINT64_C(1) << 62, UINT64_MAX,
                              UINT64_MAX - core_unit + 1, UINT64_MAX - core_unit + 2};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        gpuipc_buffer *buffer = NULL;
        check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, create(sizes[i], 0, &buffer));
        cr_assert_null(buffer);
    }
}

Test(buffer_memory, the_last_of_many_segments_does_not_fit) {
    gpuipc_device_info device = {.struct_size = sizeof(device)};
    check_ok(gpuipc_device_get_info(core_context, 0, &device));
    gpuipc_buffer *buffer = NULL;
    const uint64_t segment = (device.memory_bytes / 4 + core_unit - 1) / core_unit * core_unit;
    check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, create(segment * 5, segment, &buffer));
    cr_assert_null(buffer);
    /* what had been made for it is free again */
    check_ok(create(segment * 2, segment, &buffer));
    check_ok(gpuipc_buffer_release(buffer));
}

Test(buffer_memory, memory_comes_back_when_it_is_released) {
    gpuipc_device_info device = {.struct_size = sizeof(device)};
    check_ok(gpuipc_device_get_info(core_context, 0, &device));
    const uint64_t half = device.memory_bytes / 2 / core_unit * core_unit + core_unit;
    for (int i = 0; i < 5; i++) { /* two of them would not fit */
        gpuipc_buffer *buffer = core_buffer(half, 0);
        check_ok(gpuipc_buffer_release(buffer));
    }
}

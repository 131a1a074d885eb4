/* SPDX-License-Identifier: MIT */
/** @file Handles of buffers for programs with a courier of their own. */
#include "core_fixture.h"

#include <string.h>

TestSuite(native, .init = core_start, .fini = core_finish, .timeout = 120);

enum {
    SEGMENTS = 3
};

typedef struct parcel {
    gpuipc_native_segment segments[SEGMENTS];
    gpuipc_native_layout layout;
    size_t count;
} parcel;

static parcel export_of(gpuipc_buffer *buffer) {
    parcel made = {.layout = {.struct_size = sizeof(made.layout)}};
    check_ok(gpuipc_native_export(buffer, made.segments, SEGMENTS, &made.layout, &made.count));
    return made;
}

/* The handles are the caller's, who closes them as it closes any other. */
static void parcel_close(const parcel *from) {
    for (size_t i = 0; i < from->count; i++) {
        os_handle handle;
        check_ok(os_handle_adopt(from->segments[i].handle.value, &handle));
        os_handle_close(&handle);
    }
}

static gpuipc_status import(const parcel *from, uint32_t device, gpuipc_access access,
                            gpuipc_buffer **out_buffer) {
    return gpuipc_native_import(core_context, from->segments, from->count, &from->layout, device,
                                access, out_buffer);
}

static void check_import_refused(gpuipc_status expected, const parcel *from, uint32_t device) {
    gpuipc_buffer *buffer = NULL;
    check_status(expected, import(from, device, GPUIPC_ACCESS_DEFAULT, &buffer));
    cr_assert_eq(gpuipc_error_get()->status, expected);
    cr_assert_neq(gpuipc_error_get()->sentence[0], '\0');
    cr_assert_null(buffer);
}

Test(native, handles_open_the_same_memory) {
    gpuipc_buffer *buffer = core_buffer(core_unit * 3 - 100, core_unit);
    core_write_pattern(buffer, 51);
    const parcel made = export_of(buffer);
    cr_assert_eq(made.count, SEGMENTS);
    cr_assert_eq(made.layout.offset, 0);
    cr_assert_eq(made.layout.bytes, core_unit * 3 - 100);
    const gpuipc_uuid owner = core_info(buffer).device_uuid;
    cr_assert_eq(memcmp(&made.layout.device_uuid, &owner, sizeof(owner)), 0);
    for (size_t i = 0; i < SEGMENTS; i++) {
        cr_assert_eq(made.segments[i].bytes, core_unit);
    }
    gpuipc_buffer *opened;
    check_ok(import(&made, GPUIPC_DEVICE_OWNER, GPUIPC_ACCESS_DEFAULT, &opened));
    parcel_close(&made);
    const gpuipc_buffer_info info = core_info(opened);
    cr_assert_eq(info.origin, GPUIPC_BUFFER_OPENED);
    cr_assert_eq(info.segment_count, SEGMENTS);
    cr_assert_eq(info.bytes, core_unit * 3 - 100);
    cr_assert_eq(info.access, GPUIPC_ACCESS_READ_WRITE);
    cr_assert_neq(info.address, core_info(buffer).address);
    core_check_pattern(opened, 51);
    core_write_pattern(opened, 52);
    core_check_pattern(buffer, 52);
    check_ok(gpuipc_buffer_release(buffer));
    core_check_pattern(opened, 52);
    check_ok(gpuipc_buffer_release(opened));
}

Test(native, handles_alone_keep_the_memory) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    core_write_pattern(buffer, 53);
    const parcel made = export_of(buffer);
    check_ok(gpuipc_buffer_release(buffer));
    gpuipc_buffer *opened;
    check_ok(import(&made, GPUIPC_DEVICE(0), GPUIPC_ACCESS_READ, &opened));
    core_check_pattern(opened, 53);
    cr_assert_eq(core_info(opened).access, GPUIPC_ACCESS_READ);
    uint32_t word = 0;
    check_status(GPUIPC_ERR_ACCESS_DENIED, gpuipc_buffer_write(opened, 0, &word, sizeof(word)));
    check_ok(gpuipc_buffer_release(opened));
    parcel_close(&made);
}

Test(native, every_export_gives_fresh_handles) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    const parcel first = export_of(buffer);
    const parcel second = export_of(buffer);
    cr_assert_neq(first.segments[0].handle.value, second.segments[0].handle.value);
    parcel_close(&first);
    parcel_close(&second);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(native, too_little_room_says_how_much_is_needed) {
    gpuipc_buffer *buffer = core_buffer(core_unit * 3, core_unit);
    gpuipc_native_segment segments[2] = {{{-7}, 1}, {{-7}, 1}};
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count = 0;
    check_status(GPUIPC_ERR_TOO_SMALL, gpuipc_native_export(buffer, segments, 2, &layout, &count));
    cr_assert_eq(count, 3);
    cr_assert_eq(segments[0].handle.value, -7);
    cr_assert_eq(layout.bytes, 0);
    count = 0;
    check_status(GPUIPC_ERR_TOO_SMALL, gpuipc_native_export(buffer, NULL, 0, &layout, &count));
    cr_assert_eq(count, 3);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(native, a_failed_export_leaves_the_callers_array_alone) {
    core_need_emulated();
    gpuipc_buffer *buffer = core_buffer(core_unit * 3, core_unit);
    gpuipc_native_segment segments[SEGMENTS] = {{{-7}, 1}, {{-7}, 1}, {{-7}, 1}};
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count = 4711;
    core_set_failures("cuMemExportToShareableHandle:3=999");
    check_status(GPUIPC_ERR_CUDA,
                 gpuipc_native_export(buffer, segments, SEGMENTS, &layout, &count));
    core_set_failures("");
    for (size_t i = 0; i < SEGMENTS; i++) {
        cr_assert_eq(segments[i].handle.value, -7, "a closed handle is left in entry %zu", i);
    }
    cr_assert_eq(count, 4711);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(native, memory_opened_without_its_handles_is_not_passed_on) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    const parcel made = export_of(buffer);
    gpuipc_buffer *opened;
    check_ok(import(&made, GPUIPC_DEVICE_OWNER, GPUIPC_ACCESS_DEFAULT, &opened));
    gpuipc_native_segment segment;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count = 0;
    check_refused(GPUIPC_ERR_NOT_SHAREABLE, "GPUIPC_RECEIVE_KEEP_HANDLES",
                  gpuipc_native_export(opened, &segment, 1, &layout, &count));
    check_ok(gpuipc_buffer_release(opened));
    parcel_close(&made);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(native, handles_that_are_no_gpu_memory) {
    os_handle shared = OS_HANDLE_NONE;
    check_ok(os_memory_create("test", core_unit, &shared));
    const intptr_t values[] = {shared.value, -1, 99999, 0};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        const parcel from = {
            .segments = {{{values[i]}, core_unit}},
            .layout = {.struct_size = sizeof(from.layout), .bytes = core_unit},
            .count = 1,
        };
        check_import_refused(GPUIPC_ERR_NOT_GPU_MEMORY, &from, GPUIPC_DEVICE(0));
    }
    os_handle_close(&shared);
}

/* Cut to an int it would be the number of a handle that is there. */
Test(native, a_number_that_is_longer_than_a_handles_is_none) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    const parcel made = export_of(buffer);
    parcel from = made;
    from.segments[0].handle.value += (intptr_t)1 << 32;
    check_import_refused(GPUIPC_ERR_NOT_GPU_MEMORY, &from, GPUIPC_DEVICE_OWNER);
    from.segments[0].handle.value = made.segments[0].handle.value - ((intptr_t)1 << 32);
    check_import_refused(GPUIPC_ERR_NOT_GPU_MEMORY, &from, GPUIPC_DEVICE_OWNER);
    parcel_close(&made);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(native, one_bad_handle_among_good_ones) {
    gpuipc_buffer *buffer = core_buffer(core_unit * 3, core_unit);
    const parcel made = export_of(buffer);
    parcel from = made;
    from.segments[2].handle.value = -1;
    check_import_refused(GPUIPC_ERR_NOT_GPU_MEMORY, &from, GPUIPC_DEVICE_OWNER);
    parcel_close(&made);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(native, sizes_that_the_memory_does_not_have) {
    gpuipc_buffer *buffer = core_buffer(core_unit * 2, core_unit);
    const parcel made = export_of(buffer);
    const uint64_t sizes[] = {core_unit * 2, core_unit / 2, 0, UINT64_MAX, UINT64_MAX - core_unit};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (size_t j = 0; j < 2; j++) {
            parcel from = made;
            from.segments[j].bytes = sizes[i];
            from.layout.bytes = 1;
            check_import_refused(GPUIPC_ERR_SIZE_MISMATCH, &from, GPUIPC_DEVICE_OWNER);
        }
    }
    parcel_close(&made);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(native, ranges_that_do_not_lie_in_the_segments) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    const parcel made = export_of(buffer);
    const struct {
        gpuipc_status expected;
        uint64_t offset;
        uint64_t bytes;
    } rows[] = {
        {GPUIPC_OK, core_unit - 1, 1},
        {GPUIPC_ERR_OUT_OF_RANGE, 0, 0},
        {GPUIPC_ERR_OUT_OF_RANGE, core_unit, 1},
        {GPUIPC_ERR_OUT_OF_RANGE, 1, core_unit},
        {GPUIPC_ERR_OUT_OF_RANGE, UINT64_MAX, 1},
        {GPUIPC_ERR_OUT_OF_RANGE, 1, UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        parcel from = made;
        gpuipc_buffer *opened = NULL;
        from.layout.offset = rows[i].offset;
        from.layout.bytes = rows[i].bytes;
        check_status(rows[i].expected,
                     import(&from, GPUIPC_DEVICE_OWNER, GPUIPC_ACCESS_DEFAULT, &opened));
        check_ok(gpuipc_buffer_release(opened));
    }
    parcel_close(&made);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(native, devices_that_are_not_here) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    parcel made = export_of(buffer);
    check_import_refused(GPUIPC_ERR_DEVICE_NOT_FOUND, &made, GPUIPC_DEVICE(core_device_count));
    check_import_refused(GPUIPC_ERR_INVALID_ARGUMENT, &made, UINT32_MAX);
    check_import_refused(GPUIPC_ERR_INVALID_ARGUMENT, &made, 1);
    made.layout.device_uuid.bytes[0] ^= 0xFF;
    check_import_refused(GPUIPC_ERR_DEVICE_NOT_VISIBLE, &made, GPUIPC_DEVICE_OWNER);
    gpuipc_buffer *opened; /* but a device that is here can be named */
    check_ok(import(&made, GPUIPC_DEVICE(0), GPUIPC_ACCESS_DEFAULT, &opened));
    cr_assert_eq(core_info(opened).device, GPUIPC_DEVICE_NONE);
    cr_assert_eq(core_info(opened).access_device, 0);
    check_ok(gpuipc_buffer_release(opened));
    parcel_close(&made);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(native, wrong_arguments) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_buffer *opened = NULL;
    const parcel made = export_of(buffer);
    parcel from = made;
    from.count = 0;
    check_import_refused(GPUIPC_ERR_INVALID_ARGUMENT, &from, GPUIPC_DEVICE_OWNER);
    from.count = (size_t)UINT32_MAX + 1;
    check_import_refused(GPUIPC_ERR_INVALID_ARGUMENT, &from, GPUIPC_DEVICE_OWNER);
    cr_assert(strstr(gpuipc_error_get()->sentence, "4294967296 segments") != NULL);
    from = made;
    from.layout.struct_size = 1;
    check_import_refused(GPUIPC_ERR_STRUCT_SIZE, &from, GPUIPC_DEVICE_OWNER);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 import(&made, GPUIPC_DEVICE_OWNER, (gpuipc_access)2, &opened));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 import(&made, GPUIPC_DEVICE_OWNER, GPUIPC_ACCESS_READ, NULL));
    gpuipc_native_layout layout = {.struct_size = 1};
    gpuipc_native_segment segment;
    size_t count = 0;
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_native_export(buffer, &segment, 1, &layout, &count));
    cr_assert_null(opened);
    parcel_close(&made);
    check_ok(gpuipc_buffer_release(buffer));
}

/* The handle that came with it goes on; nothing is exported anew. */
Test(native, what_came_with_its_handles_is_exported_by_them) {
    core_pair pair;
    gpuipc_buffer *came = NULL;
    gpuipc_buffer *opened = NULL;
    gpuipc_context *other = core_context_new();
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .buffers = &came,
                               .buffer_capacity = 1,
                               .flags = GPUIPC_RECEIVE_KEEP_HANDLES};
    core_write_pattern(buffer, 55);
    core_pair_open(&pair, core_context, other);
    check_ok(core_send(pair.server, &buffer, 1));
    check_ok(gpuipc_connection_receive(pair.client, &message, SOON_MS));
    if (core_is_emulated) {
        core_set_failures("");
    }
    const parcel made = export_of(came);
    cr_assert(!core_is_emulated || core_calls("cuMemExportToShareableHandle") == 0);
    check_ok(import(&made, GPUIPC_DEVICE_OWNER, GPUIPC_ACCESS_DEFAULT, &opened));
    parcel_close(&made);
    core_check_pattern(opened, 55);
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(came));
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
    check_ok(gpuipc_context_destroy(other));
}

/* What drivers answer for a handle that is no memory of theirs. */
Test(native, handles_that_the_driver_refuses_are_no_memory) {
    static const int codes[] = {1, 400, 801, 999};
    core_need_emulated();
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    const parcel made = export_of(buffer);
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        char failure[64];
        (void)snprintf(failure, sizeof(failure), "cuMemImportFromShareableHandle:1=%d", codes[i]);
        core_set_failures(failure);
        check_import_refused(GPUIPC_ERR_NOT_GPU_MEMORY, &made, GPUIPC_DEVICE_OWNER);
        cr_assert_eq(gpuipc_error_get()->native_code, codes[i]);
    }
    core_set_failures("cuMemImportFromShareableHandle:1=2");
    check_import_refused(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, &made, GPUIPC_DEVICE_OWNER);
    core_set_failures("");
    parcel_close(&made);
    check_ok(gpuipc_buffer_release(buffer));
}

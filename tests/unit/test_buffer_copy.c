/* SPDX-License-Identifier: MIT */
/** @file Moving data into, out of and between buffers. */
#include "core_fixture.h"

#include <stdlib.h>
#include <string.h>

TestSuite(buffer_copy, .init = core_start, .fini = core_finish, .timeout = 120);

Test(buffer_copy, parts_are_written_and_read_where_they_belong) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    static const char text[] = "every byte has its place";
    char came[sizeof(text)] = "";
    uint8_t edge = 0xFF;
    check_ok(gpuipc_buffer_fill_async(buffer, 0, core_unit, 0, 1, NULL));
    check_ok(gpuipc_buffer_write(buffer, 4097, text, sizeof(text)));
    check_ok(gpuipc_buffer_read(buffer, 4097, came, sizeof(came)));
    cr_assert_str_eq(came, text);
    check_ok(gpuipc_buffer_read(buffer, 4096, &edge, 1));
    cr_assert_eq(edge, 0);
    check_ok(gpuipc_buffer_read(buffer, 4097 + sizeof(text), &edge, 1));
    cr_assert_eq(edge, 0);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(buffer_copy, ranges_must_lie_inside) {
    gpuipc_buffer *buffer = core_buffer(1000, 0); /* less than is allocated */
    gpuipc_buffer *other = core_buffer(2000, 0);
    uint8_t *room = calloc(1, 4096);
    static const struct {
        gpuipc_status expected;
        uint64_t offset;
        uint64_t bytes;
    } rows[] = {
        {GPUIPC_OK, 0, 1000},
        {GPUIPC_OK, 999, 1},
        {GPUIPC_OK, 1000, 0},
        {GPUIPC_OK, 0, 0},
        {GPUIPC_ERR_OUT_OF_RANGE, 0, 1001},
        {GPUIPC_ERR_OUT_OF_RANGE, 1000, 1},
        {GPUIPC_ERR_OUT_OF_RANGE, 1001, 0},
        {GPUIPC_ERR_OUT_OF_RANGE, UINT64_MAX, 1},
        {GPUIPC_ERR_OUT_OF_RANGE, 1, UINT64_MAX},
        {GPUIPC_ERR_OUT_OF_RANGE, UINT64_MAX, UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const uint64_t at = rows[i].offset;
        const uint64_t bytes = rows[i].bytes;
        check_status(rows[i].expected, gpuipc_buffer_read(buffer, at, room, bytes));
        check_status(rows[i].expected, gpuipc_buffer_write(buffer, at, room, bytes));
        check_status(rows[i].expected, gpuipc_buffer_fill_async(buffer, at, bytes, 0, 1, NULL));
        check_status(rows[i].expected,
                     gpuipc_buffer_copy_async(buffer, at, other, 500, bytes, NULL));
        check_status(rows[i].expected,
                     gpuipc_buffer_copy_async(other, 500, buffer, at, bytes, NULL));
    }
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "source is NULL",
                  gpuipc_buffer_copy_async(buffer, 0, NULL, 0, 1, NULL));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "destination is NULL",
                  gpuipc_buffer_copy_async(NULL, 0, buffer, 0, 1, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_read(buffer, 0, NULL, 1));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_write(buffer, 0, NULL, 1));
    check_ok(gpuipc_buffer_read(buffer, 0, NULL, 0));
    check_ok(gpuipc_buffer_write(buffer, 0, NULL, 0));
    free(room);
    check_ok(gpuipc_buffer_release(other));
    check_ok(gpuipc_buffer_release(buffer));
}

Test(buffer_copy, fills_have_a_width_and_are_aligned) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    static const struct {
        gpuipc_status expected;
        uint64_t offset;
        uint64_t bytes;
        uint32_t width;
    } rows[] = {
        {GPUIPC_OK, 1, 3, 1},
        {GPUIPC_OK, 2, 6, 2},
        {GPUIPC_OK, 4, 8, 4},
        {GPUIPC_OK, 4, 0, 4},
        {GPUIPC_ERR_INVALID_ARGUMENT, 0, 8, 0},
        {GPUIPC_ERR_INVALID_ARGUMENT, 0, 9, 3},
        {GPUIPC_ERR_INVALID_ARGUMENT, 0, 8, 8},
        {GPUIPC_ERR_INVALID_ARGUMENT, 0, 8, UINT32_MAX},
        {GPUIPC_ERR_INVALID_ARGUMENT, 1, 2, 2},
        {GPUIPC_ERR_INVALID_ARGUMENT, 2, 3, 2},
        {GPUIPC_ERR_INVALID_ARGUMENT, 2, 4, 4},
        {GPUIPC_ERR_INVALID_ARGUMENT, 4, 6, 4},
        {GPUIPC_ERR_INVALID_ARGUMENT, 1, 0, 4},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gpuipc_status status =
            gpuipc_buffer_fill_async(buffer, rows[i].offset, rows[i].bytes, 1, rows[i].width, NULL);
        cr_assert_eq(status, rows[i].expected, "row %zu: %s", i, gpuipc_status_name(status));
    }
    check_ok(gpuipc_buffer_release(buffer));
}

Test(buffer_copy, the_lowest_bytes_of_the_value_are_written) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    static const uint8_t wanted[] = {0,    0x44, 0x44, 0x44, 0x44, 0x33, 0x44, 0x33, 0x44,
                                     0x33, 0x22, 0x11, 0x44, 0x33, 0x22, 0x11, 0};
    uint8_t came[sizeof(wanted)];
    check_ok(gpuipc_buffer_fill_async(buffer, 0, 64, 0, 1, NULL));
    check_ok(gpuipc_buffer_fill_async(buffer, 1, 3, 0x11223344, 1, NULL));
    check_ok(gpuipc_buffer_fill_async(buffer, 4, 4, 0x11223344, 2, NULL));
    check_ok(gpuipc_buffer_fill_async(buffer, 8, 8, 0x11223344, 4, NULL));
    check_ok(gpuipc_buffer_read(buffer, 0, came, sizeof(came)));
    cr_assert_eq(memcmp(came, wanted, sizeof(wanted)), 0);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(buffer_copy, buffers_are_copied_into_each_other) {
    gpuipc_buffer *from = core_buffer(core_unit * 2, core_unit);
    gpuipc_buffer *into = core_buffer(core_unit * 2, 0);
    uint32_t word = 0;
    uint32_t wanted = 0;
    core_write_pattern(from, 11);
    check_ok(gpuipc_buffer_copy_async(into, 0, from, 0, core_unit * 2, NULL));
    core_check_pattern(into, 11);
    check_ok(gpuipc_buffer_copy_async(into, 0, from, core_unit - 4, 4, NULL));
    check_ok(gpuipc_buffer_read(into, 0, &word, sizeof(word)));
    check_ok(gpuipc_buffer_read(from, core_unit - 4, &wanted, sizeof(wanted)));
    cr_assert_eq(word, wanted);
    check_ok(gpuipc_buffer_release(into));
    check_ok(gpuipc_buffer_release(from));
}

Test(buffer_copy, buffers_of_two_contexts_are_not) {
    gpuipc_context *other = core_context_new();
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 8};
    gpuipc_buffer *mine = core_buffer(8, 0);
    gpuipc_buffer *theirs;
    check_ok(gpuipc_buffer_create(other, &config, &theirs));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "two contexts",
                  gpuipc_buffer_copy_async(mine, 0, theirs, 0, 8, NULL));
    check_ok(gpuipc_buffer_release(theirs));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_copy_async(mine, 0, theirs, 0, 8, NULL));
    check_ok(gpuipc_buffer_release(mine));
    check_ok(gpuipc_context_destroy(other));
}

Test(buffer_copy, a_callers_stream_keeps_its_order) {
    gpuipc_buffer *first = core_buffer(core_unit, 0);
    gpuipc_buffer *second = core_buffer(core_unit, 0);
    const driver *drv = core_driver();
    CUstream stream;
    uint32_t word = 0;
    core_enter_device(0);
    cr_assert_eq(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_fill_async(first, 0, core_unit, 1, 4, stream));
    check_ok(gpuipc_buffer_copy_async(second, 0, first, 0, core_unit, stream));
    check_ok(gpuipc_buffer_fill_async(first, 0, core_unit, 2, 4, stream));
    cr_assert_eq(drv->cuStreamSynchronize(stream), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_read(second, core_unit - 4, &word, sizeof(word)));
    cr_assert_eq(word, 1);
    check_ok(gpuipc_buffer_read(first, core_unit - 4, &word, sizeof(word)));
    cr_assert_eq(word, 2);
    cr_assert_eq(drv->cuStreamDestroy(stream), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_release(second));
    check_ok(gpuipc_buffer_release(first));
}

Test(buffer_copy, a_fill_on_a_stream_of_a_device_without_access_says_which) {
    core_need_devices(2);
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    const driver *drv = core_driver();
    CUstream stream;
    core_enter_device(1);
    cr_assert_eq(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    check_refused(GPUIPC_ERR_CUDA, "of device 0 on a stream of device 1",
                  gpuipc_buffer_fill_async(buffer, 0, core_unit, 1, 4, stream));
    check_ok(gpuipc_buffer_set_access(buffer, 1, GPUIPC_ACCESS_READ_WRITE));
    check_ok(gpuipc_buffer_fill_async(buffer, 0, core_unit, 1, 4, stream));
    cr_assert_eq(drv->cuStreamSynchronize(stream), CUDA_SUCCESS);
    cr_assert_eq(drv->cuStreamDestroy(stream), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_release(buffer));
}

/* Whether a GPU counts what it may only read as reached, so that its stream copies, was not measured. */
Test(buffer_copy, a_copy_on_a_stream_of_a_device_that_may_not_write_says_which) {
    core_need_emulated();
    core_need_devices(2);
    gpuipc_buffer *into = core_buffer(core_unit, 0);
    gpuipc_buffer *from = core_buffer(core_unit, 0);
    const driver *drv = core_driver();
    CUstream stream;
    core_enter_device(1);
    cr_assert_eq(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_copy_async(into, 0, from, 0, core_unit, stream)); /* by device 0 */
    cr_assert_eq(drv->cuStreamSynchronize(stream), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_set_access(into, 1, GPUIPC_ACCESS_READ));
    check_ok(gpuipc_buffer_set_access(from, 1, GPUIPC_ACCESS_READ));
    check_refused(GPUIPC_ERR_CUDA,
                  "of device 0 on a stream of device 1, which needs access to write",
                  gpuipc_buffer_copy_async(into, 0, from, 0, core_unit, stream));
    check_ok(gpuipc_buffer_set_access(into, 1, GPUIPC_ACCESS_READ_WRITE));
    check_ok(gpuipc_buffer_copy_async(into, 0, from, 0, core_unit, stream));
    cr_assert_eq(drv->cuStreamSynchronize(stream), CUDA_SUCCESS);
    cr_assert_eq(drv->cuStreamDestroy(stream), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_release(from));
    check_ok(gpuipc_buffer_release(into));
}

/* Uses a buffer from a thread that CUDA has not seen before. */
static void use_in_thread(void *argument) {
    gpuipc_buffer *const *buffer = argument;
    core_check_pattern(*buffer, 21);
    core_write_pattern(*buffer, 22);
}

Test(buffer_copy, another_thread_may_use_it) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    os_thread *thread;
    core_write_pattern(buffer, 21);
    check_ok(os_thread_start(use_in_thread, &buffer, &thread));
    os_thread_join(thread);
    core_check_pattern(buffer, 22);
    check_ok(gpuipc_buffer_release(buffer));
}

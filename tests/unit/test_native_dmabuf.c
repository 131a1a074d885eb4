/* SPDX-License-Identifier: MIT */
/** @file dma-bufs of buffers: which pages they have, and what has none. */
#include <stdlib.h>

#include "core_fixture.h"

TestSuite(native_dmabuf, .init = core_start, .fini = core_finish, .timeout = 120);

static gpuipc_status export(gpuipc_buffer *buffer, uint64_t offset, uint64_t bytes,
                            gpuipc_native_dmabuf *out) {
    *out = (gpuipc_native_dmabuf){.struct_size = sizeof(*out), .handle = {-7}};
    return gpuipc_native_export_dmabuf(buffer, offset, bytes, out);
}

static void check_none(gpuipc_status expected, const char *words, gpuipc_buffer *buffer,
                       uint64_t offset, uint64_t bytes) {
    gpuipc_native_dmabuf made;
    check_refused(expected, words, export(buffer, offset, bytes, &made));
    cr_assert_eq(made.handle.value, -7, "written although there is none");
}

static bool has_dmabufs(void) {
    int has = 0;
    cr_assert_eq(
        core_driver()->cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0),
        CUDA_SUCCESS);
    return has != 0;
}

static void need_dmabufs(void) {
    if (!has_dmabufs()) {
        cr_skip_test("device 0 has no dma-bufs");
    }
}

Test(native_dmabuf, that_a_device_has_none_is_said) {
    if (has_dmabufs()) {
        cr_skip_test("device 0 has dma-bufs");
    }
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    check_none(GPUIPC_ERR_NOT_SUPPORTED, "dma-bufs", buffer, 0, core_unit);
    check_ok(gpuipc_buffer_release(buffer));
}

static void check_range(gpuipc_buffer *buffer, uint64_t offset, uint64_t bytes,
                        uint64_t expected_offset, uint64_t expected_bytes) {
    gpuipc_native_dmabuf made;
    os_handle handle;
    check_ok(export(buffer, offset, bytes, &made));
    cr_assert_eq(made.struct_size, sizeof(made));
    cr_assert_eq(made.offset, expected_offset, "%llu", (unsigned long long)made.offset);
    cr_assert_eq(made.dmabuf_bytes, expected_bytes, "%llu", (unsigned long long)made.dmabuf_bytes);
    check_ok(os_handle_adopt(made.handle.value, &handle));
    os_handle_close(&handle);
}

Test(native_dmabuf, has_the_pages_of_its_range) {
    need_dmabufs();
    const uint64_t page = os_page_bytes();
    gpuipc_buffer *buffer = core_buffer(core_unit * 2, core_unit);
    check_range(buffer, 0, core_unit * 2, 0, core_unit * 2);
    check_range(buffer, page, page, 0, page);
    check_range(buffer, page + 100, 8, 100, page);
    check_range(buffer, page - 1, 2, page - 1, 2 * page);
    check_range(buffer, core_unit - 1, 2, page - 1, 2 * page);
    check_range(buffer, core_unit * 2 - 1, 1, page - 1, page);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(native_dmabuf, of_memory_that_was_opened) {
    need_dmabufs();
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_buffer *opened = NULL;
    gpuipc_buffer *only_read = NULL;
    gpuipc_native_segment segment;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    os_handle handle;
    size_t count = 0;
    check_ok(gpuipc_native_export(buffer, &segment, 1, &layout, &count));
    check_ok(gpuipc_native_import(core_context, &segment, 1, &layout, GPUIPC_DEVICE_OWNER,
                                  GPUIPC_ACCESS_READ_WRITE, &opened));
    check_ok(gpuipc_native_import(core_context, &segment, 1, &layout, GPUIPC_DEVICE_OWNER,
                                  GPUIPC_ACCESS_READ, &only_read));
    check_range(opened, 0, core_unit, 0, core_unit);
    check_none(GPUIPC_ERR_ACCESS_DENIED, "may only be read", only_read, 0, core_unit);
    check_ok(os_handle_adopt(segment.handle.value, &handle));
    os_handle_close(&handle);
    check_ok(gpuipc_buffer_release(only_read));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(buffer));
}

Test(native_dmabuf, of_the_callers_own_memory) {
    need_dmabufs();
    const driver *drv = core_driver();
    gpuipc_buffer *whole = NULL;
    gpuipc_buffer *tiny = NULL;
    CUdeviceptr large;
    CUdeviceptr small;
    core_enter_device(0);
    cr_assert_eq(drv->cuMemAlloc(&large, core_unit), CUDA_SUCCESS);
    cr_assert_eq(drv->cuMemAlloc(&small, 100), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_wrap(core_context, large, core_unit, &whole));
    check_ok(gpuipc_buffer_wrap(core_context, small, 100, &tiny));
    check_range(whole, 0, core_unit, 0, core_unit);
    check_none(GPUIPC_ERR_NOT_SHAREABLE, "hold other memory too", tiny, 0, 100);
    check_ok(gpuipc_buffer_release(whole));
    check_ok(gpuipc_buffer_release(tiny));
    cr_assert_eq(drv->cuMemFree(large), CUDA_SUCCESS);
    cr_assert_eq(drv->cuMemFree(small), CUDA_SUCCESS);
}

Test(native_dmabuf, of_memory_of_the_host) {
    core_need_emulated();
    need_dmabufs();
    const driver *drv = core_driver();
    gpuipc_buffer *buffer = NULL;
    void *host;
    core_enter_device(0);
    cr_assert_eq(drv->cuMemHostAlloc(&host, core_unit, 0), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_wrap(core_context, (uint64_t)(uintptr_t)host, core_unit, &buffer));
    const uint64_t page = os_page_bytes();
    const uint64_t first = (page - (uintptr_t)host % page) % page;
    check_none(GPUIPC_ERR_NOT_SHAREABLE, "no memory of a device", buffer, first, page);
    check_ok(gpuipc_buffer_release(buffer));
    cr_assert_eq(drv->cuMemFreeHost(host), CUDA_SUCCESS);
}

Test(native_dmabuf, that_is_refused) {
    gpuipc_native_dmabuf made = {.struct_size = 1};
    need_dmabufs();
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    check_none(GPUIPC_ERR_OUT_OF_RANGE, "0 bytes", buffer, 0, 0);
    check_none(GPUIPC_ERR_OUT_OF_RANGE, "", buffer, core_unit, 1);
    check_none(GPUIPC_ERR_OUT_OF_RANGE, "", buffer, 1, core_unit);
    check_none(GPUIPC_ERR_OUT_OF_RANGE, "", buffer, 1, UINT64_MAX);
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_native_export_dmabuf(buffer, 0, 1, &made));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_native_export_dmabuf(buffer, 0, 1, NULL));
    check_ok(gpuipc_buffer_release(buffer));
    check_none(GPUIPC_ERR_RELEASED, "", buffer, 0, core_unit);
}

Test(native_dmabuf, that_the_driver_refuses) {
    core_need_emulated();
    need_dmabufs();
    const struct {
        const char *failure;
        gpuipc_status expected;
    } rows[] = {
        {"cuMemGetHandleForAddressRange:1=801", GPUIPC_ERR_NOT_SUPPORTED},
        {"cuMemGetHandleForAddressRange:1=1", GPUIPC_ERR_NOT_SHAREABLE},
        {"cuMemGetHandleForAddressRange:1=304", GPUIPC_ERR_CUDA},
        {"cuMemGetHandleForAddressRange:1=999", GPUIPC_ERR_CUDA},
        {"cuCtxPushCurrent:1=999", GPUIPC_ERR_CUDA},
    };
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        core_set_failures(rows[i].failure);
        check_none(rows[i].expected, "", buffer, 0, core_unit);
    }
    core_set_failures("");
    check_ok(gpuipc_buffer_release(buffer));
}

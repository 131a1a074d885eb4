/* SPDX-License-Identifier: MIT */
/** @file Memory of the host that the GPU reaches: allocated by the driver, or registered with it. */
#include <string.h>

#include "conformance_share.h"

TestSuite(pinned, .init = conformance_start, .fini = conformance_finish, .timeout = 60);

#define PAGES 16

/** Memory of the host that begins on a page; nobody has registered it. */
static unsigned char *pages_make(os_handle *out_handle) {
    void *address = NULL;
    cr_assert_eq(os_memory_create("gpuipc-pinned", PAGES * PAGE, out_handle), GPUIPC_OK);
    cr_assert_eq(os_memory_map(*out_handle, PAGES * PAGE, true, &address), GPUIPC_OK);
    return address;
}

static void pages_undo(unsigned char *pages, os_handle *handle) {
    os_memory_unmap(pages, PAGES * PAGE);
    os_handle_close(handle);
}

Test(pinned, allocated_and_freed) {
    void *address = NULL, *none = &address;
    CUdeviceptr device = 0;
    CHECK("cuda.h: cuMemHostAlloc", CUDA_SUCCESS, drv.cuMemHostAlloc(&address, 10000, 0));
    CHECK("cuda.h: cuMemHostGetDevicePointer", CUDA_SUCCESS,
          drv.cuMemHostGetDevicePointer(&device, address, 0));
    cr_assert_eq(device, (CUdeviceptr)(uintptr_t)address, "cuda.h: unified addresses are equal");
    memset(address, 0x5A, 10000);
    cr_assert_eq(word_read(device + 9996), 0x5A5A5A5A, "the GPU reads what the host wrote");
    CHECK("measured: 0 bytes", CUDA_SUCCESS, drv.cuMemHostAlloc(&none, 0, 0));
    cr_assert_null(none, "measured: 0 bytes have no address");
    CHECK("measured: no place for the address", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemHostAlloc(NULL, 64, 0));
    CHECK("cuda.h: other flags are not valid", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemHostAlloc(&none, 64, 0x10));
    CHECK("measured: too large", CUDA_ERROR_OUT_OF_MEMORY,
          drv.cuMemHostAlloc(&none, (size_t)1 << 50, 0));
    CHECK("measured: it is not registered", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemHostRegister(address, 4096, 0));
    CHECK("measured: it is not registered", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemHostUnregister(address));
    CHECK("measured: it is no device memory", CUDA_ERROR_INVALID_VALUE, drv.cuMemFree(device));
    CHECK("measured: an interior pointer", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemFreeHost((unsigned char *)address + 4096));
    CHECK("cuda.h: cuMemFreeHost", CUDA_SUCCESS, drv.cuMemFreeHost(address));
    CHECK("measured: freed twice", CUDA_ERROR_INVALID_VALUE, drv.cuMemFreeHost(address));
    CHECK("measured: memory that the driver does not know", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemFreeHost(&address));
    CHECK("measured: address 0", CUDA_SUCCESS, drv.cuMemFreeHost(NULL));
}

Test(pinned, registered_with_each_flag) {
    static const unsigned flags[] = {0, CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_DEVICEMAP,
                                     CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP};
    os_handle handle = OS_HANDLE_NONE;
    unsigned char *const pages = pages_make(&handle);
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        CUdeviceptr device = 0;
        CHECK("cuda.h: cuMemHostRegister", CUDA_SUCCESS,
              drv.cuMemHostRegister(pages, 2 * PAGE, flags[i]));
        CHECK("cuda.h: cuMemHostGetDevicePointer", CUDA_SUCCESS,
              drv.cuMemHostGetDevicePointer(&device, pages + 5000, 0));
        cr_assert_eq(device, (CUdeviceptr)(uintptr_t)(pages + 5000),
                     "measured: equal addresses, inside as well");
        CHECK("cuda.h: cuMemHostUnregister", CUDA_SUCCESS, drv.cuMemHostUnregister(pages));
        CHECK("measured: registered no more", CUDA_ERROR_INVALID_VALUE,
              drv.cuMemHostGetDevicePointer(&device, pages, 0));
    }
    CHECK("measured: an unknown flag", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemHostRegister(pages, 2 * PAGE, 0x10));
    pages_undo(pages, &handle);
}

Test(pinned, register_refuses) {
    os_handle handle = OS_HANDLE_NONE;
    unsigned char *const pages = pages_make(&handle);
    CUdeviceptr device = 0;
    OK(drv.cuMemAlloc(&device, GRANULE));
    CHECK("measured: address 0", CUDA_ERROR_INVALID_VALUE, drv.cuMemHostRegister(NULL, PAGE, 0));
    CHECK("measured: 0 bytes", CUDA_ERROR_INVALID_VALUE, drv.cuMemHostRegister(pages, 0, 0));
    CHECK("measured: device memory", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemHostRegister((void *)(uintptr_t)device, PAGE, 0));
    CHECK("measured: never registered", CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
          drv.cuMemHostUnregister(pages));
    CHECK("measured: address 0", CUDA_ERROR_INVALID_VALUE, drv.cuMemHostUnregister(NULL));
    OK(drv.cuMemHostRegister(pages, 2 * PAGE, CU_MEMHOSTREGISTER_PORTABLE));
    const struct {
        const char *row;
        size_t first, bytes;
    } rows[] = {{"cuda.h: registered already", 0, 2 * PAGE},
                {"measured: a part of what is registered", PAGE, PAGE},
                {"measured: more than what is registered", 0, 4 * PAGE},
                {"measured: an overlap", PAGE, 2 * PAGE}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK(rows[i].row, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
              drv.cuMemHostRegister(pages + rows[i].first, rows[i].bytes, 0));
    }
    CHECK("measured: next to what is registered", CUDA_SUCCESS,
          drv.cuMemHostRegister(pages + 2 * PAGE, PAGE, 0));
    CHECK("measured: an interior pointer", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemHostUnregister(pages + PAGE));
    CHECK("measured: it was not allocated", CUDA_ERROR_INVALID_VALUE, drv.cuMemFreeHost(pages));
    CHECK("measured: flags must be 0", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemHostGetDevicePointer(&device, pages, 1));
    CHECK("measured: no place for the address", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemHostGetDevicePointer(NULL, pages, 0));
    OK(drv.cuMemHostUnregister(pages + 2 * PAGE));
    OK(drv.cuMemHostUnregister(pages));
    CHECK("cuda.h: not registered any more", CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
          drv.cuMemHostUnregister(pages));
    OK(drv.cuMemFree(device));
    pages_undo(pages, &handle);
}

Test(pinned, needs_no_alignment) {
    os_handle handle = OS_HANDLE_NONE;
    unsigned char *const pages = pages_make(&handle);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CHECK("measured: an address and a size of no page", CUDA_SUCCESS,
          drv.cuMemHostRegister(pages + 100, 5000, 0));
    OK(drv.cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)(uintptr_t)(pages + 200)));
    cr_assert(base == (CUdeviceptr)(uintptr_t)(pages + 100) && bytes == 5000,
              "measured: exactly what was registered is known");
    CHECK("measured: not the rest of its pages", CUDA_ERROR_NOT_FOUND,
          drv.cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)(uintptr_t)pages));
    OK(drv.cuMemHostUnregister(pages + 100));
    pages_undo(pages, &handle);
}

Test(pinned, needs_a_context) {
    os_handle handle = OS_HANDLE_NONE;
    unsigned char *const pages = pages_make(&handle);
    void *address = NULL;
    OK(drv.cuCtxSetCurrent(NULL));
    CHECK("cuda.h: a context is current", CUDA_ERROR_INVALID_CONTEXT,
          drv.cuMemHostAlloc(&address, PAGE, 0));
    CHECK("cuda.h: a context is current", CUDA_ERROR_INVALID_CONTEXT,
          drv.cuMemHostRegister(pages, PAGE, 0));
    conformance_use(0);
    pages_undo(pages, &handle);
}

Test(pinned, two_mappings_of_one_memory) {
    os_handle handle = OS_HANDLE_NONE;
    unsigned char *const first = pages_make(&handle);
    void *second = NULL;
    CUdeviceptr device = 0;
    cr_assert_eq(os_memory_map(handle, PAGES * PAGE, true, &second), GPUIPC_OK);
    OK(drv.cuMemHostRegister(first, PAGE, 0));
    CHECK("measured: the same pages at another address", CUDA_SUCCESS,
          drv.cuMemHostRegister(second, PAGE, 0));
    OK(drv.cuMemHostGetDevicePointer(&device, first, 0));
    word_write(device, 0x70B1);
    uint32_t word = 0;
    memcpy(&word, second, sizeof word);
    cr_assert_eq(word, 0x70B1);
    OK(drv.cuMemHostUnregister(second));
    OK(drv.cuMemHostUnregister(first));
    os_memory_unmap(second, PAGES * PAGE);
    pages_undo(first, &handle);
}

Test(pinned, registered_in_two_processes) {
    need_words(); /* only to have the other process write there */
    helper *other = helper_start(NULL);
    shared_page page = page_make();
    page_share(&page, other);
    OK(helper_do(other, "put 123"));
    OK(helper_do(other, "synchronize"));
    cr_assert_eq(page_load(&page, 0), 123, "measured: both GPUs reach one memory of the host");
    uint64_t word = 0;
    OK(drv.cuMemcpyDtoH(&word, page.device, sizeof word));
    cr_assert_eq(word, 123);
    page_undo(&page);
    helper_end(other);
}

Test(pinned, copies_do_not_wait) {
    const busy_work work = busy_start();
    os_handle handle = OS_HANDLE_NONE;
    unsigned char *const pages = pages_make(&handle);
    CUstream stream = NULL;
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(drv.cuMemHostRegister(pages, PAGES * PAGE, 0));
    busy_submit(&work, stream, 0x3C);
    CHECK("cuda.h: a copy into pinned memory is asynchronous", CUDA_SUCCESS,
          drv.cuMemcpyDtoHAsync(pages, work.address, PAGES * PAGE, stream));
    CHECK("cuda.h: it returns before it is done", CUDA_ERROR_NOT_READY, drv.cuStreamQuery(stream));
    OK(drv.cuStreamSynchronize(stream));
    cr_assert_eq(pages[PAGES * PAGE - 1], 0x3C);
    OK(drv.cuMemHostUnregister(pages));
    OK(drv.cuStreamDestroy(stream));
    busy_end(&work);
    pages_undo(pages, &handle);
}

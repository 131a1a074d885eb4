/* SPDX-License-Identifier: MIT */
/** @file Managed memory: one address for the host and all devices. */
#include <string.h>

#include "emulated_test.h"

#define BYTES ((size_t)4096)

static CUresult (*allocate)(CUdeviceptr *, size_t, unsigned);

static void start(void) {
    emulated_start(NULL);
    emulated_symbol(drv.library, "cuMemAllocManaged", &allocate);
}

TestSuite(emulated_managed, .init = start, .timeout = 60);

#define ATTACH_GLOBAL 1u

static uint32_t *make(CUdeviceptr *address) {
    check_success(allocate(address, BYTES, ATTACH_GLOBAL));
    return (uint32_t *)(uintptr_t)*address;
}

Test(emulated_managed, host_and_devices_use_it) {
    CUdeviceptr address = 0;
    CUdeviceptr device = 0;
    uint32_t *words = make(&address);
    cr_assert_eq(words[0], 0);
    check_success(drv.cuMemsetD32(address, 7, 2));
    check_success(drv.cuCtxSynchronize());
    cr_assert(words[0] == 7 && words[1] == 7 && words[2] == 0);
    check_success(drv.cuMemAlloc(&device, BYTES));
    words[1] = 8;
    check_success(drv.cuMemcpyDtoD(device, address, BYTES));
    cr_assert_eq(word_read(device + 4), 8);
    check_success(drv.cuMemFree(device));
    check_success(drv.cuMemFree(address));
}

Test(emulated_managed, says_what_it_is) {
    CUdeviceptr address = 0;
    unsigned managed = 0;
    unsigned type = 0;
    unsigned capable = 1;
    unsigned long long number = 0;
    make(&address);
    check_success(drv.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
    cr_assert_eq(managed, 1);
    check_success(drv.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    cr_assert_eq(type, CU_MEMORYTYPE_DEVICE);
    check_success(drv.cuPointerGetAttribute(
        &capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
    cr_assert_eq(capable, 0);
    check_success(drv.cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 9));
    cr_assert_eq(number, BYTES);
    check_success(drv.cuMemFree(address));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
}

Test(emulated_managed, is_counted_and_freed_once) {
    CUdeviceptr address = 0;
    gpuipc_emulated_live live;
    char text[512];
    make(&address);
    get_live(&live);
    cr_assert_eq(live.managed, 1);
    cr_assert_eq(live.pinned, 0);
    list_live(text, sizeof(text));
    cr_assert_not_null(strstr(text, "managed 0x"), "%s", text);
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemFree(address + 8));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemFreeHost((void *)(uintptr_t)address));
    check_success(drv.cuMemFree(address));
    get_live(&live);
    cr_assert_eq(live.managed, 0);
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemFree(address));
}

Test(emulated_managed, refuses_what_is_wrong) {
    CUdeviceptr address = 0;
    check_result(CUDA_ERROR_INVALID_VALUE, allocate(NULL, BYTES, ATTACH_GLOBAL));
    check_result(CUDA_ERROR_INVALID_VALUE, allocate(&address, 0, ATTACH_GLOBAL));
    check_result(CUDA_ERROR_INVALID_VALUE, allocate(&address, BYTES, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, allocate(&address, BYTES, 4));
    cr_assert_eq(address, 0);
}

/* cuda.h, cuStreamWaitValue64: "cannot be used with managed memory". */
Test(emulated_managed, holds_no_words_for_streams) {
    CUdeviceptr address = 0;
    make(&address);
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuStreamWriteValue64(NULL, address, 1, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuStreamWaitValue64(NULL, address, 0, 0));
    check_success(drv.cuMemFree(address));
}

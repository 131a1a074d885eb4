/* SPDX-License-Identifier: MIT */
/** @file Memory of cuMemAlloc, and what is told about any pointer. */
#include "conformance.h"

TestSuite(plain, .init = conformance_start, .fini = conformance_finish, .timeout = 60);

Test(plain, made_used_and_freed) {
    CUdeviceptr address = 0, other = 0;
    CHECK("cuda.h: cuMemAlloc", CUDA_SUCCESS, drv.cuMemAlloc(&address, 1000));
    CHECK("cuda.h: cuMemAlloc", CUDA_SUCCESS, drv.cuMemAlloc(&other, 5 * GRANULE + 1));
    cr_assert_eq(address % 256, 0, "cuda.h: aligned for any kind of variable (256 in the guide)");
    word_write(address + 996, 4711);
    word_write(other + 5 * GRANULE - 4, 4712);
    cr_assert_eq(word_read(address + 996), 4711);
    cr_assert_eq(word_read(other + 5 * GRANULE - 4), 4712);
    OK(drv.cuMemFree(other));
    OK(drv.cuMemFree(address));
}

Test(plain, alloc_and_free_refuse) {
    CUdeviceptr address = 0;
    CHECK("cuda.h: cuMemAlloc of 0 bytes", CUDA_ERROR_INVALID_VALUE, drv.cuMemAlloc(&address, 0));
    CHECK("cuda.h: cuMemAlloc too large", CUDA_ERROR_OUT_OF_MEMORY,
          drv.cuMemAlloc(&address, (size_t)1 << 44));
    OK(drv.cuMemAlloc(&address, 4 * GRANULE));
    CHECK("cuda.h: only what cuMemAlloc returned is freed", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemFree(address + 256));
    OK(drv.cuMemFree(address));
    CHECK("reading: freed twice", CUDA_ERROR_INVALID_VALUE, drv.cuMemFree(address));
    memory made = memory_make(0, GRANULE);
    CHECK("reading: cuMemFree of mapped memory", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemFree(made.address));
    memory_undo(&made);
}

Test(plain, address_range) {
    CUdeviceptr address = 0, base = 0;
    size_t bytes = 0;
    OK(drv.cuMemAlloc(&address, 3 * GRANULE + 512));
    CHECK("cuda.h: base and size of the allocation that contains the pointer", CUDA_SUCCESS,
          drv.cuMemGetAddressRange(&base, &bytes, address + 2 * GRANULE + 1));
    cr_assert_eq(base, address);
    cr_assert_eq(bytes, 3 * GRANULE + 512, "cuda.h: the size asked for, not %zu", bytes);
    OK(drv.cuMemFree(address));
    CHECK("reading: CUDA_ERROR_NOT_FOUND for what is no memory", CUDA_ERROR_NOT_FOUND,
          drv.cuMemGetAddressRange(&base, &bytes, address));
}

Test(plain, address_range_of_which_nothing_is_asked) {
    CUdeviceptr address = 0;
    OK(drv.cuMemAlloc(&address, GRANULE));
    CHECK("cuda.h: both results are optional", CUDA_SUCCESS,
          drv.cuMemGetAddressRange(NULL, NULL, address));
    OK(drv.cuMemFree(address));
    CHECK("measured: also of what was freed", CUDA_SUCCESS,
          drv.cuMemGetAddressRange(NULL, NULL, address));
}

Test(plain, is_freed_without_a_current_context) {
    CUdeviceptr address = 0;
    CUcontext popped = NULL;
    OK(drv.cuMemAlloc(&address, GRANULE));
    OK(drv.cuCtxPopCurrent(&popped));
    CHECK("measured: memory has its own context", CUDA_SUCCESS, drv.cuMemFree(address));
    OK(drv.cuCtxPushCurrent(popped));
    CHECK("reading: freed twice", CUDA_ERROR_INVALID_VALUE, drv.cuMemFree(address));
}

/** An attribute that is an int or narrower; the call may write less than 8 bytes. */
static unsigned long long attribute(CUpointer_attribute which, CUdeviceptr address,
                                    const char *source) {
    unsigned long long value = 0;
    CHECK(source, CUDA_SUCCESS, drv.cuPointerGetAttribute(&value, which, address));
    return value;
}

/** What every pointer to memory of device 0 says. */
static void check_common_attributes(CUdeviceptr address) {
    const char *const row = "cuda.h: attributes of a device pointer";
    cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, row),
                 (unsigned long long)CU_MEMORYTYPE_DEVICE, "%s: memory type", row);
    cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address, row), address,
                 "%s: device pointer", row);
    cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address, row), 0, "%s: ordinal",
                 row);
    cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, address, row), 0, "%s: managed", row);
    cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_MAPPED, address, row), 1, "%s: mapped", row);
}

Test(plain, attributes_of_plain_memory) {
    CUdeviceptr address = 0;
    CUcontext context = NULL;
    OK(drv.cuMemAlloc(&address, 2 * GRANULE));
    check_common_attributes(address + 100);
    CHECK("cuda.h: the context in which it was allocated", CUDA_SUCCESS,
          drv.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address + 100));
    cr_assert_eq(context, conformance_context(0));
    const char *const row = "cuda.h: attributes of plain memory";
    cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 100, row), address,
                 "%s: start", row);
    cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 100, row), 2 * GRANULE,
                 "%s: size", row);
    cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address, row), 1,
                 "%s: suits cuIpcGetMemHandle", row);
    cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address, row), 0,
                 "reading: plain memory has no handle types");
    OK(drv.cuMemFree(address));
}

Test(plain, attributes_of_mapped_memory) {
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    CUmemGenericAllocationHandle imported = 0;
    CUdeviceptr range = 0;
    os_handle shareable = memory_export(handle);
    OK(memory_import(shareable, &imported));
    OK(drv.cuMemAddressReserve(&range, 3 * GRANULE, 0, 0, 0));
    OK(drv.cuMemMap(range, GRANULE, 0, handle, 0));
    OK(drv.cuMemMap(range + GRANULE, GRANULE, 0, imported, 0));
    OK(memory_access(range, 2 * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    for (unsigned i = 0; i < 2; i++) { /* our own, then the imported one */
        const CUdeviceptr address = range + i * GRANULE + 64;
        const char *const row = "cuda.h: attributes of mapped memory";
        check_common_attributes(address);
        cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address, row), range,
                     "%s: the start of the reservation", row);
        cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address, row), 3 * GRANULE,
                     "%s: the size of the reservation", row);
        cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address, row), 0,
                     "measured: cuIpcGetMemHandle refuses VMM memory");
        cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address, row),
                     i == 0 ? (unsigned long long)os_shareable_handle_type : 0,
                     "cuda.h: handle types allowed for an export, %s",
                     i == 0 ? "own memory" : "imported memory (measured: no re-export)");
    }
    OK(drv.cuMemUnmap(range, 2 * GRANULE));
    OK(drv.cuMemAddressFree(range, 3 * GRANULE));
    os_handle_close(&shareable);
    OK(drv.cuMemRelease(imported));
    OK(drv.cuMemRelease(handle));
}

Test(plain, attributes_of_what_is_no_device_memory) {
    int local = 0;
    unsigned value = 0;
    CUdeviceptr address = 0;
    void *host = NULL;
    CHECK("cuda.h: an address that the driver does not know", CUDA_ERROR_INVALID_VALUE,
          drv.cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    (CUdeviceptr)(uintptr_t)&local));
    CHECK("cuda.h: an address that the driver does not know", CUDA_ERROR_INVALID_VALUE,
          drv.cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                    (CUdeviceptr)(uintptr_t)&local));
    OK(drv.cuMemAlloc(&address, GRANULE));
    CHECK("cuda.h: device memory has no host address", CUDA_ERROR_INVALID_VALUE,
          drv.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address));
    CHECK("reading: an unknown attribute", CUDA_ERROR_INVALID_VALUE,
          drv.cuPointerGetAttribute(&value, (CUpointer_attribute)9999, address));
    OK(drv.cuMemFree(address));
}

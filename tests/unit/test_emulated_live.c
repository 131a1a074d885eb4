/* SPDX-License-Identifier: MIT */
/** @file The count of what is live, and that releasing everything leaves nothing. */
#include <string.h>

#include "emulated_test.h"
#include "leak_gate.h"

TestSuite(emulated_live, .timeout = 60);

static gpuipc_emulated_live live(void) {
    gpuipc_emulated_live now;
    get_live(&now);
    return now;
}

Test(emulated_live, is_nothing_before_init) {
    gpuipc_emulated_live now;
    const gpuipc_emulated_live nothing = {0};
    emulated_load(NULL);
    memset(&now, 0x5a, sizeof(now));
    get_live(&now);
    cr_assert_eq(memcmp(&now, &nothing, sizeof(now)), 0);
}

Test(emulated_live, counts_memory) {
    emulated_start(NULL);
    CUmemGenericAllocationHandle again = 0;
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    const CUdeviceptr address = memory_map(handle, GRANULE);
    cr_assert_eq(live().allocations, 1);
    cr_assert_eq(live().reservations, 1);
    cr_assert_eq(live().mappings, 1);
    check_success(drv.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)address));
    cr_assert_eq(again, handle, "cuda.h: the same handle value that was mapped");
    cr_assert_eq(live().allocations, 2, "a retain counts like a handle");
    check_success(drv.cuMemRelease(handle));
    check_success(drv.cuMemRelease(handle));
    cr_assert_eq(live().allocations, 0);
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemRelease(handle));
    check_success(drv.cuMemUnmap(address, GRANULE));
    cr_assert_eq(live().mappings, 0);
    check_success(drv.cuMemAddressFree(address, GRANULE));
    cr_assert_eq(live().reservations, 0);
}

Test(emulated_live, counts_the_rest) {
    CUdeviceptr plain = 0;
    CUstream stream = NULL;
    CUevent event = NULL;
    CUcontext made = NULL;
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    CUresult (*destroy)(CUcontext);
    emulated_start(NULL);
    emulated_symbol(drv.library, "cuCtxCreate_v2", &create);
    emulated_symbol(drv.library, "cuCtxDestroy_v2", &destroy);
    cr_assert_eq(live().primary, 1);
    check_success(create(&made, 0, 0));
    check_success(drv.cuMemAlloc(&plain, 4));
    check_success(drv.cuStreamCreate(&stream, 0));
    check_success(drv.cuEventCreate(&event, 0));
    cr_assert_eq(live().contexts, 1);
    cr_assert_eq(live().plain, 1);
    cr_assert_eq(live().streams, 1);
    cr_assert_eq(live().events, 1);
    /* cuda.h: with a context goes all that was made in it. */
    check_success(destroy(made));
    cr_assert_eq(live().contexts + live().plain + live().streams + live().events, 0);
    check_result(CUDA_ERROR_INVALID_HANDLE, drv.cuEventDestroy(event));
    check_result(CUDA_ERROR_INVALID_HANDLE, drv.cuStreamDestroy(stream));
    check_success(drv.cuDevicePrimaryCtxRelease(0));
    cr_assert_eq(live().primary, 0);
}

Test(emulated_live, nothing_is_left_behind) {
    leak_gate gate;
    emulated_start(NULL);
    leak_gate_begin(&gate);
    for (int round = 0; round < 3; round++) {
        CUstream stream = NULL;
        CUevent event = NULL;
        CUdeviceptr plain = 0;
        intptr_t written = 0;
        os_handle exported;
        CUmemGenericAllocationHandle imported = 0;
        const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
        const CUdeviceptr address = memory_map(handle, GRANULE);
        check_success(memory_allow(address, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        check_success(drv.cuMemExportToShareableHandle(
            &written, handle, (CUmemAllocationHandleType)os_shareable_handle_type, 0));
        check_ok(os_handle_adopt_exported(&written, &exported));
        check_success(drv.cuMemImportFromShareableHandle(
            &imported, (void *)exported.value,
            (CUmemAllocationHandleType)os_shareable_handle_type));
        check_success(drv.cuStreamCreate(&stream, 0));
        check_success(drv.cuEventCreate(&event, 0));
        check_success(drv.cuMemAlloc(&plain, GRANULE));
        check_success(drv.cuMemsetD8Async(address, 1, GRANULE, stream));
        check_success(drv.cuMemcpyDtoDAsync(plain, address, GRANULE, stream));
        check_success(drv.cuEventRecord(event, stream));
        check_success(drv.cuStreamDestroy(stream));
        check_success(drv.cuMemFree(plain));
        check_success(drv.cuEventDestroy(event));
        memory_unmake(address, GRANULE);
        check_success(drv.cuMemRelease(handle));
        check_success(drv.cuMemRelease(imported));
        os_handle_close(&exported);
    }
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

static size_t free_bytes(void) {
    size_t available = 0;
    size_t total = 0;
    check_success(drv.cuMemGetInfo(&available, &total));
    return available;
}

Test(emulated_live, memory_is_taken_until_the_last_use) {
    emulated_start("memory=16M");
    const size_t all = free_bytes();
    const CUmemGenericAllocationHandle handle = memory_create(0, 4 * GRANULE);
    cr_assert_eq(free_bytes(), all - 4 * GRANULE);
    const CUdeviceptr address = memory_map(handle, 4 * GRANULE);
    check_success(drv.cuMemRelease(handle));
    cr_assert_eq(free_bytes(), all - 4 * GRANULE, "the mapping keeps it");
    CUmemGenericAllocationHandle other = 0;
    const CUmemAllocationProp prop = shareable_on(0);
    check_result(CUDA_ERROR_OUT_OF_MEMORY, drv.cuMemCreate(&other, 5 * GRANULE, &prop, 0));
    memory_unmake(address, 4 * GRANULE);
    cr_assert_eq(free_bytes(), all);
    check_success(drv.cuMemCreate(&other, 8 * GRANULE, &prop, 0));
    cr_assert_eq(free_bytes(), 0);
    CUdeviceptr plain = 0;
    check_result(CUDA_ERROR_OUT_OF_MEMORY, drv.cuMemAlloc(&plain, 1));
    check_success(drv.cuMemRelease(other));
    cr_assert_eq(free_bytes(), all);
}

/* SPDX-License-Identifier: MIT */
/** @file dma-bufs of address ranges: what has one, and how long it is. */
#include "conformance_range.h"

#include "conformance_share.h"
#include "emulated_api.h"

static void start(void) {
    conformance_start();
    if (!drv.has_dmabuf) {
        cr_skip_test("cuMemGetHandleForAddressRange came with CUDA 11.7");
    }
}

TestSuite(range, .init = start, .fini = conformance_finish, .timeout = 60);

static bool has_dmabufs(void) {
    int has = 0;
    OK(drv.cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0));
    return has != 0;
}

static void need_dmabufs(void) {
    if (!has_dmabufs()) {
        cr_skip_test("the device has no dma-bufs");
    }
}

static CUresult ask(CUdeviceptr address, size_t bytes, int *out_number) {
    return drv.cuMemGetHandleForAddressRange(out_number, address, bytes,
                                             CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

Test(range, that_a_device_without_dma_bufs_refuses) {
    int number = -1;
    if (has_dmabufs()) {
        cr_skip_test("the device has dma-bufs");
    }
    const memory made = memory_make(0, GRANULE);
    CHECK("cuda.h: a device without dma-bufs", CUDA_ERROR_NOT_SUPPORTED,
          ask(made.address, GRANULE, &number));
    memory_undo(&made);
}

static void check_range(const char *row, CUdeviceptr address, size_t bytes) {
    int number = -1;
    CHECK(row, CUDA_SUCCESS, ask(address, bytes, &number));
    cr_assert_geq(number, 0, "%s", row);
    cr_assert_eq(range_close(number), bytes, "reading: a dma-buf is as long as its range: %s", row);
}

Test(range, of_memory_that_is_mapped) {
    need_dmabufs();
    const size_t page = (size_t)os_page_bytes();
    memory made = memory_make(0, 2 * GRANULE);
    check_range("measured: a whole allocation", made.address, 2 * GRANULE);
    check_range("measured: a part of whole pages", made.address + page, 3 * page);
    int first = -1, second = -1;
    OK(ask(made.address, GRANULE, &first));
    OK(ask(made.address, GRANULE, &second));
    cr_assert_neq(first, second, "reading: each call makes a new one");
    memory_undo(&made);
    cr_assert_eq(range_close(first), GRANULE, "reading: it outlives the mapping");
    (void)range_close(second);
}

Test(range, over_two_allocations) {
    need_dmabufs();
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handles[2];
    OK(drv.cuMemAddressReserve(&address, 2 * GRANULE, 0, 0, 0));
    for (size_t i = 0; i < 2; i++) {
        handles[i] = memory_create(0, GRANULE);
        OK(drv.cuMemMap(address + i * GRANULE, GRANULE, 0, handles[i], 0));
        OK(memory_access(address + i * GRANULE, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    }
    check_range("measured: two allocations side by side", address, 2 * GRANULE);
    memory_unmap(address, 2 * GRANULE);
    OK(drv.cuMemRelease(handles[0]));
    OK(drv.cuMemRelease(handles[1]));
}

Test(range, of_memory_of_other_kinds) {
    need_dmabufs();
    CUdeviceptr plain = 0, pooled = 0;
    CUmemGenericAllocationHandle imported = 0;
    memory made = memory_make(0, GRANULE);
    os_handle shareable = memory_export(made.handle);
    OK(memory_import(shareable, &imported));
    const CUdeviceptr mapped = memory_map(imported, GRANULE);
    OK(memory_access(mapped, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    check_range("measured: imported memory", mapped, GRANULE);
    memory_unmap(mapped, GRANULE);
    OK(drv.cuMemRelease(imported));
    memory_undo(&made);
    os_handle_close(&shareable);

    OK(drv.cuMemAlloc(&plain, GRANULE));
    check_range("measured: memory of cuMemAlloc", plain, GRANULE);
    OK(drv.cuMemFree(plain));
    need_pools();
    OK(drv.cuMemAllocAsync(&pooled, GRANULE, NULL));
    OK(drv.cuStreamSynchronize(NULL));
    check_range("measured: memory of the default pool", pooled, GRANULE);
    OK(drv.cuMemFreeAsync(pooled, NULL));
    OK(drv.cuStreamSynchronize(NULL));
}

Test(range, that_is_refused) {
    need_dmabufs();
    const size_t page = (size_t)os_page_bytes();
    int number = -7;
    memory made = memory_make(0, GRANULE);
    CHECK("measured: an address that is not page-aligned", CUDA_ERROR_INVALID_VALUE,
          ask(made.address + 256, page, &number));
    CHECK("cuda.h: a length that is not page-aligned", CUDA_ERROR_INVALID_VALUE,
          ask(made.address, page + 256, &number));
    CHECK("reading: no length", CUDA_ERROR_INVALID_VALUE, ask(made.address, 0, &number));
    CHECK("cuda.h: the entire range must be mapped", CUDA_ERROR_INVALID_VALUE,
          ask(made.address, 2 * GRANULE, &number));
    CHECK("cuda.h: another type", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemGetHandleForAddressRange(&number, made.address, GRANULE, (CUmemRangeHandleType)2,
                                            0));
    if (drv.version >= 12080) {
        CHECK("measured: PCIe mappings", CUDA_ERROR_NOT_SUPPORTED,
              drv.cuMemGetHandleForAddressRange(&number, made.address, GRANULE,
                                                CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                                CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE));
    }
    memory_undo(&made);
    CHECK("cuda.h: the entire range must be mapped", CUDA_ERROR_INVALID_VALUE,
          ask(made.address, GRANULE, &number));
}

/* SPDX-License-Identifier: MIT */
/** @file Memory pools on the emulated driver, and, where the system has them, pools of two processes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "emulated_test.h"
#include "leak_gate.h"
#include "peer_process.h"

TestSuite(emulated_pool, .timeout = 60);

#define DELAY_MS 700
#define CHUNK    ((uint64_t)32 << 20)

static gpuipc_emulated_live live(void) {
    gpuipc_emulated_live now;
    get_live(&now);
    return now;
}

static CUmemPoolProps pool_on(int device, int types) {
    CUmemPoolProps props;
    memset(&props, 0, sizeof(props));
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = (CUmemAllocationHandleType)types;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = device;
    return props;
}

static CUmemoryPool pool_make(int device, int types) {
    const CUmemPoolProps props = pool_on(device, types);
    CUmemoryPool pool = NULL;
    check_success(drv.cuMemPoolCreate(&pool, &props));
    return pool;
}

static uint64_t number_of(CUmemoryPool pool, CUmemPool_attribute attribute) {
    uint64_t number = 0;
    check_success(drv.cuMemPoolGetAttribute(pool, attribute, &number));
    return number;
}

static size_t free_bytes(void) {
    size_t available = 0;
    size_t total = 0;
    check_success(drv.cuMemGetInfo(&available, &total));
    return available;
}

static CUdeviceptr allocate(CUmemoryPool pool, size_t bytes, CUstream stream) {
    CUdeviceptr address = 0;
    check_success(drv.cuMemAllocFromPoolAsync(&address, bytes, pool, stream));
    return address;
}

Test(emulated_pool, counts_what_it_has) {
    char text[1024];
    char line[128];
    emulated_start(NULL);
    const size_t all = free_bytes();
    const CUmemoryPool pool = pool_make(0, 0);
    const CUdeviceptr first = allocate(pool, 1000, NULL);
    const CUdeviceptr second = allocate(pool, 1000, NULL);
    cr_assert_eq(second - first, 1024);
    cr_assert_eq(number_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), CHUNK);
    cr_assert_eq(number_of(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 2000);
    cr_assert_eq(free_bytes(), all - CHUNK);
    cr_assert(live().pools == 1 && live().pooled == 2);
    list_live(text, sizeof(text));
    snprintf(line, sizeof(line), "pooled 0x%" PRIx64 " size 1000 device 0\n", (uint64_t)second);
    cr_assert(strstr(text, line) != NULL, "%s", text);
    snprintf(line, sizeof(line), "pool 0x%" PRIxPTR " device 0\n", (uintptr_t)pool);
    cr_assert(strstr(text, line) != NULL, "%s", text);
    const CUdeviceptr large = allocate(pool, 2 * CHUNK + 5, NULL);
    cr_assert_eq(number_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 4 * CHUNK);
    check_success(drv.cuMemFreeAsync(large, NULL));
    check_success(drv.cuMemFree(second));
    check_success(drv.cuMemPoolDestroy(pool));
    cr_assert(live().pools == 0 && live().pooled == 1, "it ends with its last allocation");
    word_write(first, 5);
    cr_assert_eq(word_read(first), 5);
    check_success(drv.cuMemFreeAsync(first, NULL));
    cr_assert_eq(live().pooled, 0);
    cr_assert_eq(free_bytes(), all);
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolDestroy(pool));
}

Test(emulated_pool, hands_out_what_was_freed_with_its_contents) {
    emulated_start(NULL);
    const CUmemoryPool pool = pool_make(0, 0);
    const CUdeviceptr other = allocate(pool, 64, NULL); /* keeps the chunk */
    const CUdeviceptr first = allocate(pool, 4096, NULL);
    word_write(first, 1234);
    check_success(drv.cuMemFreeAsync(first, NULL));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemFreeAsync(first, NULL));
    const CUdeviceptr second = allocate(pool, 4096, NULL);
    cr_assert_eq(first, second);
    cr_assert_eq(word_read(second), 1234);
    check_success(drv.cuMemFree(second));
    check_success(drv.cuMemFree(other));
    check_success(drv.cuMemPoolDestroy(pool));
}

/* A stream gets at once what it has freed itself; another one only when the first has got there. */
Test(emulated_pool, takes_back_in_the_order_of_the_stream) {
    CUstream stream = NULL;
    CUstream other = NULL;
    emulated_start(NULL);
    check_success(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_success(drv.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    const CUmemoryPool pool = pool_make(0, 0);
    const CUdeviceptr kept = allocate(pool, 64, stream);
    const CUdeviceptr first = allocate(pool, 4096, stream);
    set_delay(DELAY_MS);
    check_success(drv.cuMemsetD32Async(first, 1, 1024, stream));
    check_success(drv.cuMemFreeAsync(first, stream));
    const CUdeviceptr elsewhere = allocate(pool, 4096, other);
    cr_assert_neq(elsewhere, first, "its stream still writes there");
    const CUdeviceptr same = allocate(pool, 4096, stream);
    cr_assert_eq(same, first, "this stream writes before it uses it again");
    check_success(drv.cuMemFreeAsync(same, stream));
    set_delay(0);
    check_success(drv.cuStreamSynchronize(stream));
    const CUdeviceptr later = allocate(pool, 4096, other);
    cr_assert_eq(later, first);
    check_success(drv.cuMemFreeAsync(later, other));
    check_success(drv.cuMemFreeAsync(elsewhere, other));
    check_success(drv.cuMemFreeAsync(kept, other));
    check_success(drv.cuMemPoolDestroy(pool));
    check_success(drv.cuStreamDestroy(stream));
    check_success(drv.cuStreamDestroy(other));
}

Test(emulated_pool, keeps_what_its_threshold_says) {
    uint64_t threshold = UINT64_MAX;
    emulated_start(NULL);
    const CUmemoryPool pool = pool_make(0, 0);
    check_success(drv.cuMemFreeAsync(allocate(pool, 64, NULL), NULL));
    cr_assert_eq(number_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), CHUNK);
    check_success(drv.cuStreamSynchronize(NULL));
    cr_assert_eq(number_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    check_success(drv.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    check_success(drv.cuMemFreeAsync(allocate(pool, 64, NULL), NULL));
    check_success(drv.cuCtxSynchronize());
    cr_assert_eq(number_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), CHUNK);
    check_success(drv.cuMemPoolTrimTo(pool, CHUNK));
    cr_assert_eq(number_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), CHUNK);
    check_success(drv.cuMemPoolTrimTo(pool, 0));
    cr_assert_eq(number_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &threshold));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuMemPoolGetAttribute(pool, (CUmemPool_attribute)99, &threshold));
    check_success(drv.cuMemPoolDestroy(pool));
}

/* Measured on an H100 (driver 580), in any kind of stream. */
Test(emulated_pool, freeing_without_a_stream_under_pending_work_is_fatal) {
    CUstream stream = NULL;
    emulated_start(NULL);
    check_success(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const CUmemoryPool pool = pool_make(0, 0);
    const CUdeviceptr memory = allocate(pool, CHUNK, stream);
    set_delay(DELAY_MS);
    check_success(drv.cuMemsetD32Async(memory, 1, 1, stream));
    check_success(drv.cuMemFree(memory));
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuStreamSynchronize(stream));
    check_success(drv.cuMemPoolDestroy(pool));
}

Test(emulated_pool, work_goes_on_in_what_the_pool_keeps) {
    uint64_t threshold = UINT64_MAX;
    CUstream stream = NULL;
    emulated_start(NULL);
    check_success(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const CUmemoryPool pool = pool_make(0, 0);
    check_success(drv.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    const CUdeviceptr first = allocate(pool, CHUNK, stream);
    const CUdeviceptr second = allocate(pool, CHUNK, stream);
    set_delay(DELAY_MS);
    check_success(drv.cuMemsetD32Async(first, 1, 1, stream));
    check_success(drv.cuMemFree(first));
    check_success(drv.cuMemsetD32Async(second, 1, 1, stream));
    check_success(drv.cuMemFreeAsync(second, stream));
    check_success(drv.cuStreamSynchronize(stream));
    check_success(drv.cuMemPoolDestroy(pool));
    check_success(drv.cuStreamDestroy(stream));
}

Test(emulated_pool, ends_where_the_device_does) {
    CUdeviceptr more = 9;
    emulated_start("memory=48M");
    const CUmemoryPool pool = pool_make(0, 0);
    const CUmemoryPool another = pool_make(0, 0);
    const CUdeviceptr first = allocate(pool, 16 << 20, NULL);
    const CUdeviceptr second = allocate(another, 10 << 20, NULL);
    check_result(CUDA_ERROR_OUT_OF_MEMORY,
                 drv.cuMemAllocFromPoolAsync(&more, 40 << 20, another, NULL));
    cr_assert_eq(more, 9);
    check_success(drv.cuMemFreeAsync(first, NULL));
    check_success(drv.cuMemFreeAsync(allocate(another, 30 << 20, NULL), NULL));
    check_success(drv.cuMemFreeAsync(second, NULL));
    check_success(drv.cuMemPoolDestroy(pool));
    check_success(drv.cuMemPoolDestroy(another));
}

Test(emulated_pool, the_default_one_is_there) {
    CUmemoryPool pool = NULL;
    CUmemoryPool current = NULL;
    CUmemoryPool found = NULL;
    CUdeviceptr address = 0;
    CUresult (*get)(CUmemoryPool *, CUdevice);
    CUresult (*set)(CUdevice, CUmemoryPool);
    emulated_start(NULL);
    emulated_symbol(drv.library, "cuDeviceGetMemPool", &get);
    emulated_symbol(drv.library, "cuDeviceSetMemPool", &set);
    check_success(drv.cuDeviceGetDefaultMemPool(&pool, 0));
    check_success(get(&current, 0));
    cr_assert_eq(pool, current);
    check_result(CUDA_ERROR_INVALID_DEVICE, drv.cuDeviceGetDefaultMemPool(&pool, 99));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolDestroy(pool));
    check_success(drv.cuMemAllocAsync(&address, 100, NULL));
    check_success(drv.cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    cr_assert_eq(found, pool);
    check_success(drv.cuMemFreeAsync(address, NULL));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    const CUmemoryPool own = pool_make(0, 0);
    check_result(CUDA_ERROR_INVALID_VALUE, set(1, own));
    check_success(set(0, own));
    check_success(drv.cuMemAllocAsync(&address, 100, NULL));
    check_success(drv.cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    cr_assert_eq(found, own);
    check_success(drv.cuMemFreeAsync(address, NULL));
    check_success(drv.cuMemPoolDestroy(own));
    check_success(get(&current, 0));
    cr_assert_eq(pool, current, "cuda.h: its device goes back to the default one");
    cr_assert_eq(live().pools, 0);
}

Test(emulated_pool, access_is_for_whole_pools) {
    const CUmemAccessDesc allow = {{CU_MEM_LOCATION_TYPE_DEVICE, 1},
                                   CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccessDesc wrong = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_NONE};
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    emulated_start(NULL);
    const CUmemoryPool pool = pool_make(0, 0);
    const CUdeviceptr before = allocate(pool, 64, NULL);
    context_use(1);
    check_success(drv.cuMemPoolGetAccess(&flags, pool, &location));
    cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemsetD32(before, 1, 1));
    check_success(drv.cuMemPoolSetAccess(pool, &allow, 1));
    const CUdeviceptr after = allocate(pool, 64, NULL);
    check_success(drv.cuMemsetD32(before, 1, 1));
    check_success(drv.cuMemsetD32(after, 1, 1));
    check_result(CUDA_ERROR_INVALID_DEVICE, drv.cuMemPoolSetAccess(pool, &wrong, 1));
    wrong.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    check_result(CUDA_ERROR_NOT_SUPPORTED, drv.cuMemPoolSetAccess(pool, &wrong, 1));
    wrong.location.id = 99;
    check_result(CUDA_ERROR_INVALID_DEVICE, drv.cuMemPoolSetAccess(pool, &wrong, 1));
    check_success(drv.cuMemFree(before));
    check_success(drv.cuMemFree(after));
    check_success(drv.cuMemPoolDestroy(pool));
}

Test(emulated_pool, other_memory_is_refused) {
    CUdeviceptr plain = 0;
    CUdeviceptr nothing = 9;
    CUmemoryPool pool = NULL;
    CUmemPoolProps props = pool_on(99, 0);
    emulated_start(NULL);
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolCreate(&pool, &props));
    props = pool_on(0, 16);
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolCreate(&pool, &props));
    props = pool_on(0, 0);
    props.reserved[3] = 1;
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolCreate(&pool, &props));
    const CUdeviceptr memory = memory_make(0, GRANULE);
    check_success(drv.cuMemAllocAsync(&nothing, 0, NULL));
    check_success(drv.cuMemFreeAsync(nothing, NULL));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemAllocAsync(NULL, 64, NULL));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemAllocFromPoolAsync(&nothing, 64, NULL, NULL));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemFreeAsync(memory, NULL));
    check_success(drv.cuMemAlloc(&plain, 64));
    check_success(drv.cuMemFreeAsync(plain, NULL));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemFree(plain));
    memory_unmake(memory, GRANULE);
}

Test(emulated_pool, tcc_has_none) {
    int supported = 1;
    CUmemoryPool pool = NULL;
    emulated_start("driver-model=tcc");
    check_success(
        drv.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
    cr_assert_eq(supported, 0);
    check_result(CUDA_ERROR_NOT_SUPPORTED, drv.cuDeviceGetDefaultMemPool(&pool, 0));
}

Test(emulated_pool, cannot_be_exported_everywhere) {
    const CUmemPoolProps props = pool_on(0, os_shareable_handle_type);
    CUmemoryPool pool = NULL;
    int types = 0;
    const bool has_descriptors =
        os_shareable_handle_type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    emulated_start("wsl=1");
    check_success(
        drv.cuDeviceGetAttribute(&types, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0));
    cr_assert_eq(types, has_descriptors ? 9 : 0, "under WSL it says more than there is");
    check_result(CUDA_ERROR_NOT_SUPPORTED, drv.cuMemPoolCreate(&pool, &props));
}

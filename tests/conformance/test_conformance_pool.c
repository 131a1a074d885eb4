/* SPDX-License-Identifier: MIT */
/** @file Pools and their memory, in one process. */
#include <string.h>

#include "conformance_share.h"

static CUstream stream;

static void start(void) {
    conformance_start();
    need_pools();
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void finish(void) {
    if (stream != NULL) {
        OK(drv.cuStreamDestroy(stream));
    }
    conformance_finish();
}

TestSuite(pool, .init = start, .fini = finish, .timeout = 60);

static CUmemPoolProps properties_of(int device) {
    CUmemPoolProps properties;
    memset(&properties, 0, sizeof properties);
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return properties;
}

static CUmemoryPool pool_make(CUmemAllocationHandleType types) {
    CUmemPoolProps properties = properties_of(0);
    CUmemoryPool made = NULL;
    properties.handleTypes = types;
    OK(drv.cuMemPoolCreate(&made, &properties));
    return made;
}

static CUdeviceptr pool_alloc(CUmemoryPool from, size_t bytes) {
    CUdeviceptr address = 0;
    OK(drv.cuMemAllocFromPoolAsync(&address, bytes, from, stream));
    OK(drv.cuStreamSynchronize(stream));
    return address;
}

static os_handle pool_export(CUmemoryPool from) {
    uint64_t written = 0;
    os_handle shareable = OS_HANDLE_NONE;
    OK(drv.cuMemPoolExportToShareableHandle(&written, from, SYSTEM_TYPE, 0));
    cr_assert_eq(os_handle_adopt_exported(&written, &shareable), GPUIPC_OK);
    return shareable;
}

static CUresult pool_import(os_handle shareable, CUmemoryPool *out) {
    return drv.cuMemPoolImportFromShareableHandle(out, (void *)shareable.value, SYSTEM_TYPE, 0);
}

Test(pool, made_and_refused) {
    CUmemoryPool made = NULL;
    CUmemPoolProps properties = properties_of(0);
    CHECK("cuda.h: cuMemPoolCreate", CUDA_SUCCESS, drv.cuMemPoolCreate(&made, &properties));
    CHECK("cuda.h: cuMemPoolDestroy", CUDA_SUCCESS, drv.cuMemPoolDestroy(made));
    CHECK("measured: no properties", CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolCreate(&made, NULL));
    CHECK("measured: no place for the pool", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolCreate(NULL, &properties));
    properties.handleTypes = FOREIGN_TYPE;
    CHECK("measured: handles of the other system", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolCreate(&made, &properties));
    properties = properties_of(device_count);
    CHECK("measured: no such device", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolCreate(&made, &properties));
    properties = properties_of(-1);
    CHECK("measured: no such device", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolCreate(&made, &properties));
    properties = properties_of(0);
    properties.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
    CHECK("measured: an invalid type", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolCreate(&made, &properties));
    properties = properties_of(0);
    properties.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    CHECK("measured: an invalid location", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolCreate(&made, &properties));
    properties = properties_of(0);
    properties.reserved[sizeof properties.reserved - 1] = 1;
    CHECK("cuda.h: reserved must be 0", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolCreate(&made, &properties));
    CHECK("measured: no pool", CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolDestroy(NULL));
}

Test(pool, the_default_one) {
    CUmemoryPool made = NULL;
    uint64_t written = 0;
    CHECK("cuda.h: cuDeviceGetDefaultMemPool", CUDA_SUCCESS,
          drv.cuDeviceGetDefaultMemPool(&made, 0));
    cr_assert_not_null(made);
    CHECK("measured: no such device", CUDA_ERROR_INVALID_DEVICE,
          drv.cuDeviceGetDefaultMemPool(&made, device_count));
    CHECK("measured: no such device", CUDA_ERROR_INVALID_DEVICE,
          drv.cuDeviceGetDefaultMemPool(&made, -1));
    CHECK("cuda.h: the default pool is not exported", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolExportToShareableHandle(&written, made, SYSTEM_TYPE, 0));
    CHECK("cuda.h: the default pool is not destroyed", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolDestroy(made));
}

Test(pool, memory_is_made_and_freed) {
    CUmemoryPool from = pool_make(CU_MEM_HANDLE_TYPE_NONE);
    CUdeviceptr address = 0, none = 1, base = 0;
    size_t bytes = 0;
    int type = 0;
    CHECK("cuda.h: cuMemAllocFromPoolAsync", CUDA_SUCCESS,
          drv.cuMemAllocFromPoolAsync(&address, 1000, from, stream));
    OK(drv.cuMemsetD32Async(address, 0x9001, 250, stream));
    OK(drv.cuStreamSynchronize(stream));
    cr_assert_eq(word_read(address + 996), 0x9001);
    OK(drv.cuMemGetAddressRange(&base, &bytes, address + 500));
    cr_assert(base == address && bytes == 1000, "measured: base and the size asked for");
    CHECK("measured: 0 bytes", CUDA_SUCCESS, drv.cuMemAllocFromPoolAsync(&none, 0, from, stream));
    cr_assert_eq(none, 0, "measured: 0 bytes have no address");
    CHECK("cuda.h: too large", CUDA_ERROR_OUT_OF_MEMORY,
          drv.cuMemAllocFromPoolAsync(&none, (size_t)1 << 44, from, stream));
    CHECK("measured: no pool", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemAllocFromPoolAsync(&none, 8, NULL, stream));
    CHECK("measured: no place for the address", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemAllocFromPoolAsync(NULL, 8, from, stream));
    CHECK("measured: an interior pointer", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemFreeAsync(address + 512, stream));
    CHECK("measured: an interior pointer", CUDA_ERROR_INVALID_VALUE, drv.cuMemFree(address + 512));
    CHECK("cuda.h: cuMemFreeAsync", CUDA_SUCCESS, drv.cuMemFreeAsync(address, stream));
    CHECK("measured: known no more, before the stream is there", CUDA_ERROR_INVALID_VALUE,
          drv.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    CHECK("measured: freed twice", CUDA_ERROR_INVALID_VALUE, drv.cuMemFreeAsync(address, stream));
    OK(drv.cuStreamSynchronize(stream));
    address = pool_alloc(from, 3 * GRANULE);
    CHECK("cuda.h: cuMemFree of pool memory", CUDA_SUCCESS, drv.cuMemFree(address));
    CHECK("measured: freed twice", CUDA_ERROR_INVALID_VALUE, drv.cuMemFree(address));
    OK(drv.cuMemPoolDestroy(from));
}

Test(pool, stream_ordered_memory_without_a_pool) {
    CUdeviceptr address = 0;
    CUmemoryPool of_device = NULL, of_memory = NULL;
    OK(drv.cuDeviceGetDefaultMemPool(&of_device, 0));
    CHECK("cuda.h: cuMemAllocAsync", CUDA_SUCCESS, drv.cuMemAllocAsync(&address, 1000, stream));
    OK(drv.cuPointerGetAttribute(&of_memory, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    cr_assert_eq(of_memory, of_device, "cuda.h: it comes from the device's pool");
    CHECK("measured: the default pool exports no pointer", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolExportPointer(&(CUmemPoolPtrExportData){{0}}, address));
    OK(drv.cuMemFreeAsync(address, stream));
    OK(drv.cuStreamSynchronize(stream));
}

static uint64_t pool_attribute(CUmemoryPool of, CUmemPool_attribute which) {
    uint64_t value = UINT64_MAX;
    OK(drv.cuMemPoolGetAttribute(of, which, &value));
    return value;
}

Test(pool, attributes) {
    CUmemoryPool from = pool_make(CU_MEM_HANDLE_TYPE_NONE);
    uint64_t value = 5;
    cr_assert_eq(pool_attribute(from, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0, "cuda.h: 0 at first");
    cr_assert_eq(pool_attribute(from, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    cr_assert_eq(pool_attribute(from, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    const CUdeviceptr address = pool_alloc(from, 1000);
    cr_assert_eq(pool_attribute(from, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1000,
                 "measured: the sizes asked for");
    cr_assert_geq(pool_attribute(from, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 1000);
    CHECK("cuda.h: it is read only", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolSetAttribute(from, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
    CHECK("measured: an unknown attribute", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolGetAttribute(from, (CUmemPool_attribute)99, &value));
    value = UINT64_MAX;
    CHECK("cuda.h: the release threshold", CUDA_SUCCESS,
          drv.cuMemPoolSetAttribute(from, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    OK(drv.cuMemFreeAsync(address, stream));
    OK(drv.cuStreamSynchronize(stream));
    cr_assert_eq(pool_attribute(from, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    cr_assert_gt(pool_attribute(from, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0,
                 "cuda.h: kept below the threshold");
    CHECK("cuda.h: cuMemPoolTrimTo", CUDA_SUCCESS, drv.cuMemPoolTrimTo(from, 0));
    cr_assert_eq(pool_attribute(from, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    OK(drv.cuMemPoolDestroy(from));
}

Test(pool, freed_without_a_stream_is_given_back_at_once) {
    CUmemoryPool from = pool_make(CU_MEM_HANDLE_TYPE_NONE);
    uint64_t threshold = UINT64_MAX;
    const CUdeviceptr behind = pool_alloc(from, 32 * GRANULE);
    OK(drv.cuMemFreeAsync(behind, stream));
    cr_assert_eq(pool_attribute(from, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * GRANULE,
                 "measured: cuMemFreeAsync, kept until a synchronization");
    OK(drv.cuStreamSynchronize(stream));
    cr_assert_eq(pool_attribute(from, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    CUdeviceptr at_once = 0;
    OK(drv.cuMemAllocFromPoolAsync(&at_once, 32 * GRANULE, from, stream));
    OK(drv.cuMemFree(at_once));
    cr_assert_eq(pool_attribute(from, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0,
                 "measured: cuMemFree, nothing was waited for");
    OK(drv.cuStreamSynchronize(stream));
    OK(drv.cuMemPoolSetAttribute(from, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    OK(drv.cuMemFree(pool_alloc(from, 32 * GRANULE)));
    cr_assert_eq(pool_attribute(from, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * GRANULE,
                 "measured: below the threshold it is kept");
    OK(drv.cuMemPoolDestroy(from));
}

Test(pool, freed_without_a_stream_gives_back_no_other_memory) {
    CUmemoryPool from = pool_make(CU_MEM_HANDLE_TYPE_NONE);
    const CUdeviceptr first = pool_alloc(from, 32 * GRANULE);
    const CUdeviceptr second = pool_alloc(from, 32 * GRANULE);
    OK(drv.cuMemFreeAsync(first, stream));
    OK(drv.cuMemFree(second));
    cr_assert_eq(pool_attribute(from, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * GRANULE,
                 "measured: what was freed in a stream stays");
    OK(drv.cuStreamSynchronize(stream));
    const CUdeviceptr left = pool_alloc(from, 4 * GRANULE), right = pool_alloc(from, 4 * GRANULE);
    OK(drv.cuMemFree(left));
    cr_assert_geq(pool_attribute(from, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 8 * GRANULE,
                  "measured: of what the pool took in one piece a part is in use");
    OK(drv.cuMemFree(right));
    cr_assert_eq(pool_attribute(from, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    OK(drv.cuMemPoolDestroy(from));
}

Test(pool, access) {
    CUmemoryPool from = pool_make(CU_MEM_HANDLE_TYPE_NONE);
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAccessDesc access = {location, CU_MEM_ACCESS_FLAGS_PROT_NONE};
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CHECK("cuda.h: cuMemPoolGetAccess", CUDA_SUCCESS,
          drv.cuMemPoolGetAccess(&flags, from, &location));
    cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "cuda.h: its own device reaches it");
    CHECK("measured: it cannot be taken from its own device", CUDA_ERROR_INVALID_DEVICE,
          drv.cuMemPoolSetAccess(from, &access, 1));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    CHECK("measured: access to read only", CUDA_ERROR_NOT_SUPPORTED,
          drv.cuMemPoolSetAccess(from, &access, 1));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK("measured: given again", CUDA_SUCCESS, drv.cuMemPoolSetAccess(from, &access, 1));
    access.location.id = device_count;
    CHECK("measured: no such device", CUDA_ERROR_INVALID_DEVICE,
          drv.cuMemPoolSetAccess(from, &access, 1));
    OK(drv.cuMemPoolDestroy(from));
}

Test(pool, export_and_its_refusals) {
    need_shareable_pools();
    CUmemoryPool from = pool_make(SYSTEM_TYPE), closed = pool_make(CU_MEM_HANDLE_TYPE_NONE);
    CUmemPoolPtrExportData record, again;
    uint64_t written = 0;
    /* The driver does not write all of it (measured). */
    memset(&record, 0, sizeof record);
    memset(&again, 0, sizeof again);
    const CUdeviceptr address = pool_alloc(from, 4096), kept = pool_alloc(closed, 4096);
    CHECK("measured: the pool was never exported itself", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolExportPointer(&record, address));
    CHECK("measured: a pool made without handles", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolExportToShareableHandle(&written, closed, SYSTEM_TYPE, 0));
    CHECK("measured: another type of handle", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolExportToShareableHandle(&written, from, FOREIGN_TYPE, 0));
    CHECK("measured: no type of handle", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolExportToShareableHandle(&written, from, CU_MEM_HANDLE_TYPE_NONE, 0));
    CHECK("cuda.h: flags must be 0", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolExportToShareableHandle(&written, from, SYSTEM_TYPE, 1));
    CHECK("measured: no place for the handle", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolExportToShareableHandle(NULL, from, SYSTEM_TYPE, 0));
    os_handle shareable = pool_export(from);
    os_handle_close(&shareable);
    CHECK("measured: exported once, and older than that", CUDA_SUCCESS,
          drv.cuMemPoolExportPointer(&record, address));
    CHECK("measured: exported again", CUDA_SUCCESS, drv.cuMemPoolExportPointer(&again, address));
    cr_assert_arr_eq(&record, &again, sizeof record, "measured: the same bytes");
    CHECK("measured: an interior pointer", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolExportPointer(&again, address + 512));
    CHECK("measured: memory of a pool without handles", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolExportPointer(&again, kept));
    CHECK("measured: address 0", CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolExportPointer(&again, 0));
    CHECK("measured: no place for the record", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolExportPointer(NULL, address));
    CHECK("measured: cuIpcGetMemHandle on pool memory", CUDA_ERROR_INVALID_VALUE,
          drv.cuIpcGetMemHandle(&(CUipcMemHandle){{0}}, address));
    OK(drv.cuMemFree(kept));
    OK(drv.cuMemFree(address));
    CHECK("measured: freed memory", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolExportPointer(&again, address));
    OK(drv.cuMemPoolDestroy(closed));
    OK(drv.cuMemPoolDestroy(from));
}

Test(pool, imported_where_it_was_made) {
    need_shareable_pools();
    CUmemoryPool from = pool_make(SYSTEM_TYPE), imported = NULL;
    CUmemPoolPtrExportData record;
    CUdeviceptr there = 0;
    const CUdeviceptr here = pool_alloc(from, 4096);
    os_handle shareable = pool_export(from);
    OK(drv.cuMemPoolExportPointer(&record, here));
    CHECK("measured: import in the exporting process", CUDA_SUCCESS,
          pool_import(shareable, &imported));
    cr_assert_neq(imported, from, "measured: it is a pool of its own");
    CHECK("measured: a pointer into the pool that exported it", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolImportPointer(&there, from, &record));
    CHECK("measured: a pointer", CUDA_SUCCESS,
          drv.cuMemPoolImportPointer(&there, imported, &record));
    cr_assert_neq(there, here, "measured: at an address of its own");
    word_write(here, 0x0517);
    cr_assert_eq(word_read(there), 0x0517, "measured: with the same contents");
    CHECK("measured: a pool whose pointers are in use", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolDestroy(imported));
    OK(drv.cuMemFree(there));
    OK(drv.cuCtxSynchronize());
    OK(drv.cuMemPoolDestroy(imported));
    cr_assert_eq(word_read(here), 0x0517, "measured: the original goes on");
    OK(drv.cuMemFree(here));
    OK(drv.cuMemPoolDestroy(from));
    os_handle_close(&shareable);
}

Test(pool, import_refuses) {
    need_shareable_pools();
    CUmemoryPool from = pool_make(SYSTEM_TYPE), imported = NULL;
    CUmemGenericAllocationHandle handle = 0;
    CUmemPoolPtrExportData record;
    CUdeviceptr address = 0;
    wrong_handle wrong[WRONG_HANDLES_MAX];
    os_handle shareable = pool_export(from);
    memory made = memory_make(0, GRANULE);
    os_handle of_memory = memory_export(made.handle);
    const size_t count = wrong_handles_open(wrong);
    for (size_t i = 0; i < count; i++) {
        CHECK(wrong[i].what, CUDA_ERROR_UNKNOWN, pool_import(wrong[i].handle, &imported));
    }
    wrong_handles_close(wrong, count);
    CHECK("measured: a handle of VMM memory", CUDA_ERROR_NOT_SUPPORTED,
          pool_import(of_memory, &imported));
    CHECK("measured: a pool's handle as VMM memory", CUDA_ERROR_NOT_SUPPORTED,
          memory_import(shareable, &handle));
    CHECK("measured: no type of handle", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolImportFromShareableHandle(&imported, (void *)shareable.value,
                                                 CU_MEM_HANDLE_TYPE_NONE, 0));
    CHECK(
        "cuda.h: flags must be 0", CUDA_ERROR_INVALID_VALUE,
        drv.cuMemPoolImportFromShareableHandle(&imported, (void *)shareable.value, SYSTEM_TYPE, 1));
    CHECK("measured: no place for the pool", CUDA_ERROR_INVALID_VALUE,
          pool_import(shareable, NULL));
    OK(pool_import(shareable, &imported));
    memset(&record, 0, sizeof record);
    CHECK("measured: a record of zeroes", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolImportPointer(&address, imported, &record));
    memset(&record, 0xFF, sizeof record);
    CHECK("measured: a record of ones", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolImportPointer(&address, imported, &record));
    CHECK("measured: no record", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolImportPointer(&address, imported, NULL));
    CHECK("measured: no pool", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolImportPointer(&address, NULL, &record));
    OK(drv.cuMemPoolDestroy(imported));
    memory_undo(&made);
    OK(drv.cuMemPoolDestroy(from));
    os_handle_close(&of_memory);
    os_handle_close(&shareable);
}

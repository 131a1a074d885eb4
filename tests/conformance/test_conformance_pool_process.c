/* SPDX-License-Identifier: MIT */
/** @file A pool between two processes: the helper owns it, the test imports it. */
#include <string.h>

#include "conformance_share.h"

static CUstream stream;

static void start(void) {
    conformance_start();
    need_shareable_pools();
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void finish(void) {
    if (stream != NULL) {
        OK(drv.cuStreamDestroy(stream));
    }
    conformance_finish();
}

TestSuite(pool_process, .init = start, .fini = finish, .timeout = 60);

/** A helper with a pool, which is imported here. */
typedef struct import {
    helper *owner;
    CUmemoryPool pool;
    os_handle shareable;
} import;

static CUresult pool_import(os_handle shareable, CUmemoryPool *out) {
    return drv.cuMemPoolImportFromShareableHandle(out, (void *)shareable.value, SYSTEM_TYPE, 0);
}

static import import_start(void) {
import made = {.owner = helper_start(NULL) };
    made.shareable = helper_pool(made.owner, 0);
    CHECK("cuda.h: cuMemPoolImportFromShareableHandle", CUDA_SUCCESS,
          pool_import(made.shareable, &made.pool));
    return made;
}

/** When every pointer is freed. */
static void import_end(import *made) {
    OK(drv.cuCtxSynchronize());
    CHECK("measured: an imported pool without pointers", CUDA_SUCCESS,
          drv.cuMemPoolDestroy(made->pool));
    os_handle_close(&made->shareable);
    helper_end(made->owner);
}

static CUdeviceptr pointer_import(const import *made, CUmemPoolPtrExportData *record) {
    CUdeviceptr address = 0;
    CHECK("cuda.h: cuMemPoolImportPointer", CUDA_SUCCESS,
          drv.cuMemPoolImportPointer(&address, made->pool, record));
    return address;
}

static void check_gone(CUdeviceptr address, const char *row) {
    uint32_t word = 0;
    CHECK(row, CUDA_ERROR_INVALID_VALUE, drv.cuMemcpyDtoH(&word, address, sizeof word));
}

Test(pool_process, both_see_one_memory) {
import made = import_start();
    CUmemPoolPtrExportData records[3];
    CUdeviceptr addresses[3];
    const size_t sizes[] = {1000, 1000, 5 * GRANULE};
    for (unsigned i = 0; i < 3; i++) {
        helper_make(made.owner, &records[i], "pooled %zu %u", sizes[i], 600 + i);
    }
    for (unsigned i = 0; i < 3; i++) {
        CUdeviceptr base = 0;
        size_t bytes = 0;
        addresses[i] = pointer_import(&made, &records[i]);
        cr_assert_eq(word_read(addresses[i]), 600 + i,
                     "measured: the owner's device reads it, without cuMemPoolSetAccess");
        OK(drv.cuMemGetAddressRange(&base, &bytes, addresses[i] + 700));
        cr_assert(base == addresses[i] && bytes == sizes[i],
                  "measured: base and the size the owner asked for");
    }
    word_write(addresses[2] + GRANULE, 44);
    cr_assert_eq(helper_peek(made.owner, 2, GRANULE), 44, "the owner sees what was written");
    OK(drv.cuMemFree(addresses[2]));
    CHECK("cuda.h: cuMemFreeAsync of imported memory", CUDA_SUCCESS,
          drv.cuMemFreeAsync(addresses[1], stream));
    OK(drv.cuStreamSynchronize(stream));
    check_gone(addresses[1], "measured: freed memory is not read");
    CHECK("measured: freed twice", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemFreeAsync(addresses[1], stream));
    cr_assert_eq(word_read(addresses[0]), 600, "the others go on");
    OK(drv.cuMemFree(addresses[0]));
    CHECK("cuda.h: the importer frees first", CUDA_SUCCESS, helper_do(made.owner, "free 0"));
    import_end(&made);
}

Test(pool_process, one_pointer_imported_twice) {
import made = import_start();
    CUmemPoolPtrExportData record;
    helper_make(made.owner, &record, "pooled 1000 7");
    const CUdeviceptr address = pointer_import(&made, &record);
    cr_assert_eq(pointer_import(&made, &record), address, "measured: the same address");
    OK(drv.cuMemFree(address));
    check_gone(address, "measured: it was not counted");
    CHECK("measured: freed twice", CUDA_ERROR_INVALID_VALUE, drv.cuMemFree(address));
    CHECK("measured: imported anew", CUDA_SUCCESS,
          drv.cuMemPoolImportPointer(&(CUdeviceptr){0}, made.pool, &record));
    cr_assert_eq(word_read(address), 7, "measured: at the same address");
    OK(drv.cuMemFree(address));
    import_end(&made);
}

Test(pool_process, one_pool_imported_twice) {
import made = import_start();
    CUmemoryPool again = NULL;
    CUmemPoolPtrExportData record;
    helper_make(made.owner, &record, "pooled 1000 8");
    CHECK("measured: imported again", CUDA_SUCCESS, pool_import(made.shareable, &again));
    cr_assert_eq(again, made.pool, "measured: it is the same pool");
    CHECK("measured: one import is undone", CUDA_SUCCESS, drv.cuMemPoolDestroy(again));
    const CUdeviceptr address = pointer_import(&made, &record);
    cr_assert_eq(word_read(address), 8, "measured: the other import goes on");
    OK(drv.cuMemFree(address));
    import_end(&made);
}

Test(pool_process, what_an_imported_pool_refuses) {
import made = import_start();
    CUmemPoolPtrExportData record, again;
    CUdeviceptr out = 0;
    uint64_t value = 0, written = 0;
    helper_make(made.owner, &record, "pooled 1000 9");
    const CUdeviceptr address = pointer_import(&made, &record);
    CHECK("cuda.h: nothing is allocated from it", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemAllocFromPoolAsync(&out, 100, made.pool, stream));
    CHECK("measured: it is not exported again", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolExportToShareableHandle(&written, made.pool, SYSTEM_TYPE, 0));
    CHECK("measured: nor are its pointers", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolExportPointer(&again, address));
    CHECK("measured: it is not trimmed", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolTrimTo(made.pool, 0));
    CHECK("measured: it has no attributes", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolGetAttribute(made.pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
    CHECK("measured: it has no attributes", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolSetAttribute(made.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    CHECK("measured: its pointers are in use", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolDestroy(made.pool));
    cr_assert_eq(word_read(address), 9, "none of it did any harm");
    OK(drv.cuMemFree(address));
    import_end(&made);
}

Test(pool_process, pointer_of_another_pool) {
import first = import_start(), second = import_start();
    CUmemPoolPtrExportData record;
    CUdeviceptr out = 0;
    helper_make(second.owner, &record, "pooled 1000 10");
    CHECK("measured: a pointer of another pool", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemPoolImportPointer(&out, first.pool, &record));
    out = pointer_import(&second, &record);
    cr_assert_eq(word_read(out), 10);
    OK(drv.cuMemFree(out));
    import_end(&second);
    import_end(&first);
}

Test(pool_process, owner_destroys_its_pool) {
import made = import_start();
    CUmemPoolPtrExportData first, second;
    helper_make(made.owner, &first, "pooled 1000 11");
    helper_make(made.owner, &second, "pooled %zu 12", 5 * GRANULE);
    const CUdeviceptr address = pointer_import(&made, &first);
    CHECK("cuda.h: a pool with memory in use is destroyed later", CUDA_SUCCESS,
          helper_do(made.owner, "pool-destroy"));
    cr_assert_eq(word_read(address), 11);
    const CUdeviceptr other = pointer_import(&made, &second);
    cr_assert_eq(word_read(other), 12, "measured: other pointers of it are still imported");
    OK(drv.cuMemFree(other));
    OK(drv.cuMemFree(address));
    CHECK("measured: the owner frees them afterwards", CUDA_SUCCESS,
          helper_do(made.owner, "free 0"));
    CHECK("measured: the owner frees them afterwards", CUDA_SUCCESS,
          helper_do(made.owner, "free 1"));
    import_end(&made);
}

Test(pool_process, owner_dies) {
import made = import_start();
    CUmemPoolPtrExportData first, second;
    CUmemoryPool again = NULL;
    helper_make(made.owner, &first, "pooled 1000 13");
    helper_make(made.owner, &second, "pooled %zu 14", 40 * GRANULE);
    const CUdeviceptr address = pointer_import(&made, &first);
    helper_kill(made.owner);
    cr_assert_eq(word_read(address), 13, "measured: imported memory outlives its owner");
    word_write(address, 15);
    cr_assert_eq(word_read(address), 15);
    const CUdeviceptr other = pointer_import(&made, &second);
    cr_assert_eq(word_read(other), 14, "measured: its pointers are still imported");
    CHECK("measured: so is the pool", CUDA_SUCCESS, pool_import(made.shareable, &again));
    OK(drv.cuMemFree(other));
    OK(drv.cuMemFree(address));
    OK(drv.cuCtxSynchronize());
    OK(drv.cuMemPoolDestroy(again));
    import_end(&made);
}

Test(pool_process, on_a_peer_gpu) {
    conformance_need_devices(2);
    int can = 0, ordinal = -1;
    OK(drv.cuDeviceCanAccessPeer(&can, 1, 0));
    if (can == 0) {
        cr_skip_test("devices 0 and 1 have no peer access");
    }
import made = import_start();
    CUmemPoolPtrExportData record;
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    helper_make(made.owner, &record, "pooled 1000 16");
    conformance_use(1);
    const CUdeviceptr address = pointer_import(&made, &record);
    OK(drv.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    cr_assert_eq(ordinal, 0, "measured: the owner, not the device that imports: %d", ordinal);
    CHECK("measured: a peer needs access", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemsetD32(address, 1, 1));
    CHECK("cuda.h: cuMemPoolSetAccess", CUDA_SUCCESS,
          drv.cuMemPoolSetAccess(made.pool, &access, 1));
    cr_assert_eq(word_read(address), 16);
    OK(drv.cuMemsetD32(address, 17, 1));
    OK(drv.cuCtxSynchronize());
    cr_assert_eq(helper_peek(made.owner, 0, 0), 17);
    OK(drv.cuMemFree(address));
    import_end(&made);
}

/* SPDX-License-Identifier: MIT */
/** @file Pools of two processes on the emulated driver; only Linux has them. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "emulated_test.h"
#include "leak_gate.h"
#include "peer_process.h"

TestSuite(posix_emulated_pool, .timeout = 60);

#define FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static CUmemoryPool pool_make(int types) {
    CUmemPoolProps props;
    CUmemoryPool pool = NULL;
    memset(&props, 0, sizeof(props));
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = (CUmemAllocationHandleType)types;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    check_success(drv.cuMemPoolCreate(&pool, &props));
    return pool;
}

static os_handle pool_export(CUmemoryPool pool) {
    int descriptor = -1;
    os_handle handle;
    check_success(drv.cuMemPoolExportToShareableHandle(&descriptor, pool, FD, 0));
    check_ok(os_handle_adopt(descriptor, &handle));
    return handle;
}

static CUmemoryPool pool_import(const os_handle *handle) {
    CUmemoryPool pool = NULL;
    check_success(drv.cuMemPoolImportFromShareableHandle(&pool, (void *)handle->value, FD, 0));
    return pool;
}

/* A pool of the peer's, which has an allocation with this word in it. */
static CUmemoryPool peer_pool(peer_process *peer, uint32_t word, CUmemPoolPtrExportData *data) {
    peer_ask(peer, "0", "pool-make");
    peer_ask(peer, "0", "pool-alloc 4096");
    peer_ask(peer, "0", "set-word %" PRIu32, word);
    peer_ask(peer, "0", "pool-give");
    os_handle handle = peer_take(peer);
    const CUmemoryPool pool = pool_import(&handle);
    cr_assert_eq(pool_import(&handle), pool, "measured: the same one again");
    check_success(drv.cuMemPoolDestroy(pool)); /* and counted */
    os_handle_close(&handle);
    peer_get_bytes(peer, "pool-get", data->reserved);
    return pool;
}

Test(posix_emulated_pool, both_see_one_memory) {
    peer_process peer;
    leak_gate gate;
    CUmemPoolPtrExportData data;
    CUdeviceptr address = 0;
    CUdeviceptr again = 0;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUmemoryPool found = NULL;
    emulated_start(NULL);
    leak_gate_begin(&gate);
    peer_start(&peer, NULL);
    const CUmemoryPool pool = peer_pool(&peer, 51, &data);
    check_success(drv.cuMemPoolImportPointer(&address, pool, &data));
    check_success(drv.cuMemPoolImportPointer(&again, pool, &data));
    cr_assert_eq(address, again, "measured: not counted");
    cr_assert_eq(word_read(address), 51, "before cuMemPoolSetAccess");
    check_success(drv.cuMemGetAddressRange(&base, &bytes, address + 7));
    cr_assert(base == address && bytes == 4096);
    check_success(drv.cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    cr_assert_eq(found, pool);
    word_write(address, 52);
    peer_ask(&peer, "0 52", "get-word");
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolDestroy(pool));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolExportPointer(&data, address));
    check_success(drv.cuMemFree(address));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemFree(address));
    check_success(drv.cuMemPoolImportPointer(&address, pool, &data));
    check_success(drv.cuMemFreeAsync(address, NULL));
    check_success(drv.cuMemPoolDestroy(pool));
    peer_ask(&peer, "0", "free-later");
    peer_ask(&peer, "0", "pool-destroy");
    peer_end(&peer);
    check_success(drv.cuCtxSynchronize());
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(posix_emulated_pool, the_other_way_round) {
    peer_process peer;
    char text[PEER_HEX_MAX];
    CUmemPoolPtrExportData data;
    CUdeviceptr address = 0;
    const char *const hidden[] = {"CUDA_VISIBLE_DEVICES=1", NULL};
    emulated_start(NULL);
    peer_start(&peer, hidden);
    const CUmemoryPool pool = pool_make(FD);
    check_success(drv.cuMemAllocFromPoolAsync(&address, 64, pool, NULL));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolExportPointer(&data, address));
    os_handle handle = pool_export(pool);
    check_success(drv.cuMemPoolExportPointer(&data, address));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolExportPointer(&data, address + 8));
    word_write(address, 61);
    peer_give(&peer, &handle);
    peer_ask(&peer, "0", "pool-take");
    peer_ask(&peer, "0", "pool-open %s", peer_hex(data.reserved, text));
    /* The owner is hidden there, and the device that there is has access (measured). */
    peer_ask(&peer, "0 61", "get-word");
    peer_ask(&peer, "1", "pool-alloc 64");
    peer_ask(&peer, "0", "free-later");
    peer_end(&peer);
    check_success(drv.cuMemFreeAsync(address, NULL));
    check_success(drv.cuMemPoolDestroy(pool));
}

Test(posix_emulated_pool, access_is_the_importers_to_give) {
    peer_process peer;
    char text[PEER_HEX_MAX];
    CUmemPoolPtrExportData data;
    CUdeviceptr address = 0;
    const char *const swapped[] = {"CUDA_VISIBLE_DEVICES=1,0", NULL};
    emulated_start(NULL);
    peer_start(&peer, swapped);
    const CUmemoryPool pool = pool_make(FD);
    check_success(drv.cuMemAllocFromPoolAsync(&address, 64, pool, NULL));
    os_handle handle = pool_export(pool);
    check_success(drv.cuMemPoolExportPointer(&data, address));
    word_write(address, 62);
    peer_give(&peer, &handle);
    peer_ask(&peer, "0", "pool-take");
    peer_ask(&peer, "0", "pool-open %s", peer_hex(data.reserved, text));
    peer_ask(&peer, "1", "get-word"); /* by another device than the owner */
    peer_ask(&peer, "0", "pool-allow 0");
    peer_ask(&peer, "0 62", "get-word");
    peer_end(&peer);
    check_success(drv.cuMemFreeAsync(address, NULL));
    check_success(drv.cuMemPoolDestroy(pool));
}

/* The exporter frees before the importer has let go: its next allocation is what the importer sees. */
Test(posix_emulated_pool, memory_freed_too_early_is_seen_to_change) {
    peer_process peer;
    CUmemPoolPtrExportData data;
    CUdeviceptr address = 0;
    emulated_start(NULL);
    peer_start(&peer, NULL);
    const CUmemoryPool pool = peer_pool(&peer, 71, &data);
    check_success(drv.cuMemPoolImportPointer(&address, pool, &data));
    cr_assert_eq(word_read(address), 71);
    peer_ask(&peer, "0", "free-later");
    peer_ask(&peer, "0", "pool-alloc 4096");
    cr_assert_eq(word_read(address), 71, "nothing is cleared");
    peer_ask(&peer, "0", "set-word 72");
    cr_assert_eq(word_read(address), 72);
    check_success(drv.cuMemFree(address));
    check_success(drv.cuMemPoolDestroy(pool));
    peer_end(&peer);
}

/* Measured on an H200: who has the pool can import pointers when its owner is dead. */
Test(posix_emulated_pool, outlives_its_owner) {
    peer_process peer;
    CUmemPoolPtrExportData first;
    CUmemPoolPtrExportData second;
    CUdeviceptr address = 0;
    emulated_start(NULL);
    peer_start(&peer, NULL);
    const CUmemoryPool pool = peer_pool(&peer, 81, &first);
    peer_ask(&peer, "0", "pool-alloc 50000000"); /* in a chunk of its own */
    peer_ask(&peer, "0", "set-word 82");
    peer_get_bytes(&peer, "pool-get", second.reserved);
    peer_kill(&peer);
    check_success(drv.cuMemPoolImportPointer(&address, pool, &second));
    cr_assert_eq(word_read(address), 82);
    check_success(drv.cuMemFree(address));
    check_success(drv.cuMemPoolImportPointer(&address, pool, &first));
    cr_assert_eq(word_read(address), 81);
    check_success(drv.cuMemFree(address));
    check_success(drv.cuMemPoolDestroy(pool));
    peer_forget(&peer);
}

Test(posix_emulated_pool, may_be_imported_where_it_was_made) {
    CUmemPoolPtrExportData data;
    CUdeviceptr address = 0;
    CUdeviceptr imported = 0;
    emulated_start(NULL);
    const CUmemoryPool pool = pool_make(FD);
    os_handle handle = pool_export(pool);
    const CUmemoryPool other = pool_import(&handle);
    os_handle_close(&handle);
    cr_assert_neq(pool, other);
    check_success(drv.cuMemAllocFromPoolAsync(&address, 64, pool, NULL));
    check_success(drv.cuMemPoolExportPointer(&data, address));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolImportPointer(&imported, pool, &data));
    check_success(drv.cuMemPoolImportPointer(&imported, other, &data));
    cr_assert_neq(address, imported);
    word_write(address, 91);
    cr_assert_eq(word_read(imported), 91);
    check_success(drv.cuMemFree(imported));
    check_success(drv.cuMemFree(address));
    check_success(drv.cuMemPoolDestroy(other));
    check_success(drv.cuMemPoolDestroy(pool));
}

/* Measured: none of several imports is given up while a pointer lives; and a name's tail is left as it was. */
Test(posix_emulated_pool, imports_stay_as_long_as_a_pointer) {
    CUmemPoolPtrExportData data;
    CUdeviceptr address = 0;
    CUdeviceptr imported = 0;
    memset(&data, 0xa5, sizeof(data));
    emulated_start(NULL);
    const CUmemoryPool pool = pool_make(FD);
    os_handle handle = pool_export(pool);
    const CUmemoryPool other = pool_import(&handle);
    cr_assert_eq(pool_import(&handle), other);
    os_handle_close(&handle);
    check_success(drv.cuMemAllocFromPoolAsync(&address, 64, pool, NULL));
    check_success(drv.cuMemPoolExportPointer(&data, address));
    cr_assert_eq(data.reserved[63], 0xa5);
    check_success(drv.cuMemPoolImportPointer(&imported, other, &data));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolDestroy(other));
    check_success(drv.cuMemFree(imported));
    check_success(drv.cuMemPoolDestroy(other));
    check_success(drv.cuMemPoolDestroy(other));
    check_success(drv.cuMemFree(address));
    check_success(drv.cuMemPoolDestroy(pool));
}

Test(posix_emulated_pool, what_is_no_pool_is_refused) {
    CUmemoryPool pool = NULL;
    CUmemGenericAllocationHandle memory = 0;
    CUmemPoolPtrExportData data;
    CUdeviceptr address = 9;
    int descriptor = -1;
    int pipe_ends[2];
    emulated_start(NULL);
    cr_assert_eq(pipe(pipe_ends), 0);
    check_result(CUDA_ERROR_UNKNOWN, drv.cuMemPoolImportFromShareableHandle(
                                         &pool, (void *)(intptr_t)pipe_ends[0], FD, 0));
    check_result(CUDA_ERROR_UNKNOWN,
                 drv.cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)-1, FD, 0));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)-1, FD, 1));
    check_result(CUDA_ERROR_NOT_SUPPORTED,
                 drv.cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)-1,
                                                        CU_MEM_HANDLE_TYPE_WIN32, 0));
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    const CUmemoryPool own = pool_make(FD);
    os_handle handle = pool_export(own);
    check_result(CUDA_ERROR_NOT_SUPPORTED,
                 drv.cuMemImportFromShareableHandle(&memory, (void *)handle.value, FD));
    const CUmemoryPool imported = pool_import(&handle);
    os_handle_close(&handle);
    const CUmemGenericAllocationHandle made = memory_create(0, GRANULE);
    check_success(drv.cuMemExportToShareableHandle(&descriptor, made, FD, 0));
    check_result(CUDA_ERROR_NOT_SUPPORTED, drv.cuMemPoolImportFromShareableHandle(
                                               &pool, (void *)(intptr_t)descriptor, FD, 0));
    close(descriptor);
    memset(&data, 0xff, sizeof(data));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolImportPointer(&address, imported, &data));
    memset(&data, 0, sizeof(data));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolImportPointer(&address, imported, &data));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuMemAllocFromPoolAsync(&address, 64, imported, NULL));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolTrimTo(imported, 0));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuMemPoolExportToShareableHandle(&descriptor, imported, FD, 0));
    cr_assert_eq(address, 9);
    check_success(drv.cuMemRelease(made));
    check_success(drv.cuMemPoolDestroy(imported));
    check_success(drv.cuMemPoolDestroy(own));
}

Test(posix_emulated_pool, without_a_type_is_not_exported) {
    CUmemPoolPtrExportData data;
    CUdeviceptr address = 0;
    int descriptor = -1;
    CUmemoryPool standard = NULL;
    emulated_start(NULL);
    const CUmemoryPool pool = pool_make(0);
    check_success(drv.cuMemAllocFromPoolAsync(&address, 64, pool, NULL));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuMemPoolExportToShareableHandle(&descriptor, pool, FD, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemPoolExportPointer(&data, address));
    check_success(drv.cuDeviceGetDefaultMemPool(&standard, 0));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuMemPoolExportToShareableHandle(&descriptor, standard, FD, 0));
    check_success(drv.cuMemFree(address));
    check_success(drv.cuMemPoolDestroy(pool));
}

/* A pool that can be exported has all its memory in one place; what is freed there is taken again. */
Test(posix_emulated_pool, uses_its_room_again) {
    CUdeviceptr blocks[3] = {0};
    emulated_start("memory=160M");
    const CUmemoryPool pool = pool_make(FD);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 3; i++) {
            check_success(drv.cuMemAllocFromPoolAsync(&blocks[i], (size_t)(i + 1) * 10 * GRANULE,
                                                      pool, NULL));
            word_write(blocks[i], (uint32_t)i);
        }
        for (int i = 0; i < 3; i++) {
            cr_assert_eq(word_read(blocks[i]), (uint32_t)i);
        }
        for (int i = 0; i < 3; i++) {
            check_success(drv.cuMemFreeAsync(blocks[(i + round) % 3], NULL));
            check_success(drv.cuStreamSynchronize(NULL));
        }
    }
    check_success(drv.cuMemPoolDestroy(pool));
}

Test(posix_emulated_pool, for_a_fabric_needs_a_channel) {
    CUmemFabricHandle bytes;
    int descriptor = -1;
    emulated_start(NULL);
    const CUmemoryPool pool = pool_make(CU_MEM_HANDLE_TYPE_FABRIC | FD);
    check_result(CUDA_ERROR_NOT_PERMITTED, drv.cuMemPoolExportToShareableHandle(
                                               bytes.data, pool, CU_MEM_HANDLE_TYPE_FABRIC, 0));
    check_result(CUDA_ERROR_NOT_PERMITTED,
                 drv.cuMemPoolExportToShareableHandle(&descriptor, pool, FD, 0));
    check_success(drv.cuMemPoolDestroy(pool));
}

Test(posix_emulated_pool, travels_through_a_fabric_handle) {
    CUmemFabricHandle bytes;
    CUmemoryPool imported = NULL;
    emulated_start("imex=1");
    const CUmemoryPool pool = pool_make(CU_MEM_HANDLE_TYPE_FABRIC);
    check_success(
        drv.cuMemPoolExportToShareableHandle(bytes.data, pool, CU_MEM_HANDLE_TYPE_FABRIC, 0));
    check_success(drv.cuMemPoolImportFromShareableHandle(&imported, bytes.data,
                                                         CU_MEM_HANDLE_TYPE_FABRIC, 0));
    cr_assert_neq(pool, imported);
    check_success(drv.cuMemPoolDestroy(imported));
    check_success(drv.cuMemPoolDestroy(pool));
}

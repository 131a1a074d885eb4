/* SPDX-License-Identifier: MIT */
/** @file 64-bit words that streams write and wait for. */
#include <string.h>

#include "conformance_share.h"

static CUstream stream;

static void start(void) {
    conformance_start();
    need_words();
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void finish(void) {
    if (stream != NULL) {
        OK(drv.cuStreamDestroy(stream));
    }
    conformance_finish();
}

TestSuite(word, .init = start, .fini = finish, .timeout = 60);

static CUresult write_word(CUdeviceptr address, uint64_t value) {
    return drv.cuStreamWriteValue64(stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT);
}

static CUresult wait_word(CUdeviceptr address, uint64_t value) {
    return drv.cuStreamWaitValue64(stream, address, value, CU_STREAM_WAIT_VALUE_GEQ);
}

static void check_works(CUdeviceptr address, const char *row) {
    uint64_t word = 0;
    CHECK(row, CUDA_SUCCESS, write_word(address, 0x1234567890ABCDEF));
    CHECK(row, CUDA_SUCCESS, wait_word(address, 0x1234567890ABCDEF));
    CHECK(row, CUDA_SUCCESS, drv.cuStreamSynchronize(stream));
    OK(drv.cuMemcpyDtoH(&word, address, sizeof word));
    cr_assert_eq(word, 0x1234567890ABCDEF, "%s", row);
}

Test(word, in_each_kind_of_memory) {
    CUdeviceptr plain = 0;
    CUmemGenericAllocationHandle imported = 0;
    void *pinned = NULL;
    shared_page page = page_make();
    memory made = memory_make(0, GRANULE);
    os_handle shareable = memory_export(made.handle);
    OK(drv.cuMemAlloc(&plain, 4096));
    OK(drv.cuMemHostAlloc(&pinned, 4096, 0));
    OK(memory_import(shareable, &imported));
    const CUdeviceptr mapped = memory_map(imported, GRANULE);
    OK(memory_access(mapped, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    check_works(page.device, "measured: registered memory of the host");
    check_works((CUdeviceptr)(uintptr_t)page.host + PAGE - 8, "measured: by the host's address");
    check_works((CUdeviceptr)(uintptr_t)pinned, "measured: memory of cuMemHostAlloc");
    check_works(plain, "measured: memory of cuMemAlloc");
    check_works(made.address, "measured: VMM memory");
    check_works(mapped + 64, "measured: imported VMM memory");
    memory_unmap(mapped, GRANULE);
    OK(drv.cuMemRelease(imported));
    memory_undo(&made);
    os_handle_close(&shareable);
    OK(drv.cuMemFreeHost(pinned));
    OK(drv.cuMemFree(plain));
    page_undo(&page);
}

Test(word, in_legacy_memory) {
    helper *owner = helper_start(NULL);
    CUipcMemHandle record;
    CUdeviceptr address = 0;
    helper_make(owner, &record, "plain 0 %zu 0", GRANULE);
    OK(drv.cuIpcOpenMemHandle(&address, record, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    check_works(address, "measured: opened memory");
    OK(drv.cuIpcCloseMemHandle(address));
    helper_end(owner);
}

/** Asserts that neither call takes the address. */
static void check_refused(CUdeviceptr address, const char *row) {
    CHECK(row, CUDA_ERROR_INVALID_VALUE, write_word(address, 1));
    CHECK(row, CUDA_ERROR_INVALID_VALUE, wait_word(address, 0));
}

Test(word, addresses_that_are_refused) {
    CUdeviceptr plain = 0, reserved = 0, pooled = 0;
    CUmemoryPool pool = NULL;
    uint64_t local = 0;
    shared_page page = page_make();
    OK(drv.cuMemAlloc(&plain, 4096));
    OK(drv.cuMemAddressReserve(&reserved, GRANULE, 0, 0, 0));
    check_refused(0, "measured: address 0");
    check_refused(page.device + 4, "cuda.h: aligned to 8 bytes");
    check_refused(page.device + 1, "cuda.h: aligned to 8 bytes");
    check_refused((CUdeviceptr)(uintptr_t)&local, "measured: memory that is not registered");
    check_refused(reserved, "measured: a range without memory");
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    OK(drv.cuMemMap(reserved, GRANULE, 0, handle, 0));
    check_refused(reserved, "measured: a mapping without access");
    OK(drv.cuDeviceGetDefaultMemPool(&pool, 0));
    OK(drv.cuMemAllocFromPoolAsync(&pooled, 4096, pool, stream));
    OK(drv.cuStreamSynchronize(stream));
    check_refused(pooled, "measured: memory of a pool");
    OK(drv.cuMemFree(pooled));
    OK(drv.cuMemFree(plain));
    check_refused(plain, "measured: memory that was freed");
    check_works(page.device, "measured: the stream goes on");
    memory_unmap(reserved, GRANULE);
    OK(drv.cuMemRelease(handle));
    page_undo(&page);
}

Test(word, flags) {
    static const unsigned wrong[] = {4, 5, 0x100};
    shared_page page = page_make();
    page_store(&page, 0, 7);
    for (unsigned flags = 1; flags <= 4; flags++) {
        CHECK("measured: flags of a write", CUDA_ERROR_INVALID_VALUE,
              drv.cuStreamWriteValue64(stream, page.device, 1, flags));
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK("measured: unknown flags of a wait", CUDA_ERROR_INVALID_VALUE,
              drv.cuStreamWaitValue64(stream, page.device, 7, wrong[i]));
    }
    CHECK("cuda.h: a word that is exactly the value", CUDA_SUCCESS,
          drv.cuStreamWaitValue64(stream, page.device, 7, CU_STREAM_WAIT_VALUE_EQ));
    CHECK("measured: waits that hold already", CUDA_SUCCESS, drv.cuStreamSynchronize(stream));
    cr_assert_eq(page_load(&page, 0), 7, "nothing was written");
    page_undo(&page);
}

Test(word, compared_as_on_a_circle) {
    static const struct {
        uint64_t word, value;
        unsigned flags;
        bool holds;
    } rows[] = {
        {5, 5, CU_STREAM_WAIT_VALUE_GEQ, true},
        {6, 5, CU_STREAM_WAIT_VALUE_GEQ, true},
        {4, 5, CU_STREAM_WAIT_VALUE_GEQ, false},
        {0, UINT64_MAX, CU_STREAM_WAIT_VALUE_GEQ, true},
        {UINT64_C(1) << 63, 1, CU_STREAM_WAIT_VALUE_GEQ, true},
        {(UINT64_C(1) << 63) - 1, UINT64_C(1) << 63, CU_STREAM_WAIT_VALUE_GEQ, false},
        {7, 6, CU_STREAM_WAIT_VALUE_EQ, false},
    };
    shared_page page = page_make();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        page_store(&page, 0, rows[i].word);
        OK(drv.cuStreamWaitValue64(stream, page.device, rows[i].value, rows[i].flags));
        if (!rows[i].holds) {
            CHECK("cuda.h: (int64_t)(word - value) >= 0, or word == value", CUDA_ERROR_NOT_READY,
                  drv.cuStreamQuery(stream));
            page_store(&page, 0, rows[i].value);
        }
        CHECK("cuda.h: (int64_t)(word - value) >= 0, or word == value", CUDA_SUCCESS,
              drv.cuStreamSynchronize(stream));
    }
    page_undo(&page);
}

Test(word, holds_what_comes_behind_it) {
    shared_page page = page_make();
    OK(wait_word(page.device, 1));
    OK(write_word(page_word(&page, 1), 5));
    CHECK("cuda.h: the stream waits", CUDA_ERROR_NOT_READY, drv.cuStreamQuery(stream));
    cr_assert_eq(page_load(&page, 1), 0, "cuda.h: in the order of the stream");
    page_store(&page, 0, 1);
    CHECK("measured: released by a plain store", CUDA_SUCCESS, drv.cuStreamSynchronize(stream));
    cr_assert_eq(page_load(&page, 1), 5);
    page_undo(&page);
}

Test(word, on_default_streams) {
    const CUstream streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    shared_page page = page_make();
    for (unsigned i = 0; i < 3; i++) {
        CHECK("measured: a default stream writes", CUDA_SUCCESS,
              drv.cuStreamWriteValue64(streams[i], page.device, 40 + i, 0));
        CHECK("measured: a default stream waits", CUDA_SUCCESS,
              drv.cuStreamWaitValue64(streams[i], page.device, 40 + i, CU_STREAM_WAIT_VALUE_EQ));
        OK(drv.cuStreamSynchronize(streams[i]));
        cr_assert_eq(page_load(&page, 0), 40 + i);
    }
    OK(drv.cuCtxSetCurrent(NULL));
    CHECK("measured: a stream needs no current context of its own", CUDA_SUCCESS,
          write_word(page.device, 50));
    CHECK("measured: a default stream needs a context", CUDA_ERROR_INVALID_CONTEXT,
          drv.cuStreamWriteValue64(NULL, page.device, 51, 0));
    OK(drv.cuStreamSynchronize(stream));
    conformance_use(0);
    page_undo(&page);
}

Test(word, written_after_the_copy_before_it) {
    const busy_work work = busy_start();
    shared_page page = page_make();
    void *copy = NULL;
    OK(drv.cuMemHostAlloc(&copy, work.bytes, 0));
    memset(copy, 0, work.bytes);
    busy_submit(&work, stream, 0x77);
    OK(drv.cuMemcpyDtoHAsync(copy, work.address, work.bytes, stream));
    OK(write_word(page.device, 1));
    while (page_load(&page, 0) == 0) {
        /* the test's own time limit ends this */
    }
    cr_assert_eq(((unsigned char *)copy)[work.bytes - 1], 0x77,
                 "measured: who sees the word sees all that was copied before it");
    cr_assert_eq(((unsigned char *)copy)[0], 0x77);
    OK(drv.cuStreamSynchronize(stream));
    OK(drv.cuMemFreeHost(copy));
    page_undo(&page);
    busy_end(&work);
}

Test(word, a_stream_is_destroyed_while_it_waits) {
    shared_page page = page_make();
    CUstream other = NULL;
    OK(drv.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(drv.cuStreamWaitValue64(other, page.device, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(drv.cuStreamWriteValue64(other, page_word(&page, 1), 9, 0));
    CHECK("cuda.h: cuStreamDestroy does not wait", CUDA_SUCCESS, drv.cuStreamDestroy(other));
    cr_assert_eq(page_load(&page, 1), 0, "measured: it waits on");
    page_store(&page, 0, 1);
    OK(drv.cuCtxSynchronize());
    cr_assert_eq(page_load(&page, 1), 9, "cuda.h: and its work is done");
    page_undo(&page);
}

Test(word, what_goes_on_while_a_stream_waits) {
    shared_page page = page_make();
    CUdeviceptr address = 0;
    CUstream other = NULL;
    CUevent event = NULL;
    void *pinned = NULL;
    OK(wait_word(page.device, 1));
    /* Each of these would never return if it waited for the stream. */
    CHECK("measured: cuStreamCreate", CUDA_SUCCESS,
          drv.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK("measured: cuMemAlloc", CUDA_SUCCESS, drv.cuMemAlloc(&address, GRANULE));
    CHECK("measured: cuMemHostAlloc", CUDA_SUCCESS, drv.cuMemHostAlloc(&pinned, PAGE, 0));
    OK(drv.cuMemsetD32Async(address, 3, 1, other));
    CHECK("measured: cuStreamSynchronize of another", CUDA_SUCCESS, drv.cuStreamSynchronize(other));
    cr_assert_eq(word_read(address), 3, "measured: cuMemcpyDtoH");
    memory made = memory_make(0, GRANULE);
    memory_undo(&made);
    CHECK("measured: cuEventCreate", CUDA_SUCCESS,
          drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK("measured: cuEventRecord", CUDA_SUCCESS, drv.cuEventRecord(event, other));
    CHECK("measured: cuEventSynchronize", CUDA_SUCCESS, drv.cuEventSynchronize(event));
    CHECK("measured: cuEventDestroy", CUDA_SUCCESS, drv.cuEventDestroy(event));
    CHECK("measured: cuStreamDestroy", CUDA_SUCCESS, drv.cuStreamDestroy(other));
    CHECK("cuda.h: the stream waits", CUDA_ERROR_NOT_READY, drv.cuStreamQuery(stream));
    page_store(&page, 0, 1);
    OK(drv.cuStreamSynchronize(stream));
    OK(drv.cuMemFreeHost(pinned));
    OK(drv.cuMemFree(address));
    page_undo(&page);
}

Test(word, between_two_processes) {
    helper *other = helper_start(NULL);
    shared_page page = page_make();
    page_share(&page, other);
    OK(wait_word(page.device, 1));
    OK(helper_do(other, "put 1"));
    CHECK("measured: a stream of another process releases it", CUDA_SUCCESS,
          drv.cuStreamSynchronize(stream));
    OK(wait_word(page.device, 2));
    OK(helper_do(other, "store 2"));
    CHECK("measured: a store of another process releases it", CUDA_SUCCESS,
          drv.cuStreamSynchronize(stream));
    OK(helper_do(other, "hold 3"));
    OK(wait_word(page.device, 4));
    helper_kill(other);
    CHECK("measured: the other one's death changes nothing", CUDA_ERROR_NOT_READY,
          drv.cuStreamQuery(stream));
    page_store(&page, 0, 4);
    CHECK("measured: the survivor releases its own stream", CUDA_SUCCESS,
          drv.cuStreamSynchronize(stream));
    page_undo(&page);
    helper_end(other);
}

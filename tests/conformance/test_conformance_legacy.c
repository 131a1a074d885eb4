/* SPDX-License-Identifier: MIT */
/** @file Legacy IPC: memory of cuMemAlloc, opened in another process by 64 bytes. */
#include <string.h>

#include "conformance_share.h"

TestSuite(legacy, .init = conformance_start, .fini = conformance_finish, .timeout = 60);

#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

static CUdeviceptr opened(const CUipcMemHandle *record) {
    CUdeviceptr address = 0;
    OK(drv.cuIpcOpenMemHandle(&address, *record, LAZY));
    return address;
}

/** Asserts that nothing can be read there any more. */
static void check_gone(CUdeviceptr address, const char *row) {
    uint32_t word = 0;
    CHECK(row, CUDA_ERROR_INVALID_VALUE, drv.cuMemcpyDtoH(&word, address, sizeof word));
}

Test(legacy, record_of_an_address) {
    CUdeviceptr small = 0, other = 0;
    CUipcMemHandle record, again, of_other;
    memset(&record, 0, sizeof record);
    memset(&again, 1, sizeof again);
    memset(&of_other, 2, sizeof of_other);
    OK(drv.cuMemAlloc(&small, 1000));
    OK(drv.cuMemAlloc(&other, 1000));
    CHECK("cuda.h: cuIpcGetMemHandle", CUDA_SUCCESS, drv.cuIpcGetMemHandle(&record, small));
    CHECK("cuda.h: any address of the allocation", CUDA_SUCCESS,
          drv.cuIpcGetMemHandle(&again, small + 900));
    cr_assert_arr_eq(&record, &again, sizeof record,
                     "measured: an interior pointer gives the bytes of the allocation");
    OK(drv.cuIpcGetMemHandle(&of_other, other));
    cr_assert_neq(memcmp(&record, &of_other, sizeof record), 0,
                  "measured: another allocation gives other bytes");
    OK(drv.cuMemFree(other));
    OK(drv.cuMemFree(small));
}

Test(legacy, record_is_refused) {
    CUdeviceptr plain = 0;
    CUipcMemHandle record;
    void *pinned = NULL;
    int local = 0;
    OK(drv.cuMemAlloc(&plain, 3 * GRANULE));
    OK(drv.cuMemHostAlloc(&pinned, PAGE, 0));
    memory mapped = memory_make(0, GRANULE);
    CHECK("measured: no place for the record", CUDA_ERROR_INVALID_VALUE,
          drv.cuIpcGetMemHandle(NULL, plain));
    const struct {
        const char *row;
        CUdeviceptr address;
    } rows[] = {
        {"measured: address 0", 0},
        {"measured: one past the end", plain + 3 * GRANULE},
        {"measured: pinned memory of the host", (CUdeviceptr)(uintptr_t)pinned},
        {"measured: memory that the driver does not know", (CUdeviceptr)(uintptr_t)&local},
        {"measured: cuIpcGetMemHandle on VMM memory", mapped.address},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK(rows[i].row, CUDA_ERROR_INVALID_VALUE,
              drv.cuIpcGetMemHandle(&record, rows[i].address));
    }
    memory_undo(&mapped);
    OK(drv.cuMemFreeHost(pinned));
    OK(drv.cuMemFree(plain));
    CHECK("measured: memory that was freed", CUDA_ERROR_INVALID_VALUE,
          drv.cuIpcGetMemHandle(&record, plain));
}

Test(legacy, own_record_is_not_opened) {
    CUdeviceptr address = 0, out = 0;
    CUipcMemHandle record;
    OK(drv.cuMemAlloc(&address, GRANULE));
    OK(drv.cuIpcGetMemHandle(&record, address));
    CHECK("measured: cuIpcOpenMemHandle in the exporting process", CUDA_ERROR_INVALID_CONTEXT,
          drv.cuIpcOpenMemHandle(&out, record, LAZY));
    CHECK("measured: without the flag", CUDA_ERROR_INVALID_VALUE,
          drv.cuIpcOpenMemHandle(&out, record, 0));
    CHECK("measured: another flag alone", CUDA_ERROR_INVALID_VALUE,
          drv.cuIpcOpenMemHandle(&out, record, 2));
    CHECK("measured: another flag beside it", CUDA_ERROR_INVALID_CONTEXT,
          drv.cuIpcOpenMemHandle(&out, record, LAZY | 2));
    CHECK("measured: what was not opened is not closed", CUDA_ERROR_INVALID_VALUE,
          drv.cuIpcCloseMemHandle(address));
    CHECK("measured: what was not opened is not closed", CUDA_ERROR_INVALID_VALUE,
          drv.cuIpcCloseMemHandle(0));
    OK(drv.cuMemFree(address));
}

Test(legacy, needs_a_context) {
    CUdeviceptr address = 0, out = 0;
    CUipcMemHandle record;
    OK(drv.cuMemAlloc(&address, GRANULE));
    OK(drv.cuIpcGetMemHandle(&record, address));
    OK(drv.cuCtxSetCurrent(NULL));
    CHECK("cuda.h: a context is current", CUDA_ERROR_INVALID_CONTEXT,
          drv.cuIpcGetMemHandle(&record, address));
    CHECK("cuda.h: a context is current", CUDA_ERROR_INVALID_CONTEXT,
          drv.cuIpcOpenMemHandle(&out, record, LAZY));
    CHECK("cuda.h: a context is current", CUDA_ERROR_INVALID_CONTEXT,
          drv.cuIpcCloseMemHandle(address));
    conformance_use(0);
    OK(drv.cuMemFree(address));
}

Test(legacy, both_see_one_memory) {
    helper *owner = helper_start(NULL);
    CUipcMemHandle record;
    helper_make(owner, &record, "plain 0 %zu %u", 3 * GRANULE + 512, 0x1E6ACU);
    CUdeviceptr address = 0, again = 0, base = 0;
    size_t bytes = 0;
    CHECK("cuda.h: cuIpcOpenMemHandle", CUDA_SUCCESS,
          drv.cuIpcOpenMemHandle(&address, record, LAZY));
    cr_assert_eq(word_read(address), 0x1E6AC);
    OK(drv.cuMemGetAddressRange(&base, &bytes, address + GRANULE));
    cr_assert_eq(base, address, "measured: the range begins where it was opened");
    cr_assert_eq(bytes, 3 * GRANULE + 512, "measured: the size the owner asked for, not %zu",
                 bytes);
    word_write(address + GRANULE, 77);
    cr_assert_eq(helper_peek(owner, 0, GRANULE), 77, "the owner sees what was written");
    CHECK("measured: opened again", CUDA_SUCCESS, drv.cuIpcOpenMemHandle(&again, record, LAZY));
    cr_assert_eq(again, address, "measured: the same mapping");
    CHECK("cuda.h: cuIpcCloseMemHandle", CUDA_SUCCESS, drv.cuIpcCloseMemHandle(address));
    cr_assert_eq(word_read(address), 0x1E6AC, "measured: counted");
    CHECK("measured: closed as often as it was opened", CUDA_SUCCESS,
          drv.cuIpcCloseMemHandle(address));
    check_gone(address, "measured: closed memory is not read");
    CHECK("measured: closed once too often", CUDA_ERROR_INVALID_VALUE,
          drv.cuIpcCloseMemHandle(address));
    cr_assert_eq(helper_peek(owner, 0, 0), 0x1E6AC, "the owner's memory goes on");
    helper_end(owner);
}

Test(legacy, open_and_close_refuse) {
    helper *owner = helper_start(NULL);
    CUipcMemHandle record, wrong;
    CUdeviceptr out = 0;
    helper_make(owner, &record, "plain 0 %zu 1", GRANULE);
    const CUdeviceptr address = opened(&record);
    CHECK("measured: flags other than LAZY_ENABLE_PEER_ACCESS", CUDA_ERROR_INVALID_VALUE,
          drv.cuIpcOpenMemHandle(&out, record, 0));
    CHECK("measured: flags other than LAZY_ENABLE_PEER_ACCESS", CUDA_ERROR_INVALID_VALUE,
          drv.cuIpcOpenMemHandle(&out, record, 2));
    CHECK("measured: no place for the address", CUDA_ERROR_INVALID_VALUE,
          drv.cuIpcOpenMemHandle(NULL, record, LAZY));
    memset(&wrong, 0, sizeof wrong);
    CHECK("measured: a record of zeroes", CUDA_ERROR_INVALID_VALUE,
          drv.cuIpcOpenMemHandle(&out, wrong, LAZY));
    memset(&wrong, 0xFF, sizeof wrong);
    CHECK("measured: a record of ones", CUDA_ERROR_INVALID_VALUE,
          drv.cuIpcOpenMemHandle(&out, wrong, LAZY));
    CHECK("measured: only the address that was opened is closed", CUDA_ERROR_INVALID_VALUE,
          drv.cuIpcCloseMemHandle(address + 512));
    CHECK("cuda.h: opened memory is not freed", CUDA_ERROR_INVALID_VALUE, drv.cuMemFree(address));
    CHECK("measured: opened memory is not exported again", CUDA_ERROR_INVALID_VALUE,
          drv.cuIpcGetMemHandle(&wrong, address));
    cr_assert_eq(word_read(address), 1, "none of it did any harm");
    OK(drv.cuIpcCloseMemHandle(address));
    helper_end(owner);
}

Test(legacy, small_allocations_share_a_block) {
    enum {
        COUNT = 3
    };
    helper *owner = helper_start(NULL);
    CUipcMemHandle records[COUNT];
    CUdeviceptr addresses[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        helper_make(owner, &records[i], "plain 0 1000 %u", 500 + i);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        CUdeviceptr base = 0;
        size_t bytes = 0;
        addresses[i] = opened(&records[i]);
        cr_assert_eq(word_read(addresses[i]), 500 + i,
                     "measured: each is opened at its own place in the block");
        OK(drv.cuMemGetAddressRange(&base, &bytes, addresses[i] + 999));
        cr_assert(base == addresses[i] && bytes == 1000, "measured: and has its own range");
    }
    CHECK("measured: one is closed", CUDA_SUCCESS, drv.cuIpcCloseMemHandle(addresses[1]));
    check_gone(addresses[1], "measured: it alone is gone");
    cr_assert_eq(word_read(addresses[0]), 500);
    cr_assert_eq(word_read(addresses[2]), 502);
    OK(drv.cuIpcCloseMemHandle(addresses[0]));
    OK(drv.cuIpcCloseMemHandle(addresses[2]));
    helper_end(owner);
}

Test(legacy, owner_frees_first) {
    helper *owner = helper_start(NULL);
    CUipcMemHandle record;
    helper_make(owner, &record, "plain 0 %zu 31", 3 * GRANULE);
    const CUdeviceptr address = opened(&record);
    CHECK("measured: the owner frees what is open elsewhere", CUDA_SUCCESS,
          helper_do(owner, "free 0"));
    cr_assert_eq(word_read(address), 31, "measured: the importer still reads it");
    word_write(address, 32);
    cr_assert_eq(word_read(address), 32, "measured: and writes it");
    OK(drv.cuIpcCloseMemHandle(address));
    helper_end(owner);
}

Test(legacy, owner_dies) {
    helper *owner = helper_start(NULL);
    CUipcMemHandle record, other;
    CUdeviceptr again = 0, out = 0;
    helper_make(owner, &record, "plain 0 %zu 41", 3 * GRANULE);
    helper_make(owner, &other, "plain 0 %zu 42", 3 * GRANULE);
    const CUdeviceptr address = opened(&record);
    helper_kill(owner);
    cr_assert_eq(word_read(address), 41, "measured: what is open outlives its owner");
    word_write(address, 43);
    cr_assert_eq(word_read(address), 43);
    CHECK("measured: what is open is opened again", CUDA_SUCCESS,
          drv.cuIpcOpenMemHandle(&again, record, LAZY));
    cr_assert_eq(again, address);
    CHECK("measured: the owner is gone", CUDA_ERROR_INVALID_HANDLE,
          drv.cuIpcOpenMemHandle(&out, other, LAZY));
    OK(drv.cuIpcCloseMemHandle(address));
    OK(drv.cuIpcCloseMemHandle(address));
    CHECK("measured: the owner is gone", CUDA_ERROR_INVALID_HANDLE,
          drv.cuIpcOpenMemHandle(&out, record, LAZY));
    helper_end(owner);
}

Test(legacy, on_a_peer_gpu) {
    conformance_need_devices(2);
    int can = 0;
    OK(drv.cuDeviceCanAccessPeer(&can, 1, 0));
    if (can == 0) {
        cr_skip_test("devices 0 and 1 have no peer access");
    }
    helper *owner = helper_start(NULL);
    CUipcMemHandle record;
    int ordinal = -1;
    helper_make(owner, &record, "plain 0 %zu 51", GRANULE);
    conformance_use(1);
    const CUdeviceptr there = opened(&record);
    cr_assert_eq(word_read(there), 51);
    OK(drv.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, there));
    cr_assert_eq(ordinal, 1, "measured: the device that opened it, not the owner: %d", ordinal);
    OK(drv.cuMemsetD32(there, 52, 1));
    OK(drv.cuCtxSynchronize());
    cr_assert_eq(helper_peek(owner, 0, 0), 52);
    conformance_use(0);
    const CUdeviceptr here = opened(&record);
    cr_assert_neq(here, there, "measured: another context has an address of its own");
    OK(drv.cuIpcCloseMemHandle(here));
    conformance_use(1);
    cr_assert_eq(word_read(there), 52, "measured: each is closed by itself");
    OK(drv.cuIpcCloseMemHandle(there));
    helper_end(owner);
}

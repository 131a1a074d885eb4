/* SPDX-License-Identifier: MIT */
/** @file Addresses, handles and access where the real driver's answer depends on the machine, or is
 *  a crash. */
#include <signal.h>
#include <string.h>

#include "child.h"
#include "emulated_test.h"

#define WAIT_MS 20000

TestSuite(emulated_memory, .timeout = 60);

/* volatile: the compiler must not leave the read out. */
static void follow(CUdeviceptr address) {
    volatile const unsigned char *at = (const unsigned char *)(uintptr_t)address;
    cr_log_info("%u", *at);
}

Test(emulated_memory, the_host_cannot_follow_a_mapped_address, .signal = SIGSEGV) {
    emulated_start(NULL);
    follow(memory_make(0, GRANULE));
}

Test(emulated_memory, the_host_cannot_follow_a_plain_address, .signal = SIGSEGV) {
    CUdeviceptr address = 0;
    emulated_start(NULL);
    check_success(drv.cuMemAlloc(&address, 4));
    follow(address);
}

/* As the real driver crashes there. On Linux abort() is a signal, on Windows exit code 3. */
static void check_ends(const char *call, const char *words) {
    const char *const arguments[] = {"garbage", call, NULL};
    const char *const environment[] = {"GPUIPC_EMULATED_REPORT=1", NULL};
    char line[CHILD_LINE_MAX];
    child_process *child;
    child_end end;
    check_ok(child_start("emulated_helper", arguments, environment, &child));
    check_ok(child_read_line(child, line, sizeof(line), WAIT_MS));
    cr_assert(strstr(line, words) != NULL, "%s", line);
    /* On Windows the C library may have a word about it. */
    while (child_read_line(child, line, sizeof(line), WAIT_MS) == GPUIPC_OK) {
        cr_assert_null(strstr(line, "gpuipc emulated driver"), "%s", line);
        cr_assert_null(strstr(line, "lives"), "%s", line);
    }
    check_ok(child_wait(child, WAIT_MS, &end));
    cr_assert(end.exited ? end.code == 3 : end.code == SIGABRT, "exited %d, code %d", end.exited,
              end.code);
    child_destroy(child);
}

Test(emulated_memory, a_handle_never_given_out_ends_the_process) {
    check_ends("cuMemMap", "cuMemMap got the handle 0x1234, which no call gave out");
}

Test(emulated_memory, a_handle_of_another_kind_ends_the_process) {
    check_ends("cuMemRelease", "cuMemRelease got the handle 0x8000");
}

Test(emulated_memory, access_follows_the_paths_of_the_machine) {
    emulated_start("devices=3;p2p=0-1");
    const CUdeviceptr address = memory_make(0, GRANULE);
    check_success(memory_allow(address, GRANULE, 1, CU_MEM_ACCESS_FLAGS_PROT_READ));
    check_result(CUDA_ERROR_INVALID_DEVICE,
                 memory_allow(address, GRANULE, 2, CU_MEM_ACCESS_FLAGS_PROT_READ));
    check_success(memory_allow(address, GRANULE, 2, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    memory_unmake(address, GRANULE);
}

Test(emulated_memory, a_refused_access_changes_nothing) {
    const CUmemAccessDesc wanted[] = {
        {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ},
        {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READ}};
    unsigned long long flags = 0;
    emulated_start("p2p=none");
    const CUdeviceptr address = memory_make(0, GRANULE);
    check_result(CUDA_ERROR_INVALID_DEVICE, drv.cuMemSetAccess(address, GRANULE, wanted, 2));
    check_success(drv.cuMemGetAccess(&flags, &wanted[0].location, address));
    cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    memory_unmake(address, GRANULE);
}

Test(emulated_memory, peer_access_follows_the_paths_of_the_machine) {
    emulated_start("devices=3;p2p=1-2");
    const CUcontext one = context_use(1);
    context_use(0);
    check_result(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, drv.cuCtxEnablePeerAccess(one, 0));
    context_use(2);
    check_success(drv.cuCtxEnablePeerAccess(one, 0));
}

Test(emulated_memory, plain_memory_of_a_peer_is_filled_with_its_leave_only) {
    CUdeviceptr address = 0;
    emulated_start(NULL);
    const CUcontext owner = context_use(0);
    check_success(drv.cuMemAlloc(&address, 64));
    context_use(1);
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemsetD8(address, 1, 64));
    check_success(drv.cuCtxEnablePeerAccess(owner, 0));
    check_success(drv.cuMemsetD8(address, 1, 64));
    check_success(drv.cuCtxDisablePeerAccess(owner));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemsetD8(address, 1, 64));
}

Test(emulated_memory, a_copy_may_cross_mappings_and_plain_memory_ends_where_it_ends) {
    enum {
        TAIL = 100
    };
    unsigned char bytes[TAIL];
    CUdeviceptr whole = 0;
    CUdeviceptr plain = 0;
    emulated_start(NULL);
    check_success(drv.cuMemAddressReserve(&whole, 2 * GRANULE, 0, 0, 0));
    for (size_t i = 0; i < 2; i++) {
        const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
        check_success(drv.cuMemMap(whole + i * GRANULE, GRANULE, 0, handle, 0));
        check_success(drv.cuMemRelease(handle));
    }
    check_success(memory_allow(whole, 2 * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    check_success(drv.cuMemsetD16(whole + GRANULE - TAIL / 2, 0x4241, TAIL / 2));
    check_success(drv.cuMemAlloc(&plain, TAIL));
    check_success(drv.cuMemcpy(plain, whole + GRANULE - TAIL / 2, TAIL));
    check_success(drv.cuMemcpyDtoH(bytes, plain, TAIL));
    for (size_t i = 0; i < TAIL; i++) {
        cr_assert_eq(bytes[i], i % 2 == 0 ? 0x41 : 0x42, "byte %zu", i);
    }
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemcpy(plain, whole, TAIL + 1));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemUnmap(whole, GRANULE + 1));
    check_success(drv.cuMemUnmap(whole, 2 * GRANULE));
}

Test(emulated_memory, rows) {
    CUresult (*allocate)(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
    CUresult (*fill)(CUdeviceptr, size_t, unsigned, size_t, size_t);
    CUdeviceptr address = 0;
    size_t pitch = 0;
    emulated_start(NULL);
    emulated_symbol(drv.library, "cuMemAllocPitch_v2", &allocate);
    emulated_symbol(drv.library, "cuMemsetD2D32_v2", &fill);
    check_success(allocate(&address, &pitch, 40, 3, 4));
    cr_assert(pitch >= 40 && pitch % 256 == 0, "%zu", pitch);
    check_success(drv.cuMemsetD8(address, 0, 3 * pitch));
    check_success(fill(address, pitch, 7, 10, 3));
    for (size_t row = 0; row < 3; row++) {
        cr_assert_eq(word_read(address + row * pitch + 36), 7);
        cr_assert_eq(word_read(address + row * pitch + 40), 0, "behind the row");
    }
    check_result(CUDA_ERROR_INVALID_VALUE, fill(address, 36, 7, 10, 3));
    check_success(drv.cuMemFree(address));
}

Test(emulated_memory, a_hint_counts_for_large_ranges) {
    const size_t large = 32 * GRANULE;
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    emulated_start(NULL);
    check_success(drv.cuMemAddressReserve(&first, large, large, 0, 0));
    const CUdeviceptr behind = first + 2 * large;
    check_success(drv.cuMemAddressReserve(&second, large, 0, behind, 0));
    cr_assert_eq(second, behind);
    check_success(drv.cuMemAddressFree(second, large));
    check_success(drv.cuMemAddressReserve(&second, GRANULE, 0, behind + large, 0));
    cr_assert_neq(second, behind + large, "the range is too small for a hint");
    check_success(drv.cuMemAddressFree(second, GRANULE));
    check_success(drv.cuMemAddressReserve(&second, large, 0, behind + GRANULE, 0));
    cr_assert_eq(second, behind + 16 * GRANULE, "hints are rounded up to 32 MiB");
    check_success(drv.cuMemAddressFree(second, large));
    check_success(drv.cuMemAddressReserve(&second, large, 0, first, 0));
    cr_assert_neq(second, first, "that range is reserved");
    check_success(drv.cuMemAddressFree(second, large));
    check_success(drv.cuMemAddressReserve(&second, GRANULE, 64 * GRANULE, 0, 0));
    cr_assert_eq(second % (64 * GRANULE), 0);
}

Test(emulated_memory, attributes_of_many_at_once) {
    CUresult (*get)(unsigned, CUpointer_attribute *, void **, CUdeviceptr);
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                    CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    unsigned type = 99;
    int ordinal = 99;
    size_t size = 99;
    void *data[] = {&type, &ordinal, &size};
    emulated_start(NULL);
    emulated_symbol(drv.library, "cuPointerGetAttributes", &get);
    const CUdeviceptr address = memory_make(1, GRANULE);
    check_success(get(3, wanted, data, address + 5));
    cr_assert(type == CU_MEMORYTYPE_DEVICE && ordinal == 1 && size == GRANULE);
    check_success(get(3, wanted, data, (CUdeviceptr)(uintptr_t)&type));
    cr_assert(type == 0 && ordinal == -2 && size == GRANULE,
              "cuda.h: defaults for what is no pointer; measured: not of the size");
}

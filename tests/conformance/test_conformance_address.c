/* SPDX-License-Identifier: MIT */
/** @file Address ranges: reserved, mapped into, given access, unmapped, freed. */
#include "conformance.h"

#include <string.h>

TestSuite(address, .init = conformance_start, .fini = conformance_finish, .timeout = 60);

static CUdeviceptr reserve(size_t bytes) {
    CUdeviceptr address = 0;
    OK(drv.cuMemAddressReserve(&address, bytes, 0, 0, 0));
    return address;
}

static CUresult read_word(CUdeviceptr address) {
    uint32_t word;
    return drv.cuMemcpyDtoH(&word, address, sizeof word);
}

static CUresult write_word(CUdeviceptr address) {
    const uint32_t word = 1;
    return drv.cuMemcpyHtoD(address, &word, sizeof word);
}

Test(address, reserve_sizes) {
    CUdeviceptr address = 0;
    CHECK("reading: a range of 0 bytes", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemAddressReserve(&address, 0, 0, 0, 0));
    CHECK("cuda.h: a size that is no multiple of the page", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemAddressReserve(&address, GRANULE + 1, 0, 0, 0));
    CHECK("reading: flags must be 0", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemAddressReserve(&address, GRANULE, 0, 0, 1));
    CHECK("cuda.h: an alignment that is no power of two", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemAddressReserve(&address, GRANULE, 3 * GRANULE, 0, 0));
    cr_assert_eq(address, 0, "reading: nothing is written on failure");
    CHECK("reading: a range needs no memory behind it", CUDA_SUCCESS,
          drv.cuMemAddressReserve(&address, (size_t)1 << 40, 0, 0, 0));
    OK(drv.cuMemAddressFree(address, (size_t)1 << 40));
}

Test(address, reserve_alignment) {
    const size_t alignments[] = {0, GRANULE, 512 * GRANULE};
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        CUdeviceptr address = 0;
        const size_t unit = alignments[i] == 0 ? GRANULE : alignments[i];
        CHECK("cuda.h: alignment of a range", CUDA_SUCCESS,
              drv.cuMemAddressReserve(&address, 3 * GRANULE, alignments[i], 0, 0));
        cr_assert_eq(address % unit, 0, "cuda.h: %llx is not aligned to %zu", address, unit);
        cr_assert_neq(address, 0);
        OK(drv.cuMemAddressFree(address, 3 * GRANULE));
    }
}

Test(address, reserve_at_a_hint) {
    /* Far from all that a program has. */
    const CUdeviceptr hint = (CUdeviceptr)0x600000000000;
    CUdeviceptr address = 0, again = 0, other = 0;
    OK(drv.cuMemAddressReserve(&address, 2 * GRANULE, 0, 0, 0));
    OK(drv.cuMemAddressFree(address, 2 * GRANULE));
    OK(drv.cuMemAddressReserve(&again, 2 * GRANULE, 0, address, 0));
    cr_assert_eq(again, address, "measured: a hint that is free is taken");
    OK(drv.cuMemAddressReserve(&other, GRANULE, 0, address + GRANULE, 0));
    cr_assert(other < address || other >= address + 2 * GRANULE, "cuda.h: else it is elsewhere");
    OK(drv.cuMemAddressFree(other, GRANULE));
    OK(drv.cuMemAddressFree(again, 2 * GRANULE));

    /* Measured: the driver has a part of the addresses for itself, and takes no hint outside of it. */
    CHECK("cuda.h: a hint", CUDA_SUCCESS, drv.cuMemAddressReserve(&address, GRANULE, 0, hint, 0));
    OK(drv.cuMemAddressFree(address, GRANULE));
}

Test(address, hints_of_large_ranges_are_taken) {
    const CUdeviceptr far = (CUdeviceptr)0x500000000000;
    const size_t large = 32 * GRANULE;
    CUdeviceptr own = 0, address = 0;
    if (!conformance_is_measured_machine()) {
        cr_skip_test("measured on an H200 alone");
    }
    OK(drv.cuMemAddressReserve(&own, large, 0, 0, 0));
    for (unsigned i = 0; i < 6; i++) {
        const CUdeviceptr hint = far + i * ((CUdeviceptr)1 << 36);
        OK(drv.cuMemAddressReserve(&address, large, 0, hint, 0));
        cr_assert_eq(address, hint, "measured: a hint in a free region far away is taken: %llx",
                     address);
        OK(drv.cuMemAddressFree(address, large));
        OK(drv.cuMemAddressReserve(&address, GRANULE, 0, hint, 0));
        cr_assert_neq(address, hint, "measured: not for a small range");
        OK(drv.cuMemAddressFree(address, GRANULE));
    }
    OK(drv.cuMemAddressReserve(&address, large, 0, far + GRANULE, 0));
    cr_assert_eq(address, far + 16 * GRANULE, "measured: it is rounded up to 32 MiB: %llx",
                 address);
    OK(drv.cuMemAddressFree(address, large));
    OK(drv.cuMemAddressReserve(&address, large, 0, own, 0));
    cr_assert_neq(address, own, "measured: that range is reserved");
    OK(drv.cuMemAddressFree(address, large));
    OK(drv.cuMemAddressFree(own, large));
    OK(drv.cuMemAddressReserve(&address, large, 0, own, 0));
    cr_assert_eq(address, own, "measured: the base of a range that was freed: %llx", address);
    OK(drv.cuMemAddressFree(address, large));
}

Test(address, free_refuses_parts_and_mapped_ranges) {
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    const CUdeviceptr address = reserve(2 * GRANULE);
    CHECK("measured: cuMemAddressFree of part", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemAddressFree(address, GRANULE));
    CHECK("measured: cuMemAddressFree of part", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemAddressFree(address + GRANULE, GRANULE));
    OK(drv.cuMemMap(address + GRANULE, GRANULE, 0, handle, 0));
    CHECK("measured: cuMemAddressFree while mapped", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemAddressFree(address, 2 * GRANULE));
    OK(drv.cuMemUnmap(address + GRANULE, GRANULE));
    OK(drv.cuMemAddressFree(address, 2 * GRANULE));
    CHECK("reading: cuMemAddressFree twice", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemAddressFree(address, 2 * GRANULE));
    OK(drv.cuMemRelease(handle));
}

Test(address, map_takes_whole_allocations) {
    const CUmemGenericAllocationHandle handle = memory_create(0, 2 * GRANULE);
    const CUdeviceptr address = reserve(4 * GRANULE);
    CHECK("measured: cuMemMap with less than the allocation's size", CUDA_ERROR_NOT_SUPPORTED,
          drv.cuMemMap(address, GRANULE, 0, handle, 0));
    CHECK("measured: cuMemMap with more than the allocation's size", CUDA_ERROR_NOT_SUPPORTED,
          drv.cuMemMap(address, 4 * GRANULE, 0, handle, 0));
    CHECK("measured: cuMemMap with an offset", CUDA_ERROR_NOT_SUPPORTED,
          drv.cuMemMap(address, GRANULE, GRANULE, handle, 0));
    CHECK("reading: flags must be 0", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemMap(address, 2 * GRANULE, 0, handle, 1));
    CHECK("reading: an address that is not aligned", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemMap(address + 4096, 2 * GRANULE, 0, handle, 0));
    OK(drv.cuMemAddressFree(address, 4 * GRANULE));
    OK(drv.cuMemRelease(handle));
}

Test(address, map_wants_a_free_reserved_range) {
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    const CUmemGenericAllocationHandle other = memory_create(0, GRANULE);
    const CUdeviceptr address = reserve(GRANULE);
    OK(drv.cuMemMap(address, GRANULE, 0, handle, 0));
    CHECK("measured: cuMemMap over a mapped range", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemMap(address, GRANULE, 0, other, 0));
    memory_unmap(address, GRANULE);
    CHECK("measured: cuMemMap over an unreserved range", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemMap(address, GRANULE, 0, handle, 0));
    OK(drv.cuMemRelease(handle));
    OK(drv.cuMemRelease(other));
}

Test(address, unmap_takes_whole_mappings) {
    memory made = memory_make(0, 2 * GRANULE);
    CHECK("measured: cuMemUnmap of part of a mapping", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemUnmap(made.address, GRANULE));
    CHECK("measured: cuMemUnmap of part of a mapping", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemUnmap(made.address + GRANULE, GRANULE));
    word_write(made.address + GRANULE, 7);
    cr_assert_eq(word_read(made.address + GRANULE), 7, "a refused cuMemUnmap changes nothing");
    OK(drv.cuMemUnmap(made.address, made.bytes));
    CHECK("measured: cuMemUnmap of a reserved range that is not mapped", CUDA_SUCCESS,
          drv.cuMemUnmap(made.address, made.bytes));
    OK(drv.cuMemAddressFree(made.address, made.bytes));
    OK(drv.cuMemRelease(made.handle));
}

Test(address, neighbours_look_like_one) {
    const CUmemGenericAllocationHandle left = memory_create(0, GRANULE);
    const CUmemGenericAllocationHandle right = memory_create(0, 2 * GRANULE);
    const CUdeviceptr address = reserve(3 * GRANULE);
    unsigned char bytes[64], back[64];
    CUdeviceptr base = 0;
    size_t size = 0;
    OK(drv.cuMemMap(address, GRANULE, 0, left, 0));
    OK(drv.cuMemMap(address + GRANULE, 2 * GRANULE, 0, right, 0));
    CHECK("measured: one cuMemSetAccess over several mappings side by side", CUDA_SUCCESS,
          memory_access(address, 3 * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(i * 3 + 1);
    }
    CHECK("measured: several segments in one range look the same to the user", CUDA_SUCCESS,
          drv.cuMemcpyHtoD(address + GRANULE - 32, bytes, sizeof bytes));
    CHECK("measured: several segments in one range look the same to the user", CUDA_SUCCESS,
          drv.cuMemcpyDtoH(back, address + GRANULE - 32, sizeof back));
    cr_assert_eq(memcmp(bytes, back, sizeof bytes), 0);
    CHECK("reading: the range of the mapping that holds the address", CUDA_SUCCESS,
          drv.cuMemGetAddressRange(&base, &size, address + 2 * GRANULE));
    cr_assert(base == address + GRANULE && size == 2 * GRANULE,
              "reading: cuMemGetAddressRange is of one mapping, not of the range: offset %llu, %zu",
              base - address, size);
    CHECK("reading: one cuMemUnmap for two mappings side by side", CUDA_SUCCESS,
          drv.cuMemUnmap(address, 3 * GRANULE));
    OK(drv.cuMemAddressFree(address, 3 * GRANULE));
    OK(drv.cuMemRelease(left));
    OK(drv.cuMemRelease(right));
}

Test(address, one_allocation_at_two_addresses) {
    memory made = memory_make(0, GRANULE);
    const CUdeviceptr alias = memory_map(made.handle, GRANULE);
    OK(memory_access(alias, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    word_write(made.address, 0xA11A5);
    cr_assert_eq(word_read(alias), 0xA11A5, "measured: two mappings of one allocation are fine");
    CHECK("reading: access belongs to the mapping, not to the memory", CUDA_ERROR_INVALID_VALUE,
          write_word(alias));
    memory_unmap(alias, GRANULE);
    memory_undo(&made);
}

Test(address, no_use_before_access) {
    memory source = memory_make(0, GRANULE);
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    const CUdeviceptr address = memory_map(handle, GRANULE);
    const char *row = "measured: use of a mapping before cuMemSetAccess";
    CHECK(row, CUDA_ERROR_INVALID_VALUE, read_word(address));
    CHECK(row, CUDA_ERROR_INVALID_VALUE, write_word(address));
    CHECK(row, CUDA_ERROR_INVALID_VALUE, drv.cuMemsetD8(address, 0, 16));
    CHECK(row, CUDA_ERROR_INVALID_VALUE, drv.cuMemsetD32(address, 0, 16));
    CHECK(row, CUDA_ERROR_INVALID_VALUE, drv.cuMemcpyDtoD(address, source.address, 16));
    CHECK(row, CUDA_ERROR_INVALID_VALUE, drv.cuMemcpyDtoD(source.address, address, 16));
    CHECK("reading: the asynchronous forms answer at once", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemsetD8Async(address, 0, 16, NULL));
    CHECK("reading: the asynchronous forms answer at once", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemcpyDtoDAsync(address, source.address, 16, NULL));
    OK(memory_access(address, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CHECK("the same, with access", CUDA_SUCCESS, write_word(address));
    OK(drv.cuCtxSynchronize()); /* work whose access changes ends its context */
    OK(memory_access(address, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    CUdeviceptr base = 0;
    size_t size = 0;
    CHECK("measured: a mapping that no device may use is not found", CUDA_ERROR_NOT_FOUND,
          drv.cuMemGetAddressRange(&base, &size, address));
    memory_unmap(address, GRANULE);
    OK(drv.cuMemRelease(handle));
    memory_undo(&source);
}

Test(address, read_only_access_and_raising_it) {
    memory made = memory_make(0, GRANULE);
    CUmemGenericAllocationHandle imported = 0;
    os_handle shareable = memory_export(made.handle);
    OK(memory_import(shareable, &imported));
    const CUdeviceptr address = memory_map(imported, GRANULE);
    const char *row = "measured: write after access was set to READ";
    OK(memory_access(address, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    CHECK("measured: reading with READ", CUDA_SUCCESS, read_word(address));
    CHECK(row, CUDA_ERROR_INVALID_VALUE, write_word(address));
    CHECK(row, CUDA_ERROR_INVALID_VALUE, drv.cuMemsetD8(address, 1, 16));
    CHECK(row, CUDA_ERROR_INVALID_VALUE, drv.cuMemcpyDtoD(address, made.address, 16));
    CHECK("measured: reading with READ", CUDA_SUCCESS, drv.cuMemcpyDtoD(made.address, address, 16));
    /* The copy may still run, and on an H200 (driver 580) one whose access changes meanwhile ends
     * its context with CUDA_ERROR_ILLEGAL_ADDRESS. */
    OK(drv.cuCtxSynchronize());
    CHECK("measured: importer raises its own access from READ to READWRITE", CUDA_SUCCESS,
          memory_access(address, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CHECK("measured: importer raises its own access from READ to READWRITE", CUDA_SUCCESS,
          write_word(address));
    cr_assert_eq(word_read(made.address), 1);
    memory_unmap(address, GRANULE);
    OK(drv.cuMemRelease(imported));
    os_handle_close(&shareable);
    memory_undo(&made);
}

Test(address, access_is_told_and_taken_away) {
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    const CUdeviceptr address = memory_map(handle, GRANULE);
    const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    const CUmemAccess_flags steps[] = {
        CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_NONE};
    unsigned long long flags = 99;
    CHECK("cuda.h: all mappings start with no accessibility", CUDA_SUCCESS,
          drv.cuMemGetAccess(&flags, &here, address));
    cr_assert_eq(flags, (unsigned long long)CU_MEM_ACCESS_FLAGS_PROT_NONE,
                 "cuda.h: all mappings start with no accessibility, not %llu", flags);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        CHECK("cuda.h: access can be set again", CUDA_SUCCESS,
              memory_access(address, GRANULE, 0, steps[i]));
        CHECK("cuda.h: cuMemGetAccess", CUDA_SUCCESS,
              drv.cuMemGetAccess(&flags, &here, address + 4096));
        cr_assert_eq(flags, (unsigned long long)steps[i], "cuda.h: %llu instead of %d", flags,
                     (int)steps[i]);
    }
    CHECK("reading: PROT_NONE takes access away", CUDA_ERROR_INVALID_VALUE, read_word(address));

    OK(memory_access(address, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(drv.cuMemUnmap(address, GRANULE));
    OK(drv.cuMemMap(address, GRANULE, 0, handle, 0));
    CHECK("cuda.h: a new mapping at the address needs access again", CUDA_ERROR_INVALID_VALUE,
          read_word(address));
    memory_unmap(address, GRANULE);
    CHECK("reading: cuMemGetAccess of what is not mapped", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemGetAccess(&flags, &here, address));
    OK(drv.cuMemRelease(handle));
}

Test(address, set_access_refuses) {
    const CUmemGenericAllocationHandle handle = memory_create(0, 2 * GRANULE);
    const CUdeviceptr address = reserve(3 * GRANULE);
    const CUmemAccessDesc none = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK("reading: cuMemSetAccess of what is not mapped", CUDA_ERROR_INVALID_VALUE,
          memory_access(address, 2 * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(drv.cuMemMap(address, 2 * GRANULE, 0, handle, 0));
    CHECK("cuda.h: the range must be fully mapped", CUDA_ERROR_INVALID_VALUE,
          memory_access(address, 3 * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CHECK("cuda.h: the range must contain whole allocations", CUDA_ERROR_INVALID_VALUE,
          memory_access(address, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CHECK("measured: an unknown device", CUDA_ERROR_INVALID_VALUE,
          memory_access(address, 2 * GRANULE, device_count, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CHECK("reading: write without read", CUDA_ERROR_INVALID_VALUE,
          memory_access(address, 2 * GRANULE, 0, (CUmemAccess_flags)2));
    CHECK("reading: no descriptions", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemSetAccess(address, 2 * GRANULE, &none, 0));
    OK(drv.cuMemUnmap(address, 2 * GRANULE));
    OK(drv.cuMemAddressFree(address, 3 * GRANULE));
    OK(drv.cuMemRelease(handle));
}

Test(address, range_of_a_mapping) {
    memory made = memory_make(0, 3 * GRANULE);
    CUmemGenericAllocationHandle imported = 0;
    os_handle shareable = memory_export(made.handle);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    OK(memory_import(shareable, &imported));
    const CUdeviceptr address = memory_map(imported, 3 * GRANULE);
    OK(memory_access(address, 3 * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CHECK("measured: cuMemGetAddressRange on an imported mapping", CUDA_SUCCESS,
          drv.cuMemGetAddressRange(&base, &bytes, address + GRANULE + 5));
    cr_assert(base == address && bytes == 3 * GRANULE,
              "measured: cuMemGetAddressRange on an imported mapping: the whole mapping, not %zu",
              bytes);
    CHECK("cuda.h: either result may be NULL", CUDA_SUCCESS,
          drv.cuMemGetAddressRange(NULL, &bytes, address));
    CHECK("cuda.h: either result may be NULL", CUDA_SUCCESS,
          drv.cuMemGetAddressRange(&base, NULL, made.address + 1));
    cr_assert_eq(base, made.address);
    memory_unmap(address, 3 * GRANULE);
    CHECK("reading: CUDA_ERROR_NOT_FOUND for what is no memory", CUDA_ERROR_NOT_FOUND,
          drv.cuMemGetAddressRange(&base, &bytes, address));
    OK(drv.cuMemRelease(imported));
    os_handle_close(&shareable);
    memory_undo(&made);
}

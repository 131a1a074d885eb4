/* SPDX-License-Identifier: MIT */
/** @file Copies and fills of every width, and what they refuse. */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

TestSuite(copy, .init = conformance_start, .fini = conformance_finish, .timeout = 60);

/** Long enough to cross a granule. */
#define PATTERN_BYTES (GRANULE + 4096 + 13)

static unsigned char *pattern_make(unsigned seed) {
    unsigned char *bytes = malloc(PATTERN_BYTES);
    cr_assert_not_null(bytes);
    for (size_t i = 0; i < PATTERN_BYTES; i++) {
        bytes[i] = (unsigned char)((i * 7 + (i >> 8) + seed) & 0xFFU);
    }
    return bytes;
}

/** Asserts that the memory holds the pattern, and that the byte on each side is @p around. */
static void check_pattern(CUdeviceptr address, const unsigned char *pattern, unsigned char around) {
    unsigned char *back = malloc(PATTERN_BYTES + 2);
    cr_assert_not_null(back);
    OK(drv.cuMemcpyDtoH(back, address - 1, PATTERN_BYTES + 2));
    cr_assert_eq(memcmp(back + 1, pattern, PATTERN_BYTES), 0, "the bytes are not what was written");
    cr_assert(back[0] == around && back[PATTERN_BYTES + 1] == around,
              "a copy wrote beyond its range: %02x %02x", back[0], back[PATTERN_BYTES + 1]);
    free(back);
}

Test(copy, between_host_and_device) {
    memory made = memory_make(0, 2 * GRANULE);
    unsigned char *pattern = pattern_make(1);
    CUstream stream = NULL;
    OK(drv.cuMemsetD8(made.address, 0xEE, made.bytes));
    CHECK("cuda.h: any address and any length", CUDA_SUCCESS,
          drv.cuMemcpyHtoD(made.address + 3, pattern, PATTERN_BYTES));
    check_pattern(made.address + 3, pattern, 0xEE);

    OK(drv.cuMemsetD8(made.address, 0xDD, made.bytes));
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(drv.cuCtxSynchronize());
    unsigned char *back = malloc(PATTERN_BYTES);
    cr_assert_not_null(back);
    CHECK("cuda.h: cuMemcpyHtoDAsync", CUDA_SUCCESS,
          drv.cuMemcpyHtoDAsync(made.address + 5, pattern, PATTERN_BYTES, stream));
    CHECK("cuda.h: cuMemcpyDtoHAsync", CUDA_SUCCESS,
          drv.cuMemcpyDtoHAsync(back, made.address + 5, PATTERN_BYTES, stream));
    OK(drv.cuStreamSynchronize(stream));
    cr_assert_eq(memcmp(back, pattern, PATTERN_BYTES), 0);
    check_pattern(made.address + 5, pattern, 0xDD);
    OK(drv.cuStreamDestroy(stream));
    free(back);
    free(pattern);
    memory_undo(&made);
}

Test(copy, on_the_device) {
    memory source = memory_make(0, 2 * GRANULE), target = memory_make(0, 2 * GRANULE);
    CUstream stream = NULL;
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned form = 0; form < 4; form++) {
        unsigned char *pattern = pattern_make(form * 31);
        const CUdeviceptr to = target.address + 1 + form, from = source.address + 9;
        OK(drv.cuMemcpyHtoD(from, pattern, PATTERN_BYTES));
        OK(drv.cuMemsetD8(target.address, 0xCC, target.bytes));
        OK(drv.cuCtxSynchronize());
        switch (form) {
        case 0:
            OK(drv.cuMemcpyDtoD(to, from, PATTERN_BYTES));
            break;
        case 1:
            OK(drv.cuMemcpyDtoDAsync(to, from, PATTERN_BYTES, stream));
            break;
        case 2:
            OK(drv.cuMemcpy(to, from, PATTERN_BYTES));
            break;
        default:
            OK(drv.cuMemcpyAsync(to, from, PATTERN_BYTES, stream));
            break;
        }
        /* cuda.h, "API synchronization behavior": copies on the device may return early. */
        OK(drv.cuCtxSynchronize());
        check_pattern(to, pattern, 0xCC);
        free(pattern);
    }
    OK(drv.cuStreamDestroy(stream));
    memory_undo(&source);
    memory_undo(&target);
}

Test(copy, cumemcpy_takes_host_addresses) {
    memory made = memory_make(0, GRANULE);
    uint32_t words[4] = {11, 22, 33, 44}, back[4] = {0};
    CHECK("cuda.h: cuMemcpy infers the kind from the address", CUDA_SUCCESS,
          drv.cuMemcpy(made.address, (CUdeviceptr)(uintptr_t)words, sizeof words));
    CHECK("cuda.h: cuMemcpy infers the kind from the address", CUDA_SUCCESS,
          drv.cuMemcpy((CUdeviceptr)(uintptr_t)back, made.address, sizeof back));
    cr_assert_eq(memcmp(words, back, sizeof words), 0);
    memory_undo(&made);
}

/** One fill: width in bytes, and whether the asynchronous form is used. */
static CUresult fill(size_t width, bool asynchronous, CUdeviceptr address, uint32_t value,
                     size_t count, CUstream stream) {
    switch (width) {
    case 1:
        return asynchronous ? drv.cuMemsetD8Async(address, (unsigned char)value, count, stream)
                            : drv.cuMemsetD8(address, (unsigned char)value, count);
    case 2:
        return asynchronous ? drv.cuMemsetD16Async(address, (unsigned short)value, count, stream)
                            : drv.cuMemsetD16(address, (unsigned short)value, count);
    default:
        return asynchronous ? drv.cuMemsetD32Async(address, value, count, stream)
                            : drv.cuMemsetD32(address, value, count);
    }
}

Test(copy, fills_of_every_width) {
    memory made = memory_make(0, GRANULE);
    const uint32_t value = 0xA1B2C3D4;
    CUstream stream = NULL;
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t width = 1; width <= 4; width *= 2) {
        for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
            unsigned char back[64];
            const size_t count = 28 / width;
            OK(drv.cuMemsetD8(made.address, 0x55, GRANULE));
            OK(drv.cuCtxSynchronize());
            CHECK("cuda.h: count is of values, not bytes", CUDA_SUCCESS,
                  fill(width, asynchronous == 1, made.address + 8, value, count, stream));
            OK(drv.cuCtxSynchronize());
            OK(drv.cuMemcpyDtoH(back, made.address, sizeof back));
            for (size_t i = 0; i < sizeof back; i++) {
                const bool inside = i >= 8 && i < 8 + count * width;
                const unsigned char expected =
                    (unsigned char)(inside ? value >> (8 * ((i - 8) % width)) : 0x55u);
                cr_assert_eq(back[i], expected, "fill of width %zu, byte %zu: %02x, not %02x",
                             width, i, back[i], expected);
            }
        }
    }
    OK(drv.cuStreamDestroy(stream));
    memory_undo(&made);
}

Test(copy, fills_want_alignment) {
    memory made = memory_make(0, GRANULE);
    CHECK("cuda.h: must be two byte aligned", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemsetD16(made.address + 1, 1, 4));
    CHECK("cuda.h: must be four byte aligned", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemsetD32(made.address + 2, 1, 4));
    CHECK("cuda.h: must be four byte aligned", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemsetD32Async(made.address + 2, 1, 4, NULL));
    CHECK("cuda.h: bytes have no alignment", CUDA_SUCCESS, drv.cuMemsetD8(made.address + 1, 1, 4));
    memory_undo(&made);
}

Test(copy, nothing_is_allowed) {
    memory made = memory_make(0, GRANULE);
    char byte = 0;
    CHECK("reading: a copy of 0 bytes", CUDA_SUCCESS, drv.cuMemcpyHtoD(made.address, &byte, 0));
    CHECK("reading: a copy of 0 bytes", CUDA_SUCCESS, drv.cuMemcpyDtoH(&byte, made.address, 0));
    CHECK("reading: a copy of 0 bytes", CUDA_SUCCESS,
          drv.cuMemcpyDtoD(made.address, made.address, 0));
    CHECK("reading: a fill of 0 values", CUDA_SUCCESS, drv.cuMemsetD32(made.address, 0, 0));
    memory_undo(&made);
}

Test(copy, the_end_is_checked) {
    memory made = memory_make(0, GRANULE);
    uint32_t words[2] = {0};
    const CUdeviceptr last = made.address + GRANULE - 4;
    CHECK("reading: a copy beyond the end of the mapping", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemcpyHtoD(last, words, sizeof words));
    CHECK("reading: a copy beyond the end of the mapping", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemcpyDtoH(words, last, sizeof words));
    CHECK("reading: a fill beyond the end of the mapping", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemsetD32(last, 1, 2));
    CHECK("reading: address 0", CUDA_ERROR_INVALID_VALUE, drv.cuMemcpyHtoD(0, words, 4));
    memory_undo(&made);
    CHECK("reading: an address that is mapped no more", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemcpyDtoH(words, made.address, 4));
    CHECK("reading: an address that is mapped no more", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemsetD8(made.address, 1, 4));
}

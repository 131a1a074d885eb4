/* SPDX-License-Identifier: MIT */
/**
 * @file A program as anybody writes one against the CUDA Driver API: makes memory with the virtual
 * memory calls, fills it through a stream, copies it back and verifies it. Nothing of gpuipc is in
 * it. Exit code 0: verified; 1: a call failed or a word is wrong.
 */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS ((size_t)1 << 18)

static void check(CUresult result, const char *call) {
    const char *name = NULL;
    if (result != CUDA_SUCCESS) {
        if (cuGetErrorName(result, &name) != CUDA_SUCCESS) {
            name = "a code without a name";
        }
        fprintf(stderr, "%s answered %s (%d)\n", call, name, (int)result);
        exit(1);
    }
}
#define CHECK(call) check((call), #call)

/** A value for every word. */
static uint32_t pattern(size_t index) {
    return ((uint32_t)index * 2U + 1337U) ^ 0xDEADBEEFU;
}

/** Writes, copies on the device, reads and compares. */
static size_t wrong_words(CUdeviceptr source, CUdeviceptr copy, CUstream stream) {
    uint32_t *words = malloc(WORDS * sizeof *words);
    size_t wrong = 0;
    if (words == NULL) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    for (size_t i = 0; i < WORDS; i++) {
        words[i] = pattern(i);
    }
    CHECK(cuMemcpyHtoDAsync(source, words, WORDS * sizeof *words, stream));
    CHECK(cuMemcpyDtoDAsync(copy, source, WORDS * sizeof *words, stream));
    CHECK(cuStreamSynchronize(stream));
    memset(words, 0, WORDS * sizeof *words);
    CHECK(cuMemcpyDtoH(words, copy, WORDS * sizeof *words));
    for (size_t i = 0; i < WORDS; i++) {
        wrong += words[i] != pattern(i);
    }
    free(words);
    return wrong;
}

int main(void) {
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CUdeviceptr mapped, plain;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties;
    CUmemAccessDesc access;
    size_t granularity;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    CHECK(
        cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    const size_t bytes = (WORDS * sizeof(uint32_t) + granularity - 1) / granularity * granularity;
    CHECK(cuMemCreate(&handle, bytes, &properties, 0));
    CHECK(cuMemAddressReserve(&mapped, bytes, 0, 0, 0));
    CHECK(cuMemMap(mapped, bytes, 0, handle, 0));
    memset(&access, 0, sizeof access);
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemSetAccess(mapped, bytes, &access, 1));
    CHECK(cuMemAlloc(&plain, bytes));

    const size_t wrong = wrong_words(mapped, plain, stream);

    CHECK(cuMemFree(plain));
    CHECK(cuMemUnmap(mapped, bytes));
    CHECK(cuMemAddressFree(mapped, bytes));
    CHECK(cuMemRelease(handle));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuDevicePrimaryCtxRelease(device));
    printf("%zu words, %zu wrong\n", WORDS, wrong);
    return wrong == 0 ? 0 : 1;
}

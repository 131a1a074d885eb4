/* SPDX-License-Identifier: MIT */
/** @file Memory of devices and of the host, copies of each kind with their contents, what an address stands for. */
#include <stdlib.h>

#include "runtime.h"

TestSuite(memory, .timeout = 60);

#define COUNT ((size_t)100000)
#define BYTES (COUNT * sizeof(uint32_t))

typedef struct words {
    uint32_t out[COUNT];
    uint32_t back[COUNT];
} words;

static words *words_make(uint32_t first) {
    words *const made = malloc(sizeof *made);
    cr_assert_not_null(made);
    fill_words(made->out, COUNT, first);
    memset(made->back, 0, BYTES);
    return made;
}

Test(memory, there_across_and_back) {
    void *first = NULL, *second = NULL;
    words *const host = words_make(1000);
    OK(cudaMalloc(&first, BYTES));
    OK(cudaMalloc(&second, BYTES));
    OK(cudaMemcpy(first, host->out, BYTES, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(second, first, BYTES, cudaMemcpyDeviceToDevice));
    OK(cudaMemcpy(host->back, second, BYTES, cudaMemcpyDeviceToHost));
    cr_assert_eq(first_wrong(host->back, COUNT, 1000), COUNT);
    OK(cudaFree(first));
    OK(cudaFree(second));
    free(host);
}

Test(memory, the_addresses_say_the_kind) {
    void *memory = NULL;
    words *const host = words_make(5);
    OK(cudaMalloc(&memory, BYTES));
    OK(cudaMemcpy(memory, host->out, BYTES, cudaMemcpyDefault));
    OK(cudaMemcpy(host->back, memory, BYTES, cudaMemcpyDefault));
    cr_assert_eq(first_wrong(host->back, COUNT, 5), COUNT);
    memset(host->back, 0, BYTES);
    OK(cudaMemcpy(host->back, host->out, BYTES, cudaMemcpyHostToHost));
    cr_assert_eq(first_wrong(host->back, COUNT, 5), COUNT);
    RESULT(cudaErrorInvalidMemcpyDirection,
           cudaMemcpy(memory, host->out, BYTES, (enum cudaMemcpyKind)17));
    OK(cudaFree(memory));
    free(host);
}

Test(memory, fills_and_rows) {
    enum {
        WIDTH = 100,
        HEIGHT = 30,
        HOST_PITCH = 128
    };
    static unsigned char host[HEIGHT * HOST_PITCH];
    void *memory = NULL;
    size_t pitch = 0;
    OK(cudaMallocPitch(&memory, &pitch, WIDTH, HEIGHT));
    cr_assert_geq(pitch, WIDTH);
    OK(cudaMemset(memory, 0x11, pitch * HEIGHT));
    OK(cudaMemset2D(memory, pitch, 0x22, WIDTH / 2, HEIGHT));
    OK(cudaMemcpy2D(host, HOST_PITCH, memory, pitch, WIDTH, HEIGHT, cudaMemcpyDeviceToHost));
    for (size_t row = 0; row < HEIGHT; row++) {
        cr_assert_eq(host[row * HOST_PITCH], 0x22);
        cr_assert_eq(host[row * HOST_PITCH + WIDTH / 2 - 1], 0x22);
        cr_assert_eq(host[row * HOST_PITCH + WIDTH / 2], 0x11);
        cr_assert_eq(host[row * HOST_PITCH + WIDTH - 1], 0x11);
        cr_assert_eq(host[row * HOST_PITCH + WIDTH], 0, "behind the row");
    }
    RESULT(cudaErrorInvalidPitchValue,
           cudaMemcpy2D(host, WIDTH - 1, memory, pitch, WIDTH, HEIGHT, cudaMemcpyDeviceToHost));
    OK(cudaFree(memory));
}

Test(memory, nothing_and_wrong_addresses) {
    void *memory = &memory;
    int local = 0;
    OK(cudaFree(NULL));
    OK(cudaMalloc(&memory, 0));
    cr_assert_null(memory);
    RESULT(cudaErrorInvalidValue, cudaMalloc(NULL, MIB));
    RESULT(cudaErrorInvalidValue, cudaFree(&local));
    RESULT(cudaErrorMemoryAllocation, cudaMalloc(&memory, (size_t)1 << 60));
    OK(cudaMalloc(&memory, MIB));
    OK(cudaFree(memory));
    RESULT(cudaErrorInvalidValue, cudaFree(memory));
}

Test(memory, free_memory_is_counted) {
    size_t before = 0, during = 0, total = 0;
    void *memory = NULL;
    OK(cudaMemGetInfo(&before, &total));
    cr_assert_leq(before, total);
    OK(cudaMalloc(&memory, 64 * MIB));
    OK(cudaMemGetInfo(&during, &total));
    cr_assert_lt(during, before);
    OK(cudaFree(memory));
}

static struct cudaPointerAttributes attributes_of(const void *address) {
    struct cudaPointerAttributes found;
    memset(&found, 0xff, sizeof found);
    OK(cudaPointerGetAttributes(&found, address));
    return found;
}

Test(memory, what_an_address_stands_for) {
    void *of_device = NULL, *pinned = NULL, *managed = NULL;
    static char plain[64];
    OK(cudaMalloc(&of_device, MIB));
    OK(cudaMallocHost(&pinned, MIB));
    OK(cudaMallocManaged(&managed, MIB, cudaMemAttachGlobal));

    struct cudaPointerAttributes found = attributes_of((char *)of_device + 100);
    cr_assert_eq(found.type, cudaMemoryTypeDevice);
    cr_assert_eq(found.device, 0);
    cr_assert_eq(found.devicePointer, (char *)of_device + 100);
    found = attributes_of(pinned);
    cr_assert_eq(found.type, cudaMemoryTypeHost);
    cr_assert_eq(found.hostPointer, pinned);
    cr_assert_not_null(found.devicePointer);
    cr_assert_eq(attributes_of(managed).type, cudaMemoryTypeManaged);
    cr_assert_eq(attributes_of(plain).type, cudaMemoryTypeUnregistered);

    OK(cudaFree(managed));
    OK(cudaFreeHost(pinned));
    OK(cudaFree(of_device));
}

Test(memory, of_the_host) {
    static _Alignas(4096) char plain[8192];
    void *pinned = NULL, *reached = NULL;
    unsigned flags = 0;
    void *memory = NULL;
    OK(cudaHostAlloc(&pinned, MIB, cudaHostAllocMapped));
    OK(cudaHostGetFlags(&flags, pinned));
    cr_assert_neq(flags & cudaHostAllocMapped, 0);
    OK(cudaHostGetDevicePointer(&reached, pinned, 0));
    OK(cudaMalloc(&memory, MIB));
    OK(cudaMemset(memory, 0x5a, MIB));
    OK(cudaMemcpy(reached, memory, MIB, cudaMemcpyDeviceToDevice));
    OK(cudaDeviceSynchronize());
    cr_assert_eq(((unsigned char *)pinned)[MIB - 1], 0x5a);

    OK(cudaHostRegister(plain, sizeof plain, cudaHostRegisterMapped));
    RESULT(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(plain, sizeof plain, 0));
    OK(cudaHostUnregister(plain));
    RESULT(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(plain));
    OK(cudaFreeHost(NULL));
    OK(cudaFreeHost(pinned));
    OK(cudaFree(memory));
}

Test(memory, from_one_device_to_another) {
    int count = 0;
    void *here = NULL, *there = NULL;
    words *const host = words_make(77);
    OK(cudaGetDeviceCount(&count));
    if (count < 2) {
        cr_skip_test("one device only");
    }
    OK(cudaMalloc(&here, BYTES));
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&there, BYTES));
    cr_assert_eq(attributes_of(there).device, 1);
    OK(cudaMemcpy(here, host->out, BYTES, cudaMemcpyHostToDevice));
    OK(cudaMemcpyPeer(there, 1, here, 0, BYTES));
    OK(cudaMemcpy(host->back, there, BYTES, cudaMemcpyDeviceToHost));
    cr_assert_eq(first_wrong(host->back, COUNT, 77), COUNT);
    OK(cudaFree(there));
    OK(cudaFree(here));
    free(host);
}

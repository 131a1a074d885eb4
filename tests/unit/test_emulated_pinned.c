/* SPDX-License-Identifier: MIT */
/** @file Pinned memory of the host: what is asynchronous with it, what it is called, and what is
 *  refused. Asynchronous work gets a delay that is long beside all that a test does before it looks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulated_test.h"

#define DELAY_MS 600
#define BYTES    ((size_t)65536)
#define OLD      0x01d01d01u
#define NEW      0x2e22e22eu

static CUdeviceptr memory;
static CUstream stream;
static uint32_t *words; /* of cuMemHostAlloc */

static void start(void) {
    void *pointer = NULL;
    emulated_start(NULL);
    memory = memory_make(0, GRANULE);
    word_write(memory, OLD);
    check_success(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_success(drv.cuMemHostAlloc(&pointer, BYTES, CU_MEMHOSTALLOC_PORTABLE));
    words = pointer;
    set_delay(DELAY_MS);
}

static void finish(void) {
    set_delay(0);
    check_success(drv.cuStreamSynchronize(stream));
    check_success(drv.cuMemFreeHost(words));
    check_success(drv.cuStreamDestroy(stream));
    memory_unmake(memory, GRANULE);
    gpuipc_emulated_live live;
    get_live(&live);
    if (live.pinned != 0 || live.managed != 0 || live.mappings != 0) {
        abort(); /* an assertion in a .fini does not count */
    }
}

TestSuite(emulated_pinned, .init = start, .fini = finish, .timeout = 60);

static CUdeviceptr at(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}

/* What a copy in a stream of its own finds, which waits for nothing. */
static uint32_t glance(void) {
    uint32_t word = 0;
    CUstream other = NULL;
    set_delay(0);
    check_success(drv.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    check_success(drv.cuMemcpyDtoHAsync(&word, memory, sizeof(word), other));
    check_success(drv.cuStreamDestroy(other));
    set_delay(DELAY_MS);
    return word;
}

Test(emulated_pinned, is_zero_and_aligned_to_pages) {
    cr_assert_eq((uintptr_t)words % 4096, 0);
    for (size_t i = 0; i < BYTES / sizeof(*words); i++) {
        cr_assert_eq(words[i], 0);
    }
}

Test(emulated_pinned, a_copy_from_it_reads_in_stream_order) {
    words[0] = OLD;
    check_success(drv.cuMemcpyHtoDAsync(memory, words, sizeof(*words), stream));
    words[0] = NEW; /* too early: the copy has not begun */
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(stream));
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert_eq(word_read(memory), NEW, "the source is read when the copy runs");
}

Test(emulated_pinned, a_copy_to_it_returns_before_it_is_done) {
    words[0] = NEW;
    check_success(drv.cuMemcpyDtoHAsync(words, memory, sizeof(*words), stream));
    cr_assert_eq(words[0], NEW, "nothing has arrived yet");
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(stream));
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert_eq(words[0], OLD);
}

Test(emulated_pinned, a_synchronous_copy_is_done_when_it_returns) {
    words[0] = NEW;
    check_success(drv.cuMemcpyHtoD(memory, words, sizeof(*words)));
    words[0] = 0;
    cr_assert_eq(glance(), NEW);
    check_success(drv.cuMemcpyDtoH(words, memory, sizeof(*words)));
    cr_assert_eq(words[0], NEW);
}

Test(emulated_pinned, a_copy_within_the_host_is_done_when_it_returns) {
    uint32_t pageable = NEW;
    check_success(drv.cuMemcpyAsync(at(words), at(&pageable), sizeof(*words), stream));
    cr_assert_eq(words[0], NEW);
    check_success(drv.cuMemcpyAsync(at(words + 1), at(words), sizeof(*words), stream));
    cr_assert_eq(words[1], NEW);
}

Test(emulated_pinned, devices_fill_it) {
    CUdeviceptr device = 0;
    check_success(drv.cuMemHostGetDevicePointer(&device, words + 4, 0));
    cr_assert_eq(device, at(words + 4), "one address for both");
    check_success(drv.cuMemsetD32Async(device, NEW, 2, stream));
    cr_assert_eq(words[4], 0);
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert(words[3] == 0 && words[4] == NEW && words[5] == NEW && words[6] == 0);
}

Test(emulated_pinned, pageable_memory_is_not_filled) {
    static uint32_t pageable;
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemsetD32Async(at(&pageable), 1, 1, stream));
}

Test(emulated_pinned, a_copy_stays_inside) {
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemcpyHtoDAsync(memory, words, BYTES + 1, stream));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuMemcpyDtoHAsync((char *)words + BYTES - 4, memory, 8, stream));
}

Test(emulated_pinned, freeing_waits_for_the_work) {
    void *pointer = NULL;
    check_success(drv.cuMemHostAlloc(&pointer, BYTES, 0));
    memcpy(pointer, &(uint32_t){NEW}, sizeof(uint32_t));
    check_success(drv.cuMemcpyHtoDAsync(memory, pointer, sizeof(uint32_t), stream));
    check_success(drv.cuMemFreeHost(pointer));
    check_success(drv.cuStreamQuery(stream));
    cr_assert_eq(word_read(memory), NEW);
}

/* Registered memory: pages of the program's own. */

static char *pages;

static char *pages_make(void) {
    static char room[4 * 4096];
    pages = (char *)(((uintptr_t)room + 4095) / 4096 * 4096);
    return pages;
}

Test(emulated_pinned, registered_memory_is_pinned) {
    uint32_t *registered = (uint32_t *)(void *)pages_make();
    *registered = OLD;
    check_success(drv.cuMemHostRegister(registered, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    check_success(drv.cuMemcpyHtoDAsync(memory, registered, sizeof(*registered), stream));
    *registered = NEW;
    check_success(drv.cuMemHostUnregister(registered));
    check_success(drv.cuStreamQuery(stream));
    cr_assert_eq(word_read(memory), NEW);
    /* and is pageable again */
    *registered = OLD;
    check_success(drv.cuMemcpyHtoDAsync(memory, registered, sizeof(*registered), stream));
    *registered = NEW;
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert_eq(word_read(memory), OLD);
}

Test(emulated_pinned, a_page_is_registered_once) {
    char *page = pages_make();
    check_success(drv.cuMemHostRegister(page + 4096, 100, 0));
    const struct {
        char *base;
        size_t bytes;
    } taken[] = {{page + 4096, 100},      {page + 4096 + 50, 8},     {page, 4097},
                 {page, 3 * 4096},        {page + 4096 + 200, 4096}, {page + 4096 + 99, 1},
                 {page + 4096 - 10, 4096}};
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        check_result(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                     drv.cuMemHostRegister(taken[i].base, taken[i].bytes, 0));
    }
    check_success(drv.cuMemHostRegister(page, 4096, 0));
    check_success(drv.cuMemHostRegister(page + 4096 + 128, 64, 0)); /* another piece of the page */
    check_success(drv.cuMemHostUnregister(page));
    check_success(drv.cuMemHostUnregister(page + 4096));
    check_success(drv.cuMemHostUnregister(page + 4096 + 128));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemHostRegister(words, 8, 0));
}

Test(emulated_pinned, refuses_what_is_wrong) {
    void *pointer = NULL;
    CUdeviceptr device = 0;
    char *page = pages_make();
    check_success(drv.cuMemHostAlloc(&pointer, 0, 0));
    check_result(CUDA_ERROR_OUT_OF_MEMORY, drv.cuMemHostAlloc(&pointer, (size_t)1 << 50, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemHostAlloc(NULL, 1, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemHostAlloc(&pointer, 1, 8));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemHostRegister(NULL, 1, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemHostRegister(page, 0, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemHostRegister(page, 1, 16));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemHostRegister(page, SIZE_MAX, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemHostRegister(page, 1, 4));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuMemHostRegister((void *)(uintptr_t)memory, GRANULE, 0));
    check_result(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, drv.cuMemHostUnregister(page));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemHostUnregister(words));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemHostUnregister(NULL));
    check_success(drv.cuMemHostRegister(page, 4096, 8));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemHostUnregister(page + 1));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemFreeHost(page));
    check_success(drv.cuMemHostUnregister(page));
    check_result(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, drv.cuMemHostUnregister(page));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemFreeHost(page));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemFreeHost(words + 1));
    check_success(drv.cuMemFreeHost(NULL));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemHostGetDevicePointer(&device, page, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemHostGetDevicePointer(&device, words, 1));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemFree(at(words)));
    cr_assert_eq(pointer, NULL);
    cr_assert_eq(device, 0);
}

Test(emulated_pinned, says_what_it_is) {
    unsigned type = 0;
    int device = -1;
    unsigned long long number = 0;
    unsigned managed = 1;
    CUcontext context = NULL;
    CUcontext owner = NULL;
    check_success(drv.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at(words)));
    cr_assert_eq(type, CU_MEMORYTYPE_HOST);
    check_success(
        drv.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at(words)));
    cr_assert_eq(device, 0);
    check_success(drv.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at(words)));
    cr_assert_eq(managed, 0);
    check_success(
        drv.cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_HOST_POINTER, at(words + 1)));
    cr_assert_eq(number, at(words + 1));
    check_success(
        drv.cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at(words + 1)));
    cr_assert_eq(number, at(words + 1));
    check_success(
        drv.cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at(words + 1)));
    cr_assert_eq(number, at(words));
    check_success(
        drv.cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at(words + 1)));
    cr_assert_eq(number, BYTES);
    check_success(drv.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, at(words)));
    check_success(drv.cuCtxGetCurrent(&context));
    cr_assert_eq(owner, context);
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at(&type)));
    CUdeviceptr base = 0;
    size_t bytes = 0;
    check_success(drv.cuMemGetAddressRange(&base, &bytes, at(words + 1)));
    cr_assert(base == at(words) && bytes == BYTES);
    check_result(CUDA_ERROR_NOT_FOUND, drv.cuMemGetAddressRange(&base, &bytes, at(&type)));
    check_success(drv.cuCtxPopCurrent(&context));
    check_result(
        CUDA_ERROR_INVALID_CONTEXT,
        drv.cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at(words)));
    check_success(drv.cuCtxPushCurrent(context));
}

/* Also of work that does not touch it (measured). */
Test(emulated_pinned, unregistering_waits_for_its_context) {
    check_success(drv.cuMemHostRegister(pages_make(), 4096, 0));
    check_success(drv.cuMemsetD32Async(memory, NEW, 1, stream));
    check_success(drv.cuMemHostUnregister(pages));
    check_success(drv.cuStreamQuery(stream));
}

Test(emulated_pinned, tells_its_flags) {
    CUresult (*get_flags)(unsigned *, void *);
    CUresult (*allocate)(void **, size_t);
    unsigned flags = 99;
    void *pointer = NULL;
    emulated_symbol(drv.library, "cuMemHostGetFlags", &get_flags);
    emulated_symbol(drv.library, "cuMemAllocHost_v2", &allocate);
    check_success(get_flags(&flags, words));
    cr_assert_eq(flags, CU_MEMHOSTALLOC_PORTABLE);
    check_success(allocate(&pointer, 1));
    check_success(get_flags(&flags, pointer));
    cr_assert_eq(flags, 0);
    check_success(drv.cuMemFreeHost(pointer));
    check_result(CUDA_ERROR_INVALID_VALUE, get_flags(&flags, &flags));
}

Test(emulated_pinned, is_listed_while_it_lives) {
    char text[1024];
    char line[128];
    gpuipc_emulated_live live;
    check_success(drv.cuMemHostRegister(pages_make(), 123, 0));
    get_live(&live);
    cr_assert_eq(live.pinned, 2);
    list_live(text, sizeof(text));
    snprintf(line, sizeof(line), "pinned 0x%llx size 123 device 0\n",
             (unsigned long long)at(pages));
    cr_assert_not_null(strstr(text, line), "%s", text);
    check_success(drv.cuMemHostUnregister(pages));
}

Test(emulated_pinned, ends_with_its_context) {
    void *pointer = NULL;
    gpuipc_emulated_live live;
    context_use(1);
    check_success(drv.cuMemHostAlloc(&pointer, BYTES, 0));
    check_success(drv.cuMemHostRegister(pages_make(), 4096, 0));
    check_success(drv.cuDevicePrimaryCtxRelease(1));
    get_live(&live);
    cr_assert_eq(live.pinned, 1);
    check_success(drv.cuCtxPopCurrent(NULL));
    check_result(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, drv.cuMemHostUnregister(pages));
}

TestSuite(emulated_pinned_fault, .timeout = 60);

Test(emulated_pinned_fault, needs_a_context) {
    void *pointer = NULL;
    emulated_start(NULL);
    check_success(drv.cuCtxPopCurrent(NULL));
    check_result(CUDA_ERROR_INVALID_CONTEXT, drv.cuMemHostAlloc(&pointer, 1, 0));
    check_result(CUDA_ERROR_INVALID_CONTEXT, drv.cuMemHostRegister(&pointer, 1, 0));
}

Test(emulated_pinned_fault, fails_on_demand) {
    void *pointer = NULL;
    emulated_start(NULL);
    cr_assert_eq(set_fail("cuMemHostAlloc:1=2;cuMemHostRegister:1=304"), 0);
    check_result(CUDA_ERROR_OUT_OF_MEMORY, drv.cuMemHostAlloc(&pointer, 1, 0));
    check_result(CUDA_ERROR_OPERATING_SYSTEM, drv.cuMemHostRegister(&pointer, 1, 0));
}

/* SPDX-License-Identifier: MIT */
/**
 * @file Many threads on the emulated driver at once. A plain program, so that it runs under
 * ThreadSanitizer. Exit code 0: every call answered CUDA_SUCCESS, every word was right, and nothing
 * is live at the end.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "emulated.h"

#define THREADS 4
#define ROUNDS  40
#define GRANULE ((size_t)2 << 20)

static driver drv;
static CUevent shared_event;

static void check(CUresult result, const char *call) {
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s answered %d\n", call, (int)result);
        exit(1);
    }
}
#define CHECK(call) check((call), #call)

static void check_word(uint32_t word, uint32_t expected, const char *where) {
    if (word != expected) {
        fprintf(stderr, "%s: %08x, not %08x\n", where, (unsigned)word, (unsigned)expected);
        exit(1);
    }
}

/* Makes memory that others could share, and lets two streams work on it in turn. */
static void work(int device, uint32_t value) {
    CUmemAllocationProp prop;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    CUdeviceptr plain;
    CUstream first;
    CUstream second;
    CUevent event;
    uint32_t word = 0;
    const CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    CHECK(drv.cuMemCreate(&handle, GRANULE, &prop, 0));
    CHECK(drv.cuMemAddressReserve(&address, GRANULE, 0, 0, 0));
    CHECK(drv.cuMemMap(address, GRANULE, 0, handle, 0));
    CHECK(drv.cuMemRelease(handle));
    CHECK(drv.cuMemSetAccess(address, GRANULE, &desc, 1));
    CHECK(drv.cuMemAlloc(&plain, 4096));
    CHECK(drv.cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(drv.cuStreamCreate(&second, value % 2 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    CHECK(drv.cuEventCreate(&event, 0));
    CHECK(drv.cuMemsetD32Async(address, value, GRANULE / 4, first));
    CHECK(drv.cuEventRecord(event, first));
    CHECK(drv.cuStreamWaitEvent(second, event, 0));
    CHECK(drv.cuMemcpyDtoDAsync(plain, address + GRANULE - 4096, 4096, second));
    if (device == 0) {
        CHECK(drv.cuEventRecord(shared_event, second));
    }
    CHECK(drv.cuStreamWaitEvent(first, shared_event, 0));
    CHECK(drv.cuMemcpyDtoHAsync(&word, plain + 4092, 4, second));
    check_word(word, value, "through the second stream");
    CHECK(drv.cuMemcpyDtoH(&word, plain, 4));
    check_word(word, value, "through the default stream");
    CHECK(drv.cuStreamDestroy(first));
    CHECK(drv.cuStreamDestroy(second));
    CHECK(drv.cuEventDestroy(event));
    CHECK(drv.cuMemUnmap(address, GRANULE));
    CHECK(drv.cuMemAddressFree(address, GRANULE));
    CHECK(drv.cuMemFree(plain));
}

static void count(void *data) {
    atomic_fetch_add((atomic_uint *)data, 1);
}

/* One stream waits for a word of the other; pinned memory and a function of the host on the way. */
static void exchange(uint64_t value) {
    atomic_uint calls = 0;
    void *page;
    CUstream first;
    CUstream second;
    CHECK(drv.cuMemHostAlloc(&page, 4096, 0));
    const CUdeviceptr words = (CUdeviceptr)(uintptr_t)page;
    CHECK(drv.cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(drv.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    /* Before the wait: a call after it is kept out when another thread's call frees, which waits for this very
     * stream, on a GPU as well. */
    CHECK(drv.cuStreamWriteValue64(second, words, value + 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    CHECK(drv.cuStreamWaitValue64(first, words, value + 1, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK(drv.cuLaunchHostFunc(first, count, &calls));
    CHECK(drv.cuMemsetD32Async(words + 16, (uint32_t)value + 1, 1, first));
    CHECK(drv.cuStreamSynchronize(first));
    check_word(atomic_load(&calls), 1, "calls of the host's function");
    check_word(((const uint32_t *)page)[4], (uint32_t)value + 1, "behind the wait");
    CHECK(drv.cuStreamDestroy(first));
    CHECK(drv.cuStreamDestroy(second));
    CHECK(drv.cuMemFreeHost(page));
}

/* Memory of one pool goes from thread to thread, in the order of their streams. */
static void pass_on(uint32_t value) {
    CUdeviceptr address;
    CUstream first;
    CUstream second;
    CUevent event;
    uint32_t word = 0;
    CHECK(drv.cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(drv.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(drv.cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(drv.cuMemAllocAsync(&address, (size_t)(i + 1) * 4096, first));
        CHECK(drv.cuMemsetD32Async(address, value + i, 1024, first));
        CHECK(drv.cuEventRecord(event, first));
        CHECK(drv.cuStreamWaitEvent(second, event, 0));
        CHECK(drv.cuMemcpyDtoHAsync(&word, address, sizeof(word), second));
        check_word(word, value + i, "in memory of a pool");
        CHECK(drv.cuMemFreeAsync(address, second));
    }
    CHECK(drv.cuEventSynchronize(event));
    CHECK(drv.cuStreamSynchronize(second));
    CHECK(drv.cuEventDestroy(event));
    CHECK(drv.cuStreamDestroy(first));
    CHECK(drv.cuStreamDestroy(second));
}

/* Device 0 has the shared event, in a context that lives through; the context of device 1 comes and
 * goes with the threads that use it. */
static void run(void *argument) {
    const uint32_t number = *(const uint32_t *)argument;
    const int device = (int)(number % 2);
    CUcontext context;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        CHECK(drv.cuDevicePrimaryCtxRetain(&context, device));
        CHECK(drv.cuCtxPushCurrent(context));
        work(device, number * 1000 + round);
        exchange(number * 1000 + round);
        pass_on(number * 1000 + round);
        CHECK(drv.cuCtxPopCurrent(NULL));
        CHECK(drv.cuDevicePrimaryCtxRelease(device));
    }
}

static int report(void) {
    gpuipc_emulated_live_fn get_live;
    gpuipc_emulated_live live;
    const gpuipc_emulated_live nothing = {0};
    void *symbol = os_library_symbol(drv.library, GPUIPC_EMULATED_LIVE);
    memcpy(&get_live, &symbol, sizeof(symbol));
    get_live(&live);
    if (memcmp(&live, &nothing, sizeof(live)) != 0) {
        fprintf(stderr, "something is live at the end\n");
        return 1;
    }
    return 0;
}

int main(void) {
    os_thread *threads[THREADS];
    uint32_t numbers[THREADS];
    CUcontext context;
    if (driver_open("emulated", &drv) != GPUIPC_OK) {
        fprintf(stderr, "%s\n", gpuipc_error_get()->sentence);
        return 1;
    }
    CHECK(drv.cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(drv.cuCtxPushCurrent(context));
    CHECK(drv.cuEventCreate(&shared_event, 0));
    for (uint32_t i = 0; i < THREADS; i++) {
        numbers[i] = i + 1;
        if (os_thread_start(run, &numbers[i], &threads[i]) != GPUIPC_OK) {
            return 1;
        }
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        os_thread_join(threads[i]);
    }
    CHECK(drv.cuEventDestroy(shared_event));
    CHECK(drv.cuDevicePrimaryCtxRelease(0));
    return report();
}

/* SPDX-License-Identifier: MIT */
/**
 * @file Memory that is unmapped, or whose access changes, while work on it is pending: measured on
 * an H200 with driver 580, the work ends its context with CUDA_ERROR_ILLEGAL_ADDRESS. The work has
 * a delay that is long beside all that a test does before it waits.
 */
#include <string.h>

#include "emulated_test.h"

#define DELAY_MS 600
#define OLD      0x01d01d01u
#define NEW      0x2e22e22eu

static CUdeviceptr memory; /* both devices have access */
static CUstream stream;

static void start(void) {
    emulated_start(NULL);
    memory = memory_make(0, GRANULE);
    check_success(memory_allow(memory, GRANULE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    word_write(memory, OLD);
    check_success(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    set_delay(DELAY_MS);
}

TestSuite(emulated_dead, .init = start, .timeout = 60);

static CUresult get_info(void) {
    size_t available = 0;
    size_t total = 0;
    return drv.cuMemGetInfo(&available, &total);
}

/* Leaves work whose memory is no longer mapped on the stream. */
static void submit_and_unmap(void) {
    const CUdeviceptr gone = memory_make(0, GRANULE);
    check_success(drv.cuMemsetD8Async(gone, 1, GRANULE, stream));
    memory_unmake(gone, GRANULE);
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(stream));
}

static void die(void) {
    submit_and_unmap();
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuStreamSynchronize(stream));
}

Test(emulated_dead, unmapping_under_pending_work_is_fatal) {
    die();
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuStreamSynchronize(stream));
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuStreamSynchronize(NULL));
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuCtxSynchronize());
}

Test(emulated_dead, a_source_that_is_unmapped_is_fatal_too) {
    const CUdeviceptr gone = memory_make(0, GRANULE);
    check_success(drv.cuMemcpyDtoDAsync(memory, gone, 4, stream));
    memory_unmake(gone, GRANULE);
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuStreamSynchronize(stream));
    context_use(1);
    cr_assert_eq(word_read(memory), OLD, "the work did not run");
}

Test(emulated_dead, every_call_that_needs_the_context_fails) {
    CUstream made = NULL;
    CUevent event = NULL;
    CUevent other = NULL;
    CUdeviceptr plain = 0;
    CUdeviceptr more = 0;
    uint32_t word = OLD;
    check_success(drv.cuEventCreate(&event, 0));
    check_success(drv.cuMemAlloc(&plain, 4));
    die();
    const CUresult dead = CUDA_ERROR_ILLEGAL_ADDRESS;
    check_result(dead, get_info());
    check_result(dead, drv.cuMemAlloc(&more, 4));
    check_result(dead, drv.cuMemFree(plain));
    check_result(dead, drv.cuMemcpyHtoD(plain, &word, sizeof(word)));
    check_result(dead, drv.cuMemcpyDtoH(&word, plain, sizeof(word)));
    check_result(dead, drv.cuMemcpyDtoD(plain, memory, sizeof(word)));
    check_result(dead, drv.cuMemcpyDtoHAsync(&word, memory, sizeof(word), stream));
    check_result(dead, drv.cuMemsetD32(memory, NEW, 1));
    check_result(dead, drv.cuMemsetD32Async(memory, NEW, 1, stream));
    check_result(dead, drv.cuStreamCreate(&made, 0));
    check_result(dead, drv.cuStreamQuery(stream));
    check_result(dead, drv.cuStreamDestroy(stream));
    check_result(dead, drv.cuEventCreate(&other, 0));
    check_result(dead, drv.cuEventRecord(event, stream));
    check_result(dead, drv.cuEventQuery(event));
    check_result(dead, drv.cuEventSynchronize(event));
    check_result(dead, drv.cuStreamWaitEvent(stream, event, 0));
    check_result(dead, drv.cuEventDestroy(event));
    cr_assert_eq(word, OLD);
}

Test(emulated_dead, calls_that_need_no_context_go_on) {
    CUdeviceptr plain = 0;
    die();
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuMemAlloc(&plain, 4));
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    const CUdeviceptr address = memory_map(handle, GRANULE);
    check_success(memory_allow(address, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    memory_unmake(address, GRANULE);
    check_success(drv.cuMemRelease(handle));
}

/* Each wait for the work reports what became of it. */
Test(emulated_dead, a_wait_in_the_context_fails) {
    submit_and_unmap();
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuCtxSynchronize());
}

Test(emulated_dead, a_wait_for_an_event_fails) {
    CUevent event = NULL;
    check_success(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    submit_and_unmap();
    check_success(drv.cuEventRecord(event, stream));
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuEventSynchronize(event));
}

Test(emulated_dead, freeing_fails_when_the_work_it_waits_for_does) {
    CUdeviceptr plain = 0;
    check_success(drv.cuMemAlloc(&plain, 4));
    submit_and_unmap();
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuMemFree(plain));
}

Test(emulated_dead, work_behind_it_does_not_run) {
    uint32_t word = OLD;
    submit_and_unmap();
    check_success(drv.cuMemsetD32Async(memory, NEW, 1, stream));
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS,
                 drv.cuMemcpyDtoHAsync(&word, memory, sizeof(word), stream));
    cr_assert_eq(word, OLD);
    context_use(1);
    cr_assert_eq(word_read(memory), OLD);
}

Test(emulated_dead, mapping_it_again_does_not_help) {
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    const CUdeviceptr address = memory_map(handle, GRANULE);
    check_success(memory_allow(address, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    check_success(drv.cuMemsetD8Async(address, 1, GRANULE, stream));
    check_success(drv.cuMemUnmap(address, GRANULE));
    check_success(drv.cuMemMap(address, GRANULE, 0, handle, 0));
    check_success(memory_allow(address, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuStreamSynchronize(stream));
}

Test(emulated_dead, changing_access_under_pending_work_is_fatal) {
    const CUdeviceptr source = memory_make(0, GRANULE);
    check_success(memory_allow(source, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    check_success(drv.cuMemcpyDtoDAsync(memory, source, 4, stream));
    check_success(memory_allow(source, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuStreamSynchronize(stream));
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, get_info());
}

Test(emulated_dead, access_that_stays_or_is_of_another_device_harms_nothing) {
    check_success(drv.cuMemsetD32Async(memory, NEW, 1, stream));
    check_success(memory_allow(memory, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    check_success(memory_allow(memory, GRANULE, 1, CU_MEM_ACCESS_FLAGS_PROT_READ));
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert_eq(word_read(memory), NEW);
}

Test(emulated_dead, waiting_first_is_right) {
    const CUdeviceptr gone = memory_make(0, GRANULE);
    check_success(drv.cuMemsetD32Async(gone, NEW, 1, stream));
    check_success(drv.cuMemcpyDtoDAsync(memory, gone, 4, stream));
    check_success(drv.cuStreamSynchronize(stream));
    check_success(memory_allow(gone, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    memory_unmake(gone, GRANULE);
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert_eq(word_read(memory), NEW);
    check_success(drv.cuStreamDestroy(stream));
}

Test(emulated_dead, other_contexts_go_on) {
    CUstream there = NULL;
    context_use(1);
    check_success(drv.cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
    submit_and_unmap();
    check_success(drv.cuMemsetD32Async(memory, NEW, 1, there));
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuStreamSynchronize(stream));
    check_success(drv.cuStreamSynchronize(there));
    check_success(get_info());
    cr_assert_eq(word_read(memory), NEW);
    check_success(drv.cuStreamDestroy(there));
    check_success(drv.cuCtxPopCurrent(NULL));
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, get_info());
}

Test(emulated_dead, a_reset_gives_a_fresh_context) {
    CUresult (*reset)(CUdevice);
    CUstream made = NULL;
    emulated_symbol(drv.library, "cuDevicePrimaryCtxReset_v2", &reset);
    die();
    check_success(reset(0));
    check_success(drv.cuDevicePrimaryCtxRelease(0));
    context_use(0);
    check_success(get_info());
    check_result(CUDA_ERROR_INVALID_HANDLE, drv.cuStreamQuery(stream));
    check_success(drv.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    check_success(drv.cuMemsetD32Async(memory, NEW, 1, made));
    check_success(drv.cuStreamSynchronize(made));
    cr_assert_eq(word_read(memory), NEW, "memory of cuMemMap outlives it");
    check_success(drv.cuStreamDestroy(made));
}

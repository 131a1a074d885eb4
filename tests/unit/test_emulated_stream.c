/* SPDX-License-Identifier: MIT */
/**
 * @file Streams: a missing wait shows stale data, a wait does not. Every test gives asynchronous
 * work a delay that is long beside all that the test itself does before it looks.
 */
#include <string.h>

#include "emulated_test.h"
#include "leak_gate.h"

#define DELAY_MS 600
#define OLD      0x01d01d01u
#define NEW      0x2e22e22eu

static CUdeviceptr memory;
static CUstream stream;
static CUstream other;

static void start(void) {
    emulated_start(NULL);
    memory = memory_make(0, GRANULE);
    word_write(memory, OLD);
    check_success(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_success(drv.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    set_delay(DELAY_MS);
}

static void finish(void) {
    check_success(drv.cuStreamDestroy(stream));
    check_success(drv.cuStreamDestroy(other));
    check_success(drv.cuCtxSynchronize());
}

TestSuite(emulated_stream, .init = start, .fini = finish, .timeout = 60);

/* What a copy that waits for nothing finds: on a stream of its own, run by the call itself. */
static uint32_t glance(void) {
    uint32_t word = 0;
    check_success(drv.cuMemcpyDtoHAsync(&word, memory, sizeof(word), other));
    return word;
}

static void submit_new(void) {
    check_success(drv.cuMemsetD32Async(memory, NEW, 1, stream));
}

Test(emulated_stream, a_missing_wait_shows_stale_data) {
    submit_new();
    cr_assert_eq(glance(), OLD);
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(stream));
    check_success(drv.cuStreamSynchronize(stream));
    check_success(drv.cuStreamQuery(stream));
    cr_assert_eq(glance(), NEW);
}

/* It has a thread only until it is reached: a handle on Windows. */
Test(emulated_stream, a_point_behind_all_streams_leaves_nothing_behind) {
    leak_gate gate;
    CUcontext current;
    CUevent event;
    check_success(drv.cuCtxGetCurrent(&current));
    check_success(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    submit_new(); /* the stream's own thread */
    check_success(drv.cuStreamSynchronize(stream));
    leak_gate_begin(&gate);
    submit_new();
    check_success(drv.cuCtxRecordEvent(current, event));
    check_result(CUDA_ERROR_NOT_READY, drv.cuEventQuery(event));
    check_success(drv.cuEventSynchronize(event));
    cr_assert_eq(leak_gate_await(&gate, 10000), 0, "%s", gate.text);
    check_success(drv.cuEventDestroy(event));
}

Test(emulated_stream, a_fill_without_a_stream_is_asynchronous_too) {
    check_success(drv.cuMemsetD32(memory, NEW, 1));
    cr_assert_eq(glance(), OLD);
    check_success(drv.cuCtxSynchronize());
    cr_assert_eq(glance(), NEW);
}

/* Seen on an H200: another process that looked at once saw the old word. */
Test(emulated_stream, a_copy_from_the_host_may_return_before_it_arrives) {
    uint32_t word = NEW;
    check_success(drv.cuMemcpyHtoD(memory, &word, sizeof(word)));
    word = 0;
    cr_assert_eq(glance(), OLD);
    cr_assert_eq(word_read(memory), NEW, "the default stream keeps the order");
}

Test(emulated_stream, a_synchronous_copy_waits_for_the_default_stream) {
    check_success(drv.cuMemsetD32(memory, NEW, 1));
    cr_assert_eq(word_read(memory), NEW);
}

Test(emulated_stream, the_default_stream_does_not_wait_for_a_non_blocking_one) {
    submit_new();
    cr_assert_eq(word_read(memory), OLD);
}

Test(emulated_stream, the_default_stream_waits_for_a_blocking_one_and_it_for_that) {
    CUstream blocking = NULL;
    check_success(drv.cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    check_success(drv.cuMemsetD32Async(memory, NEW, 1, blocking));
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(NULL));
    cr_assert_eq(word_read(memory), NEW);
    check_success(drv.cuMemsetD32(memory, OLD, 1));
    uint32_t word = 0;
    check_success(drv.cuMemcpyDtoHAsync(&word, memory, sizeof(word), blocking));
    cr_assert_eq(word, OLD);
    check_success(drv.cuStreamDestroy(blocking));
}

Test(emulated_stream, per_thread_default_streams_are_not_the_legacy_one) {
    check_success(drv.cuMemsetD32Async(memory, NEW, 1, CU_STREAM_PER_THREAD));
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(CU_STREAM_PER_THREAD));
    check_success(drv.cuStreamSynchronize(CU_STREAM_PER_THREAD));
    cr_assert_eq(glance(), NEW);
    check_success(drv.cuMemsetD32Async(memory, OLD, 1, CU_STREAM_LEGACY));
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(NULL));
    check_success(drv.cuStreamQuery(CU_STREAM_PER_THREAD));
}

Test(emulated_stream, an_event_orders_two_streams) {
    CUevent event = NULL;
    uint32_t word = 0;
    check_success(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    submit_new();
    check_success(drv.cuEventRecord(event, stream));
    check_result(CUDA_ERROR_NOT_READY, drv.cuEventQuery(event));
    check_success(drv.cuStreamWaitEvent(other, event, 0));
    check_success(drv.cuMemcpyDtoHAsync(&word, memory, sizeof(word), other));
    cr_assert_eq(word, NEW);
    check_success(drv.cuEventQuery(event));
    check_success(drv.cuEventDestroy(event));
}

Test(emulated_stream, a_wait_is_for_what_was_recorded_then) {
    CUevent event = NULL;
    check_success(drv.cuEventCreate(&event, 0));
    check_success(drv.cuStreamWaitEvent(other, event, 0));
    check_success(drv.cuEventRecord(event, other));
    check_success(drv.cuEventQuery(event));
    submit_new();
    check_success(drv.cuStreamWaitEvent(other, event, 0));
    cr_assert_eq(glance(), OLD, "the event was recorded before the work");
    check_success(drv.cuEventDestroy(event));
}

Test(emulated_stream, a_destroyed_event_is_still_waited_for) {
    CUevent event = NULL;
    check_success(drv.cuEventCreate(&event, 0));
    submit_new();
    check_success(drv.cuEventRecord(event, stream));
    check_success(drv.cuStreamWaitEvent(other, event, 0));
    check_success(drv.cuEventDestroy(event));
    cr_assert_eq(glance(), NEW);
}

Test(emulated_stream, events_measure_time) {
    CUevent start_event = NULL;
    CUevent end_event = NULL;
    float milliseconds = 0;
    check_success(drv.cuEventCreate(&start_event, 0));
    check_success(drv.cuEventCreate(&end_event, 0));
    check_success(drv.cuEventRecord(start_event, stream));
    submit_new();
    check_success(drv.cuEventRecord(end_event, stream));
    check_result(CUDA_ERROR_NOT_READY,
                 drv.cuEventElapsedTime(&milliseconds, start_event, end_event));
    check_success(drv.cuEventSynchronize(end_event));
    check_success(drv.cuEventElapsedTime(&milliseconds, start_event, end_event));
    cr_assert(milliseconds >= (float)DELAY_MS && milliseconds < 50000.0f, "%f ms",
              (double)milliseconds);
    check_success(drv.cuEventDestroy(start_event));
    check_success(drv.cuEventDestroy(end_event));
}

Test(emulated_stream, work_runs_in_order) {
    set_delay(20);
    for (uint32_t i = 1; i <= 10; i++) {
        check_success(drv.cuMemsetD32Async(memory, i, 1, stream));
    }
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert_eq(glance(), 10);
}

Test(emulated_stream, host_memory_is_read_before_the_call_returns) {
    uint32_t word = NEW;
    check_success(drv.cuMemcpyHtoDAsync(memory, &word, sizeof(word), stream));
    word = 0;
    cr_assert_eq(glance(), OLD);
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert_eq(glance(), NEW);
}

Test(emulated_stream, a_copy_to_the_host_has_arrived_when_the_call_returns) {
    uint32_t word = 0;
    submit_new();
    check_success(drv.cuMemcpyDtoHAsync(&word, memory, sizeof(word), stream));
    cr_assert_eq(word, NEW, "in stream order, behind the fill");
}

Test(emulated_stream, a_destroyed_stream_ends_its_work) {
    CUstream made = NULL;
    check_success(drv.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    check_success(drv.cuMemsetD32Async(memory, NEW, 1, made));
    check_success(drv.cuStreamDestroy(made));
    check_result(CUDA_ERROR_INVALID_HANDLE, drv.cuStreamQuery(made));
    cr_assert_eq(glance(), OLD);
    check_success(drv.cuCtxSynchronize());
    cr_assert_eq(glance(), NEW);
}

Test(emulated_stream, freeing_waits_for_the_work) {
    CUdeviceptr plain = 0;
    check_success(drv.cuMemAlloc(&plain, GRANULE));
    check_success(drv.cuMemsetD8Async(plain, 1, GRANULE, stream));
    check_success(drv.cuMemFree(plain));
    check_success(drv.cuStreamQuery(stream));
}

Test(emulated_stream, a_released_context_ends_its_work) {
    CUstream made = NULL;
    context_use(1);
    const CUdeviceptr there = memory_make(1, GRANULE);
    check_success(drv.cuStreamCreate(&made, 0));
    check_success(drv.cuMemsetD32Async(there, NEW, 1, made));
    check_success(drv.cuDevicePrimaryCtxRelease(1));
    check_result(CUDA_ERROR_CONTEXT_IS_DESTROYED, drv.cuCtxSynchronize());
    context_use(1);
    cr_assert_eq(word_read(there), NEW, "VMM memory outlives contexts");
    memory_unmake(there, GRANULE);
    check_success(drv.cuCtxPopCurrent(NULL));
    check_success(drv.cuCtxPopCurrent(NULL));
}

TestSuite(emulated_delay, .timeout = 60);

Test(emulated_delay, comes_with_the_machine) {
    CUstream made = NULL;
    emulated_start("stream-delay-ms=300");
    const CUdeviceptr at = memory_make(0, GRANULE);
    check_success(drv.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    const uint64_t begin = os_clock_ns();
    check_success(drv.cuMemsetD32Async(at, NEW, 1, made));
    check_success(drv.cuStreamSynchronize(made));
    cr_assert_geq(os_clock_ns() - begin, UINT64_C(300000000));
    check_success(drv.cuStreamDestroy(made));
}

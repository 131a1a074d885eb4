/* SPDX-License-Identifier: MIT */
/** @file Primary contexts, the stack of current ones, and calls that need one. */
#include "conformance.h"

TestSuite(context, .init = conformance_start, .fini = conformance_finish, .timeout = 60);

/** Whether the primary context of device 0 exists. */
static bool is_active(void) {
    unsigned flags;
    int active = -1;
    CHECK("cuda.h: cuDevicePrimaryCtxGetState", CUDA_SUCCESS,
          drv.cuDevicePrimaryCtxGetState(0, &flags, &active));
    cr_assert(active == 0 || active == 1);
    return active == 1;
}

Test(context, primary_is_counted) {
    CUcontext again = NULL;
    const CUcontext context = conformance_context(0);
    cr_assert(is_active(), "cuda.h: active while it is retained");
    CHECK("cuda.h: cuDevicePrimaryCtxRetain", CUDA_SUCCESS,
          drv.cuDevicePrimaryCtxRetain(&again, 0));
    cr_assert_eq(again, context, "a device has one primary context");
    CHECK("cuda.h: cuDevicePrimaryCtxRelease", CUDA_SUCCESS, drv.cuDevicePrimaryCtxRelease(0));
    cr_assert(is_active(), "cuda.h: one retain is left");
    CHECK("cuda.h: an invalid device", CUDA_ERROR_INVALID_DEVICE,
          drv.cuDevicePrimaryCtxRetain(&again, device_count));
    CHECK("cuda.h: an invalid device", CUDA_ERROR_INVALID_DEVICE,
          drv.cuDevicePrimaryCtxRelease(device_count));
}

Test(context, primary_ends_with_the_last_release) {
    CUcontext context = NULL;
    CUdeviceptr address = 0;
    OK(drv.cuCtxSetCurrent(NULL));
    OK(drv.cuDevicePrimaryCtxRelease(0));
    cr_assert_not(is_active(), "cuda.h: reset when the last reference is released");
    CHECK("cuda.h: releasing what was not retained", CUDA_ERROR_INVALID_CONTEXT,
          drv.cuDevicePrimaryCtxRelease(0));
    CHECK("cuda.h: retained anew", CUDA_SUCCESS, drv.cuDevicePrimaryCtxRetain(&context, 0));
    cr_assert(is_active());
    OK(drv.cuCtxSetCurrent(context));
    CHECK("cuda.h: and usable", CUDA_SUCCESS, drv.cuMemAlloc(&address, 64));
    OK(drv.cuMemFree(address));
}

Test(context, stack) {
    const CUcontext context = conformance_context(0);
    CUcontext seen = NULL;
    CUdevice device = -1;
    OK(drv.cuCtxSetCurrent(NULL));
    CHECK("cuda.h: nothing is current", CUDA_SUCCESS, drv.cuCtxGetCurrent(&seen));
    cr_assert_null(seen, "cuda.h: nothing is current");
    CHECK("cuda.h: cuCtxPushCurrent", CUDA_SUCCESS, drv.cuCtxPushCurrent(context));
    CHECK("cuda.h: cuCtxPushCurrent", CUDA_SUCCESS, drv.cuCtxPushCurrent(context));
    CHECK("cuda.h: cuCtxGetDevice", CUDA_SUCCESS, drv.cuCtxGetDevice(&device));
    cr_assert_eq(device, 0);
    CHECK("cuda.h: cuCtxPopCurrent", CUDA_SUCCESS, drv.cuCtxPopCurrent(&seen));
    cr_assert_eq(seen, context, "cuda.h: passes back the popped context");
    CHECK("cuda.h: the other one is still there", CUDA_SUCCESS, drv.cuCtxGetCurrent(&seen));
    cr_assert_eq(seen, context);
    CHECK("cuda.h: no place for the context is needed", CUDA_SUCCESS, drv.cuCtxPopCurrent(NULL));
    CHECK("cuda.h: the stack is empty", CUDA_SUCCESS, drv.cuCtxGetCurrent(&seen));
    cr_assert_null(seen);
    CHECK("measured: NULL is not pushed", CUDA_ERROR_INVALID_VALUE, drv.cuCtxPushCurrent(NULL));
    CHECK("cuda.h: nothing left to pop", CUDA_ERROR_INVALID_CONTEXT, drv.cuCtxPopCurrent(&seen));
}

Test(context, set_replaces_the_top) {
    const CUcontext context = conformance_context(0);
    CUcontext seen = NULL;
    OK(drv.cuCtxSetCurrent(NULL));
    CHECK("cuda.h: with an empty stack, set pushes", CUDA_SUCCESS, drv.cuCtxSetCurrent(context));
    OK(drv.cuCtxPushCurrent(context));
    CHECK("cuda.h: set NULL pops", CUDA_SUCCESS, drv.cuCtxSetCurrent(NULL));
    OK(drv.cuCtxGetCurrent(&seen));
    cr_assert_eq(seen, context, "cuda.h: the one below is current again");
    OK(drv.cuCtxSetCurrent(NULL));
    OK(drv.cuCtxGetCurrent(&seen));
    cr_assert_null(seen);
}

Test(context, calls_that_need_one) {
    const CUcontext context = conformance_context(0);
    const char *const row = "cuda.h: CUDA_ERROR_INVALID_CONTEXT without a current context";
    CUdeviceptr address = 0;
    CUdevice device;
    CUstream stream;
    CUevent event;
    size_t free_bytes, total;
    OK(drv.cuCtxSetCurrent(NULL));
    CHECK(row, CUDA_ERROR_INVALID_CONTEXT, drv.cuCtxGetDevice(&device));
    CHECK(row, CUDA_ERROR_INVALID_CONTEXT, drv.cuCtxSynchronize());
    CHECK(row, CUDA_ERROR_INVALID_CONTEXT, drv.cuMemAlloc(&address, 64));
    CHECK(row, CUDA_ERROR_INVALID_CONTEXT, drv.cuMemGetInfo(&free_bytes, &total));
    CHECK(row, CUDA_ERROR_INVALID_CONTEXT, drv.cuStreamCreate(&stream, 0));
    CHECK(row, CUDA_ERROR_INVALID_CONTEXT, drv.cuEventCreate(&event, 0));
    OK(drv.cuCtxPushCurrent(context));
    memory made = memory_make(0, GRANULE);
    OK(drv.cuCtxSetCurrent(NULL));
    CHECK(row, CUDA_ERROR_INVALID_CONTEXT, drv.cuMemsetD8(made.address, 0, 16));
    OK(drv.cuCtxPushCurrent(context));
    memory_undo(&made);
}

Test(context, memory_management_needs_none) {
    CUmemGenericAllocationHandle imported = 0;
    OK(drv.cuCtxSetCurrent(NULL));
    /* Each step asserts success; what is asserted is that no context has to be current. */
    memory made = memory_make(0, GRANULE);
    os_handle shareable = memory_export(made.handle);
    CHECK("reading: VMM calls need no current context", CUDA_SUCCESS,
          memory_import(shareable, &imported));
    const CUdeviceptr alias = memory_map(imported, GRANULE);
    CHECK("reading: VMM calls need no current context", CUDA_SUCCESS,
          memory_access(alias, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    memory_unmap(alias, GRANULE);
    OK(drv.cuMemRelease(imported));
    os_handle_close(&shareable);
    memory_undo(&made);
}

Test(context, streams_bring_their_own) {
    CUdeviceptr address = 0;
    CUstream stream = NULL;
    CUevent event = NULL;
    OK(drv.cuMemAlloc(&address, 64));
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(drv.cuCtxSetCurrent(NULL));
    CHECK("reading: a stream knows its context", CUDA_SUCCESS, drv.cuStreamQuery(stream));
    CHECK("reading: a stream knows its context", CUDA_SUCCESS, drv.cuStreamSynchronize(stream));
    CHECK("reading: an event knows its context", CUDA_SUCCESS, drv.cuEventRecord(event, stream));
    CHECK("reading: an event knows its context", CUDA_SUCCESS, drv.cuEventSynchronize(event));
    CHECK("reading: a stream knows its context", CUDA_SUCCESS, drv.cuStreamDestroy(stream));
    CHECK("reading: an event knows its context", CUDA_SUCCESS, drv.cuEventDestroy(event));
    conformance_use(0);
    OK(drv.cuMemFree(address));
}

Test(context, capture_mode_is_swapped) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK("cuda.h: cuThreadExchangeStreamCaptureMode", CUDA_SUCCESS,
          drv.cuThreadExchangeStreamCaptureMode(&mode));
    cr_assert_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL, "cuda.h: global is the default mode");
    CHECK("cuda.h: cuThreadExchangeStreamCaptureMode", CUDA_SUCCESS,
          drv.cuThreadExchangeStreamCaptureMode(&mode));
    cr_assert_eq(mode, CU_STREAM_CAPTURE_MODE_RELAXED, "cuda.h: overwritten with the previous");
}

/** What another thread saw. */
typedef struct seen_by_thread {
    CUresult asked, allocated, pushed, filled;
    CUcontext current;
    CUcontext context;
    CUdeviceptr address;
} seen_by_thread;

static void look_around(void *argument) {
    seen_by_thread *seen = argument;
    CUdeviceptr address;
    seen->asked = drv.cuCtxGetCurrent(&seen->current);
    seen->allocated = drv.cuMemAlloc(&address, 64);
    seen->pushed = drv.cuCtxPushCurrent(seen->context);
    seen->filled = drv.cuMemsetD32(seen->address, 99, 16);
}

Test(context, current_is_per_thread) {
    seen_by_thread seen = {.current = conformance_context(0), .context = conformance_context(0)};
    os_thread *thread = NULL;
    OK(drv.cuMemAlloc(&seen.address, 64));
    cr_assert_eq(os_thread_start(look_around, &seen, &thread), GPUIPC_OK);
    os_thread_join(thread);
    CHECK("cuda.h: another thread has no current context", CUDA_SUCCESS, seen.asked);
    cr_assert_null(seen.current, "cuda.h: another thread has no current context");
    CHECK("cuda.h: another thread has no current context", CUDA_ERROR_INVALID_CONTEXT,
          seen.allocated);
    CHECK("cuda.h: a context may be current to several threads", CUDA_SUCCESS, seen.pushed);
    CHECK("cuda.h: a context may be current to several threads", CUDA_SUCCESS, seen.filled);
    cr_assert_eq(word_read(seen.address + 60), 99);
    OK(drv.cuMemFree(seen.address));
}

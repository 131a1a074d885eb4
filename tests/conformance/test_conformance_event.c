/* SPDX-License-Identifier: MIT */
/** @file Events: recorded, waited for, timed. */
#include "conformance.h"

TestSuite(event, .init = conformance_start, .fini = conformance_finish, .timeout = 60);

Test(event, made_with_flags) {
    CUevent event = NULL;
    const unsigned flags[] = {CU_EVENT_DEFAULT, CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING,
                              CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        CHECK("cuda.h: cuEventCreate", CUDA_SUCCESS, drv.cuEventCreate(&event, flags[i]));
        CHECK("cuda.h: an event never recorded is complete", CUDA_SUCCESS, drv.cuEventQuery(event));
        CHECK("cuda.h: an event never recorded is complete", CUDA_SUCCESS,
              drv.cuEventSynchronize(event));
        CHECK("cuda.h: cuEventDestroy", CUDA_SUCCESS, drv.cuEventDestroy(event));
    }
    CHECK("cuda.h: INTERPROCESS wants DISABLE_TIMING", CUDA_ERROR_INVALID_VALUE,
          drv.cuEventCreate(&event, CU_EVENT_INTERPROCESS));
    CHECK("cuda.h: other flags are not valid", CUDA_ERROR_INVALID_VALUE,
          drv.cuEventCreate(&event, 0x80));
}

Test(event, complete_when_the_work_is) {
    const busy_work work = busy_start();
    CUstream stream = NULL;
    CUevent event = NULL;
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK("cuda.h: cuEventRecord", CUDA_SUCCESS, drv.cuEventRecord(event, stream));
    CHECK("cuda.h: recorded behind no work", CUDA_SUCCESS, drv.cuEventSynchronize(event));
    busy_submit(&work, stream, 1);
    CHECK("cuda.h: an event does not see later work", CUDA_SUCCESS, drv.cuEventQuery(event));
    CHECK("cuda.h: recorded again", CUDA_SUCCESS, drv.cuEventRecord(event, stream));
    CHECK("cuda.h: cuEventQuery while the work is left", CUDA_ERROR_NOT_READY,
          drv.cuEventQuery(event));
    CHECK("cuda.h: cuEventSynchronize", CUDA_SUCCESS, drv.cuEventSynchronize(event));
    CHECK("cuda.h: cuEventQuery after the work", CUDA_SUCCESS, drv.cuEventQuery(event));
    OK(drv.cuEventDestroy(event));
    OK(drv.cuStreamDestroy(stream));
    busy_end(&work);
}

Test(event, time_between_two) {
    const busy_work work = busy_start();
    CUstream stream = NULL;
    CUevent start = NULL, end = NULL;
    float milliseconds = -1;
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(drv.cuEventCreate(&start, CU_EVENT_DEFAULT));
    OK(drv.cuEventCreate(&end, CU_EVENT_DEFAULT));
    CHECK("cuda.h: time of events never recorded", CUDA_ERROR_INVALID_HANDLE,
          drv.cuEventElapsedTime(&milliseconds, start, end));
    OK(drv.cuEventRecord(start, stream));
    OK(drv.cuEventSynchronize(start));
    CHECK("cuda.h: time of one event", CUDA_SUCCESS,
          drv.cuEventElapsedTime(&milliseconds, start, start));
    cr_assert(milliseconds >= 0 && milliseconds <= 0, "an event is at one time");
    busy_submit(&work, stream, 1);
    OK(drv.cuEventRecord(end, stream));
    CHECK("cuda.h: time of an event not complete", CUDA_ERROR_NOT_READY,
          drv.cuEventElapsedTime(&milliseconds, start, end));
    OK(drv.cuEventSynchronize(end));
    CHECK("cuda.h: cuEventElapsedTime", CUDA_SUCCESS,
          drv.cuEventElapsedTime(&milliseconds, start, end));
    cr_assert(milliseconds > 0.1F && milliseconds < 60000, "%f ms for work that takes longer",
              (double)milliseconds);
    float backwards = 0;
    OK(drv.cuEventElapsedTime(&backwards, end, start));
    cr_assert(backwards < 0, "reading: the time to an earlier event is negative, not %f",
              (double)backwards);
    OK(drv.cuEventDestroy(start));
    OK(drv.cuEventDestroy(end));
    OK(drv.cuStreamDestroy(stream));
    busy_end(&work);
}

Test(event, without_timing) {
    CUevent timed = NULL, untimed = NULL;
    float milliseconds = 0;
    OK(drv.cuEventCreate(&timed, CU_EVENT_DEFAULT));
    OK(drv.cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(drv.cuEventRecord(timed, NULL));
    OK(drv.cuEventRecord(untimed, NULL));
    OK(drv.cuCtxSynchronize());
    CHECK("cuda.h: time of an event made without timing", CUDA_ERROR_INVALID_HANDLE,
          drv.cuEventElapsedTime(&milliseconds, timed, untimed));
    OK(drv.cuEventDestroy(timed));
    OK(drv.cuEventDestroy(untimed));
}

Test(event, destroyed_before_it_is_complete) {
    const busy_work work = busy_start();
    CUstream first = NULL, second = NULL;
    CUevent event = NULL;
    unsigned char byte = 0;
    OK(drv.cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(drv.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    busy_submit(&work, first, 0x44);
    OK(drv.cuEventRecord(event, first));
    OK(drv.cuStreamWaitEvent(second, event, 0));
    CHECK("cuda.h: an event may be destroyed before it is complete", CUDA_SUCCESS,
          drv.cuEventDestroy(event));
    OK(drv.cuMemcpyDtoHAsync(&byte, work.address + work.bytes - 1, 1, second));
    OK(drv.cuStreamSynchronize(second));
    cr_assert_eq(byte, 0x44, "cuda.h: the wait keeps its meaning");
    OK(drv.cuStreamDestroy(first));
    OK(drv.cuStreamDestroy(second));
    busy_end(&work);
}

Test(event, of_another_device) {
    conformance_need_devices(2);
    CUstream here = NULL, there = NULL;
    CUevent event = NULL;
    OK(drv.cuStreamCreate(&here, CU_STREAM_NON_BLOCKING));
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    conformance_use(1);
    OK(drv.cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
    CHECK("cuda.h: event and stream must be of one context", CUDA_ERROR_INVALID_HANDLE,
          drv.cuEventRecord(event, there));
    conformance_use(0);
    OK(drv.cuEventRecord(event, here));
    CHECK("cuda.h: a stream may wait for an event of another device", CUDA_SUCCESS,
          drv.cuStreamWaitEvent(there, event, 0));
    conformance_use(1);
    CHECK("reading: a stream needs no current context of its own", CUDA_SUCCESS,
          drv.cuStreamSynchronize(here));
    OK(drv.cuStreamSynchronize(there));
    OK(drv.cuStreamDestroy(there));
    conformance_use(0);
    OK(drv.cuEventDestroy(event));
    OK(drv.cuStreamDestroy(here));
}

/* ---- events of a context ------------------------------------------------------------------ */

static void need_context_events(void) {
    if (!drv.has_ctxevent) {
        cr_skip_test("cuCtxRecordEvent came with CUDA 12.5");
    }
}

Test(event, of_a_context_is_behind_all_its_streams) {
    need_context_events();
    const busy_work work = busy_start();
    const CUcontext context = conformance_context(0);
    CUstream first = NULL, second = NULL;
    CUevent event = NULL;
    unsigned char byte = 0;
    OK(drv.cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(drv.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK("cuda.h: cuCtxRecordEvent without work", CUDA_SUCCESS,
          drv.cuCtxRecordEvent(context, event));
    CHECK("cuda.h: it is done", CUDA_SUCCESS, drv.cuEventSynchronize(event));
    busy_submit(&work, first, 0x51);
    CHECK("cuda.h: cuCtxRecordEvent", CUDA_SUCCESS, drv.cuCtxRecordEvent(context, event));
    CHECK("cuda.h: the work of a non-blocking stream is left", CUDA_ERROR_NOT_READY,
          drv.cuEventQuery(event));
    OK(drv.cuStreamWaitEvent(second, event, 0));
    OK(drv.cuMemcpyDtoHAsync(&byte, work.address + work.bytes - 1, 1, second));
    OK(drv.cuStreamSynchronize(second));
    cr_assert_eq(byte, 0x51, "cuda.h: what waits for it is behind that work");
    CHECK("cuda.h: cuEventQuery after the work", CUDA_SUCCESS, drv.cuEventQuery(event));
    OK(drv.cuEventDestroy(event));
    OK(drv.cuStreamDestroy(first));
    OK(drv.cuStreamDestroy(second));
    busy_end(&work);
}

Test(event, of_a_context_does_not_see_later_work) {
    need_context_events();
    const busy_work work = busy_start();
    CUstream stream = NULL;
    CUevent event = NULL;
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(drv.cuCtxRecordEvent(conformance_context(0), event));
    OK(drv.cuEventSynchronize(event));
    busy_submit(&work, stream, 1);
    CHECK("cuda.h: uses of the context after the call do not modify the event", CUDA_SUCCESS,
          drv.cuEventQuery(event));
    OK(drv.cuStreamSynchronize(stream));
    OK(drv.cuEventDestroy(event));
    OK(drv.cuStreamDestroy(stream));
    busy_end(&work);
}

Test(event, of_a_context_that_is_none_of_its) {
    need_context_events();
    CUevent event = NULL;
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK("cuda.h: cuCtxRecordEvent of no event", CUDA_ERROR_INVALID_HANDLE,
          drv.cuCtxRecordEvent(conformance_context(0), NULL));
    OK(drv.cuCtxSetCurrent(NULL));
    CHECK("reading: it needs no current context", CUDA_SUCCESS,
          drv.cuCtxRecordEvent(conformance_context(0), event));
    OK(drv.cuCtxSetCurrent(conformance_context(0)));
    if (device_count > 1) {
        CHECK("cuda.h: event and context must be of one context", CUDA_ERROR_INVALID_HANDLE,
              drv.cuCtxRecordEvent(conformance_context(1), event));
    }
    OK(drv.cuEventDestroy(event));
}

/* SPDX-License-Identifier: MIT */
/** @file Streams: order, completion, what waits for what. */
#include "conformance.h"

TestSuite(stream, .init = conformance_start, .fini = conformance_finish, .timeout = 60);

static unsigned char byte_read(CUdeviceptr address, CUstream stream) {
    unsigned char byte = 0;
    OK(drv.cuMemcpyDtoHAsync(&byte, address, 1, stream));
    OK(drv.cuStreamSynchronize(stream));
    return byte;
}

Test(stream, made_with_flags) {
    CUstream stream = NULL;
    CUcontext context = NULL;
    const unsigned flags[] = {CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        CHECK("cuda.h: cuStreamCreate", CUDA_SUCCESS, drv.cuStreamCreate(&stream, flags[i]));
        CHECK("cuda.h: cuStreamGetCtx", CUDA_SUCCESS, drv.cuStreamGetCtx(stream, &context));
        cr_assert_eq(context, conformance_context(0), "cuda.h: the context it was made in");
        CHECK("cuda.h: a stream without work is done", CUDA_SUCCESS, drv.cuStreamQuery(stream));
        CHECK("cuda.h: a stream without work is done", CUDA_SUCCESS,
              drv.cuStreamSynchronize(stream));
        CHECK("cuda.h: cuStreamDestroy", CUDA_SUCCESS, drv.cuStreamDestroy(stream));
    }
    CHECK("cuda.h: other flags are not valid", CUDA_ERROR_INVALID_VALUE,
          drv.cuStreamCreate(&stream, 0x80));
}

Test(stream, numbers_of_streams) {
    const CUstream streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    unsigned long long ids[4] = {0};
    unsigned long long again = 0;
    CUstream made = NULL;
    if (!drv.has_streamid) {
        cr_skip("cuStreamGetId came with CUDA 12.0");
    }
    for (unsigned i = 0; i < 3; i++) {
        CHECK("cuda.h: default streams have numbers", CUDA_SUCCESS,
              drv.cuStreamGetId(streams[i], &ids[i]));
    }
    cr_assert_eq(ids[0], ids[1], "NULL is the legacy stream here");
    cr_assert_neq(ids[1], ids[2]);
    for (unsigned i = 0; i < 3; i++) {
        OK(drv.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
        CHECK("cuda.h: cuStreamGetId", CUDA_SUCCESS, drv.cuStreamGetId(made, &again));
        cr_assert_neq(again, ids[1]);
        cr_assert_neq(again, ids[2]);
        cr_assert_neq(again, ids[3], "cuda.h: unique for the life of the program");
        ids[3] = again;
        CHECK("cuda.h: it stays", CUDA_SUCCESS, drv.cuStreamGetId(made, &again));
        cr_assert_eq(again, ids[3]);
        OK(drv.cuStreamDestroy(made));
    }
}

Test(stream, default_streams) {
    CUdeviceptr address = 0;
    const CUstream streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    OK(drv.cuMemAlloc(&address, 64));
    for (unsigned i = 0; i < 3; i++) {
        CUcontext context = NULL;
        CHECK("cuda.h: work on a default stream", CUDA_SUCCESS,
              drv.cuMemsetD8Async(address, (unsigned char)(i + 1), 64, streams[i]));
        CHECK("cuda.h: default streams synchronise", CUDA_SUCCESS,
              drv.cuStreamSynchronize(streams[i]));
        CHECK("cuda.h: default streams can be queried", CUDA_SUCCESS,
              drv.cuStreamQuery(streams[i]));
        CHECK("cuda.h: a default stream belongs to the current context", CUDA_SUCCESS,
              drv.cuStreamGetCtx(streams[i], &context));
        cr_assert_eq(context, conformance_context(0));
        cr_assert_eq(byte_read(address + 63, streams[i]), i + 1);
    }
    OK(drv.cuMemFree(address));
}

Test(stream, busy_until_synchronised) {
    const busy_work work = busy_start();
    CUstream stream = NULL, idle = NULL;
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(drv.cuStreamCreate(&idle, CU_STREAM_NON_BLOCKING));
    busy_submit(&work, stream, 0x5A);
    CHECK("cuda.h: cuStreamQuery while work is left", CUDA_ERROR_NOT_READY,
          drv.cuStreamQuery(stream));
    CHECK("cuda.h: another stream is not kept busy", CUDA_SUCCESS, drv.cuStreamQuery(idle));
    CHECK("cuda.h: cuStreamSynchronize", CUDA_SUCCESS, drv.cuStreamSynchronize(stream));
    CHECK("cuda.h: cuStreamQuery after the work", CUDA_SUCCESS, drv.cuStreamQuery(stream));
    cr_assert_eq(byte_read(work.address + work.bytes - 1, stream), 0x5A);
    OK(drv.cuStreamDestroy(stream));
    OK(drv.cuStreamDestroy(idle));
    busy_end(&work);
}

Test(stream, work_is_done_in_order) {
    const busy_work work = busy_start();
    CUstream stream = NULL;
    CUdeviceptr copy = 0;
    unsigned char before = 0, after = 0;
    OK(drv.cuMemAlloc(&copy, 16));
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    busy_submit(&work, stream, 1);
    OK(drv.cuMemcpyDtoDAsync(copy, work.address, 1, stream));
    OK(drv.cuMemsetD8Async(work.address, 2, 1, stream));
    OK(drv.cuMemcpyDtoHAsync(&before, copy, 1, stream));
    OK(drv.cuMemcpyDtoHAsync(&after, work.address, 1, stream));
    OK(drv.cuStreamSynchronize(stream));
    cr_assert(before == 1 && after == 2, "cuda.h: a stream is in order; got %d and %d", before,
              after);
    OK(drv.cuStreamDestroy(stream));
    OK(drv.cuMemFree(copy));
    busy_end(&work);
}

Test(stream, destroyed_with_work_left) {
    const busy_work work = busy_start();
    CUstream stream = NULL;
    unsigned char byte = 0;
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    busy_submit(&work, stream, 0x77);
    CHECK("cuda.h: cuStreamDestroy returns, the work goes on", CUDA_SUCCESS,
          drv.cuStreamDestroy(stream));
    CHECK("cuda.h: cuCtxSynchronize waits for it", CUDA_SUCCESS, drv.cuCtxSynchronize());
    OK(drv.cuMemcpyDtoH(&byte, work.address + work.bytes - 1, 1));
    cr_assert_eq(byte, 0x77, "cuda.h: work of a destroyed stream is completed");
    busy_end(&work);
}

Test(stream, waits_for_an_event_of_another) {
    const busy_work work = busy_start();
    CUstream first = NULL, second = NULL;
    CUevent event = NULL;
    OK(drv.cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(drv.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK("cuda.h: waiting for an event never recorded", CUDA_SUCCESS,
          drv.cuStreamWaitEvent(second, event, 0));
    CHECK("cuda.h: that is no wait at all", CUDA_SUCCESS, drv.cuStreamSynchronize(second));
    busy_submit(&work, first, 0x3C);
    OK(drv.cuEventRecord(event, first));
    CHECK("cuda.h: cuStreamWaitEvent", CUDA_SUCCESS, drv.cuStreamWaitEvent(second, event, 0));
    CHECK("cuda.h: the waiting stream has work left", CUDA_ERROR_NOT_READY,
          drv.cuStreamQuery(second));
    cr_assert_eq(byte_read(work.address + work.bytes - 1, second), 0x3C,
                 "cuda.h: work behind the wait sees the work before the event");
    OK(drv.cuEventDestroy(event));
    OK(drv.cuStreamDestroy(first));
    OK(drv.cuStreamDestroy(second));
    busy_end(&work);
}

Test(stream, blocking_streams_and_the_default_stream) {
    const busy_work work = busy_start();
    CUstream stream = NULL;
    unsigned char byte = 0;
    OK(drv.cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    busy_submit(&work, stream, 0x21);
    OK(drv.cuMemcpyDtoH(&byte, work.address + work.bytes - 1, 1));
    cr_assert_eq(byte, 0x21, "cuda.h: the default stream waits for blocking streams");
    busy_submit(&work, NULL, 0x22);
    cr_assert_eq(byte_read(work.address + work.bytes - 1, stream), 0x22,
                 "cuda.h: blocking streams wait for the default stream");
    OK(drv.cuStreamDestroy(stream));
    busy_end(&work);
}

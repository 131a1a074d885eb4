/* SPDX-License-Identifier: MIT */
/** @file Functions of the host in the order of a stream. */
#include <stdatomic.h>

#include "conformance_share.h"

TestSuite(host_function, .init = conformance_start, .fini = conformance_finish, .timeout = 60);

static _Atomic unsigned ran;
static unsigned long order[8];

/** Notes its number. */
static void note(void *number) {
    order[atomic_fetch_add(&ran, 1)] = (unsigned long)(uintptr_t)number;
}

static void *numbered(unsigned long number) {
    return (void *)(uintptr_t)number;
}

Test(host_function, in_the_order_of_the_stream) {
    need_words();
    CUstream stream = NULL, other = NULL;
    shared_page page = page_make();
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(drv.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(drv.cuStreamWaitValue64(stream, page.device, 1, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK("cuda.h: cuLaunchHostFunc", CUDA_SUCCESS,
          drv.cuLaunchHostFunc(stream, note, numbered(1)));
    OK(drv.cuStreamWriteValue64(stream, page_word(&page, 1), 5, 0));
    OK(drv.cuLaunchHostFunc(stream, note, numbered(2)));
    OK(drv.cuLaunchHostFunc(other, note, numbered(3)));
    OK(drv.cuStreamSynchronize(other));
    cr_assert_eq(atomic_load(&ran), 1, "measured: only the other stream's has run");
    cr_assert_eq(page_load(&page, 1), 0, "cuda.h: what comes behind it waits for it");
    page_store(&page, 0, 1);
    OK(drv.cuStreamSynchronize(stream));
    cr_assert_eq(atomic_load(&ran), 3);
    cr_assert(order[0] == 3 && order[1] == 1 && order[2] == 2, "%lu %lu %lu", order[0], order[1],
              order[2]);
    cr_assert_eq(page_load(&page, 1), 5);
    OK(drv.cuStreamDestroy(other));
    OK(drv.cuStreamDestroy(stream));
    page_undo(&page);
}

Test(host_function, on_default_streams) {
    const CUstream streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    for (unsigned i = 0; i < 3; i++) {
        CHECK("measured: on a default stream", CUDA_SUCCESS,
              drv.cuLaunchHostFunc(streams[i], note, numbered(i)));
        OK(drv.cuStreamSynchronize(streams[i]));
        cr_assert_eq(atomic_load(&ran), i + 1);
    }
    CHECK("measured: no function", CUDA_ERROR_INVALID_VALUE,
          drv.cuLaunchHostFunc(NULL, NULL, NULL));
    OK(drv.cuCtxSetCurrent(NULL));
    CHECK("measured: a default stream needs a context", CUDA_ERROR_INVALID_CONTEXT,
          drv.cuLaunchHostFunc(NULL, note, NULL));
    conformance_use(0);
}

/** What calls of the driver answer inside a host function. */
static struct { CUresult alloc, query, device; } inside;

static void call_the_driver(void *unused) {
    CUdeviceptr address = 0;
    int value;
    (void)unused;
    inside.alloc = drv.cuMemAlloc(&address, 64);
    inside.query = drv.cuStreamQuery(NULL);
    inside.device = drv.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0);
}

Test(host_function, calls_nothing_of_the_driver) {
    OK(drv.cuLaunchHostFunc(NULL, call_the_driver, NULL));
    OK(drv.cuStreamSynchronize(NULL));
    CHECK("cuda.h: a host function makes no CUDA calls", CUDA_ERROR_NOT_PERMITTED, inside.alloc);
    CHECK("cuda.h: a host function makes no CUDA calls", CUDA_ERROR_NOT_PERMITTED, inside.query);
    CHECK("cuda.h: a host function makes no CUDA calls", CUDA_ERROR_NOT_PERMITTED, inside.device);
}

Test(host_function, runs_after_its_stream_is_destroyed) {
    need_words();
    shared_page page = page_make();
    CUstream stream = NULL;
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(drv.cuStreamWaitValue64(stream, page.device, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(drv.cuLaunchHostFunc(stream, note, numbered(1)));
    CHECK("cuda.h: cuStreamDestroy does not wait", CUDA_SUCCESS, drv.cuStreamDestroy(stream));
    cr_assert_eq(atomic_load(&ran), 0);
    page_store(&page, 0, 1);
    OK(drv.cuCtxSynchronize());
    cr_assert_eq(atomic_load(&ran), 1, "cuda.h: the work of a destroyed stream is done");
    page_undo(&page);
}

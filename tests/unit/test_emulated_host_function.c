/* SPDX-License-Identifier: MIT */
/** @file Functions of the host that a stream calls in its turn. */
#include <stdatomic.h>

#include "emulated_test.h"

static CUdeviceptr memory;
static CUstream stream;

static void start(void) {
    emulated_start(NULL);
    memory = memory_make(0, GRANULE);
    check_success(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

TestSuite(emulated_host_function, .init = start, .timeout = 60);

typedef struct heard {
    atomic_uint calls;
    atomic_int answer;
    atomic_bool go;
    const uint32_t *word;
    atomic_uint seen;
} heard;

static void hear(void *data) {
    heard *what = data;
    int count = 0;
    atomic_store(&what->answer, (int)drv.cuDeviceGetCount(&count));
    if (what->word != NULL) {
        atomic_store(&what->seen, *what->word);
    }
    atomic_fetch_add(&what->calls, 1);
}

static void hold(void *data) {
    heard *what = data;
    while (!atomic_load(&what->go)) {
        os_sleep_ms(1);
    }
    atomic_fetch_add(&what->calls, 1);
}

Test(emulated_host_function, runs_in_its_turn_and_must_not_call_cuda) {
    static heard what;
    void *pinned = NULL;
    check_success(drv.cuMemHostAlloc(&pinned, 4, 0));
    what.word = pinned;
    set_delay(100);
    check_success(drv.cuMemsetD32Async(memory, 77, 1, stream));
    check_success(drv.cuMemcpyDtoHAsync(pinned, memory, 4, stream));
    check_success(drv.cuLaunchHostFunc(stream, hear, &what));
    check_success(drv.cuMemsetD32Async(memory, 78, 1, stream));
    cr_assert_eq(atomic_load(&what.calls), 0, "it was called before its turn");
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert_eq(atomic_load(&what.calls), 1);
    cr_assert_eq(atomic_load(&what.seen), 77);
    cr_assert_eq(atomic_load(&what.answer), (int)CUDA_ERROR_NOT_PERMITTED);
    check_success(drv.cuMemFreeHost(pinned));
}

Test(emulated_host_function, holds_up_its_own_stream_alone) {
    static heard what;
    check_success(drv.cuLaunchHostFunc(stream, hold, &what));
    check_success(drv.cuMemsetD32Async(memory, 5, 1, stream));
    check_success(drv.cuMemsetD32(memory + 4, 6, 1));
    cr_assert_eq(word_read(memory + 4), 6);
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(stream));
    atomic_store(&what.go, true);
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert_eq(word_read(memory), 5);
}

Test(emulated_host_function, runs_on_the_default_stream) {
    static heard what;
    check_success(drv.cuLaunchHostFunc(NULL, hear, &what));
    check_success(drv.cuCtxSynchronize());
    cr_assert_eq(atomic_load(&what.calls), 1);
}

Test(emulated_host_function, refuses_what_is_wrong) {
    static heard what;
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuLaunchHostFunc(stream, NULL, &what));
    check_result(CUDA_ERROR_INVALID_HANDLE,
                 drv.cuLaunchHostFunc((CUstream)(uintptr_t)0x4711, hear, &what));
    cr_assert_eq(set_fail("cuLaunchHostFunc:1=2"), 0);
    check_result(CUDA_ERROR_OUT_OF_MEMORY, drv.cuLaunchHostFunc(stream, hear, &what));
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert_eq(atomic_load(&what.calls), 0);
}

/* cuda.h: "the function will not be called in the event of an error in the CUDA context". */
Test(emulated_host_function, is_not_called_in_a_dead_context) {
    static heard what;
    set_delay(300);
    check_success(drv.cuMemsetD32Async(memory, 1, 1, stream));
    check_success(drv.cuLaunchHostFunc(stream, hear, &what));
    check_success(drv.cuMemUnmap(memory, GRANULE));
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuStreamSynchronize(stream));
    check_success(drv.cuDevicePrimaryCtxRelease(0));
    cr_assert_eq(atomic_load(&what.calls), 0);
}

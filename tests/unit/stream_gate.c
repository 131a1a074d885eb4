/* SPDX-License-Identifier: MIT */
/** @file See stream_gate.h. */
#include "stream_gate.h"

#include <stdatomic.h>

static _Atomic uint64_t *gate;
static CUdeviceptr address;

static bool has_words(const driver *drv) {
    int can = 0;
    return drv->has_word &&
           drv->cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0) ==
               CUDA_SUCCESS &&
           can != 0;
}

void stream_gate_make(void) {
    const driver *drv = core_driver();
    void *memory;
    core_enter_device(0);
    if (!has_words(drv)) {
        cr_skip_test("the device has no 64-bit stream memory operations");
    }
    cr_assert_eq(
        drv->cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
        CUDA_SUCCESS);
    cr_assert_eq(drv->cuMemHostGetDevicePointer(&address, memory, 0), CUDA_SUCCESS);
    gate = memory;
    stream_gate_open();
}

void stream_gate_end(void) {
    if (gate != NULL) {
        (void)core_driver()->cuMemFreeHost((void *)gate);
    }
    gate = NULL;
}

void stream_gate_close(CUstream stream) {
    atomic_store(gate, 0);
    cr_assert_eq(core_driver()->cuStreamWaitValue64(stream, address, 1, 0), CUDA_SUCCESS);
}

void stream_gate_open(void) {
    if (gate != NULL) {
        atomic_store(gate, 1);
    }
}

CUstream stream_gate_stream(void) {
    CUstream made;
    cr_assert_eq(core_driver()->cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return made;
}

void stream_gate_stream_end(CUstream stream) {
    if (stream != NULL) {
        (void)core_driver()->cuStreamDestroy(stream);
    }
}

void stream_gate_synchronize(CUstream stream) {
    cr_assert_eq(core_driver()->cuStreamSynchronize(stream), CUDA_SUCCESS);
}

void stream_gate_check_waits(CUstream stream) {
    cr_assert_eq(core_driver()->cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
}

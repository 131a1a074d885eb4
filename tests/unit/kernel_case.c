/* SPDX-License-Identifier: MIT */
/** @file See kernel_case.h. */
#include "kernel_case.h"

/* What the slots hold, as far as these kernels go: no atomic, so that a tool for races sees whether the words order it. */
uint64_t kernel_case_contents[KERNEL_CASE_SLOTS];

/* ld.acquire.sys and st.release.sys, on the host's side of the same memory. */
static _Atomic uint64_t *at_word(const gpuipc_word *word) {
    return (_Atomic uint64_t *)(uintptr_t)word->address;
}

uint64_t kernel_case_look(const gpuipc_word *word) {
    return atomic_load_explicit(at_word(word), memory_order_acquire);
}

void kernel_case_store(const gpuipc_word *word) {
    atomic_store_explicit(at_word(word), word->value, memory_order_release);
}

bool kernel_case_is_reached(const gpuipc_word *word) {
    return kernel_case_look(word) - word->value < UINT64_C(1) << 63;
}

static void run(void *argument) {
    kernel_case *self = argument;
    while (self->may_run != NULL && !atomic_load(self->may_run)) {
    }
    while (self->awaits.address != 0 && !kernel_case_is_reached(&self->awaits)) {
    }
    if (self->slot != NULL && self->writes != 0) {
        *self->slot = self->writes;
    } else if (self->slot != NULL) {
        self->has_read = *self->slot;
    }
    for (size_t i = 0; i < self->count; i++) {
        kernel_case_store(&self->stores[i]);
    }
}

void kernel_case_launch(kernel_case *what, CUstream stream) {
    cr_assert_eq(core_driver()->cuLaunchHostFunc(stream, run, what), CUDA_SUCCESS);
}

gpuipc_frame kernel_case_loan(CUstream stream) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_channel_loan(channel_case_channel, stream, SOON_MS, &frame));
    return frame;
}

/* @param out receives its words, and nothing else */
void kernel_case_publish(const gpuipc_frame *frame, CUstream stream, kernel_case *out) {
    check_ok(gpuipc_channel_publish_by_kernel(channel_case_channel, frame, stream, out->stores, 4,
                                              &out->count));
}

void kernel_case_say_written(const gpuipc_frame *frame, CUstream stream) {
    check_ok(gpuipc_channel_kernel_launched(channel_case_channel, frame, stream));
}

gpuipc_frame kernel_case_take(gpuipc_subscription *reader, CUstream stream, kernel_case *out) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_subscription_take_for_kernel(reader, stream, SOON_MS, &frame, &out->awaits,
                                                 &out->stores[0]));
    out->count = 1;
    return frame;
}

void kernel_case_check_is_on_loan_no_more(const gpuipc_frame *frame, CUstream stream) {
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_kernel_launched(channel_case_channel, frame, stream));
}

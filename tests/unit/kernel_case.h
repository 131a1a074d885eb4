/* SPDX-License-Identifier: MIT */
/** @file What plays kernels that await and store the words of frames, for tests of channels. */
#ifndef GPUIPC_TEST_KERNEL_CASE_H
#define GPUIPC_TEST_KERNEL_CASE_H

#include "channel_case.h"
#include "stream_gate.h"

#define KERNEL_CASE_SLOTS 3u

/** A kernel: it awaits, uses the slot, and stores. */
typedef struct kernel_case {
    gpuipc_word awaits; /**< no address: it awaits none */
    gpuipc_word stores[4];
    size_t count;
    uint64_t *slot;
    uint64_t writes; /**< 0: it reads */
    uint64_t has_read;
    atomic_bool *may_run; /**< NULL: at once */
} kernel_case;

extern uint64_t kernel_case_contents[KERNEL_CASE_SLOTS];
uint64_t kernel_case_look(const gpuipc_word *word);
void kernel_case_store(const gpuipc_word *word);
bool kernel_case_is_reached(const gpuipc_word *word);
void kernel_case_launch(kernel_case *what, CUstream stream);
gpuipc_frame kernel_case_loan(CUstream stream);
void kernel_case_publish(const gpuipc_frame *frame, CUstream stream, kernel_case *out);
void kernel_case_say_written(const gpuipc_frame *frame, CUstream stream);
gpuipc_frame kernel_case_take(gpuipc_subscription *reader, CUstream stream, kernel_case *out);
void kernel_case_check_is_on_loan_no_more(const gpuipc_frame *frame, CUstream stream);

#endif

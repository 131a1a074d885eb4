/* SPDX-License-Identifier: MIT */
/** @file See dma_buf.h. They are Linux's (kernel.org, "Buffer Sharing and Synchronization"). */
#include "dma_buf.h"

const bool dma_buf_is_there = false;

CUresult dma_buf_create(uint64_t bytes, int *out_number) {
    (void)bytes;
    (void)out_number;
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* SPDX-License-Identifier: MIT */
/** @file Descriptors that stand for device memory: posix_dma_buf.c, win32_dma_buf.c. */
#ifndef GPUIPC_EMULATED_DMA_BUF_H
#define GPUIPC_EMULATED_DMA_BUF_H

#include "state.h"

/**
 * A descriptor that has the length of a range (lseek(2), SEEK_END, as with any dma-buf) and leads nowhere: there is
 * no driver here that could import it. Reading, writing and mapping it fail.
 * @return CUDA_ERROR_NOT_SUPPORTED: this system has none; CUDA_ERROR_OPERATING_SYSTEM
 */
CUresult dma_buf_create(uint64_t bytes, int *out_number);

/** Whether this system has them. */
extern const bool dma_buf_is_there;

#endif

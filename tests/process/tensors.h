/* SPDX-License-Identifier: MIT */
/** @file A buffer as a model has it: a thousand tensors, and a manifest of them. */
#ifndef GPUIPC_TEST_TENSORS_H
#define GPUIPC_TEST_TENSORS_H

#include <gpuipc/gpuipc.h>

#define TENSOR_COUNT  1000u
#define TENSOR_BYTES  8192u
#define TENSORS_BYTES (UINT64_C(1) * TENSOR_COUNT * TENSOR_BYTES)

/** Writes the manifest. */
gpuipc_status tensors_write(uint8_t *bytes, size_t capacity, size_t *out_size);

/** Reads a manifest, and checks that it names the tensors of the buffer, each of which has the mark of
 *  @p seed (marks.h, with TENSOR_BYTES between them). GPUIPC_ERR_PROTOCOL when anything is otherwise. */
gpuipc_status tensors_check(const void *bytes, size_t size, gpuipc_buffer *buffer, uint32_t seed);

#endif

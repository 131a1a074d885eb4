/* SPDX-License-Identifier: MIT */
/** @file Bytes in a buffer that tell where they belong, so that a copy to a wrong place shows. */
#ifndef GPUIPC_TEST_BUFFER_MARKS_H
#define GPUIPC_TEST_BUFFER_MARKS_H

#include <gpuipc/gpuipc.h>

/** Marks the whole buffer. */
void buffer_marks_write(gpuipc_buffer *buffer, unsigned seed);

/** Asserts that the marks from @p from on are at @p offset, and that nothing beside them was touched. */
void buffer_marks_check(gpuipc_buffer *buffer, uint64_t offset, uint64_t from, uint64_t bytes,
                        unsigned seed, uint8_t beside);

#endif

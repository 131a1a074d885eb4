/* SPDX-License-Identifier: MIT */
/** @file What a buffer is known by: a few words at its start, at every stride, and at its end. */
#ifndef GPUIPC_TEST_MARKS_H
#define GPUIPC_TEST_MARKS_H

#include <gpuipc/gpuipc.h>

/** Writes the marks. @param seed tells one set of contents from another
 *  @param stride bytes between marks; 0: one at the start and one at the end */
gpuipc_status marks_write(gpuipc_buffer *buffer, uint32_t seed, uint64_t stride);

/** Reads the marks. GPUIPC_ERR_PROTOCOL, with a sentence about the first wrong one in the error
 *  record, when the memory was read and has other contents. */
gpuipc_status marks_check(gpuipc_buffer *buffer, uint32_t seed, uint64_t stride);

/** Bytes of a message, different at every place. */
uint8_t marks_byte(size_t index);
void marks_fill_bytes(uint8_t *bytes, size_t size);
/** Index of the first wrong byte, or size. */
size_t marks_check_bytes(const uint8_t *bytes, size_t size);

#endif

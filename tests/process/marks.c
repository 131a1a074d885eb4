/* SPDX-License-Identifier: MIT */
/** @file See marks.h. */
#include "marks.h"

#include <inttypes.h>
#include <string.h>

#include "base/status.h"

#define MARK_WORDS 4
#define MARK_BYTES (MARK_WORDS * sizeof(uint32_t))

typedef gpuipc_status (*visit)(gpuipc_buffer *buffer, uint32_t seed, uint64_t offset);

static void make_mark(uint32_t seed, uint64_t offset, uint32_t words[MARK_WORDS]) {
    words[0] = seed;
    words[1] = (uint32_t)offset;
    words[2] = (uint32_t)(offset >> 32) ^ ~seed;
    words[3] = seed * 2654435761u + (uint32_t)offset;
}

static gpuipc_status write_one(gpuipc_buffer *buffer, uint32_t seed, uint64_t offset) {
    uint32_t words[MARK_WORDS];
    make_mark(seed, offset, words);
    return gpuipc_buffer_write(buffer, offset, words, sizeof(words));
}

static gpuipc_status check_one(gpuipc_buffer *buffer, uint32_t seed, uint64_t offset) {
    uint32_t expected[MARK_WORDS];
    uint32_t found[MARK_WORDS];
    make_mark(seed, offset, expected);
    gpuipc_status status = gpuipc_buffer_read(buffer, offset, found, sizeof(found));
    if (status == GPUIPC_OK && memcmp(found, expected, sizeof(found)) != 0) {
        status = status_fail(GPUIPC_ERR_PROTOCOL,
                             "at offset %" PRIu64 " is %08" PRIx32 " %08" PRIx32 ", not %08" PRIx32
                             " %08" PRIx32,
                             offset, found[0], found[1], expected[0], expected[1]);
    }
    return status;
}

static gpuipc_status visit_all(gpuipc_buffer *buffer, uint32_t seed, uint64_t stride, visit each) {
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    gpuipc_status status = gpuipc_buffer_get_info(buffer, &info);
    if (status != GPUIPC_OK) {
        return status;
    }
    uint64_t last = info.bytes - MARK_BYTES;
    for (uint64_t at = 0; status == GPUIPC_OK && at < last; at += stride) {
        status = each(buffer, seed, at);
        if (stride == 0) {
            break;
        }
    }
    return status == GPUIPC_OK ? each(buffer, seed, last) : status;
}

gpuipc_status marks_write(gpuipc_buffer *buffer, uint32_t seed, uint64_t stride) {
    return visit_all(buffer, seed, stride, write_one);
}

gpuipc_status marks_check(gpuipc_buffer *buffer, uint32_t seed, uint64_t stride) {
    return visit_all(buffer, seed, stride, check_one);
}

uint8_t marks_byte(size_t index) {
    return (uint8_t)(index * 31 + index / 256 + 7);
}

void marks_fill_bytes(uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        bytes[i] = marks_byte(i);
    }
}

size_t marks_check_bytes(const uint8_t *bytes, size_t size) {
    size_t i = 0;
    while (i < size && bytes[i] == marks_byte(i)) {
        i++;
    }
    return i;
}

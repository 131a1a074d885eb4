/* SPDX-License-Identifier: MIT */
/** @file See tensors.h. */
#include "tensors.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "marks.h"

#define NAME_SIZE 40

static gpuipc_range tensor(uint32_t index, char name[NAME_SIZE]) {
    (void)snprintf(name, NAME_SIZE, "model.layers.%04u.self_attn.weight", index);
    return (gpuipc_range){.name = name,
                          .offset = (uint64_t)index * TENSOR_BYTES,
                          .bytes = TENSOR_BYTES,
                          .element_type = 6,
                          .dimensions = 2,
                          .shape = {index + 1, 64},
                          .strides = {64, 1}};
}

gpuipc_status tensors_write(uint8_t *bytes, size_t capacity, size_t *out_size) {
    static gpuipc_range ranges[TENSOR_COUNT];
    static char names[TENSOR_COUNT][NAME_SIZE];
    for (uint32_t i = 0; i < TENSOR_COUNT; i++) {
        ranges[i] = tensor(i, names[i]);
    }
    return gpuipc_manifest_write(ranges, TENSOR_COUNT, bytes, capacity, out_size);
}

static bool is_tensor(const gpuipc_range *range, uint32_t index) {
    char name[NAME_SIZE];
    const gpuipc_range expected = tensor(index, name);
    return strcmp(range->name, expected.name) == 0 && range->offset == expected.offset &&
           range->bytes == expected.bytes && range->element_type == expected.element_type &&
           range->dimensions == expected.dimensions &&
           memcmp(range->shape, expected.shape, sizeof(range->shape)) == 0 &&
           memcmp(range->strides, expected.strides, sizeof(range->strides)) == 0;
}

gpuipc_status tensors_check(const void *bytes, size_t size, gpuipc_buffer *buffer, uint32_t seed) {
    static gpuipc_range ranges[TENSOR_COUNT];
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    size_t count = 0;
    gpuipc_status status = gpuipc_buffer_get_info(buffer, &info);
    if (status != GPUIPC_OK || (status = gpuipc_manifest_read(bytes, size, info.bytes, ranges,
                                                              TENSOR_COUNT, &count)) != GPUIPC_OK) {
        return status;
    }
    for (uint32_t i = 0; i < TENSOR_COUNT; i++) {
        if (count != TENSOR_COUNT || !is_tensor(&ranges[i], i)) {
            return status_fail(GPUIPC_ERR_PROTOCOL, "tensor %u of %zu is another one", i, count);
        }
    }
    return marks_check(buffer, seed, TENSOR_BYTES);
}

/* SPDX-License-Identifier: MIT */
/** @file Tensors of DLPack: the frozen layouts, and who keeps the memory. */
#include "core_fixture.h"

#include <gpuipc/gpuipc_dlpack.h>
#include <stddef.h>

TestSuite(dlpack, .init = core_start, .fini = core_finish, .timeout = 60);

/* dlpack.h of 0.8 and of 1.0, written down: sizes and places for a machine of 64 bits. */
Test(dlpack, the_layouts_are_those_of_dlpack) {
    cr_assert_eq(sizeof(gpuipc_dlpack_tensor), 48);
    cr_assert_eq(offsetof(gpuipc_dlpack_tensor, data), 0);
    cr_assert_eq(offsetof(gpuipc_dlpack_tensor, device_type), 8);
    cr_assert_eq(offsetof(gpuipc_dlpack_tensor, device_id), 12);
    cr_assert_eq(offsetof(gpuipc_dlpack_tensor, dimensions), 16);
    cr_assert_eq(offsetof(gpuipc_dlpack_tensor, type_kind), 20);
    cr_assert_eq(offsetof(gpuipc_dlpack_tensor, type_bits), 21);
    cr_assert_eq(offsetof(gpuipc_dlpack_tensor, type_lanes), 22);
    cr_assert_eq(offsetof(gpuipc_dlpack_tensor, shape), 24);
    cr_assert_eq(offsetof(gpuipc_dlpack_tensor, strides), 32);
    cr_assert_eq(offsetof(gpuipc_dlpack_tensor, byte_offset), 40);
    cr_assert_eq(sizeof(gpuipc_dlpack_managed), 64);
    cr_assert_eq(offsetof(gpuipc_dlpack_managed, owner), 48);
    cr_assert_eq(offsetof(gpuipc_dlpack_managed, deleter), 56);
    cr_assert_eq(sizeof(gpuipc_dlpack_versioned), 80);
    cr_assert_eq(offsetof(gpuipc_dlpack_versioned, owner), 8);
    cr_assert_eq(offsetof(gpuipc_dlpack_versioned, deleter), 16);
    cr_assert_eq(offsetof(gpuipc_dlpack_versioned, flags), 24);
    cr_assert_eq(offsetof(gpuipc_dlpack_versioned, tensor), 32);
}

static gpuipc_range matrix(uint64_t offset) {
    return (gpuipc_range){.name = "m",
                          .offset = offset,
                          .bytes = 24,
                          .element_type = GPUIPC_ELEMENT_TYPE(GPUIPC_ELEMENT_FLOAT, 32, 1),
                          .dimensions = 2,
                          .shape = {2, 3}};
}

Test(dlpack, a_tensor_keeps_its_buffer) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    const uint64_t address = gpuipc_buffer_address(buffer);
    const gpuipc_range range = matrix(256);
    gpuipc_dlpack_managed *tensor = NULL;
    check_ok(gpuipc_dlpack_make(buffer, &range, &tensor));
    cr_assert_eq((uintptr_t)tensor->tensor.data, address + 256);
    cr_assert_eq(tensor->tensor.device_type, GPUIPC_DLPACK_CUDA);
    cr_assert_eq(tensor->tensor.device_id, 0);
    cr_assert_eq(tensor->tensor.dimensions, 2);
    cr_assert_eq(tensor->tensor.type_kind, 2);
    cr_assert_eq(tensor->tensor.type_bits, 32);
    cr_assert_eq(tensor->tensor.type_lanes, 1);
    cr_assert_eq(tensor->tensor.shape[1], 3);
    cr_assert_eq(tensor->tensor.strides[0], 3); /* compact, since the range had none */
    cr_assert_eq(tensor->tensor.strides[1], 1);
    check_ok(gpuipc_buffer_release(buffer));
    cr_assert_eq(gpuipc_buffer_address(buffer), address); /* it lives */
    tensor->deleter(tensor);
    cr_assert_eq(gpuipc_buffer_address(buffer), 0);
}

Test(dlpack, what_is_only_to_be_read_says_so) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_range range = matrix(0);
    gpuipc_dlpack_managed *managed = NULL;
    gpuipc_dlpack_versioned *tensor = NULL;
    range.strides[0] = 1; /* a transposed one */
    range.strides[1] = 2;
    check_ok(gpuipc_dlpack_make_versioned(buffer, &range, &tensor));
    cr_assert(tensor->major == 1 && tensor->minor == 0 && tensor->flags == 0);
    cr_assert_eq(tensor->tensor.strides[1], 2);
    tensor->deleter(tensor);
    check_ok(gpuipc_buffer_set_access(buffer, 0, GPUIPC_ACCESS_READ));
    cr_assert_eq(gpuipc_dlpack_make(buffer, &range, &managed), GPUIPC_ERR_ACCESS_DENIED);
    cr_assert_null(managed);
    check_ok(gpuipc_dlpack_make_versioned(buffer, &range, &tensor));
    cr_assert_eq(tensor->flags, GPUIPC_DLPACK_READ_ONLY);
    tensor->deleter(tensor);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(dlpack, what_cannot_be_a_tensor_is_refused) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_range range = matrix(core_unit - 23);
    gpuipc_dlpack_versioned *tensor = NULL;
    cr_assert_eq(gpuipc_dlpack_make_versioned(buffer, &range, &tensor), GPUIPC_ERR_OUT_OF_RANGE);
    range = matrix(0);
    range.dimensions = GPUIPC_DIMENSIONS_MAX + 1;
    cr_assert_eq(gpuipc_dlpack_make_versioned(buffer, &range, &tensor), GPUIPC_ERR_OUT_OF_RANGE);
    check_ok(gpuipc_buffer_release(buffer));
    range = matrix(0);
    check_status(GPUIPC_ERR_RELEASED, gpuipc_dlpack_make_versioned(buffer, &range, &tensor));
    cr_assert_null(tensor);
}

/* A consumer believes a tensor, and where its elements lie may be what a peer says. */
Test(dlpack, elements_outside_of_the_range_are_refused) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_dlpack_versioned *tensor = NULL;
    static const struct {
        int64_t shape[3];
        int64_t strides[3];
        bool is_good;
    } cases[] = {
        {{2, 3, 1}, {0}, true},
        {{1, 1, 6}, {0}, true},
        {{2, 3, 2}, {0}, false},
        {{7, 1, 1}, {0}, false},
        {{-1, 1, 1}, {0}, false},
        {{INT64_MAX, INT64_MAX, 2}, {0}, false},
        {{INT64_C(1) << 32, INT64_C(1) << 32, 1}, {0}, false},
        {{0, INT64_MAX, INT64_MAX}, {0}, true},
        {{2, 3, 1}, {1, 2, 1}, true},
        {{2, 3, 1}, {3, 1, INT64_MAX}, true},
        {{2, 3, 1}, {2, 2, 1}, false},
        {{2, 3, 1}, {-1, 1, 1}, false},
        {{2, 1, 1}, {INT64_MAX, 1, 1}, false},
        {{INT64_MAX, 1, 1}, {INT64_MAX, 1, 1}, false},
        {{0, 1, 1}, {INT64_MAX, 1, 1}, true},
        {{1000, 1, 1}, {0, 1, 1}, true}, /* all of them the same one */
        {{INT64_C(1) << 32, INT64_C(1) << 32, 1}, {0, 0, 1}, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        gpuipc_range range = matrix(0);
        range.dimensions = 3;
        memcpy(range.shape, cases[i].shape, sizeof(cases[i].shape));
        memcpy(range.strides, cases[i].strides, sizeof(cases[i].strides));
        const gpuipc_status status = gpuipc_dlpack_make_versioned(buffer, &range, &tensor);
        cr_assert_eq(status, cases[i].is_good ? GPUIPC_OK : GPUIPC_ERR_OUT_OF_RANGE, "case %zu", i);
        if (status == GPUIPC_OK) {
            tensor->deleter(tensor);
        }
    }
    check_ok(gpuipc_buffer_release(buffer));
}

Test(dlpack, elements_that_have_no_size_are_no_tensor) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_dlpack_versioned *tensor = NULL;
    gpuipc_range range = matrix(0);
    range.element_type = 0;
    cr_assert_eq(gpuipc_dlpack_make_versioned(buffer, &range, &tensor),
                 GPUIPC_ERR_INVALID_ARGUMENT);
    range.shape[0] = 0; /* none */
    cr_assert_eq(gpuipc_dlpack_make_versioned(buffer, &range, &tensor),
                 GPUIPC_ERR_INVALID_ARGUMENT);
    range.dimensions = 0; /* one */
    cr_assert_eq(gpuipc_dlpack_make_versioned(buffer, &range, &tensor),
                 GPUIPC_ERR_INVALID_ARGUMENT);
    range.element_type = GPUIPC_ELEMENT_TYPE(GPUIPC_ELEMENT_FLOAT, 255, UINT16_MAX);
    cr_assert_eq(gpuipc_dlpack_make_versioned(buffer, &range, &tensor), GPUIPC_ERR_OUT_OF_RANGE);
    range.element_type = GPUIPC_ELEMENT_TYPE(GPUIPC_ELEMENT_INT, 4, 1); /* two in a byte */
    range.dimensions = 1;
    range.shape[0] = 48;
    check_ok(gpuipc_dlpack_make_versioned(buffer, &range, &tensor));
    tensor->deleter(tensor);
    range.shape[0] = 49;
    cr_assert_eq(gpuipc_dlpack_make_versioned(buffer, &range, &tensor), GPUIPC_ERR_OUT_OF_RANGE);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(dlpack, elements_lie_where_a_gpu_can_read_them) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    static const struct {
        uint32_t bits;
        uint32_t lanes;
        uint64_t wanted;
    } cases[] = {{4, 1, 1},  {8, 1, 1},    {16, 1, 2}, {32, 1, 4},
                 {32, 3, 4}, {128, 1, 16}, {64, 4, 16}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        for (uint64_t offset = 0; offset <= 16; offset++) {
            gpuipc_dlpack_managed *tensor = NULL;
            gpuipc_range range = {.offset = offset,
                                  .bytes = 32,
                                  .element_type = GPUIPC_ELEMENT_TYPE(
                                      GPUIPC_ELEMENT_FLOAT, cases[i].bits, cases[i].lanes)};
            const gpuipc_status status = gpuipc_dlpack_make(buffer, &range, &tensor);
            const bool is_good = offset % cases[i].wanted == 0;
            cr_assert_eq(status, is_good ? GPUIPC_OK : GPUIPC_ERR_INVALID_ARGUMENT, "case %zu, %d",
                         i, (int)offset);
            if (status == GPUIPC_OK) {
                tensor->deleter(tensor);
            }
        }
    }
    check_ok(gpuipc_buffer_release(buffer));
}

/* SPDX-License-Identifier: MIT */
/** @file See buffer_marks.h. */
#include "buffer_marks.h"

#include <stdlib.h>

#include "core_fixture.h"

#define MIB (UINT64_C(1) << 20)

/* A byte that tells where it belongs. */
static uint8_t byte_at(uint64_t at, unsigned seed) {
    return (uint8_t)(at * 7 + at / 251 + at / MIB * 31 + seed);
}

void buffer_marks_write(gpuipc_buffer *buffer, unsigned seed) {
    const uint64_t bytes = core_info(buffer).bytes;
    uint8_t *room = malloc(bytes);
    cr_assert_not_null(room);
    for (uint64_t i = 0; i < bytes; i++) {
        room[i] = byte_at(i, seed);
    }
    check_ok(gpuipc_buffer_write(buffer, 0, room, bytes));
    free(room);
}

void buffer_marks_check(gpuipc_buffer *buffer, uint64_t offset, uint64_t from, uint64_t bytes,
                        unsigned seed, uint8_t beside) {
    const uint64_t all = core_info(buffer).bytes;
    uint8_t *room = malloc(all);
    cr_assert_not_null(room);
    check_ok(gpuipc_buffer_read(buffer, 0, room, all));
    uint64_t wrong = 0;
    while (wrong < all && room[wrong] == (wrong >= offset && wrong - offset < bytes
                                              ? byte_at(wrong - offset + from, seed)
                                              : beside)) {
        wrong++;
    }
    cr_assert_eq(wrong, all, "byte %llu of %llu is %u", (unsigned long long)wrong,
                 (unsigned long long)all, wrong < all ? room[wrong] : 0u);
    free(room);
}

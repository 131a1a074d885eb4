/* SPDX-License-Identifier: MIT */
/** @file The record of contents on their way: frozen bytes, and the refusal of everything else. */
#include <criterion/criterion.h>
#include <string.h>

#include "check.h"
#include "message/wire.h"

Test(wire, contents_are_the_frozen_bytes) {
    static const uint8_t vector_contents[WIRE_CONTENTS_BYTES] = {
        4,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
        0,    0,    0,    0,    0,    0x88, 0x77, 0x66, 0x55, 0x44, 0x33,
        0x22, 0x11, 0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01};
    const wire_contents wanted = {.memory = SEGMENT_MEMORY_HOST,
                                  .bytes = UINT64_C(0x1122334455667788),
                                  .number = UINT64_C(0x0102030405060708)};
    uint8_t made[WIRE_CONTENTS_BYTES + 1] = {0};
    wire_contents found = {0};
    wire_encode_contents(&wanted, made);
    cr_assert_eq(memcmp(made, vector_contents, sizeof(vector_contents)), 0);
    check_ok(wire_decode_contents(made, sizeof(made), &found)); /* a newer minor has more */
    cr_assert(found.memory == wanted.memory && found.offset == 0 && found.bytes == wanted.bytes &&
              found.number == wanted.number);
    check_status(GPUIPC_ERR_PROTOCOL, wire_decode_contents(made, WIRE_CONTENTS_BYTES - 1, &found));
    for (size_t i = 2; i < 16; i++) { /* reserved, and an offset that a ring has not */
        made[i] = 1;
        check_status(GPUIPC_ERR_PROTOCOL, wire_decode_contents(made, sizeof(made), &found));
        made[i] = 0;
    }
    made[0] = 1; /* out of memory there is no number of a piece */
    check_status(GPUIPC_ERR_PROTOCOL, wire_decode_contents(made, sizeof(made), &found));
    made[0] = 0;
    check_status(GPUIPC_ERR_VERSION, wire_decode_contents(made, sizeof(made), &found));
    made[0] = 6;
    check_status(GPUIPC_ERR_VERSION, wire_decode_contents(made, sizeof(made), &found));
}

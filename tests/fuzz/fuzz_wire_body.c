/* SPDX-License-Identifier: MIT */
/** @file The bytes of messages that have a meaning of their own: contents, requests, replies. Each reads every input. */
#include "fuzz.h"
#include "message/wire.h"

static void check_contents(const uint8_t *data, size_t size) {
    uint8_t again[WIRE_CONTENTS_BYTES];
    wire_contents record;
    if (wire_decode_contents(data, size, &record) == GPUIPC_OK) {
        FUZZ_CHECK(record.bytes > 0 && record.offset + record.bytes > record.offset);
        wire_encode_contents(&record, again);
        fuzz_check_same(again, data, sizeof(again), data, size);
    }
}

static void check_request(const uint8_t *data, size_t size) {
    uint8_t again[WIRE_REQUEST_BYTES];
    wire_request record;
    if (wire_decode_request(data, size, &record) == GPUIPC_OK) {
        wire_encode_request(&record, again);
        fuzz_check_same(again, data, sizeof(again), data, size);
    }
}

static void check_reply(const uint8_t *data, size_t size) {
    uint8_t again[WIRE_REPLY_BYTES];
    wire_reply record;
    if (wire_decode_reply(data, size, &record) == GPUIPC_OK) {
        FUZZ_CHECK(record.attachment_bytes == size - WIRE_REPLY_BYTES);
        wire_encode_reply(&record, again);
        fuzz_check_same(again, data, sizeof(again), data, size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_contents(data, size);
    check_request(data, size);
    check_reply(data, size);
    return 0;
}

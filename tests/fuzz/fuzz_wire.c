/* SPDX-License-Identifier: MIT */
/** @file A packet between two processes, with its buffers' and segments' records. The first byte says how many handles came. */
#include <string.h>

#include "fuzz.h"
#include "message/wire.h"

/* docs/wire-format.md: "not looked at". */
enum {
    BUFFER_IGNORED = 24,
    IGNORED_BYTES = 8
};

static void check_buffer(const wire_packet *packet, uint32_t index, const uint8_t *data,
                         size_t size) {
    const uint8_t *at = packet->buffers + (size_t)index * packet->buffer_record_bytes;
    uint8_t known[WIRE_BUFFER_BYTES];
    uint8_t again[WIRE_BUFFER_BYTES];
    wire_buffer record;
    FUZZ_CHECK(at >= data && at + packet->buffer_record_bytes <= data + size);
    if (wire_decode_buffer(packet, index, &record) != GPUIPC_OK) {
        return;
    }
    FUZZ_CHECK(record.bytes > 0 && record.offset + record.bytes > record.offset);
    memcpy(known, at, sizeof(known));
    memset(known + BUFFER_IGNORED, 0, IGNORED_BYTES);
    wire_encode_buffer(&record, again);
    fuzz_check_same(again, known, sizeof(known), data, size);
}

static void check_segment(const wire_packet *packet, uint32_t index, const uint8_t *data,
                          size_t size) {
    const uint8_t *at = packet->segments + (size_t)index * packet->segment_record_bytes;
    uint8_t again[WIRE_SEGMENT_BYTES];
    segment_record record;
    FUZZ_CHECK(at >= data && at + packet->segment_record_bytes <= data + size);
    if (wire_decode_segment(packet, index, &record) == GPUIPC_OK) {
        wire_encode_segment(&record, again);
        fuzz_check_same(again, at, sizeof(again), data, size);
    }
}

/* A later minor version may have longer records. */
static bool is_of_this_version(const wire_packet *packet, const uint8_t *bytes) {
    return bytes[6] == WIRE_MINOR && bytes[7] == 0 &&
           packet->buffer_record_bytes == WIRE_BUFFER_BYTES &&
           packet->segment_record_bytes == WIRE_SEGMENT_BYTES;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t again[WIRE_HEADER_BYTES];
    wire_packet packet;
    if (size == 0 || wire_decode_packet(data + 1, size - 1, data[0], &packet) != GPUIPC_OK) {
        return 0;
    }
    FUZZ_CHECK(packet.bytes + packet.header.bytes == packet.buffers);
    FUZZ_CHECK(packet.segments + (size_t)packet.header.segments * packet.segment_record_bytes ==
               data + size);
    if (is_of_this_version(&packet, data + 1)) {
        FUZZ_CHECK(wire_packet_bytes(&packet.header) == size - 1);
        wire_encode_header(&packet.header, again);
        fuzz_check_same(again, data + 1, sizeof(again), data, size);
    }
    for (uint32_t i = 0; i < packet.header.buffers; i++) {
        check_buffer(&packet, i, data, size);
    }
    for (uint32_t i = 0; i < packet.header.segments; i++) {
        check_segment(&packet, i, data, size);
    }
    return 0;
}

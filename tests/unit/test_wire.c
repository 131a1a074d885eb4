/* SPDX-License-Identifier: MIT */
/** @file The wire format: frozen packets, and the refusal of everything else. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

#include "check.h"
#include "message/wire.h"
#include "wire_vectors.h"

TestSuite(wire, .timeout = 60);

/* Positions in a packet: docs/wire-format.md. */
enum {
    AT_MAJOR = 4,
    AT_MINOR = 6,
    AT_LENGTH = 8,
    AT_KIND = 12,
    AT_FLAGS = 14,
    AT_TOTAL_BYTES = 24,
    AT_TOTAL_BUFFERS = 28,
    AT_TOTAL_SEGMENTS = 32,
    AT_BYTES = 36,
    AT_BUFFERS = 40,
    AT_SEGMENTS = 42,
    AT_BUFFER_RECORD = 44,
    AT_SEGMENT_RECORD = 46
};

static void put(uint8_t *at, uint64_t value, size_t width) {
    for (size_t i = 0; i < width; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

/* A copy with no room behind it, so that a sanitizer sees every byte read beyond its end. */
static uint8_t *copy_of(const uint8_t *packet, size_t size) {
    uint8_t *copy = malloc(size == 0 ? 1 : size);
    cr_assert_not_null(copy);
    memcpy(copy, packet, size);
    return copy;
}

/* Reads all there is in a packet, so that a sanitizer sees where the decoder looks. */
static gpuipc_status decode_all(const uint8_t *packet, size_t size, size_t handles) {
    wire_packet decoded;
    gpuipc_status status = wire_decode_packet(packet, size, handles, &decoded);
    if (status != GPUIPC_OK) {
        return status;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < decoded.header.bytes; i++) {
        sum += decoded.bytes[i];
    }
    for (uint32_t i = 0; i < decoded.header.buffers && status == GPUIPC_OK; i++) {
        wire_buffer record;
        status = wire_decode_buffer(&decoded, i, &record);
        sum += status == GPUIPC_OK ? record.bytes : 0;
    }
    for (uint32_t i = 0; i < decoded.header.segments && status == GPUIPC_OK; i++) {
        segment_record record;
        status = wire_decode_segment(&decoded, i, &record);
        sum += status == GPUIPC_OK ? record.bytes : 0;
    }
    cr_assert(sum < UINT64_MAX);
    return status;
}

static void check_is_refused(gpuipc_status expected, const uint8_t *packet, size_t size,
                             size_t handles) {
    uint8_t *copy = copy_of(packet, size);
    check_status(expected, decode_all(copy, size, handles));
    cr_assert_eq(gpuipc_error_get()->status, expected);
    cr_assert_neq(gpuipc_error_get()->sentence[0], '\0');
    free(copy);
}

/* The packet, with one field changed, is refused. */
static void check_change(gpuipc_status expected, const uint8_t *packet, size_t size, size_t handles,
                         size_t at, uint64_t value, size_t width) {
    uint8_t *copy = copy_of(packet, size);
    put(copy + at, value, width);
    gpuipc_status status = decode_all(copy, size, handles);
    cr_assert_eq(status, expected, "%llu at %zu: %s, not %s", (unsigned long long)value, at,
                 gpuipc_status_name(status), gpuipc_status_name(expected));
    free(copy);
}

static const wire_header whole_header = {.kind = WIRE_MESSAGE,
                                         .number = 0x0102030405060708,
                                         .total_bytes = 5,
                                         .total_buffers = 2,
                                         .total_segments = 3,
                                         .bytes = 5,
                                         .buffers = 2,
                                         .segments = 3};

static wire_buffer whole_buffer(unsigned index) {
    wire_buffer record = {.buffer_id = index == 0 ? 7 : 0x1122334455667788,
                          .offset = index == 0 ? 4096 : 0,
                          .bytes = index == 0 ? 0x5FF000 : 0xFFFFE00000,
                          .segment_count = index == 0 ? 2 : 1,
                          .memory = SEGMENT_MEMORY_VMM,
                          .handle_type = 1,
                          .access = index == 0 ? GPUIPC_ACCESS_READ_WRITE : GPUIPC_ACCESS_READ};
    for (uint8_t i = 0; i < 16; i++) {
        record.exporter_id[i] = (uint8_t)(0x10 + i);
        record.device_uuid[i] = (uint8_t)(0xA0 + i);
    }
    return record;
}

static const uint64_t whole_segments[] = {0x400000, 0x200000, 0x10000000000};

static void check_buffer(const wire_buffer *record, const wire_buffer *expected) {
    cr_assert_eq(memcmp(record->exporter_id, expected->exporter_id, 16), 0);
    cr_assert_eq(memcmp(record->device_uuid, expected->device_uuid, 16), 0);
    cr_assert_eq(record->buffer_id, expected->buffer_id);
    cr_assert_eq(record->offset, expected->offset);
    cr_assert_eq(record->bytes, expected->bytes);
    cr_assert_eq(record->segment_count, expected->segment_count);
    cr_assert_eq(record->memory, expected->memory);
    cr_assert_eq(record->handle_type, expected->handle_type);
    cr_assert_eq(record->access, expected->access);
    cr_assert_eq(record->ready, expected->ready);
    cr_assert_eq(record->point_index, expected->point_index);
    cr_assert_eq(record->point_value, expected->point_value);
}

Test(wire, frozen_packets_decode_to_their_fields) {
    wire_packet packet;
    check_ok(wire_decode_packet(vector_empty, sizeof(vector_empty), 0, &packet));
    cr_assert_eq(packet.header.number, 0);
    cr_assert_eq(
        packet.header.total_bytes + packet.header.total_buffers + packet.header.total_segments, 0);

    check_ok(wire_decode_packet(vector_whole, sizeof(vector_whole), 3, &packet));
    cr_assert_eq(packet.header.number, whole_header.number);
    cr_assert_eq(packet.header.total_bytes, 5);
    cr_assert_eq(packet.header.total_buffers, 2);
    cr_assert_eq(packet.header.total_segments, 3);
    cr_assert_eq(packet.header.bytes, 5);
    cr_assert_eq(packet.header.buffers, 2);
    cr_assert_eq(packet.header.segments, 3);
    cr_assert_eq(memcmp(packet.bytes, "hello", 5), 0);
    for (uint32_t i = 0; i < 2; i++) {
        const wire_buffer expected = whole_buffer(i);
        wire_buffer record;
        check_ok(wire_decode_buffer(&packet, i, &record));
        check_buffer(&record, &expected);
    }
    for (uint32_t i = 0; i < 3; i++) {
        segment_record record;
        check_ok(wire_decode_segment(&packet, i, &record));
        cr_assert_eq(record.bytes, whole_segments[i]);
    }

    check_ok(wire_decode_packet(vector_part, sizeof(vector_part), 2, &packet));
    cr_assert_eq(packet.header.number, 3);
    cr_assert_eq(packet.header.total_bytes, 65536);
    cr_assert_eq(packet.header.total_segments, 300);
    cr_assert_eq(packet.header.bytes, 0);
    segment_record record;
    check_ok(wire_decode_segment(&packet, 1, &record));
    cr_assert_eq(record.bytes, 0x1FE00000);
}

Test(wire, fields_encode_to_the_frozen_packets) {
    uint8_t made[sizeof(vector_whole)];
    const wire_header empty = {.kind = WIRE_MESSAGE};
    cr_assert_eq(wire_packet_bytes(&empty), sizeof(vector_empty));
    wire_encode_header(&empty, made);
    cr_assert_eq(memcmp(made, vector_empty, sizeof(vector_empty)), 0);

    cr_assert_eq(wire_packet_bytes(&whole_header), sizeof(vector_whole));
    uint8_t *at = made;
    wire_encode_header(&whole_header, at);
    at += WIRE_HEADER_BYTES;
    memcpy(at, "hello", 5);
    at += 5;
    for (unsigned i = 0; i < 2; i++, at += WIRE_BUFFER_BYTES) {
        const wire_buffer record = whole_buffer(i);
        wire_encode_buffer(&record, at);
    }
    for (unsigned i = 0; i < 3; i++, at += WIRE_SEGMENT_BYTES) {
        const segment_record record = {.bytes = whole_segments[i]};
        wire_encode_segment(&record, at);
    }
    cr_assert_eq(memcmp(made, vector_whole, sizeof(vector_whole)), 0);
}

Test(wire, every_field_of_a_record_survives) {
    uint8_t packet[WIRE_HEADER_BYTES + WIRE_BUFFER_BYTES];
    const wire_header header = {.kind = WIRE_MESSAGE, .total_buffers = 1, .buffers = 1};
    wire_buffer sent = whole_buffer(0);
    sent.point_index = 0x0A0B0C0D;
    sent.point_value = UINT64_MAX;
    wire_encode_header(&header, packet);
    wire_encode_buffer(&sent, packet + WIRE_HEADER_BYTES);
    wire_packet decoded;
    wire_buffer came;
    check_ok(wire_decode_packet(packet, sizeof(packet), 0, &decoded));
    check_ok(wire_decode_buffer(&decoded, 0, &came));
    check_buffer(&came, &sent);
}

Test(wire, every_field_of_a_segment_survives) {
    uint8_t packet[WIRE_HEADER_BYTES + WIRE_SEGMENT_BYTES];
    const wire_header header = {.kind = WIRE_CONTENTS, .total_segments = 1, .segments = 1};
    segment_record sent = {
        .bytes = UINT64_MAX, .naming = SEGMENT_NAMED_BY_NAME, .group = 0x01020304};
    for (uint8_t i = 0; i < SEGMENT_NAME_BYTES; i++) {
        sent.name[i] = (uint8_t)(i + 1);
    }
    wire_encode_header(&header, packet);
    wire_encode_segment(&sent, packet + WIRE_HEADER_BYTES);
    wire_packet decoded;
    segment_record came;
    check_ok(wire_decode_packet(packet, sizeof(packet), 0, &decoded));
    cr_assert_eq(decoded.header.kind, WIRE_CONTENTS);
    check_ok(wire_decode_segment(&decoded, 0, &came));
    cr_assert(came.bytes == sent.bytes && came.naming == sent.naming && came.group == sent.group);
    cr_assert_eq(memcmp(came.name, sent.name, sizeof(sent.name)), 0);
}

Test(wire, points_are_one_handle_and_nothing_else) {
    uint8_t packet[WIRE_HEADER_BYTES];
    const wire_header header = {.kind = WIRE_POINTS};
    wire_packet decoded;
    wire_encode_header(&header, packet);
    check_ok(wire_decode_packet(packet, sizeof(packet), 1, &decoded));
    cr_assert_eq(decoded.header.kind, WIRE_POINTS);
    check_is_refused(GPUIPC_ERR_HANDLE_COUNT, packet, sizeof(packet), 0);
    check_is_refused(GPUIPC_ERR_HANDLE_COUNT, packet, sizeof(packet), 2);
    check_change(GPUIPC_ERR_PROTOCOL, packet, sizeof(packet), 1, 16, 1, 8);
    check_change(GPUIPC_ERR_PROTOCOL, packet, sizeof(packet), 1, AT_TOTAL_BYTES, 1, 4);
}

Test(wire, every_truncation_is_refused) {
    for (size_t size = 0; size < sizeof(vector_whole); size++) {
        check_is_refused(GPUIPC_ERR_PROTOCOL, vector_whole, size, 3);
        if (size >= WIRE_HEADER_BYTES) {
            /* also when the length field says so */
            check_change(GPUIPC_ERR_PROTOCOL, vector_whole, size, 3, AT_LENGTH, size, 4);
        }
    }
    for (size_t size = 0; size < sizeof(vector_newer); size++) {
        check_is_refused(GPUIPC_ERR_PROTOCOL, vector_newer, size, 1);
    }
    uint8_t longer[sizeof(vector_whole) + 1] = {0};
    memcpy(longer, vector_whole, sizeof(vector_whole));
    check_is_refused(GPUIPC_ERR_PROTOCOL, longer, sizeof(longer), 3);
    check_change(GPUIPC_ERR_PROTOCOL, longer, sizeof(longer), 3, AT_LENGTH, sizeof(longer), 4);
}

Test(wire, every_wrong_header_field_has_its_status) {
    static const struct {
        gpuipc_status expected;
        size_t at;
        uint64_t value;
        size_t width;
    } rows[] = {
        {GPUIPC_ERR_PROTOCOL, 0, 0x43504948, 4}, /* magic */
        {GPUIPC_ERR_PROTOCOL, 3, 'c', 1},
        {GPUIPC_ERR_VERSION, AT_MAJOR, 0, 2},
        {GPUIPC_ERR_VERSION, AT_MAJOR, 1, 2},
        {GPUIPC_ERR_VERSION, AT_MAJOR, 3, 2},
        {GPUIPC_ERR_VERSION, AT_MAJOR, 0xFFFF, 2},
        {GPUIPC_OK, AT_MINOR, 0xFFFF, 2},
        {GPUIPC_ERR_PROTOCOL, AT_LENGTH, sizeof(vector_whole) - 1, 4},
        {GPUIPC_ERR_PROTOCOL, AT_LENGTH, 0xFFFFFFFF, 4},
        {GPUIPC_ERR_PROTOCOL, AT_KIND, 0, 2},
        {GPUIPC_OK, AT_KIND, 2, 2},           /* contents, laid out alike */
        {GPUIPC_ERR_PROTOCOL, AT_KIND, 3, 2}, /* points carry nothing else */
        {GPUIPC_ERR_PROTOCOL, AT_KIND, 4, 2},
        {GPUIPC_ERR_PROTOCOL, AT_FLAGS, 1, 2},
        {GPUIPC_ERR_PROTOCOL, AT_FLAGS, 0x8000, 2},
        {GPUIPC_ERR_PROTOCOL, AT_TOTAL_BYTES, 4, 4}, /* less than the packet has */
        {GPUIPC_ERR_PROTOCOL, AT_TOTAL_BUFFERS, 1, 4},
        {GPUIPC_ERR_PROTOCOL, AT_TOTAL_SEGMENTS, 2, 4},
        {GPUIPC_OK, AT_TOTAL_BYTES, UINT32_MAX, 4}, /* limits are not the decoder's affair */
        {GPUIPC_ERR_PROTOCOL, AT_BYTES, 4, 4},
        {GPUIPC_ERR_PROTOCOL, AT_BYTES, UINT32_MAX, 4},
        {GPUIPC_ERR_PROTOCOL, AT_BUFFERS, 1, 2},
        {GPUIPC_ERR_PROTOCOL, AT_BUFFERS, 0xFFFF, 2},
        {GPUIPC_ERR_PROTOCOL, AT_SEGMENTS, 2, 2},
        {GPUIPC_ERR_PROTOCOL, AT_SEGMENTS, 0xFFFF, 2},
        {GPUIPC_ERR_PROTOCOL, AT_BUFFER_RECORD, WIRE_BUFFER_BYTES - 1, 2},
        {GPUIPC_ERR_PROTOCOL, AT_BUFFER_RECORD, 0, 2},
        {GPUIPC_ERR_PROTOCOL, AT_BUFFER_RECORD, WIRE_BUFFER_BYTES + 1, 2},
        {GPUIPC_ERR_PROTOCOL, AT_BUFFER_RECORD, 0xFFFF, 2},
        {GPUIPC_ERR_PROTOCOL, AT_SEGMENT_RECORD, WIRE_SEGMENT_BYTES - 1, 2},
        {GPUIPC_ERR_PROTOCOL, AT_SEGMENT_RECORD, 0, 2},
        {GPUIPC_ERR_PROTOCOL, AT_SEGMENT_RECORD, 0xFFFF, 2},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_change(rows[i].expected, vector_whole, sizeof(vector_whole), 3, rows[i].at,
                     rows[i].value, rows[i].width);
    }
}

Test(wire, a_peer_of_version_1_is_refused_with_both_versions) {
    wire_packet packet;
    check_refused(GPUIPC_ERR_VERSION, "protocol version 1.1, this side 2.0",
                  wire_decode_packet(vector_version_1, sizeof(vector_version_1), 0, &packet));
    check_refused(GPUIPC_ERR_VERSION, "protocol version 1.1, this side 2.0",
                  wire_decode_packet(vector_version_1, 8, 0, &packet)); /* of what it has else */
}

Test(wire, handles_must_be_as_many_as_segments) {
    static const size_t wrong[] = {0, 1, 2, 4, 253, SIZE_MAX};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        check_is_refused(GPUIPC_ERR_HANDLE_COUNT, vector_whole, sizeof(vector_whole), wrong[i]);
    }
    check_is_refused(GPUIPC_ERR_HANDLE_COUNT, vector_empty, sizeof(vector_empty), 1);
}

/* Counts whose products a careless decoder would let overflow, in a packet whose length agrees with
 * the lowest 32 bits of the sum. */
Test(wire, counts_that_overflow_are_refused) {
    for (unsigned records = 0; records < 2; records++) {
        uint8_t packet[WIRE_HEADER_BYTES];
        memcpy(packet, vector_empty, sizeof(packet));
        put(packet + AT_TOTAL_BYTES, UINT32_MAX, 4);
        put(packet + AT_TOTAL_BUFFERS, UINT32_MAX, 4);
        put(packet + AT_TOTAL_SEGMENTS, UINT32_MAX, 4);
        put(packet + AT_BUFFERS, 0xFFFF, 2);
        put(packet + AT_SEGMENTS, 0xFFFF, 2);
        if (records == 1) {
            put(packet + AT_BUFFER_RECORD, 0xFFFF, 2);
            put(packet + AT_SEGMENT_RECORD, 0xFFFF, 2);
        }
        uint32_t product = records == 1 ? 2u * 0xFFFFu * 0xFFFFu
                                        : 0xFFFFu * (WIRE_BUFFER_BYTES + WIRE_SEGMENT_BYTES);
        put(packet + AT_BYTES, 0u - product, 4);
        check_is_refused(GPUIPC_ERR_PROTOCOL, packet, sizeof(packet), 0xFFFF);
    }
}

Test(wire, longer_records_of_a_newer_minor_are_read) {
    wire_packet packet;
    check_ok(wire_decode_packet(vector_newer, sizeof(vector_newer), 1, &packet));
    cr_assert_eq(packet.buffer_record_bytes, 104);
    cr_assert_eq(packet.segment_record_bytes, 88);
    cr_assert_eq(memcmp(packet.bytes, "ok", 2), 0);
    wire_buffer buffer;
    check_ok(wire_decode_buffer(&packet, 0, &buffer));
    cr_assert_eq(buffer.buffer_id, 1);
    cr_assert_eq(buffer.bytes, 0x200000);
    segment_record segment;
    check_ok(wire_decode_segment(&packet, 0, &segment));
    cr_assert_eq(segment.bytes, 0x200000);
}

/* Positions in a buffer record, and the one record that is changed. */
enum {
    FIRST_BUFFER = WIRE_HEADER_BYTES + 5,
    FIRST_SEGMENT = FIRST_BUFFER + 2 * WIRE_BUFFER_BYTES
};

Test(wire, every_wrong_record_field_has_its_status) {
    static const struct {
        gpuipc_status expected;
        size_t at;
        uint64_t value;
        size_t width;
    } rows[] = {
        {GPUIPC_OK, FIRST_BUFFER + 24, UINT64_MAX, 8}, /* for later versions: not looked at */
        {GPUIPC_ERR_PROTOCOL, FIRST_BUFFER + 48, UINT64_MAX, 8}, /* offset + size beyond 64 bits */
        {GPUIPC_ERR_PROTOCOL, FIRST_BUFFER + 48, UINT64_MAX - 0x5FF000 + 1, 8},
        {GPUIPC_OK, FIRST_BUFFER + 48, UINT64_MAX - 0x5FF000, 8},
        {GPUIPC_ERR_PROTOCOL, FIRST_BUFFER + 56, 0, 8},
        {GPUIPC_ERR_PROTOCOL, FIRST_BUFFER + 56, UINT64_MAX, 8},
        {GPUIPC_ERR_PROTOCOL, FIRST_BUFFER + 64, 0, 4}, /* no segments */
        {GPUIPC_ERR_VERSION, FIRST_BUFFER + 68, 0, 2},  /* memory */
        {GPUIPC_OK, FIRST_BUFFER + 68, 5, 2},
        {GPUIPC_ERR_VERSION, FIRST_BUFFER + 68, 6, 2},
        {GPUIPC_OK, FIRST_BUFFER + 70, 2, 2},           /* handle type: the message's affair */
        {GPUIPC_ERR_PROTOCOL, FIRST_BUFFER + 72, 0, 2}, /* access */
        {GPUIPC_ERR_PROTOCOL, FIRST_BUFFER + 72, 2, 2},
        {GPUIPC_ERR_PROTOCOL, FIRST_BUFFER + 72, 4, 2},
        {GPUIPC_ERR_PROTOCOL, FIRST_BUFFER + 72, 0x0103, 2},
        {GPUIPC_ERR_PROTOCOL, FIRST_BUFFER + 74, 1, 2}, /* a ready word, but no point */
        {GPUIPC_ERR_VERSION, FIRST_BUFFER + 74, 2, 2},
        {GPUIPC_ERR_PROTOCOL, FIRST_BUFFER + 88, 1, 8},
        {GPUIPC_ERR_PROTOCOL, FIRST_BUFFER + 95, 1, 1},
        {GPUIPC_ERR_HANDLE_COUNT, FIRST_SEGMENT + 8, 1, 2}, /* by its name alone */
        {GPUIPC_OK, FIRST_SEGMENT + 8, 2, 2},
        {GPUIPC_ERR_PROTOCOL, FIRST_SEGMENT + 8, 3, 2},
        {GPUIPC_ERR_PROTOCOL, FIRST_SEGMENT + 10, 1, 2},
        {GPUIPC_OK, FIRST_SEGMENT + 12, UINT32_MAX, 4}, /* the pool's affair */
        {GPUIPC_OK, FIRST_SEGMENT + 79, 0x80, 1},       /* the last byte of its name */
        {GPUIPC_OK, FIRST_SEGMENT, 0, 8},               /* its size is checked by mapping it */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_change(rows[i].expected, vector_whole, sizeof(vector_whole), 3, rows[i].at,
                     rows[i].value, rows[i].width);
    }
}

Test(wire, a_refused_packet_leaves_the_result_alone) {
    wire_packet packet;
    wire_packet before;
    memset(&packet, 0x5A, sizeof(packet));
    memcpy(&before, &packet, sizeof(packet));
    check_status(GPUIPC_ERR_HANDLE_COUNT,
                 wire_decode_packet(vector_whole, sizeof(vector_whole), 2, &packet));
    check_status(GPUIPC_ERR_PROTOCOL, wire_decode_packet(vector_whole, 47, 2, &packet));
    cr_assert_eq(memcmp(&packet, &before, sizeof(packet)), 0);
}

/* Every single byte changed to every value: refused, or decoded without a look outside. What is
 * decoded is the packet as it came, so what cannot change it must not be refused. */
Test(wire, every_changed_byte_is_refused_or_harmless) {
    static const struct {
        const uint8_t *packet;
        size_t size;
        size_t handles;
    } rows[] = {
        {vector_empty, sizeof(vector_empty), 0},
        {vector_whole, sizeof(vector_whole), 3},
        {vector_part, sizeof(vector_part), 2},
        {vector_newer, sizeof(vector_newer), 1},
    };
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        uint8_t *copy = copy_of(rows[row].packet, rows[row].size);
        size_t refused = 0;
        for (size_t at = 0; at < rows[row].size; at++) {
            for (unsigned change = 1; change < 256; change++) {
                copy[at] = (uint8_t)(rows[row].packet[at] ^ change);
                gpuipc_status status = decode_all(copy, rows[row].size, rows[row].handles);
                cr_assert(status == GPUIPC_OK || status == GPUIPC_ERR_PROTOCOL ||
                              status == GPUIPC_ERR_VERSION || status == GPUIPC_ERR_HANDLE_COUNT,
                          "byte %zu changed by %02x: %s", at, change, gpuipc_status_name(status));
                refused += status != GPUIPC_OK;
            }
            copy[at] = rows[row].packet[at];
        }
        cr_assert(refused > 4 * 255, "%zu", refused); /* the magic at the least */
        check_ok(decode_all(copy, rows[row].size, rows[row].handles));
        free(copy);
    }
}

/* SPDX-License-Identifier: MIT */
/** @file Packets that come cut, long, early, late, twice or in the wrong order, and sizes that no memory has. */
#include <string.h>

#include "hostile.h"
#include "os.h"

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* ---- one packet ------------------------------------------------------------------------------ */

/* Every length below its own, one a round. */
static void truncated(hostile_peer *self) {
    hostile_send_bytes(self, self->packet.bytes, self->round % sizeof(self->packet.bytes), 1);
}

static void one_byte_more(hostile_peer *self) {
    uint8_t bytes[sizeof(self->packet.bytes) + 1] = {0};
    memcpy(bytes, self->packet.bytes, sizeof(self->packet.bytes));
    hostile_send_bytes(self, bytes, sizeof(bytes), 1);
}

static void more_than_a_packet(hostile_peer *self) {
    static uint8_t bytes[OS_PACKET_BYTES_MAX + 1];
    memcpy(bytes, self->packet.bytes, sizeof(self->packet.bytes));
    hostile_send_bytes(self, bytes, sizeof(bytes), 1);
}

static void of_another_program(hostile_peer *self) {
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    hostile_send_bytes(self, request, sizeof(request) - 1, 0);
}

/* A header alone, and so many handles. */
static void send_header(hostile_peer *self, const wire_header *header, size_t handles) {
    uint8_t bytes[WIRE_HEADER_BYTES];
    wire_encode_header(header, bytes);
    hostile_send_bytes(self, bytes, sizeof(bytes), handles);
}

static void carries_nothing(hostile_peer *self) {
    send_header(self, &(wire_header){.kind = WIRE_MESSAGE, .total_bytes = 1}, 0);
}

static void handle_with_an_empty_message(hostile_peer *self) {
    send_header(self, &(wire_header){.kind = WIRE_MESSAGE}, 1);
}

/* Which two handles fit into what is reserved for one: CMSG_SPACE of one descriptor is that of two (cmsg(3)). */
static void two_handles_with_bytes_alone(hostile_peer *self) {
    const wire_header header = {.kind = WIRE_MESSAGE, .total_bytes = 3, .bytes = 3};
    uint8_t bytes[WIRE_HEADER_BYTES + 3] = {0};
    wire_encode_header(&header, bytes);
    raw_packet_repeat_handle(&self->packet, 2);
    hostile_send_bytes(self, bytes, sizeof(bytes), 2);
}

static void request_at_a_connection(hostile_peer *self) {
    const wire_header header = {.kind = WIRE_REQUEST, .total_bytes = 4, .bytes = 4};
    uint8_t bytes[WIRE_HEADER_BYTES + 4] = {0};
    wire_encode_header(&header, bytes);
    hostile_send_bytes(self, bytes, sizeof(bytes), 0);
}

static void reply_at_a_connection(hostile_peer *self) {
    const wire_header header = {.kind = WIRE_REPLY, .total_bytes = 8, .bytes = 8};
    uint8_t bytes[WIRE_HEADER_BYTES + 8] = {0};
    wire_encode_header(&header, bytes);
    hostile_send_bytes(self, bytes, sizeof(bytes), 0);
}

/* ---- two and more ---------------------------------------------------------------------------- */

/* The first half of a message that brings the buffer twice. */
static void send_half(hostile_peer *self) {
    self->packet.header.total_bytes *= 2;
    self->packet.header.total_buffers = 2;
    self->packet.header.total_segments = 2;
    hostile_send(self);
}

static void next_message_inside_one(hostile_peer *self) {
    send_half(self);
    self->packet.header.number++;
    hostile_send(self);
}

static void other_totals(hostile_peer *self) {
    send_half(self);
    self->packet.header.total_segments = 3;
    hostile_send(self);
}

static void both_of_one_segment(hostile_peer *self) {
    send_half(self);
    self->packet.buffer.segment_count = 2;
    hostile_send(self);
}

static void second_carries_nothing(hostile_peer *self) {
    send_half(self);
    wire_header header = self->packet.header;
    header.bytes = 0;
    header.buffers = 0;
    header.segments = 0;
    send_header(self, &header, 0);
}

static void second_is_of_another_kind(hostile_peer *self) {
    send_half(self);
    self->packet.header.kind = WIRE_CONTENTS;
    hostile_send(self);
}

/* The same bytes once more: the number is over. */
static void replayed(hostile_peer *self) {
    hostile_send(self);
    hostile_send(self);
}

static void second_before_the_first(hostile_peer *self) {
    self->packet.header.number = 1;
    hostile_send(self);
    self->packet.header.number = 0;
    hostile_send(self);
}

/* A packet of the bytes, which ought to have none, has the handle that the next one names. */
static void handle_comes_early(hostile_peer *self) {
    wire_header header = self->packet.header;
    uint8_t bytes[WIRE_HEADER_BYTES + sizeof(RAW_PACKET_TEXT) - 1];
    header.buffers = 0;
    header.segments = 0;
    wire_encode_header(&header, bytes);
    memcpy(bytes + WIRE_HEADER_BYTES, RAW_PACKET_TEXT, sizeof(RAW_PACKET_TEXT) - 1);
    hostile_send_bytes(self, bytes, sizeof(bytes), 1);
}

/* The packet names it, and it comes with another one afterwards. */
static void handle_comes_late(hostile_peer *self) {
    self->packet.header.total_bytes *= 2;
    raw_packet_encode(&self->packet);
    hostile_send_bytes(self, self->packet.bytes, sizeof(self->packet.bytes), 0);
}

/* A segment whose buffer's record would be in the next packet. */
static void segment_before_its_buffer(hostile_peer *self) {
    wire_header header = self->packet.header;
    uint8_t bytes[WIRE_HEADER_BYTES + WIRE_SEGMENT_BYTES];
    header.bytes = 0;
    header.buffers = 0;
    wire_encode_header(&header, bytes);
    wire_encode_segment(&self->packet.segment, bytes + WIRE_HEADER_BYTES);
    hostile_send_bytes(self, bytes, sizeof(bytes), 1);
}

/* Not bad at all: a later minor version may have longer records, whose ends this one passes over. */
static void of_a_later_minor_version(hostile_peer *self) {
    enum {
        MORE = 8
    };
    uint8_t bytes[RAW_END + 2 * MORE] = {0};
    memcpy(bytes, self->packet.bytes, RAW_SEGMENT);
    memcpy(bytes + RAW_SEGMENT + MORE, self->packet.bytes + RAW_SEGMENT, WIRE_SEGMENT_BYTES);
    memset(bytes + RAW_SEGMENT, 0xAB, MORE);
    bytes[RAW_MAJOR + 2] = 1;
    bytes[RAW_LENGTH] = sizeof(bytes) & 0xFF;
    bytes[RAW_LENGTH + 1] = sizeof(bytes) >> 8;
    bytes[RAW_BUFFER_RECORD] = WIRE_BUFFER_BYTES + MORE;
    bytes[RAW_SEGMENT_RECORD] = WIRE_SEGMENT_BYTES + MORE;
    hostile_send_bytes(self, bytes, sizeof(bytes), 1);
}

static const hostile_case order[] = {
    {.name = "cut at every length",
     .rule = "Packet: length must be what came",
     .expected = GPUIPC_ERR_PROTOCOL,
     .act = truncated,
     .variants = RAW_END},
    HOSTILE_CASE("one byte too many", "Packet: length must be what came", PROTOCOL, one_byte_more),
    HOSTILE_CASE("131,073 bytes", "Ground rules: a packet has at most 131,072", PROTOCOL,
                 more_than_a_packet),
    HOSTILE_CASE("an HTTP request", "Packet: the magic", PROTOCOL, of_another_program),
    HOSTILE_CASE("a packet that carries nothing", "Packet: only that of an empty message", PROTOCOL,
                 carries_nothing),
    HOSTILE_CASE("a handle with an empty message", "Packet: as many handles as the segments name",
                 HANDLE_COUNT, handle_with_an_empty_message),
    HOSTILE_CASE("two handles where none is named", "Packet: as many handles as the segments name",
                 HANDLE_COUNT, two_handles_with_bytes_alone),
    HOSTILE_CASE("a request", "Requests: on other connections none comes", PROTOCOL,
                 request_at_a_connection),
    HOSTILE_CASE("a reply", "Requests: on other connections none comes", PROTOCOL,
                 reply_at_a_connection),
    HOSTILE_CASE("a message inside another", "Ground rules: messages do not interleave", PROTOCOL,
                 next_message_inside_one),
    HOSTILE_CASE("totals that change", "Ground rules: messages do not interleave", PROTOCOL,
                 other_totals),
    HOSTILE_CASE("two buffers with three segments of two", "Packet: total segments is the sum",
                 PROTOCOL, both_of_one_segment),
    HOSTILE_CASE("a second packet that carries nothing", "Packet: only that of an empty message",
                 PROTOCOL, second_carries_nothing),
    HOSTILE_CASE("a message that becomes contents", "Ground rules: messages do not interleave",
                 PROTOCOL, second_is_of_another_kind),
    HOSTILE_CASE("the second message first", "Packet: message number is the next", PROTOCOL,
                 second_before_the_first),
    HOSTILE_CASE("a handle one packet early", "Packet: as many handles as the segments name",
                 HANDLE_COUNT, handle_comes_early),
    HOSTILE_CASE("a handle one packet late", "Packet: as many handles as the segments name",
                 HANDLE_COUNT, handle_comes_late),
    HOSTILE_CASE("a segment before its buffer",
                 "Segment record: never before the record of its buffer", PROTOCOL,
                 segment_before_its_buffer),
    {.name = "longer records, of a later minor version",
     .rule = "none: a later minor version may append fields",
     .expected = GPUIPC_ERR_TIMEOUT,
     .end = HOSTILE_WAITS,
     .act = of_a_later_minor_version,
     .first_is_good = true},
    {.name = "a message twice",
     .rule = "Packet: message number is the next",
     .expected = GPUIPC_ERR_PROTOCOL,
     .act = replayed,
     .first_is_good = true}};

const hostile_cases hostile_packet_order = {order, COUNT(order)};

/* ---- sizes ----------------------------------------------------------------------------------- */

static const uint64_t large_sizes[] = {UINT64_C(1) << 31,
                                       UINT32_MAX,
                                       UINT64_C(1) << 32,
                                       UINT64_C(1) << 62,
                                       UINT64_C(1) << 63,
                                       UINT64_MAX - MEBIBYTES_2 + 1,
                                       UINT64_MAX,
                                       0,
                                       1,
                                       4096,
                                       MEBIBYTES_2 - 1,
                                       MEBIBYTES_2 + 1,
                                       2 * MEBIBYTES_2,
                                       MEBIBYTES_2 << 8};

static void segment_of_another_size(hostile_peer *self) {
    self->packet.segment.bytes = large_sizes[self->round % COUNT(large_sizes)];
    self->packet.buffer.bytes = 1;
    hostile_send(self);
}

/* Of the range; those of them that fit into the memory are none. */
static void range_of_another_size(hostile_peer *self) {
    static const uint64_t sizes[] = {UINT64_C(1) << 31, UINT32_MAX, UINT64_C(1) << 63, UINT64_MAX,
                                     MEBIBYTES_2 + 1};
    self->packet.buffer.bytes = sizes[self->round % COUNT(sizes)];
    hostile_send(self);
}

static void range_beyond_the_memory(hostile_peer *self) {
    static const struct {
        uint64_t offset;
        uint64_t bytes;
    } ranges[] = {{1, MEBIBYTES_2},    {MEBIBYTES_2, 1},       {MEBIBYTES_2 - 1, 2},
                  {UINT64_MAX - 1, 1}, {UINT64_C(1) << 63, 1}, {UINT32_MAX, UINT32_MAX},
                  {1, UINT64_MAX - 1}};
    self->packet.buffer.offset = ranges[self->round % COUNT(ranges)].offset;
    self->packet.buffer.bytes = ranges[self->round % COUNT(ranges)].bytes;
    hostile_send(self);
}

static void range_that_wraps(hostile_peer *self) {
    static const struct {
        uint64_t offset;
        uint64_t bytes;
    } ranges[] = {{UINT64_MAX, 1},
                  {1, UINT64_MAX},
                  {UINT64_C(1) << 63, UINT64_C(1) << 63},
                  {UINT64_MAX, UINT64_MAX},
                  {UINT64_MAX - MEBIBYTES_2 + 1, MEBIBYTES_2}};
    self->packet.buffer.offset = ranges[self->round % COUNT(ranges)].offset;
    self->packet.buffer.bytes = ranges[self->round % COUNT(ranges)].bytes;
    hostile_send(self);
}

/* A number in the packet that is of 32 bits, as it is encoded. */
static void put_32(hostile_peer *self, size_t at) {
    static const uint32_t values[] = {UINT32_C(1) << 31, UINT32_MAX, UINT32_MAX - 47};
    const uint32_t value = values[self->round % COUNT(values)];
    for (unsigned i = 0; i < 4; i++) {
        self->packet.bytes[at + i] = (uint8_t)(value >> (8 * i));
    }
    hostile_send_bytes(self, self->packet.bytes, sizeof(self->packet.bytes), 1);
}

static void length_of_2_31(hostile_peer *self) {
    put_32(self, RAW_LENGTH);
}
static void total_bytes_of_2_31(hostile_peer *self) {
    put_32(self, RAW_TOTAL_BYTES);
}
static void total_buffers_of_2_31(hostile_peer *self) {
    put_32(self, RAW_TOTAL_BYTES + 4);
}
static void total_segments_of_2_31(hostile_peer *self) {
    put_32(self, RAW_TOTAL_BYTES + 8);
}
static void bytes_of_2_31(hostile_peer *self) {
    put_32(self, RAW_TOTAL_BYTES + 12);
}
static void segments_of_2_31(hostile_peer *self) {
    put_32(self, RAW_BUFFER + 64);
}
static void point_of_2_31(hostile_peer *self) {
    put_32(self, RAW_BUFFER + 76);
}

#define SIZE(called, breaks, answer, what, how, count)                                             \
    {                                                                                              \
        .name = (called), .rule = (breaks), .expected = GPUIPC_ERR_##answer, .end = (what),        \
        .act = (how), .variants = (count)                                                          \
    }

static const hostile_case sizes[] = {
    SIZE("a length of 2^31 and 2^32 - 1", "Packet: length must be what came", PROTOCOL,
         HOSTILE_ENDS, length_of_2_31, 3),
    SIZE("2^31 and 2^32 - 1 bytes in all", "Packet: total bytes at most 1,048,576", LIMIT,
         HOSTILE_ENDS, total_bytes_of_2_31, 3),
    SIZE("2^31 and 2^32 - 1 buffers in all", "Packet: total buffers within the receiver's limit",
         LIMIT, HOSTILE_ENDS, total_buffers_of_2_31, 3),
    SIZE("2^31 and 2^32 - 1 segments in all", "Packet: total segments within the receiver's limit",
         LIMIT, HOSTILE_ENDS, total_segments_of_2_31, 3),
    SIZE("2^31 and 2^32 - 1 bytes in the packet", "Packet: the parts fill it exactly", PROTOCOL,
         HOSTILE_ENDS, bytes_of_2_31, 3),
    SIZE("2^31 and 2^32 - 1 segments of a buffer", "Packet: total segments is the sum", PROTOCOL,
         HOSTILE_ENDS, segments_of_2_31, 3),
    SIZE("points 2^31 and 2^32 - 1", "Points: there are up to 64 pages", PROTOCOL, HOSTILE_ENDS,
         point_of_2_31, 3),
    SIZE("offset + size wraps", "Buffer record: offset + size must not pass 64 bits", PROTOCOL,
         HOSTILE_ENDS, range_that_wraps, 5),
    SIZE("a segment of 2^31, 2^32 - 1, 2^63 bytes and others",
         "Segment record: size of the allocation", SIZE_MISMATCH, HOSTILE_DROPPED,
         segment_of_another_size, COUNT(large_sizes)),
    SIZE("a range of 2^31, 2^32 - 1, 2^63 bytes", "Buffer record: it stays within the segments",
         SIZE_MISMATCH, HOSTILE_DROPPED, range_of_another_size, 5),
    SIZE("a range that begins or ends beyond the memory",
         "Buffer record: it stays within the segments", SIZE_MISMATCH, HOSTILE_DROPPED,
         range_beyond_the_memory, 7)};

const hostile_cases hostile_sizes = {sizes, COUNT(sizes)};

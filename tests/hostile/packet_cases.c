/* SPDX-License-Identifier: MIT */
/** @file Packets of which one byte, or one field, is not as it must be. */
#include "hostile.h"
#include "os.h"

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* clang-format off */
#define BYTE(called, breaks, answer, place, becomes) {.name = (called), .rule = (breaks), .expected = GPUIPC_ERR_##answer, .at = (place), .value = (becomes)}
#define FIELD(called, breaks, answer, how) {.name = (called), .rule = (breaks), .expected = GPUIPC_ERR_##answer, .spoil = (how)}
/* clang-format on */

static const hostile_case bytes[] = {
    BYTE("the first letter of the magic", "Packet: the magic", PROTOCOL, RAW_MAGIC, 'g'),
    BYTE("the last letter of the magic", "Packet: the magic", PROTOCOL, RAW_MAGIC + 3, 0),
    BYTE("a later major version", "Packet: major version", VERSION, RAW_MAJOR, WIRE_MAJOR + 1),
    BYTE("an earlier major version", "Packet: major version", VERSION, RAW_MAJOR, WIRE_MAJOR - 1),
    BYTE("a major version of two bytes", "Packet: major version", VERSION, RAW_MAJOR + 1, 1),
    BYTE("a length that is too short", "Packet: length must be what came", PROTOCOL, RAW_LENGTH,
         (RAW_END - 1) & 0xFF),
    BYTE("a length that is too long", "Packet: length must be what came", PROTOCOL, RAW_LENGTH + 3,
         0x80),
    BYTE("a page with a message", "Packet: a page has no parts", PROTOCOL, RAW_KIND, 4),
    BYTE("another kind of packet", "Requests: on other connections none comes", PROTOCOL, RAW_KIND,
         5),
    BYTE("a flag", "Packet: flags are 0", PROTOCOL, RAW_FLAGS, 1),
    BYTE("a flag in the upper byte", "Packet: flags are 0", PROTOCOL, RAW_FLAGS + 1, 0x80),
    BYTE("buffer records that are too short", "Packet: buffer record length is at least 96",
         PROTOCOL, RAW_BUFFER_RECORD, WIRE_BUFFER_BYTES - 1),
    BYTE("buffer records longer than the packet", "Packet: the parts fill it exactly", PROTOCOL,
         RAW_BUFFER_RECORD + 1, 0xFF),
    BYTE("segment records that are too short", "Packet: segment record length is at least 80",
         PROTOCOL, RAW_SEGMENT_RECORD, 0),
    BYTE("segment records longer than the packet", "Packet: the parts fill it exactly", PROTOCOL,
         RAW_SEGMENT_RECORD + 1, 0xFF),
    BYTE("a reserved bit of a buffer", "Buffer record: reserved is 0", PROTOCOL,
         RAW_BUFFER_RESERVED, 1),
    BYTE("the last reserved bit of a buffer", "Buffer record: reserved is 0", PROTOCOL,
         RAW_BUFFER_RESERVED + 7, 0x80),
    BYTE("a reserved bit of a segment", "Segment record: reserved is 0", PROTOCOL,
         RAW_SEGMENT_RESERVED, 1),
    BYTE("the last reserved bit of a segment", "Segment record: reserved is 0", PROTOCOL,
         RAW_SEGMENT_RESERVED + 1, 0x80),
    BYTE("a kind that there is not", "Packet: kind is 1 to 7", PROTOCOL, RAW_KIND, 8),
    BYTE("kind 0", "Packet: kind is 1 to 7", PROTOCOL, RAW_KIND, 0),
    BYTE("a kind in the upper byte", "Packet: kind is 1 to 7", PROTOCOL, RAW_KIND + 1, 1),
};

const hostile_cases hostile_packet_bytes = {bytes, COUNT(bytes)};

static void number_of_a_later_message(raw_packet *packet) {
    packet->header.number = 1;
}
static void number_beyond_all(raw_packet *packet) {
    packet->header.number = UINT64_MAX;
}
static void too_many_bytes_in_all(raw_packet *packet) {
    packet->header.total_bytes = GPUIPC_MESSAGE_BYTES_MAX + 1;
}
static void too_many_buffers_in_all(raw_packet *packet) {
    packet->header.total_buffers = HOSTILE_BUFFERS_MAX + 1;
}
static void too_many_segments_in_all(raw_packet *packet) {
    packet->header.total_segments = HOSTILE_HANDLES_MAX + 1;
}
static void everything_at_most(raw_packet *packet) {
    packet->header.total_bytes = UINT32_MAX;
    packet->header.total_buffers = UINT32_MAX;
    packet->header.total_segments = UINT32_MAX;
}
static void more_bytes_than_in_all(raw_packet *packet) {
    packet->header.total_bytes = 1;
}
static void more_buffers_than_in_all(raw_packet *packet) {
    packet->header.total_buffers = 0;
}
static void more_segments_than_in_all(raw_packet *packet) {
    packet->header.total_segments = 0;
}
static void buffer_without_segments(raw_packet *packet) {
    packet->buffer.segment_count = 0;
}
static void buffer_with_more_segments(raw_packet *packet) {
    packet->buffer.segment_count = 2;
}
static void buffer_with_all_segments(raw_packet *packet) {
    packet->buffer.segment_count = UINT32_MAX;
}
static void buffer_of_other_memory(raw_packet *packet) {
    packet->buffer.memory = SEGMENT_MEMORY_FABRIC + 1;
}
static void segment_not_named_as_its_memory(raw_packet *packet) {
    packet->buffer.memory = SEGMENT_MEMORY_LEGACY;
}
static void buffer_with_other_ready_point(raw_packet *packet) {
    packet->buffer.ready = WIRE_READY_WORD + 1;
}
static void buffer_without_access(raw_packet *packet) {
    packet->buffer.access = 0;
}
static void buffer_with_write_access_alone(raw_packet *packet) {
    packet->buffer.access = 2;
}
static void buffer_with_more_access_than_there_is(raw_packet *packet) {
    packet->buffer.access = 7;
}
static void buffer_of_another_system(raw_packet *packet) {
    packet->buffer.handle_type = os_shareable_handle_type == 1 ? 2 : 1;
}
static void buffer_without_bytes(raw_packet *packet) {
    packet->buffer.bytes = 0;
}
static void buffer_beyond_64_bits(raw_packet *packet) {
    packet->buffer.offset = UINT64_MAX;
}
static void no_handle(raw_packet *packet) {
    raw_packet_repeat_handle(packet, 0);
}
static void two_handles(raw_packet *packet) {
    raw_packet_repeat_handle(packet, 2);
}
static void most_handles(raw_packet *packet) {
    raw_packet_repeat_handle(packet, RAW_PACKET_HANDLES_MAX);
}
static void all_handles_but_one(raw_packet *packet) {
    raw_packet_repeat_handle(packet, 16);
}
static void no_segment_named(raw_packet *packet) {
    packet->header.segments = 0;
    packet->header.total_segments = 0;
}
static void named_by_name_with_a_handle(raw_packet *packet) {
    packet->segment.naming = SEGMENT_NAMED_BY_NAME;
}
static void named_in_another_way(raw_packet *packet) {
    packet->segment.naming = SEGMENT_NAMED_BY_BOTH + 1;
}
static void ready_word_without_point(raw_packet *packet) {
    packet->buffer.ready = WIRE_READY_WORD;
}
static void point_without_page(raw_packet *packet) {
    packet->buffer.point_index = 1;
}
static void last_point_there_could_be(raw_packet *packet) {
    packet->buffer.point_index = UINT32_MAX;
}

static const hostile_case fields[] = {
    FIELD("a message is missing", "Packet: message number is the next", PROTOCOL,
          number_of_a_later_message),
    FIELD("the last message number", "Packet: message number is the next", PROTOCOL,
          number_beyond_all),
    FIELD("more bytes than a message has", "Packet: total bytes at most 1,048,576", LIMIT,
          too_many_bytes_in_all),
    FIELD("more buffers than are accepted", "Packet: total buffers within the receiver's limit",
          LIMIT, too_many_buffers_in_all),
    FIELD("more handles than are accepted", "Packet: total segments within the receiver's limit",
          LIMIT, too_many_segments_in_all),
    FIELD("totals of 32 set bits", "Packet: totals within limits", LIMIT, everything_at_most),
    FIELD("more bytes than the total", "Ground rules: until the totals are reached", PROTOCOL,
          more_bytes_than_in_all),
    FIELD("more buffers than the total", "Ground rules: until the totals are reached", PROTOCOL,
          more_buffers_than_in_all),
    FIELD("more segments than the total", "Ground rules: until the totals are reached", PROTOCOL,
          more_segments_than_in_all),
    FIELD("a buffer without segments", "Buffer record: segments is 1 or more", PROTOCOL,
          buffer_without_segments),
    FIELD("a buffer with more segments than came",
          "Packet: total segments is the sum of all segment counts", PROTOCOL,
          buffer_with_more_segments),
    FIELD("a buffer with all segments there could be",
          "Packet: total segments is the sum of all segment counts", PROTOCOL,
          buffer_with_all_segments),
    FIELD("memory of another kind", "Buffer record: memory is 1 to 5", VERSION,
          buffer_of_other_memory),
    FIELD("a segment not named as its memory is", "Segment record: memory 2 is named by 1",
          PROTOCOL, segment_not_named_as_its_memory),
    FIELD("a ready point of another kind", "Buffer record: ready is 0 or 1", VERSION,
          buffer_with_other_ready_point),
    FIELD("no access", "Buffer record: access is 1 or 3", PROTOCOL, buffer_without_access),
    FIELD("write access alone", "Buffer record: access is 1 or 3", PROTOCOL,
          buffer_with_write_access_alone),
    FIELD("more access than there is", "Buffer record: access is 1 or 3", PROTOCOL,
          buffer_with_more_access_than_there_is),
    FIELD("handles of another system", "Buffer record: handle type is the receiver's system's",
          PROTOCOL, buffer_of_another_system),
    FIELD("a buffer without bytes", "Buffer record: size above 0", PROTOCOL, buffer_without_bytes),
    FIELD("a buffer beyond 64 bits", "Buffer record: offset + size must not pass 64 bits", PROTOCOL,
          buffer_beyond_64_bits),
    FIELD("no handle where one is named", "Packet: exactly as many handles as the segments name",
          HANDLE_COUNT, no_handle),
    FIELD("two handles where one is named", "Packet: exactly as many handles as the segments name",
          HANDLE_COUNT, two_handles),
    FIELD("253 handles where one is named", "Packet: exactly as many handles as the segments name",
          HANDLE_COUNT, most_handles),
    FIELD("16 handles where one is named", "Packet: exactly as many handles as the segments name",
          HANDLE_COUNT, all_handles_but_one),
    FIELD("a segment record that no total counts", "Packet: the parts fill it exactly", PROTOCOL,
          no_segment_named),
    FIELD("a handle for a segment that has a name only",
          "Segment record: naming 1, no handle comes", HANDLE_COUNT, named_by_name_with_a_handle),
    FIELD("a naming that there is not", "Segment record: naming is 0 to 2", PROTOCOL,
          named_in_another_way),
    FIELD("a ready word without a point", "Buffer record: point 0 is not with ready 1", PROTOCOL,
          ready_word_without_point),
    FIELD("a point before any page of points",
          "Points: a page comes before the first record that names a point of it", PROTOCOL,
          point_without_page),
    FIELD("point 2^32 - 1", "Points: there are up to 64 pages", PROTOCOL,
          last_point_there_could_be),
};

const hostile_cases hostile_packet_fields = {fields, COUNT(fields)};

/* SPDX-License-Identifier: MIT */
/**
 * @file A peer that does not keep to the wire format (docs/wire-format.md): each packet has a clear
 * answer, ends its own connection and no other, and leaves nothing open.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "check.h"
#include "os.h"
#include "victim.h"

static victim_case in;

static void begin(void) {
    victim_case_begin(&in);
}

static void end(void) {
    victim_case_end(&in);
}

TestSuite(bad_packet, .timeout = 100);

static raw_packet make_packet(void) {
    return victim_case_packet(&in);
}

/* That the packet which the others are spoiled copies of is a good one. */
Test(bad_packet, the_unspoiled_one_is_taken) {
    begin();
    raw_packet packet = make_packet();
    victim one = victim_make(&in);
    cr_assert(raw_packet_send(&packet, one.raw));
    check_ok(victim_receive(&one));
    packet.header.number = 1;
    cr_assert(raw_packet_send(&packet, one.raw));
    check_ok(victim_receive(&one));
    raw_packet_close(&packet);
    victim_close(&one);
    end();
}

/* One byte that is not as it must be. */
typedef struct spoiled_byte {
    const char *what;
    size_t at;
    uint8_t value;
    gpuipc_status expected;
} spoiled_byte;

static const spoiled_byte spoiled_bytes[] = {
    {"the first letter of the magic", RAW_MAGIC, 'g', GPUIPC_ERR_PROTOCOL},
    {"the last letter of the magic", RAW_MAGIC + 3, 0, GPUIPC_ERR_PROTOCOL},
    {"a later major version", RAW_MAJOR, WIRE_MAJOR + 1, GPUIPC_ERR_VERSION},
    {"an earlier major version", RAW_MAJOR, WIRE_MAJOR - 1, GPUIPC_ERR_VERSION},
    {"a major version of two bytes", RAW_MAJOR + 1, 1, GPUIPC_ERR_VERSION},
    {"a length that is too short", RAW_LENGTH, (RAW_END - 1) & 0xFF, GPUIPC_ERR_PROTOCOL},
    {"a length that is too long", RAW_LENGTH + 3, 0x80, GPUIPC_ERR_PROTOCOL},
    {"a page with a message", RAW_KIND, 4, GPUIPC_ERR_PROTOCOL},
    {"another kind of packet", RAW_KIND, 5, GPUIPC_ERR_PROTOCOL},
    {"a flag", RAW_FLAGS, 1, GPUIPC_ERR_PROTOCOL},
    {"a flag in the upper byte", RAW_FLAGS + 1, 0x80, GPUIPC_ERR_PROTOCOL},
    {"buffer records that are too short", RAW_BUFFER_RECORD, WIRE_BUFFER_BYTES - 1,
     GPUIPC_ERR_PROTOCOL},
    {"buffer records longer than the packet", RAW_BUFFER_RECORD + 1, 0xFF, GPUIPC_ERR_PROTOCOL},
    {"segment records that are too short", RAW_SEGMENT_RECORD, 0, GPUIPC_ERR_PROTOCOL},
    {"segment records longer than the packet", RAW_SEGMENT_RECORD + 1, 0xFF, GPUIPC_ERR_PROTOCOL},
    {"a reserved bit of a buffer", RAW_BUFFER_RESERVED, 1, GPUIPC_ERR_PROTOCOL},
    {"the last reserved bit of a buffer", RAW_BUFFER_RESERVED + 7, 0x80, GPUIPC_ERR_PROTOCOL},
    {"a reserved bit of a segment", RAW_SEGMENT_RESERVED, 1, GPUIPC_ERR_PROTOCOL},
    {"the last reserved bit of a segment", RAW_SEGMENT_RESERVED + 1, 0x80, GPUIPC_ERR_PROTOCOL}};

Test(bad_packet, one_byte_is_wrong) {
    begin();
    for (size_t i = 0; i < sizeof(spoiled_bytes) / sizeof(*spoiled_bytes); i++) {
        const spoiled_byte *by = &spoiled_bytes[i];
        raw_packet packet = make_packet();
        victim one = victim_make(&in);
        packet.bytes[by->at] = by->value;
        cr_assert(raw_send(one.raw, packet.bytes, sizeof(packet.bytes), packet.handles, 1));
        victim_expect_end(&one, by->expected, by->what);
        raw_packet_close(&packet);
    }
    end();
}

/* A field that is not as it must be, in a packet that is otherwise whole. */
typedef struct spoiled_field {
    const char *what;
    void (*spoil)(raw_packet *packet);
    gpuipc_status expected;
} spoiled_field;

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
    packet->header.total_buffers = VICTIM_BUFFERS_MAX + 1;
}
static void too_many_segments_in_all(raw_packet *packet) {
    packet->header.total_segments = VICTIM_HANDLES_MAX + 1;
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
    packet->buffer.ready = WIRE_READY_EVENT + 1;
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

static const spoiled_field spoiled_fields[] = {
    {"a message is missing", number_of_a_later_message, GPUIPC_ERR_PROTOCOL},
    {"the last message number", number_beyond_all, GPUIPC_ERR_PROTOCOL},
    {"more bytes than a message has", too_many_bytes_in_all, GPUIPC_ERR_LIMIT},
    {"more buffers than are accepted", too_many_buffers_in_all, GPUIPC_ERR_LIMIT},
    {"more handles than are accepted", too_many_segments_in_all, GPUIPC_ERR_LIMIT},
    {"totals of 32 set bits", everything_at_most, GPUIPC_ERR_LIMIT},
    {"more bytes than the total", more_bytes_than_in_all, GPUIPC_ERR_PROTOCOL},
    {"more buffers than the total", more_buffers_than_in_all, GPUIPC_ERR_PROTOCOL},
    {"more segments than the total", more_segments_than_in_all, GPUIPC_ERR_PROTOCOL},
    {"a buffer without segments", buffer_without_segments, GPUIPC_ERR_PROTOCOL},
    {"a buffer with more segments than came", buffer_with_more_segments, GPUIPC_ERR_PROTOCOL},
    {"a buffer with all segments there could be", buffer_with_all_segments, GPUIPC_ERR_PROTOCOL},
    {"memory of another kind", buffer_of_other_memory, GPUIPC_ERR_VERSION},
    {"a segment not named as its memory is", segment_not_named_as_its_memory, GPUIPC_ERR_PROTOCOL},
    {"a ready point of another kind", buffer_with_other_ready_point, GPUIPC_ERR_VERSION},
    {"no access", buffer_without_access, GPUIPC_ERR_PROTOCOL},
    {"write access alone", buffer_with_write_access_alone, GPUIPC_ERR_PROTOCOL},
    {"more access than there is", buffer_with_more_access_than_there_is, GPUIPC_ERR_PROTOCOL},
    {"handles of another system", buffer_of_another_system, GPUIPC_ERR_PROTOCOL},
    {"a buffer without bytes", buffer_without_bytes, GPUIPC_ERR_PROTOCOL},
    {"a buffer beyond 64 bits", buffer_beyond_64_bits, GPUIPC_ERR_PROTOCOL},
    {"too few handles", no_handle, GPUIPC_ERR_HANDLE_COUNT},
    {"too many handles", two_handles, GPUIPC_ERR_HANDLE_COUNT},
    {"as many handles as a packet can have", most_handles, GPUIPC_ERR_HANDLE_COUNT}};

Test(bad_packet, one_field_is_wrong) {
    begin();
    for (size_t i = 0; i < sizeof(spoiled_fields) / sizeof(*spoiled_fields); i++) {
        raw_packet packet = make_packet();
        victim one = victim_make(&in);
        spoiled_fields[i].spoil(&packet);
        cr_assert(raw_packet_send(&packet, one.raw), "%s", spoiled_fields[i].what);
        victim_expect_end(&one, spoiled_fields[i].expected, spoiled_fields[i].what);
        raw_packet_close(&packet);
    }
    end();
}

Test(bad_packet, truncated_at_every_length) {
    begin();
    raw_packet packet = make_packet();
    for (size_t size = 0; size < sizeof(packet.bytes); size++) {
        char what[64];
        victim one = victim_make(&in);
        (void)snprintf(what, sizeof(what), "the first %zu bytes", size);
        cr_assert(raw_send(one.raw, packet.bytes, size, packet.handles, 1), "%s", what);
        victim_expect_end(&one, GPUIPC_ERR_PROTOCOL, what);
    }
    raw_packet_close(&packet);
    end();
}

Test(bad_packet, longer_than_it_says) {
    begin();
    raw_packet packet = make_packet();
    uint8_t bytes[sizeof(packet.bytes) + 1] = {0};
    victim one = victim_make(&in);
    memcpy(bytes, packet.bytes, sizeof(packet.bytes));
    cr_assert(raw_send(one.raw, bytes, sizeof(bytes), packet.handles, 1));
    victim_expect_end(&one, GPUIPC_ERR_PROTOCOL, "one byte more");
    raw_packet_close(&packet);
    end();
}

Test(bad_packet, oversize) {
    begin();
    static uint8_t bytes[OS_PACKET_BYTES_MAX + 1];
    raw_packet packet = make_packet();
    victim one = victim_make(&in);
    memcpy(bytes, packet.bytes, sizeof(packet.bytes));
    cr_assert(raw_send(one.raw, bytes, sizeof(bytes), packet.handles, 1));
    victim_expect_end(&one, GPUIPC_ERR_PROTOCOL, "more bytes than a packet may have");
    raw_packet_close(&packet);
    end();
}

/* A packet that says that its message goes on, and then one that does not fit to it. */
static void second_packet(void (*spoil)(raw_packet *packet), const char *what) {
    raw_packet packet = make_packet();
    victim one = victim_make(&in);
    packet.header.total_bytes *= 2;
    packet.header.total_buffers = 2;
    packet.header.total_segments = 2;
    cr_assert(raw_packet_send(&packet, one.raw));
    spoil(&packet);
    cr_assert(raw_packet_send(&packet, one.raw));
    victim_expect_end(&one, GPUIPC_ERR_PROTOCOL, what);
    raw_packet_close(&packet);
}

static void next_message(raw_packet *packet) {
    packet->header.number++;
}
static void other_totals(raw_packet *packet) {
    packet->header.total_segments = 3;
}
/* The segments of the message are one more than its buffers use. */
static void both_of_one_segment(raw_packet *packet) {
    packet->buffer.segment_count = 2;
}

Test(bad_packet, the_second_does_not_fit_to_the_first) {
    begin();
    second_packet(next_message, "a packet of the next message");
    second_packet(other_totals, "other totals");
    second_packet(both_of_one_segment, "buffers that use more segments than there are");
    end();
}

Test(bad_packet, carries_nothing) {
    begin();
    raw_packet packet = make_packet();
    uint8_t bytes[WIRE_HEADER_BYTES];
    wire_header header = {.kind = WIRE_MESSAGE, .total_bytes = 1};
    victim one = victim_make(&in);
    wire_encode_header(&header, bytes);
    cr_assert(raw_send(one.raw, bytes, sizeof(bytes), NULL, 0));
    victim_expect_end(&one, GPUIPC_ERR_PROTOCOL, "the first packet carries nothing");

    one = victim_make(&in);
    packet.header.total_bytes *= 2;
    cr_assert(raw_packet_send(&packet, one.raw));
    header = packet.header;
    header.bytes = 0;
    header.buffers = 0;
    header.segments = 0;
    wire_encode_header(&header, bytes);
    cr_assert(raw_send(one.raw, bytes, sizeof(bytes), NULL, 0));
    victim_expect_end(&one, GPUIPC_ERR_PROTOCOL, "the second packet carries nothing");
    raw_packet_close(&packet);
    end();
}

/* Not a packet of ours at all. */
Test(bad_packet, of_another_program) {
    begin();
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    victim one = victim_make(&in);
    cr_assert(raw_send(one.raw, request, sizeof(request) - 1, NULL, 0));
    victim_expect_end(&one, GPUIPC_ERR_PROTOCOL, "an HTTP request");
    end();
}

/* A later minor version may have longer records, whose ends this one passes over. */
Test(bad_packet, not_bad_but_of_a_later_minor_version) {
    begin();
    enum {
        MORE = 8
    };
    raw_packet packet = make_packet();
    uint8_t bytes[RAW_END + 2 * MORE] = {0};
    victim one = victim_make(&in);
    memcpy(bytes, packet.bytes, RAW_SEGMENT);
    memcpy(bytes + RAW_SEGMENT + MORE, packet.bytes + RAW_SEGMENT, WIRE_SEGMENT_BYTES);
    memset(bytes + RAW_SEGMENT, 0xAB, MORE);
    bytes[RAW_MAJOR + 2] = 1;
    bytes[RAW_LENGTH] = sizeof(bytes) & 0xFF;
    bytes[RAW_LENGTH + 1] = sizeof(bytes) >> 8;
    bytes[RAW_BUFFER_RECORD] = WIRE_BUFFER_BYTES + MORE;
    bytes[RAW_SEGMENT_RECORD] = WIRE_SEGMENT_BYTES + MORE;
    cr_assert(raw_send(one.raw, bytes, sizeof(bytes), packet.handles, 1));
    check_ok(victim_receive(&one));
    victim_close(&one);
    raw_packet_close(&packet);
    end();
}

/* SPDX-License-Identifier: MIT */
/**
 * @file A peer that does not keep to the wire format (docs/wire-format.md): each packet has a clear
 * answer, ends its own connection and no other, and leaves nothing open.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "check.h"
#include "marks.h"
#include "posix_system.h"
#include "process_case.h"
#include "raw_packet.h"
#include "raw_socket.h"

#define MAX_BUFFERS 20u
#define MAX_HANDLES 300u

static process_case at;
static gpuipc_buffer *buffer;
/* Another conversation of the same process, which must not notice any of it. */
static gpuipc_connection *bystander_near;
static gpuipc_connection *bystander_far;

static void begin(void) {
    gpuipc_context_config config = {.struct_size = sizeof(config),
                                    .max_buffers_per_message = MAX_BUFFERS,
                                    .max_handles_per_message = MAX_HANDLES};
    process_case_begin(&at, &config);
    process_case_connect(&at, &bystander_near, &bystander_far);
    buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
}

static void end(void) {
    gpuipc_buffer *opened;
    size_t count = 1;
    check_ok(process_case_send(bystander_near, &buffer, 1, 5));
    check_ok(process_case_receive(bystander_far, &opened, &count, NULL, PATIENCE_MS));
    check_ok(marks_check(opened, 1, 0));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(bystander_near));
    check_ok(gpuipc_connection_close(bystander_far));
    process_case_end(&at);
}

TestSuite(bad_packet, .timeout = 100);

/* A peer that is not gpuipc, and this process's end of the conversation with it. */
typedef struct victim {
    int raw;
    gpuipc_connection *connection;
} victim;

static victim victim_make(void) {
    victim self = {.raw = raw_connect(at.directory, at.name)};
    cr_assert_geq(self.raw, 0);
    self.connection = process_case_accept(&at);
    return self;
}

static gpuipc_status victim_receive(const victim *self) {
    gpuipc_buffer *opened[MAX_BUFFERS];
    size_t count = MAX_BUFFERS;
    gpuipc_status status =
        process_case_receive(self->connection, opened, &count, NULL, PATIENCE_MS);
    for (size_t i = 0; status == GPUIPC_OK && i < count; i++) {
        check_ok(gpuipc_buffer_release(opened[i]));
    }
    return status;
}

/* The connection is at its end, for both sides. */
static void victim_expect_end(victim *self, gpuipc_status expected, const char *what) {
    gpuipc_status status = victim_receive(self);
    cr_assert_eq(status, expected, "%s: %s, not %s", what, gpuipc_status_name(status),
                 gpuipc_status_name(expected));
    cr_assert_eq(gpuipc_error_get()->status, expected, "%s", what);
    cr_assert_str_not_empty(gpuipc_error_get()->sentence, "%s", what);
    status = victim_receive(self);
    cr_assert_eq(status, GPUIPC_ERR_CONNECTION_BROKEN, "%s, afterwards: %s", what,
                 gpuipc_status_name(status));
    cr_assert(raw_sees_end(self->raw, PATIENCE_MS), "%s", what);
    check_ok(gpuipc_connection_close(self->connection));
    raw_close(self->raw);
}

static raw_packet make_packet(void) {
    raw_packet packet;
    cr_assert(raw_packet_make(buffer, &packet));
    return packet;
}

/* That the packet which the others are spoiled copies of is a good one. */
Test(bad_packet, the_unspoiled_one_is_taken) {
    begin();
    raw_packet packet = make_packet();
    victim one = victim_make();
    cr_assert(raw_packet_send(&packet, one.raw));
    check_ok(victim_receive(&one));
    packet.header.number = 1;
    cr_assert(raw_packet_send(&packet, one.raw));
    check_ok(victim_receive(&one));
    raw_packet_close(&packet);
    check_ok(gpuipc_connection_close(one.connection));
    raw_close(one.raw);
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
    {"a length that is too short", RAW_LENGTH, RAW_END - 1, GPUIPC_ERR_PROTOCOL},
    {"a length that is too long", RAW_LENGTH + 3, 0x80, GPUIPC_ERR_PROTOCOL},
    {"another kind of packet", RAW_KIND, 2, GPUIPC_ERR_PROTOCOL},
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
    {"the last reserved bit of a segment", RAW_SEGMENT_RESERVED + 7, 0x80, GPUIPC_ERR_PROTOCOL}};

Test(bad_packet, one_byte_is_wrong) {
    begin();
    for (size_t i = 0; i < sizeof(spoiled_bytes) / sizeof(*spoiled_bytes); i++) {
        const spoiled_byte *by = &spoiled_bytes[i];
        raw_packet packet = make_packet();
        victim one = victim_make();
        packet.bytes[by->at] = by->value;
        cr_assert(raw_send(one.raw, packet.bytes, sizeof(packet.bytes), packet.fds, 1));
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
    packet->header.total_buffers = MAX_BUFFERS + 1;
}
static void too_many_segments_in_all(raw_packet *packet) {
    packet->header.total_segments = MAX_HANDLES + 1;
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
    packet->buffer.memory = 2;
}
static void buffer_with_other_ready_point(raw_packet *packet) {
    packet->buffer.ready = 1;
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
    packet->buffer.handle_type = 2;
}
static void buffer_without_bytes(raw_packet *packet) {
    packet->buffer.bytes = 0;
}
static void buffer_beyond_64_bits(raw_packet *packet) {
    packet->buffer.offset = UINT64_MAX;
}
static void no_handle(raw_packet *packet) {
    raw_packet_repeat_fd(packet, 0);
}
static void two_handles(raw_packet *packet) {
    raw_packet_repeat_fd(packet, 2);
}
static void most_handles(raw_packet *packet) {
    raw_packet_repeat_fd(packet, RAW_PACKET_FDS_MAX);
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
        victim one = victim_make();
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
        victim one = victim_make();
        (void)snprintf(what, sizeof(what), "the first %zu bytes", size);
        cr_assert(raw_send(one.raw, packet.bytes, size, packet.fds, 1), "%s", what);
        victim_expect_end(&one, GPUIPC_ERR_PROTOCOL, what);
    }
    raw_packet_close(&packet);
    end();
}

Test(bad_packet, longer_than_it_says) {
    begin();
    raw_packet packet = make_packet();
    uint8_t bytes[sizeof(packet.bytes) + 1] = {0};
    victim one = victim_make();
    memcpy(bytes, packet.bytes, sizeof(packet.bytes));
    cr_assert(raw_send(one.raw, bytes, sizeof(bytes), packet.fds, 1));
    victim_expect_end(&one, GPUIPC_ERR_PROTOCOL, "one byte more");
    raw_packet_close(&packet);
    end();
}

Test(bad_packet, oversize) {
    begin();
    static uint8_t bytes[OS_PACKET_BYTES_MAX + 1];
    raw_packet packet = make_packet();
    victim one = victim_make();
    memcpy(bytes, packet.bytes, sizeof(packet.bytes));
    cr_assert(raw_send(one.raw, bytes, sizeof(bytes), packet.fds, 1));
    victim_expect_end(&one, GPUIPC_ERR_PROTOCOL, "more bytes than a packet may have");
    raw_packet_close(&packet);
    end();
}

/* A packet that says that its message goes on, and then one that does not fit to it. */
static void second_packet(void (*spoil)(raw_packet *packet), const char *what) {
    raw_packet packet = make_packet();
    victim one = victim_make();
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
    wire_header header = {.total_bytes = 1};
    victim one = victim_make();
    wire_encode_header(&header, bytes);
    cr_assert(raw_send(one.raw, bytes, sizeof(bytes), NULL, 0));
    victim_expect_end(&one, GPUIPC_ERR_PROTOCOL, "the first packet carries nothing");

    one = victim_make();
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
    victim one = victim_make();
    cr_assert(raw_send(one.raw, request, sizeof(request) - 1, NULL, 0));
    victim_expect_end(&one, GPUIPC_ERR_PROTOCOL, "an HTTP request");
    end();
}

/* The list of handles is cut because this process can open no more: its own limit, not the peer's
 * fault, and the status says so. */
Test(bad_packet, cut_by_the_limit_of_this_process) {
    begin();
    enum {
        HANDLES = 100,
        ROOM = 20
    };
    raw_packet packet = make_packet();
    victim one = victim_make();
    raw_packet_repeat_fd(&packet, HANDLES);
    cr_assert(raw_packet_send(&packet, one.raw));
    uint64_t limit = system_limit_descriptors(ROOM);
    cr_assert_neq(limit, 0);
    gpuipc_status status = victim_receive(&one);
    system_set_descriptor_limit(limit);
    cr_assert_eq(status, GPUIPC_ERR_TOO_MANY_HANDLES, "%s", gpuipc_status_name(status));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, victim_receive(&one));
    check_ok(gpuipc_connection_close(one.connection));
    raw_close(one.raw);
    raw_packet_close(&packet);
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
    victim one = victim_make();
    memcpy(bytes, packet.bytes, RAW_SEGMENT);
    memcpy(bytes + RAW_SEGMENT + MORE, packet.bytes + RAW_SEGMENT, WIRE_SEGMENT_BYTES);
    memset(bytes + RAW_SEGMENT, 0xAB, MORE);
    bytes[RAW_MAJOR + 2] = 1;
    bytes[RAW_LENGTH] = sizeof(bytes);
    bytes[RAW_BUFFER_RECORD] = WIRE_BUFFER_BYTES + MORE;
    bytes[RAW_SEGMENT_RECORD] = WIRE_SEGMENT_BYTES + MORE;
    cr_assert(raw_send(one.raw, bytes, sizeof(bytes), packet.fds, 1));
    check_ok(victim_receive(&one));
    check_ok(gpuipc_connection_close(one.connection));
    raw_close(one.raw);
    raw_packet_close(&packet);
    end();
}

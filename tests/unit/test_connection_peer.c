/* SPDX-License-Identifier: MIT */
/** @file A peer that breaks the rules of the wire, or sends what is no memory: what it costs. */
#include "core_fixture.h"

#include <string.h>

#include "message/wire.h"

TestSuite(connection_peer, .init = core_start, .fini = core_finish, .timeout = 60);

enum {
    BUFFERS_MAX = 3,
    PACKET_MAX = 1024
};

/* A listener of ours, and at the other end of its connection somebody who sends bytes. */
static gpuipc_listener *listener;
static gpuipc_connection *ours;
static os_connection *theirs;

static void connect_peer(void) {
    const os_directory directory = {core_directory, false};
    char name[UNIQUE_NAME_MAX];
    unique_name(name);
    check_ok(gpuipc_listener_open(core_context, name, NULL, &listener));
    check_ok(os_connection_open(&directory, name, os_deadline_after(SOON_MS), &theirs));
    check_ok(gpuipc_listener_accept(listener, SOON_MS, &ours));
}

static void disconnect_peer(void) {
    os_connection_destroy(theirs);
    check_ok(gpuipc_connection_close(ours));
    check_ok(gpuipc_listener_close(listener));
}

/* A message of buffers with one segment each. */
typedef struct forged {
    uint32_t count;
    uint64_t number;
    uint32_t total_bytes; /* more than is carried: the message goes on in another packet */
    wire_buffer buffers[BUFFERS_MAX];
    segment_record segments[BUFFERS_MAX];
    os_handle handles[BUFFERS_MAX];
} forged;

/* An honest message, whose handles are those of a buffer. */
static forged forge(gpuipc_buffer *buffer, uint32_t count, uint64_t number) {
    forged made = {.count = count, .number = number};
    const gpuipc_buffer_info info = core_info(buffer);
    for (uint32_t i = 0; i < count; i++) {
        gpuipc_native_segment segment;
        gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
        size_t segments = 0;
        check_ok(gpuipc_native_export(buffer, &segment, 1, &layout, &segments));
        check_ok(os_handle_adopt(segment.handle.value, &made.handles[i]));
        made.segments[i].bytes = segment.bytes;
        made.buffers[i] = (wire_buffer){.buffer_id = number * BUFFERS_MAX + i, /* another each */
                                        .bytes = info.bytes,
                                        .segment_count = 1,
                                        .memory = SEGMENT_MEMORY_VMM,
                                        .handle_type = (uint16_t)os_shareable_handle_type,
                                        .access = GPUIPC_ACCESS_READ_WRITE};
        memcpy(made.buffers[i].device_uuid, info.device_uuid.bytes, 16);
    }
    return made;
}

static size_t encode(const forged *message, uint8_t *packet) {
    const wire_header header = {.kind = WIRE_MESSAGE,
                                .number = message->number,
                                .total_bytes = message->total_bytes,
                                .total_buffers = message->count,
                                .total_segments = message->count,
                                .buffers = (uint16_t)message->count,
                                .segments = (uint16_t)message->count};
    uint8_t *at = packet + WIRE_HEADER_BYTES;
    cr_assert(wire_packet_bytes(&header) <= PACKET_MAX);
    wire_encode_header(&header, packet);
    for (uint32_t i = 0; i < message->count; i++, at += WIRE_BUFFER_BYTES) {
        wire_encode_buffer(&message->buffers[i], at);
    }
    for (uint32_t i = 0; i < message->count; i++, at += WIRE_SEGMENT_BYTES) {
        wire_encode_segment(&message->segments[i], at);
    }
    return wire_packet_bytes(&header);
}

static void send_packet(const uint8_t *packet, size_t size, os_handle *handles, size_t count) {
    check_ok(os_connection_send(theirs, packet, size, handles, count, os_deadline_after(SOON_MS)));
    for (size_t i = 0; i < count; i++) {
        os_handle_close(&handles[i]);
    }
}

static void send_forged(forged *message) {
    uint8_t packet[PACKET_MAX];
    send_packet(packet, encode(message, packet), message->handles, message->count);
}

static gpuipc_status receive(gpuipc_buffer **buffers) {
    gpuipc_incoming message = {
        .struct_size = sizeof(message), .buffers = buffers, .buffer_capacity = BUFFERS_MAX};
    return gpuipc_connection_receive(ours, &message, SOON_MS);
}

/* ---- what costs the connection ----------------------------------------------------------- */

/* The message just sent ends this connection for both sides, and no other. */
static void check_is_broken_by(gpuipc_status expected, const core_pair *bystander) {
    gpuipc_buffer *opened[BUFFERS_MAX] = {NULL};
    uint8_t packet[PACKET_MAX];
    os_handle handles[OS_PACKET_HANDLES_MAX];
    size_t size = 0;
    size_t count = 0;
    check_status(expected, receive(opened));
    cr_assert_eq(gpuipc_error_get()->status, expected);
    cr_assert_neq(gpuipc_error_get()->sentence[0], '\0');
    for (size_t i = 0; i < BUFFERS_MAX; i++) {
        cr_assert_null(opened[i]);
    }
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, receive(opened));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, core_send(ours, NULL, 0));
    check_status(GPUIPC_ERR_PEER_CLOSED,
                 os_connection_receive(theirs, packet, sizeof(packet), &size, handles, &count,
                                       os_deadline_after(SOON_MS)));
    check_ok(core_send(bystander->client, NULL, 0));
    check_ok(core_receive(bystander->server, NULL, 0));
}

Test(connection_peer, packets_against_the_rules_end_the_connection) {
    static const struct {
        gpuipc_status expected;
        size_t at;
        uint8_t value;
    } rows[] = {
        {GPUIPC_ERR_PROTOCOL, 0, 'X'},                    /* magic */
        {GPUIPC_ERR_VERSION, 4, 1},                       /* major version */
        {GPUIPC_ERR_PROTOCOL, 8, 1},                      /* length */
        {GPUIPC_ERR_PROTOCOL, 16, 7},                     /* message number */
        {GPUIPC_ERR_LIMIT, 27, 2},                        /* total bytes: 33,554,432 */
        {GPUIPC_ERR_LIMIT, 30, 1},                        /* total buffers */
        {GPUIPC_ERR_LIMIT, 34, 1},                        /* total segments */
        {GPUIPC_ERR_PROTOCOL, WIRE_HEADER_BYTES + 64, 2}, /* segments of the first buffer */
        {GPUIPC_ERR_VERSION, WIRE_HEADER_BYTES + 68, 6},  /* kind of memory */
        {GPUIPC_ERR_PROTOCOL, WIRE_HEADER_BYTES + 70, 7}, /* handle type */
        {GPUIPC_ERR_VERSION, WIRE_HEADER_BYTES + WIRE_BUFFER_BYTES + 74,
         3}, /* ready point, second */
        {GPUIPC_ERR_PROTOCOL, WIRE_HEADER_BYTES + 2 * WIRE_BUFFER_BYTES + 10, 1} /* reserved */
    };
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    core_pair bystander;
    core_pair_open(&bystander, core_context, core_context);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t packet[PACKET_MAX];
        forged message = forge(buffer, 2, 0);
        const size_t size = encode(&message, packet);
        packet[rows[i].at] = rows[i].value;
        connect_peer();
        send_packet(packet, size, message.handles, 2);
        check_is_broken_by(rows[i].expected, &bystander);
        disconnect_peer();
    }
    core_pair_close(&bystander);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(connection_peer, too_many_or_too_few_handles_end_the_connection) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    core_pair bystander;
    core_pair_open(&bystander, core_context, core_context);
    static const uint32_t wrong[] = {0, 1, 3};
    for (size_t row = 0; row < sizeof(wrong) / sizeof(wrong[0]); row++) {
        const uint32_t handles = wrong[row];
        uint8_t packet[PACKET_MAX];
        forged message = forge(buffer, 3, 0);
        message.count = 2;
        const size_t size = encode(&message, packet);
        connect_peer();
        send_packet(packet, size, message.handles, handles);
        for (uint32_t i = handles; i < 3; i++) {
            os_handle_close(&message.handles[i]);
        }
        check_is_broken_by(GPUIPC_ERR_HANDLE_COUNT, &bystander);
        disconnect_peer();
    }
    core_pair_close(&bystander);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(connection_peer, garbage_ends_the_connection) {
    core_pair bystander;
    core_pair_open(&bystander, core_context, core_context);
    for (size_t size = 1; size < 200; size += 37) {
        uint8_t packet[PACKET_MAX];
        memset(packet, (int)size, size);
        connect_peer();
        send_packet(packet, size, NULL, 0);
        check_is_broken_by(GPUIPC_ERR_PROTOCOL, &bystander);
        disconnect_peer();
    }
    core_pair_close(&bystander);
}

/* ---- what costs the message only --------------------------------------------------------- */

typedef void (*spoiler)(forged *message);

static void spoil_handle(forged *message) {
    os_handle_close(&message->handles[1]);
    check_ok(os_memory_create("test", core_unit, &message->handles[1]));
}

static void spoil_size_up(forged *message) {
    message->segments[1].bytes *= 2;
}

static void spoil_size_down(forged *message) {
    message->segments[1].bytes /= 2;
    message->buffers[1].bytes = 1;
}

static void spoil_size_zero(forged *message) {
    message->segments[1].bytes = 0;
}

static void spoil_size_most(forged *message) {
    message->segments[1].bytes = UINT64_MAX;
}

static void spoil_offset(forged *message) {
    message->buffers[1].offset = 1;
}

static void spoil_range(forged *message) {
    message->buffers[1].bytes = message->segments[1].bytes + 1;
}

static void spoil_uuid(forged *message) {
    message->buffers[1].device_uuid[3] ^= 0x55;
}

Test(connection_peer, what_is_no_memory_costs_its_message_only) {
    static const struct {
        spoiler spoil;
        gpuipc_status expected;
    } rows[] = {
        {spoil_handle, GPUIPC_ERR_NOT_GPU_MEMORY},   {spoil_size_up, GPUIPC_ERR_SIZE_MISMATCH},
        {spoil_size_down, GPUIPC_ERR_SIZE_MISMATCH}, {spoil_size_zero, GPUIPC_ERR_SIZE_MISMATCH},
        {spoil_size_most, GPUIPC_ERR_SIZE_MISMATCH}, {spoil_offset, GPUIPC_ERR_SIZE_MISMATCH},
        {spoil_range, GPUIPC_ERR_SIZE_MISMATCH},     {spoil_uuid, GPUIPC_ERR_DEVICE_NOT_VISIBLE},
    };
    enum {
        ROWS = sizeof(rows) / sizeof(rows[0])
    };
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    core_write_pattern(buffer, 91);
    connect_peer();
    for (uint32_t i = 0; i < ROWS; i++) {
        gpuipc_buffer *opened[BUFFERS_MAX] = {NULL};
        forged message = forge(buffer, 3, 2 * i);
        rows[i].spoil(&message);
        send_forged(&message);
        gpuipc_status status = receive(opened);
        cr_assert_eq(status, rows[i].expected, "row %u: %s (%s)", i, gpuipc_status_name(status),
                     gpuipc_error_get()->sentence);
        for (size_t j = 0; j < BUFFERS_MAX; j++) {
            cr_assert_null(opened[j], "row %u: buffer %zu was handed out", i, j);
        }
        /* and the next one arrives as if nothing had been */
        message = forge(buffer, 1, 2 * i + 1);
        send_forged(&message);
        check_ok(receive(opened));
        core_check_pattern(opened[0], 91);
        check_ok(gpuipc_buffer_release(opened[0]));
    }
    disconnect_peer();
    check_ok(gpuipc_buffer_release(buffer));
}

/* Sizes whose sum is beyond 64 bits, of a device that is not here, so that no size is too large. */
Test(connection_peer, sizes_beyond_64_bits_cost_their_message_only) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_buffer *opened[BUFFERS_MAX] = {NULL};
    uint8_t packet[PACKET_MAX];
    forged message = forge(buffer, 2, 0);
    message.segments[0].bytes = UINT64_MAX;
    message.buffers[0].segment_count = 2;
    message.buffers[0].device_uuid[0] ^= 1;
    /* one buffer over both segments: the second record is not sent */
    const wire_header header = {
        .kind = WIRE_MESSAGE, .total_buffers = 1, .total_segments = 2, .buffers = 1, .segments = 2};
    wire_encode_header(&header, packet);
    wire_encode_buffer(&message.buffers[0], packet + WIRE_HEADER_BYTES);
    wire_encode_segment(&message.segments[0], packet + WIRE_HEADER_BYTES + WIRE_BUFFER_BYTES);
    wire_encode_segment(&message.segments[1],
                        packet + WIRE_HEADER_BYTES + WIRE_BUFFER_BYTES + WIRE_SEGMENT_BYTES);
    connect_peer();
    send_packet(packet, wire_packet_bytes(&header), message.handles, 2);
    check_refused(GPUIPC_ERR_SIZE_MISMATCH, "beyond 64 bits", receive(opened));
    cr_assert_null(opened[0]);
    forged next = forge(buffer, 1, 1);
    send_forged(&next);
    check_ok(receive(opened));
    check_ok(gpuipc_buffer_release(opened[0]));
    disconnect_peer();
    check_ok(gpuipc_buffer_release(buffer));
}

/* ---- half a message ---------------------------------------------------------------------- */

static void send_rest(uint32_t bytes, uint64_t number) {
    uint8_t packet[PACKET_MAX] = {0};
    const wire_header header = {.kind = WIRE_MESSAGE,
                                .number = number,
                                .total_bytes = bytes,
                                .total_buffers = 2,
                                .total_segments = 2,
                                .bytes = bytes};
    wire_encode_header(&header, packet);
    memset(packet + WIRE_HEADER_BYTES, 'r', bytes);
    send_packet(packet, wire_packet_bytes(&header), NULL, 0);
}

Test(connection_peer, half_a_message_waits_for_the_rest) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_buffer *opened[2];
    char bytes[10];
    gpuipc_incoming in = {.struct_size = sizeof(in),
                          .bytes = bytes,
                          .bytes_capacity = sizeof(bytes),
                          .buffers = opened,
                          .buffer_capacity = 2};
    connect_peer();
    forged message = forge(buffer, 2, 0);
    message.total_bytes = sizeof(bytes);
    send_forged(&message);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_connection_receive(ours, &in, 0));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_connection_receive(ours, &in, 10));
    send_rest(sizeof(bytes), 0);
    check_ok(gpuipc_connection_receive(ours, &in, SOON_MS));
    cr_assert_eq(in.buffer_count, 2);
    cr_assert_eq(memcmp(bytes, "rrrrrrrrrr", sizeof(bytes)), 0);
    check_ok(gpuipc_buffer_release(opened[0]));
    check_ok(gpuipc_buffer_release(opened[1]));
    check_ok(gpuipc_buffer_release(buffer));
    disconnect_peer();
}

Test(connection_peer, half_a_message_is_given_back_when_the_peer_is_gone) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_buffer *opened[BUFFERS_MAX] = {NULL};
    connect_peer();
    forged message = forge(buffer, 2, 0);
    message.total_bytes = 1;
    send_forged(&message);
    os_connection_interrupt(theirs);
    check_status(GPUIPC_ERR_PEER_CLOSED, receive(opened));
    cr_assert_null(opened[0]);
    check_ok(gpuipc_buffer_release(buffer));
    disconnect_peer();
}

/* SPDX-License-Identifier: MIT */
/** @file The helper's commands of a peer that gives others as much to hold as it can: host memory, over and over. */
#include <inttypes.h>
#include <stdio.h>

#include "helper.h"
#include "helper_commands.h"
#include "message/wire.h"
#include "os.h"
#include "sync/point.h"

#define CONNECTIONS_MAX 256u

static raw_peer *connections[CONNECTIONS_MAX];
static uint32_t connection_count;

void helper_flood_end(void) {
    while (connection_count > 0) {
        raw_close(connections[--connection_count]);
    }
}

/* What one connection brings. */
typedef struct flood {
    uint32_t messages;
    uint32_t buffers;
    os_handle memory; /* of each of them, the same */
    uint64_t bytes;
    bool is_late; /* behind a word that never comes */
} flood;

static bool send_points(raw_peer *to) {
    const wire_header header = {.kind = WIRE_POINTS};
    uint8_t packet[WIRE_HEADER_BYTES];
    os_handle page = OS_HANDLE_NONE;
    if (os_memory_create("test", POINT_PAGE_BYTES, &page) != GPUIPC_OK) {
        return false;
    }
    wire_encode_header(&header, packet);
    const bool sent = raw_send(to, packet, sizeof(packet), &page.value, 1);
    os_handle_close(&page);
    return sent;
}

/* @param first of the message's buffers  @param count that come with this packet */
static bool send_packet(raw_peer *to, const flood *what, uint64_t number, uint32_t first,
                        uint16_t count) {
    static uint8_t packet[OS_PACKET_BYTES_MAX];
    const wire_header header = {.kind = WIRE_MESSAGE,
                                .number = number,
                                .total_buffers = what->buffers,
                                .total_segments = what->buffers,
                                .buffers = count,
                                .segments = count};
    const segment_record segment = {.bytes = what->bytes, .naming = SEGMENT_NAMED_BY_HANDLE};
    intptr_t handles[OS_PACKET_HANDLES_MAX];
    uint8_t *const buffers = packet + WIRE_HEADER_BYTES;
    uint8_t *const segments = buffers + (size_t)count * WIRE_BUFFER_BYTES;
    wire_encode_header(&header, packet);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t index = (uint32_t)number * what->buffers + first + i;
        const wire_buffer record = {.exporter_id = {7},
                                    .buffer_id = 1 + index,
                                    .bytes = what->bytes,
                                    .segment_count = 1,
                                    .memory = SEGMENT_MEMORY_HOST,
                                    .handle_type = (uint16_t)os_shareable_handle_type,
                                    .access = GPUIPC_ACCESS_READ_WRITE,
                                    .ready = what->is_late ? WIRE_READY_WORD : WIRE_READY_NOW,
                                    .point_index = what->is_late ? 1 + index : 0,
                                    .point_value = 2};
        wire_encode_buffer(&record, buffers + (size_t)i * WIRE_BUFFER_BYTES);
        wire_encode_segment(&segment, segments + (size_t)i * WIRE_SEGMENT_BYTES);
        handles[i] = what->memory.value;
    }
    return raw_send(to, packet, wire_packet_bytes(&header), handles, count);
}

static bool send_message(raw_peer *to, const flood *what, uint64_t number) {
    bool sent = true;
    for (uint32_t first = 0; first < what->buffers && sent; first += OS_PACKET_HANDLES_MAX) {
        const uint32_t left = what->buffers - first;
        sent = send_packet(to, what, number, first,
                           (uint16_t)(left < OS_PACKET_HANDLES_MAX ? left : OS_PACKET_HANDLES_MAX));
    }
    return sent;
}

static uint32_t flood_one(helper_state *self, const char *name, const flood *what) {
    uint32_t sent = 0;
    raw_peer *to = connection_count < CONNECTIONS_MAX ? raw_connect(self->directory, name) : NULL;
    if (to == NULL) {
        return 0;
    }
    connections[connection_count++] = to;
    self->raw = to; /* which has handles of its own */
    if (what->is_late && !send_points(to)) {
        return 0;
    }
    while (sent < what->messages && send_message(to, what, sent)) {
        sent++;
    }
    return sent;
}

/* flood NAME CONNECTIONS MESSAGES BUFFERS BYTES LATE: over each of so many connections, which stay, so many messages of so
 * many buffers of host memory; LATE 1: behind a word that never comes. Says how many messages have left */
static void send_flood(helper_state *self, const char *arguments) {
    char name[GPUIPC_NAME_MAX + 1] = "";
    flood what = {.memory = OS_HANDLE_NONE};
    uint32_t count = 0;
    uint32_t sent = 0;
    int is_late = 0;
    (void)sscanf(arguments, " %64s %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu64 " %d", name,
                 &count, &what.messages, &what.buffers, &what.bytes, &is_late);
    what.is_late = is_late != 0;
    if (os_memory_create("test", what.bytes, &what.memory) != GPUIPC_OK) {
        helper_say("no memory of %" PRIu64 " bytes", what.bytes);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        sent += flood_one(self, name, &what);
    }
    os_handle_close(&what.memory);
    helper_say("%" PRIu32, sent);
}

/* hang_up: closes what flood has opened */
static void hang_up(helper_state *self, const char *arguments) {
    (void)self;
    (void)arguments;
    helper_flood_end();
    helper_say("GPUIPC_OK");
}

const helper_command helper_flood_commands[] = {
    {"flood", send_flood}, {"hang_up", hang_up}, {NULL, NULL}};

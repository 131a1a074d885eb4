/* SPDX-License-Identifier: MIT */
/** @file A peer that is slow, silent, gone, deaf, or says too much. */
#include <string.h>

#include "check.h"
#include "hostile.h"
#include "marks.h"
#include "os.h"

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* So many packets wait at a socket without anybody receiving: few enough for every system's buffers. */
#define FLOOD 40

static void says_nothing(hostile_peer *self) {
    (void)self;
}

static void says_half(hostile_peer *self) {
    self->packet.header.total_buffers = 2;
    self->packet.header.total_segments = 2;
    self->packet.header.total_bytes *= 2;
    hostile_send(self);
}

/* One byte of the longest message. */
static bool send_one_byte(raw_peer *to) {
    uint8_t bytes[WIRE_HEADER_BYTES + 1] = {0};
    const wire_header header = {
        .kind = WIRE_MESSAGE, .total_bytes = GPUIPC_MESSAGE_BYTES_MAX, .bytes = 1};
    wire_encode_header(&header, bytes);
    return raw_send(to, bytes, sizeof(bytes), NULL, 0);
}

static void says_one_byte(hostile_peer *self) {
    for (unsigned i = 0; i < FLOOD; i++) {
        cr_assert(send_one_byte(self->raw));
    }
}

/* A byte each millisecond, for as long as the library waits: what comes does not put its deadline off. */
static void dribble(void *argument) {
    hostile_peer *self = argument;
    while (!atomic_load(&self->is_over) && send_one_byte(self->raw)) {
        os_sleep_ms(1);
    }
}

static void begin_dribbling(hostile_peer *self) {
    check_ok(os_thread_start(dribble, self, &self->thread));
}

static void end_dribbling(hostile_peer *self) {
    atomic_store(&self->is_over, true);
    os_thread_join(self->thread);
}

static void hangs_up(hostile_peer *self) {
    raw_close(self->raw);
    self->raw = NULL;
}

static void hangs_up_in_a_message(hostile_peer *self) {
    says_half(self);
    hangs_up(self);
}

static void hangs_up_after_a_message(hostile_peer *self) {
    hostile_send(self);
    hangs_up(self);
}

/* As many good messages as wait in a row, each with the buffer; then one that is none. */
static void floods(hostile_peer *self) {
    for (unsigned i = 0; i < FLOOD; i++) {
        self->packet.header.number = i;
        hostile_send(self);
    }
    for (unsigned i = 0; i < FLOOD; i++) {
        gpuipc_buffer *opened = NULL;
        size_t count = 1;
        check_ok(process_case_receive(self->connection, &opened, &count, NULL, PATIENCE_MS));
        check_ok(gpuipc_buffer_release(opened));
    }
    self->packet.header.number = 0;
    hostile_send(self);
}

/* The library sends until there is no room, and is not kept longer than it said. */
static void never_reads(hostile_peer *self) {
    static uint8_t
        bytes[GPUIPC_MESSAGE_BYTES_MAX]; /* not const: zeroes take no room in a program then */
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .bytes = bytes, .bytes_size = sizeof(bytes)};
    gpuipc_status status = GPUIPC_OK;
    while (status == GPUIPC_OK) {
        status = gpuipc_connection_send(self->connection, &message, HOSTILE_SHORT_MS);
    }
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, status); /* part of the last message had left */
}

/* It lets go of one buffer that it never had, and of others; then of one that it has, twice. */
static void lies_about_points(hostile_peer *self) {
    static uint8_t bytes[OS_PACKET_BYTES_MAX];
    wire_packet packet;
    intptr_t handle = 0;
    size_t count = 1;
    void *page;
    check_ok(process_case_send(self->connection, &self->buffer, 1, 0));
    const long size = raw_receive(self->raw, bytes, sizeof(bytes), &handle, &count, PATIENCE_MS);
    cr_assert_gt(size, 0);
    check_ok(wire_decode_packet(bytes, (size_t)size, count, &packet));
    cr_assert_eq((int)packet.header.kind, (int)WIRE_POINTS);
    os_handle adopted;
    check_ok(os_handle_adopt(handle, &adopted));
    check_ok(os_memory_map(adopted, 106496, true, &page));
    memset(page, (int)(self->round % 3) - 1, 106496);
    os_memory_unmap(page, 106496);
    os_handle_close(&adopted);
    hangs_up(self);
}

#define WAITS(called, breaks, how)                                                                 \
    {                                                                                              \
        .name = (called), .rule = (breaks), .expected = GPUIPC_ERR_TIMEOUT, .end = HOSTILE_WAITS,  \
        .act = (how)                                                                               \
    }
#define GONE(called, breaks, answer, how)                                                          \
    {                                                                                              \
        .name = (called), .rule = (breaks), .expected = GPUIPC_ERR_##answer, .end = HOSTILE_GONE,  \
        .act = (how)                                                                               \
    }
#define NO_RULE "none: the deadline of the call holds"

static const hostile_case conversations[] = {
    WAITS("says nothing", NO_RULE, says_nothing),
    WAITS("says half a message", NO_RULE, says_half),
    WAITS("says one byte a packet, and no more", NO_RULE, says_one_byte),
    {.name = "says one byte each millisecond",
     .rule = NO_RULE,
     .expected = GPUIPC_ERR_TIMEOUT,
     .end = HOSTILE_WAITS,
     .act = begin_dribbling,
     .undo = end_dribbling},
    GONE("hangs up", "none: the end of the socket", PEER_CLOSED, hangs_up),
    GONE("hangs up in a message", "Ground rules: until the totals are reached", PEER_CLOSED,
         hangs_up_in_a_message),
    {.name = "hangs up after a message",
     .rule = "none: what has come is taken",
     .expected = GPUIPC_ERR_PEER_CLOSED,
     .end = HOSTILE_GONE,
     .act = hangs_up_after_a_message,
     .first_is_good = true},
    {.name = "40 messages, then the first one again",
     .rule = "Packet: message number is the next",
     .expected = GPUIPC_ERR_PROTOCOL,
     .act = floods},
    GONE("never reads", NO_RULE, CONNECTION_BROKEN, never_reads),
    {.name = "writes over the whole page of points",
     .rule = "Points: words reach the values that they have to",
     .expected = GPUIPC_ERR_PEER_CLOSED,
     .end = HOSTILE_GONE,
     .act = lies_about_points,
     .variants = 3}};

const hostile_cases hostile_conversations = {conversations, COUNT(conversations)};

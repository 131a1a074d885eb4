/* SPDX-License-Identifier: MIT */
/** @file Connections that refuse, wait, break and end. */
#include "core_fixture.h"

#include <string.h>

#include "message/connection.h"
#include "message/wire.h"

TestSuite(connection_end, .init = core_start, .fini = core_finish, .timeout = 120);

static core_pair pair;

static void connect_pair(void) {
    core_pair_open(&pair, core_context, core_context);
}

static gpuipc_status send_flags(uint32_t flags, gpuipc_access access) {
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .flags = flags, .access = access};
    return gpuipc_connection_send(pair.client, &message, SOON_MS);
}

static gpuipc_status receive_flags(uint32_t flags, gpuipc_access access) {
    gpuipc_incoming message = {.struct_size = sizeof(message), .flags = flags, .access = access};
    return gpuipc_connection_receive(pair.server, &message, 0);
}

/* ---- a way that is full ------------------------------------------------------------------ */

/* What fills it: long enough that few suffice, and short beside a packet full of handles. */
static uint8_t filler[512];

static gpuipc_status send_filler(gpuipc_connection *to, int timeout_ms) {
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .bytes = filler, .bytes_size = sizeof(filler)};
    return gpuipc_connection_send(to, &message, timeout_ms);
}

static gpuipc_status take_filler(gpuipc_connection *from) {
    static uint8_t bytes[sizeof(filler)];
    gpuipc_incoming message = {
        .struct_size = sizeof(message), .bytes = bytes, .bytes_capacity = sizeof(bytes)};
    gpuipc_status status = gpuipc_connection_receive(from, &message, SOON_MS);
    cr_assert(status != GPUIPC_OK || message.bytes_size == sizeof(bytes));
    return status;
}

/* @return how many fillers are on the way when no more go in */
static uint32_t fill_the_way(gpuipc_connection *to) {
    uint32_t waiting = 0;
    gpuipc_status status;
    while ((status = send_filler(to, 0)) == GPUIPC_OK) {
        waiting++;
        cr_assert(waiting < 10000);
    }
    cr_assert_eq(status, GPUIPC_ERR_TIMEOUT);
    return waiting;
}

/* Sends a message of two packets when the way, which is full, has room for just one. How much must be
 * taken for that is the system's affair: one filler on Linux, which lets a packet of any length in
 * where there is room at all; on Windows as many as its bytes. Until then nothing of it leaves.
 * @return how many fillers were taken */
static uint32_t send_half(gpuipc_connection *to, gpuipc_connection *reader, gpuipc_buffer *buffer) {
    enum {
        COUNT = 2 * OS_PACKET_HANDLES_MAX, /* handles, and records for all in the first packet */
        STEP = 8                           /* fillers shorter than the second packet together */
    };
    gpuipc_buffer *buffers[COUNT];
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .buffers = buffers, .buffer_count = COUNT};
    gpuipc_status status;
    uint32_t taken = 0;
    for (size_t i = 0; i < COUNT; i++) {
        buffers[i] = buffer;
    }
    do {
        for (uint32_t i = 0; i < STEP; i++, taken++) {
            check_ok(take_filler(reader));
        }
        status = gpuipc_connection_send(to, &message, 0);
        cr_assert(taken < 1000);
    } while (status == GPUIPC_ERR_TIMEOUT);
    check_refused(GPUIPC_ERR_CONNECTION_BROKEN, "part of the message had left", status);
    return taken;
}

/* ---- what is refused --------------------------------------------------------------------- */

Test(connection_end, wrong_messages_to_send_are_refused) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_buffer *const released[] = {buffer, NULL};
    static uint8_t bytes[GPUIPC_MESSAGE_BYTES_MAX + 1];
    gpuipc_outgoing message = {.struct_size = sizeof(message)};
    connect_pair();
    message.bytes = bytes;
    message.bytes_size = sizeof(bytes);
    check_refused(GPUIPC_ERR_LIMIT, "16777216", gpuipc_connection_send(pair.client, &message, 0));
    message.bytes = NULL;
    message.bytes_size = 1;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_connection_send(pair.client, &message, 0));
    message.bytes_size = 0;
    message.buffer_count = 1;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_connection_send(pair.client, &message, 0));
    message.buffers = released;
    message.buffer_count = 2;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "buffers[1] is NULL",
                  gpuipc_connection_send(pair.client, &message, 0));
    message.buffer_count = (size_t)UINT32_MAX + 1;
    check_status(GPUIPC_ERR_LIMIT, gpuipc_connection_send(pair.client, &message, 0));
    message = (gpuipc_outgoing){.struct_size = sizeof(message) - 1};
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_connection_send(pair.client, &message, 0));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "0x10", send_flags(0x10, GPUIPC_ACCESS_DEFAULT));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, send_flags(0, (gpuipc_access)2));
    check_ok(gpuipc_buffer_release(buffer));
    check_status(GPUIPC_ERR_RELEASED, core_send(pair.client, &buffer, 1));
    /* none of it reached the other side */
    check_status(GPUIPC_ERR_TIMEOUT, receive_flags(0, GPUIPC_ACCESS_DEFAULT));
    check_ok(core_send(pair.client, NULL, 0));
    check_ok(core_receive(pair.server, NULL, 0));
    core_pair_close(&pair);
}

Test(connection_end, wrong_messages_to_receive_are_refused) {
    gpuipc_incoming message = {.struct_size = sizeof(message)};
    connect_pair();
    message.bytes_capacity = 1;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_connection_receive(pair.server, &message, 0));
    message.bytes_capacity = 0;
    message.buffer_capacity = 1;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_connection_receive(pair.server, &message, 0));
    message = (gpuipc_incoming){.struct_size = 8};
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_connection_receive(pair.server, &message, 0));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "0x8", receive_flags(8, GPUIPC_ACCESS_DEFAULT));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, receive_flags(0, (gpuipc_access)5));
    message = (gpuipc_incoming){.struct_size = sizeof(message), .reserved = 1};
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "reserved",
                  gpuipc_connection_receive(pair.server, &message, 0));
    struct {
        gpuipc_incoming known;
        uint64_t newer;
    } longer = {{.struct_size = sizeof(longer)}, 1};
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_connection_receive(pair.server, &longer.known, 0));
    longer.newer = 0;
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_connection_receive(pair.server, &longer.known, 0));
    core_pair_close(&pair);
}

Test(connection_end, buffers_of_another_context_are_refused) {
    gpuipc_context *other = core_context_new();
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 1};
    gpuipc_buffer *mine = core_buffer(1, 0);
    gpuipc_buffer *theirs;
    check_ok(gpuipc_buffer_create(other, &config, &theirs));
    gpuipc_buffer *const both[] = {mine, theirs};
    connect_pair();
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "buffer 1 belongs to another context",
                  core_send(pair.client, both, 2));
    check_ok(gpuipc_buffer_release(theirs));
    check_ok(gpuipc_buffer_release(mine));
    check_ok(gpuipc_context_destroy(other));
    core_pair_close(&pair);
}

Test(connection_end, a_wait_ends_at_its_deadline) {
    connect_pair();
    gpuipc_incoming message = {.struct_size = sizeof(message)};
    const uint64_t start = os_clock_ns();
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_connection_receive(pair.server, &message, 30));
    cr_assert_geq(os_clock_ns() - start, UINT64_C(30000000));
    core_pair_close(&pair);
}

Test(connection_end, a_peer_that_does_not_read_costs_the_sender_its_time_only) {
    static uint8_t bytes[65536]; /* of one packet: it leaves as a whole or not at all */
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .bytes = bytes, .bytes_size = sizeof(bytes)};
    uint32_t sent = 0;
    gpuipc_status status;
    connect_pair();
    while ((status = gpuipc_connection_send(pair.client, &message, 0)) == GPUIPC_OK) {
        sent++;
        cr_assert(sent < 10000);
    }
    cr_assert_eq(status, GPUIPC_ERR_TIMEOUT);
    /* no part of it had left, so everything goes on where it was */
    for (uint32_t i = 0; i < sent; i++) {
        gpuipc_incoming in = {
            .struct_size = sizeof(in), .bytes = bytes, .bytes_capacity = sizeof(bytes)};
        check_ok(gpuipc_connection_receive(pair.server, &in, SOON_MS));
    }
    check_ok(core_send(pair.client, NULL, 0));
    check_ok(core_receive(pair.server, NULL, 0));
    core_pair_close(&pair);
}

Test(connection_end, a_message_cut_in_two_breaks_the_connection) {
    gpuipc_buffer *small = core_buffer(core_unit, 0);
    connect_pair();
    const uint32_t waiting = fill_the_way(pair.client);
    const uint32_t taken = send_half(pair.client, pair.server, small);
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, core_send(pair.client, NULL, 0));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, core_receive(pair.client, NULL, 0));
    /* the peer gets what was whole, and then the end; the rest is given back */
    for (uint32_t i = taken; i < waiting; i++) {
        check_ok(take_filler(pair.server));
    }
    check_status(GPUIPC_ERR_PEER_CLOSED, core_receive(pair.server, NULL, 0));
    check_ok(gpuipc_buffer_release(small));
    core_pair_close(&pair);
}

/* ---- the end ----------------------------------------------------------------------------- */

Test(connection_end, the_other_end_closes) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_buffer *opened;
    connect_pair();
    check_ok(core_send(pair.client, &buffer, 1));
    check_ok(gpuipc_connection_close(pair.client));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_connection_close(pair.client));
    check_status(GPUIPC_ERR_RELEASED, core_send(pair.client, NULL, 0));
    check_status(GPUIPC_ERR_RELEASED, core_receive(pair.client, NULL, 0));
    gpuipc_peer_info peer = {.struct_size = sizeof(peer)};
    check_status(GPUIPC_ERR_RELEASED, gpuipc_connection_get_peer(pair.client, &peer));
    pair.client = NULL;

    check_ok(core_receive(pair.server, &opened, 1)); /* what had been sent still arrives */
    check_status(GPUIPC_ERR_PEER_CLOSED, core_receive(pair.server, NULL, 0));
    check_status(GPUIPC_ERR_PEER_CLOSED, core_send(pair.server, NULL, 0));
    check_status(GPUIPC_ERR_PEER_CLOSED, core_receive(pair.server, NULL, 0));
    check_ok(gpuipc_connection_get_peer(pair.server, &peer));
    cr_assert_eq(peer.process_id, os_process_id());
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
    check_ok(gpuipc_connection_close(NULL));
}

Test(connection_end, what_was_never_received_is_given_back) {
    gpuipc_buffer *buffer = core_buffer(core_unit * 3, core_unit);
    connect_pair();
    check_ok(core_send(pair.client, &buffer, 1));
    check_ok(core_send(pair.client, &buffer, 1));
    check_status(GPUIPC_ERR_TOO_SMALL, core_receive(pair.server, NULL, 0)); /* taken in, not out */
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair); /* the gate of the fixture sees whether anything is left */
}

static gpuipc_status wait_in_receive(void *by) {
    gpuipc_incoming message = {.struct_size = sizeof(message)};
    return gpuipc_connection_receive(by, &message, SOON_MS);
}

static gpuipc_status wait_in_send(void *by) {
    return send_filler(by, SOON_MS);
}

Test(connection_end, one_receiver_and_one_sender_at_a_time) {
    core_waiter self;
    connect_pair();
    core_waiter_start(&self, wait_in_receive, pair.server);
    check_status(GPUIPC_ERR_BUSY, receive_flags(0, GPUIPC_ACCESS_DEFAULT));
    check_ok(core_send(pair.server, NULL, 0)); /* the other direction is free */
    check_ok(core_receive(pair.client, NULL, 0));
    check_ok(core_send(pair.client, NULL, 0));
    check_ok(core_waiter_end(&self));
    core_pair_close(&pair);
}

Test(connection_end, one_sender_at_a_time) {
    core_waiter self;
    connect_pair();
    const uint32_t waiting = fill_the_way(pair.server);
    core_waiter_start(&self, wait_in_send, pair.server);
    check_refused(GPUIPC_ERR_BUSY, "sending", core_send(pair.server, NULL, 0));
    for (uint32_t i = 0; i < waiting + 1; i++) { /* which makes room for the one that waits */
        check_ok(take_filler(pair.client));
    }
    check_ok(core_waiter_end(&self));
    core_pair_close(&pair);
}

Test(connection_end, a_break_by_the_sender_wakes_the_receiver) {
    gpuipc_buffer *small = core_buffer(core_unit, 0);
    core_waiter self;
    connect_pair();
    core_waiter_start(&self, wait_in_receive, pair.server);
    (void)fill_the_way(pair.server);
    (void)send_half(pair.server, pair.client, small);
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, core_waiter_end(&self));
    check_ok(gpuipc_buffer_release(small));
    core_pair_close(&pair);
}

/* The thread that ends it has the mutex of those who receive while it looks through what is left. */
Test(connection_end, who_comes_to_receive_while_it_is_ended_is_told_so) {
    connection *self;
    connect_pair();
    check_ok(connection_acquire(pair.server, &self));
    os_mutex_lock(&self->receive_mutex);
    check_status(GPUIPC_ERR_BUSY, core_receive(pair.server, NULL, 0));
    atomic_store(&self->ended, true);
    check_status(GPUIPC_ERR_RELEASED, core_receive(pair.server, NULL, 0));
    atomic_store(&self->broken, true);
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, core_receive(pair.server, NULL, 0));
    os_mutex_unlock(&self->receive_mutex);
    connection_unreference(self);
    core_pair_close(&pair);
}

Test(connection_end, closing_it_wakes_who_waits_in_it) {
    core_waiter self;
    connect_pair();
    core_waiter_start(&self, wait_in_receive, pair.server);
    check_ok(gpuipc_connection_close(pair.server));
    pair.server = NULL;
    check_status(GPUIPC_ERR_RELEASED, core_waiter_end(&self));
    core_pair_close(&pair);
}

Test(connection_end, the_peers_end_wakes_who_waits) {
    core_waiter self;
    connect_pair();
    core_waiter_start(&self, wait_in_receive, pair.server);
    check_ok(gpuipc_connection_close(pair.client));
    pair.client = NULL;
    check_status(GPUIPC_ERR_PEER_CLOSED, core_waiter_end(&self));
    core_pair_close(&pair);
}

/* The client is somebody who sends and receives packets of its own making. */
static os_connection *connect_packets(void) {
    const os_directory directory = {core_directory, false};
    os_connection *theirs;
    unique_name(pair.name);
    check_ok(gpuipc_listener_open(core_context, pair.name, NULL, &pair.listener));
    check_ok(os_connection_open(&directory, pair.name, os_deadline_after(SOON_MS), &theirs));
    check_ok(gpuipc_listener_accept(pair.listener, SOON_MS, &pair.server));
    return theirs;
}

/* The peer reads nothing and breaks the rules: whoever receives finds it out, whoever sends is told. */
Test(connection_end, a_break_by_the_receiver_wakes_the_sender) {
    static const uint8_t garbage[64] = {1};
    core_waiter self;
    os_connection *theirs = connect_packets();
    (void)fill_the_way(pair.server);
    core_waiter_start(&self, wait_in_send, pair.server);
    check_ok(
        os_connection_send(theirs, garbage, sizeof(garbage), NULL, 0, os_deadline_after(SOON_MS)));
    check_status(GPUIPC_ERR_PROTOCOL, core_receive(pair.server, NULL, 0));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, core_waiter_end(&self));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, core_send(pair.server, NULL, 0));
    os_connection_destroy(theirs);
    core_pair_close(&pair);
}

/* Far more than the way and a peer that empties it once have room for. */
static gpuipc_status wait_in_send_of_many(void *buffer) {
    enum {
        COUNT = 16000
    };
    static gpuipc_buffer *buffers[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        buffers[i] = buffer;
    }
    return core_send(pair.server, buffers, COUNT);
}

static void send_words(os_connection *from) {
    const wire_header header = {.kind = WIRE_MESSAGE, .total_bytes = 4, .bytes = 4};
    uint8_t packet[WIRE_HEADER_BYTES + 4];
    wire_encode_header(&header, packet);
    memcpy(packet + WIRE_HEADER_BYTES, "bye", 4);
    check_ok(os_connection_send(from, packet, sizeof(packet), NULL, 0, os_deadline_after(SOON_MS)));
}

static void take_packet(os_connection *from) {
    static uint8_t packet[OS_PACKET_BYTES_MAX];
    os_handle handles[OS_PACKET_HANDLES_MAX];
    size_t size = 0;
    size_t count = 0;
    check_ok(os_connection_receive(from, packet, sizeof(packet), &size, handles, &count,
                                   os_deadline_after(SOON_MS)));
    for (size_t i = 0; i < count; i++) {
        os_handle_close(&handles[i]);
    }
}

/* One packet of the message was there; in place of the others comes the end. */
Test(connection_end, what_the_peer_said_before_its_end_outlives_a_message_cut_in_two) {
    gpuipc_buffer *small = core_buffer(core_unit, 0);
    char came[4] = "";
    gpuipc_incoming in = {.struct_size = sizeof(in), .bytes = came, .bytes_capacity = sizeof(came)};
    core_waiter self;
    os_connection *theirs = connect_packets();
    core_waiter_begin(&self, wait_in_send_of_many, small);
    take_packet(theirs); /* the page of points */
    take_packet(theirs);
    send_words(theirs);
    os_connection_destroy(theirs);
    check_status(GPUIPC_ERR_PEER_CLOSED, core_waiter_end(&self));
    check_ok(gpuipc_connection_receive(pair.server, &in, SOON_MS));
    cr_assert_str_eq(came, "bye");
    check_status(GPUIPC_ERR_PEER_CLOSED, core_receive(pair.server, NULL, 0));
    check_ok(gpuipc_buffer_release(small));
    core_pair_close(&pair);
}

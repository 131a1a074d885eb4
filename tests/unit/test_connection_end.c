/* SPDX-License-Identifier: MIT */
/** @file Connections that refuse, wait, break and end. */
#include "core_fixture.h"

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

Test(connection_end, wrong_messages_to_send_are_refused) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_buffer *const released[] = {buffer, NULL};
    static uint8_t bytes[GPUIPC_MESSAGE_BYTES_MAX + 1];
    gpuipc_outgoing message = {.struct_size = sizeof(message)};
    connect_pair();
    message.bytes = bytes;
    message.bytes_size = sizeof(bytes);
    check_refused(GPUIPC_ERR_LIMIT, "65536", gpuipc_connection_send(pair.client, &message, 0));
    message.bytes = NULL;
    message.bytes_size = 1;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_connection_send(pair.client, &message, 0));
    message.bytes_size = 0;
    message.buffer_count = 1;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_connection_send(pair.client, &message, 0));
    message.buffers = released;
    message.buffer_count = 2;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_connection_send(pair.client, &message, 0));
    message.buffer_count = (size_t)UINT32_MAX + 1;
    check_status(GPUIPC_ERR_LIMIT, gpuipc_connection_send(pair.client, &message, 0));
    message = (gpuipc_outgoing){.struct_size = sizeof(message) - 1};
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_connection_send(pair.client, &message, 0));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "0x2", send_flags(2, GPUIPC_ACCESS_DEFAULT));
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
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "0x4", receive_flags(4, GPUIPC_ACCESS_DEFAULT));
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
    static uint8_t bytes[GPUIPC_MESSAGE_BYTES_MAX];
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

/* The way to the peer has room for just one more packet, and the message takes two. */
Test(connection_end, a_message_cut_in_two_breaks_the_connection) {
    enum {
        COUNT = OS_PACKET_HANDLES_MAX + 10
    };
    gpuipc_buffer *buffers[COUNT];
    gpuipc_buffer *small = core_buffer(core_unit, 0);
    const gpuipc_outgoing empty = {.struct_size = sizeof(empty)};
    const gpuipc_outgoing large = {
        .struct_size = sizeof(large), .buffers = buffers, .buffer_count = COUNT};
    uint32_t waiting = 0;
    for (size_t i = 0; i < COUNT; i++) {
        buffers[i] = small;
    }
    connect_pair();
    while (gpuipc_connection_send(pair.client, &empty, 0) == GPUIPC_OK) {
        waiting++;
    }
    check_ok(core_receive(pair.server, NULL, 0));
    check_refused(GPUIPC_ERR_TIMEOUT, "the connection is broken",
                  gpuipc_connection_send(pair.client, &large, 0));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, core_send(pair.client, NULL, 0));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, core_receive(pair.client, NULL, 0));
    /* the peer gets what was whole, and then the end; the rest is given back */
    for (uint32_t i = 1; i < waiting; i++) {
        check_ok(core_receive(pair.server, NULL, 0));
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

static gpuipc_status wait_in_receive(void *connection) {
    gpuipc_incoming message = {.struct_size = sizeof(message)};
    return gpuipc_connection_receive(connection, &message, SOON_MS);
}

static gpuipc_status wait_in_send(void *connection) {
    const gpuipc_outgoing message = {.struct_size = sizeof(message)};
    return gpuipc_connection_send(connection, &message, SOON_MS);
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
    const gpuipc_outgoing empty = {.struct_size = sizeof(empty)};
    core_waiter self;
    uint32_t waiting = 0;
    connect_pair();
    while (gpuipc_connection_send(pair.server, &empty, 0) == GPUIPC_OK) {
        waiting++;
    }
    core_waiter_start(&self, wait_in_send, pair.server);
    check_refused(GPUIPC_ERR_BUSY, "sending", gpuipc_connection_send(pair.server, &empty, 0));
    for (uint32_t i = 0; i < waiting + 1; i++) { /* which makes room for the one that waits */
        check_ok(core_receive(pair.client, NULL, 0));
    }
    check_ok(core_waiter_end(&self));
    core_pair_close(&pair);
}

Test(connection_end, a_break_by_the_sender_wakes_the_receiver) {
    enum {
        COUNT = OS_PACKET_HANDLES_MAX + 10
    };
    gpuipc_buffer *buffers[COUNT];
    gpuipc_buffer *small = core_buffer(core_unit, 0);
    const gpuipc_outgoing empty = {.struct_size = sizeof(empty)};
    const gpuipc_outgoing large = {
        .struct_size = sizeof(large), .buffers = buffers, .buffer_count = COUNT};
    core_waiter self;
    for (size_t i = 0; i < COUNT; i++) {
        buffers[i] = small;
    }
    connect_pair();
    core_waiter_start(&self, wait_in_receive, pair.server);
    while (gpuipc_connection_send(pair.server, &empty, 0) == GPUIPC_OK) {
    }
    check_ok(core_receive(pair.client, NULL, 0));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_connection_send(pair.server, &large, 0));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, core_waiter_end(&self));
    check_ok(gpuipc_buffer_release(small));
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

/* The peer reads nothing and breaks the rules: whoever receives finds it out, whoever sends is told. */
Test(connection_end, a_break_by_the_receiver_wakes_the_sender) {
    const os_directory directory = {core_directory, false};
    const gpuipc_outgoing empty = {.struct_size = sizeof(empty)};
    static const uint8_t garbage[64] = {1};
    os_connection *theirs;
    core_waiter self;
    connect_pair();
    check_ok(os_connection_open(&directory, pair.name, os_deadline_after(SOON_MS), &theirs));
    check_ok(gpuipc_connection_close(pair.server));
    check_ok(gpuipc_listener_accept(pair.listener, SOON_MS, &pair.server));
    while (gpuipc_connection_send(pair.server, &empty, 0) == GPUIPC_OK) {
    }
    core_waiter_start(&self, wait_in_send, pair.server);
    check_ok(
        os_connection_send(theirs, garbage, sizeof(garbage), NULL, 0, os_deadline_after(SOON_MS)));
    check_status(GPUIPC_ERR_PROTOCOL, core_receive(pair.server, NULL, 0));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, core_waiter_end(&self));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, core_send(pair.server, NULL, 0));
    os_connection_destroy(theirs);
    core_pair_close(&pair);
}

static gpuipc_status wait_in_send_of_many(void *buffer) {
    enum {
        COUNT = OS_PACKET_HANDLES_MAX + 10
    };
    gpuipc_buffer *buffers[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        buffers[i] = buffer;
    }
    return core_send(pair.client, buffers, COUNT);
}

/* The way to the peer has room for just one packet of the two; in place of the other comes the end. */
Test(connection_end, what_the_peer_said_before_its_end_outlives_a_message_cut_in_two) {
    const gpuipc_outgoing empty = {.struct_size = sizeof(empty)};
    const gpuipc_outgoing words = {.struct_size = sizeof(words), .bytes = "bye", .bytes_size = 4};
    gpuipc_buffer *small = core_buffer(core_unit, 0);
    char came[4] = "";
    gpuipc_incoming in = {.struct_size = sizeof(in), .bytes = came, .bytes_capacity = sizeof(came)};
    core_waiter self;
    connect_pair();
    while (gpuipc_connection_send(pair.client, &empty, 0) == GPUIPC_OK) {
    }
    check_ok(core_receive(pair.server, NULL, 0));
    core_waiter_start(&self, wait_in_send_of_many, small);
    check_ok(gpuipc_connection_send(pair.server, &words, SOON_MS));
    check_ok(gpuipc_connection_close(pair.server));
    pair.server = NULL;
    check_status(GPUIPC_ERR_PEER_CLOSED, core_waiter_end(&self));
    check_ok(gpuipc_connection_receive(pair.client, &in, SOON_MS));
    cr_assert_str_eq(came, "bye");
    check_status(GPUIPC_ERR_PEER_CLOSED, core_receive(pair.client, NULL, 0));
    check_ok(gpuipc_buffer_release(small));
    core_pair_close(&pair);
}

/* SPDX-License-Identifier: MIT */
/** @file See growth.h: calls about listeners, connections and contents. */
#include "growth.h"

/* ---- listeners -------------------------------------------------------------------------------------- */

static void open_listener(unsigned i) {
    unique_name(growth_items[i].name);
    MUST(
        gpuipc_listener_open(world.context, growth_items[i].name, NULL, &growth_items[i].listener));
}

static void close_listener(unsigned i) {
    MUST(gpuipc_listener_close(growth_items[i].listener));
}

static void get_listener_wait_handle(unsigned i) {
    intptr_t handle = 0;
    (void)i;
    MUST(gpuipc_listener_get_wait_handle(world.listener, &handle));
}

/* ---- connections -------------------------------------------------------------------------------------- */

static void open_connection(unsigned i) {
    MUST(gpuipc_connection_open(world.context, world.listener_name, NULL, GROWTH_SOON_MS,
                                &growth_items[i].connection));
}

static void accept(unsigned i) {
    MUST(gpuipc_listener_accept(world.listener, GROWTH_SOON_MS, &growth_items[i].accepted));
}

static void open_and_accept(unsigned i) {
    open_connection(i);
    accept(i);
}

static void close_connection(unsigned i) {
    MUST(gpuipc_connection_close(growth_items[i].connection));
}

static void close_accepted(unsigned i) {
    MUST(gpuipc_connection_close(growth_items[i].accepted));
}

static void close_both(unsigned i) {
    close_connection(i);
    close_accepted(i);
}

static void accept_and_close(unsigned i) {
    accept(i);
    close_both(i);
}

static void get_peer(unsigned i) {
    gpuipc_peer_info info = GPUIPC_PEER_INFO_INIT;
    (void)i;
    MUST(gpuipc_connection_get_peer(world.client, &info));
}

static void get_wait_handle(unsigned i) {
    intptr_t handle = 0;
    (void)i;
    MUST(gpuipc_connection_get_wait_handle(world.client, &handle));
}

/* ---- messages --------------------------------------------------------------------------------------------- */

static void send_buffer(gpuipc_buffer *sent) {
    const gpuipc_outgoing out = {.struct_size = sizeof(out),
                                 .buffers = &sent,
                                 .buffer_count = 1,
                                 .flags = GPUIPC_SEND_READY};
    MUST(gpuipc_connection_send(world.client, &out, GROWTH_SOON_MS));
}

static void send_own(unsigned i) {
    (void)i;
    send_buffer(world.own);
}

static void send_idle(unsigned i) {
    (void)i;
    send_buffer(world.idle);
}

static void receive(unsigned i) {
    gpuipc_incoming in = {
        .struct_size = sizeof(in), .buffers = &growth_items[i].buffer, .buffer_capacity = 1};
    MUST(gpuipc_connection_receive(world.accepted, &in, GROWTH_SOON_MS));
}

static void release(unsigned i) {
    MUST(gpuipc_buffer_release(growth_items[i].buffer));
}

static void receive_and_release(unsigned i) {
    receive(i);
    release(i);
}

static char bytes[64];

static void send_bytes(unsigned i) {
    const gpuipc_outgoing out = {
        .struct_size = sizeof(out), .bytes = bytes, .bytes_size = sizeof(bytes)};
    (void)i;
    MUST(gpuipc_connection_send(world.client, &out, GROWTH_SOON_MS));
}

static void receive_bytes(unsigned i) {
    gpuipc_incoming in = {
        .struct_size = sizeof(in), .bytes = bytes, .bytes_capacity = sizeof(bytes)};
    (void)i;
    MUST(gpuipc_connection_receive(world.accepted, &in, GROWTH_SOON_MS));
}

/* ---- contents ---------------------------------------------------------------------------------------------- */

#define CONTENTS_IN_ROW 4u

static void send_contents(unsigned i) {
    const gpuipc_contents contents = {.struct_size = sizeof(contents),
                                      .buffer = world.idle,
                                      .bytes = 4096,
                                      .stream = world.sends};
    (void)i;
    MUST(gpuipc_connection_send_contents(world.contents_accepted, &contents, GROWTH_SOON_MS));
}

static void receive_contents(unsigned i) {
    const gpuipc_contents contents = {.struct_size = sizeof(contents),
                                      .buffer = world.into,
                                      .bytes = 4096,
                                      .stream = world.receives};
    (void)i;
    MUST(gpuipc_connection_receive_contents(world.contents_client, &contents, GROWTH_SOON_MS));
}

static void pass(unsigned i) {
    (void)i;
    MUST_CUDA(world.driver.cuStreamSynchronize(world.sends));
    MUST_CUDA(world.driver.cuStreamSynchronize(world.receives));
}

/* The sender's stream passes when all that was sent is received. */
static void receive_contents_and_pass(unsigned i) {
    receive_contents(i);
    if (i + 1 == CONTENTS_IN_ROW) {
        pass(i);
    }
}

static const growth_call calls[] = {
    {"gpuipc_listener_open", NULL, NULL, open_listener, close_listener, 0, NULL},
    {"gpuipc_listener_close", NULL, open_listener, close_listener, NULL, 0, NULL},
    {"gpuipc_listener_get_wait_handle", NULL, NULL, get_listener_wait_handle, NULL, 0, NULL},
    {"gpuipc_listener_accept", NULL, open_connection, accept, close_both, 0, NULL},
    {"gpuipc_connection_open", NULL, NULL, open_connection, accept_and_close, 0, NULL},
    {"gpuipc_connection_close", NULL, open_and_accept, close_connection, close_accepted, 0, NULL},
    {"gpuipc_connection_get_peer", NULL, NULL, get_peer, NULL, 0, NULL},
    {"gpuipc_connection_get_wait_handle", NULL, NULL, get_wait_handle, NULL, 0, NULL},
    {"gpuipc_connection_send", "the population's buffer", NULL, send_own, receive_and_release, 0,
     NULL},
    {"gpuipc_connection_send", "bytes", NULL, send_bytes, receive_bytes, 0, NULL},
    {"gpuipc_connection_receive", "another buffer", send_idle, receive, release, 0, NULL},
    {"gpuipc_connection_receive", "bytes", send_bytes, receive_bytes, NULL, 0, NULL},
    {"gpuipc_connection_send_contents", NULL, NULL, send_contents, receive_contents_and_pass,
     CONTENTS_IN_ROW, NULL},
    {"gpuipc_connection_receive_contents", NULL, send_contents, receive_contents, pass,
     CONTENTS_IN_ROW, NULL},
};

const growth_calls growth_message_calls = {calls, sizeof(calls) / sizeof(calls[0])};

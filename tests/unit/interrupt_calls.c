/* SPDX-License-Identifier: MIT */
/** @file See interrupt_calls.h. */
#include "interrupt_calls.h"

#include "stream_gate.h"
#include "ticket_server.h"

os_connection *interrupt_peer;
gpuipc_connection *interrupt_silent; /* nobody sends on it, and nobody reads */

static gpuipc_listener *listener;
static gpuipc_server *server;
static ticket_server mute; /* accepts nobody */
static gpuipc_buffer *exported;
static gpuipc_buffer *imported; /* and never returned */
static core_pair pair;
static CUstream gated;       /* a stream that stands still */
static gpuipc_buffer *late;  /* received, and its contents are behind that stream */
static gpuipc_mark mark;     /* behind it, too */
static gpuipc_mark loan;     /* which nobody takes */
static gpuipc_channel *full; /* its one slot has a frame that nobody takes */
static gpuipc_subscription *reader;
static gpuipc_subscription *slow_reader;

static gpuipc_status call_accept(void *unused) {
    gpuipc_connection *made;
    (void)unused;
    return gpuipc_listener_accept(listener, -1, &made);
}

static gpuipc_status call_open(void *unused) {
    gpuipc_connection *made;
    (void)unused;
    return gpuipc_connection_open(core_context, "nobody-listens", NULL, -1, &made);
}

static gpuipc_status call_receive(void *unused) {
    char bytes[16];
    gpuipc_incoming in = {
        .struct_size = sizeof(in), .bytes = bytes, .bytes_capacity = sizeof(bytes)};
    (void)unused;
    return gpuipc_connection_receive(interrupt_silent, &in, -1);
}

static gpuipc_status send_some(size_t size, int timeout_ms) {
    static char bytes[4096];
    const gpuipc_outgoing out = {.struct_size = sizeof(out), .bytes = bytes, .bytes_size = size};
    gpuipc_status status;
    do {
        status = gpuipc_connection_send(interrupt_silent, &out, timeout_ms);
    } while (status == GPUIPC_OK);
    return status;
}

/* Until the peer that does not read holds no more. */
static gpuipc_status call_send(void *unused) {
    (void)unused;
    return send_some(4096, -1);
}

static gpuipc_contents contents_of(gpuipc_buffer *buffer) {
    return (gpuipc_contents){
        .struct_size = sizeof(gpuipc_contents), .buffer = buffer, .bytes = core_unit};
}

static gpuipc_status call_send_contents(void *unused) {
    const gpuipc_contents contents = contents_of(exported);
    (void)unused;
    /* to the last byte: a pipe still takes a small one where a large one has no room */
    return send_some(4096, 0) == GPUIPC_ERR_TIMEOUT && send_some(1, 0) == GPUIPC_ERR_TIMEOUT
               ? gpuipc_connection_send_contents(interrupt_silent, &contents, -1)
               : GPUIPC_ERR_OS;
}

static gpuipc_status call_receive_contents(void *unused) {
    const gpuipc_contents contents = contents_of(exported);
    (void)unused;
    return gpuipc_connection_receive_contents(interrupt_silent, &contents, -1);
}

static gpuipc_status call_await_returns(void *unused) {
    (void)unused;
    return gpuipc_buffer_await_returns(exported, -1);
}

static gpuipc_status call_server_poll(void *unused) {
    (void)unused;
    return gpuipc_server_poll(server, -1);
}

static gpuipc_status call_buffer_open(void *unused) {
    const gpuipc_open_config config = {.struct_size = sizeof(config), .timeout_ms = -1};
    const gpuipc_ticket silent = ticket_server_ticket(&mute, 0, core_unit);
    gpuipc_buffer *opened;
    (void)unused;
    return gpuipc_buffer_open(core_context, &silent, &config, &opened);
}

static gpuipc_status call_await_ready(void *unused) {
    (void)unused;
    return gpuipc_buffer_await_ready(late, -1);
}

static gpuipc_status call_await_mark(void *unused) {
    (void)unused;
    return gpuipc_buffer_await_mark(imported, &mark, -1);
}

static gpuipc_status call_await_loan(void *unused) {
    (void)unused;
    return gpuipc_buffer_await_loan(exported, &loan, -1);
}

static gpuipc_status call_await_loan_async(void *unused) {
    (void)unused;
    return gpuipc_buffer_await_loan_async(exported, &loan, NULL, -1);
}

static gpuipc_status call_channel_loan(void *unused) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    (void)unused;
    return gpuipc_channel_loan(full, GPUIPC_NO_STREAM, -1, &frame);
}

static gpuipc_status call_take(void *unused) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    (void)unused;
    return gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, -1, &frame);
}

static gpuipc_status call_subscription_open(void *unused) {
    const gpuipc_subscription_config config = {.struct_size = sizeof(config), .timeout_ms = -1};
    const gpuipc_ticket silent = ticket_server_ticket(&mute, 0, core_unit);
    gpuipc_subscription *opened;
    (void)unused;
    return gpuipc_subscription_open(core_context, &silent, &config, &opened);
}

static gpuipc_status call_subscription_open_named(void *unused) {
    const gpuipc_subscription_config config = {.struct_size = sizeof(config), .timeout_ms = -1};
    gpuipc_subscription *opened;
    (void)unused;
    return gpuipc_subscription_open_named(core_context, "nobody-writes", &config, &opened);
}

const interrupt_call interrupt_calls[INTERRUPT_CALLS] = {
    {"gpuipc_listener_accept", call_accept},
    {"gpuipc_connection_open", call_open},
    {"gpuipc_connection_receive", call_receive},
    {"gpuipc_connection_receive_contents", call_receive_contents},
    {"gpuipc_buffer_await_returns", call_await_returns},
    {"gpuipc_server_poll", call_server_poll},
    {"gpuipc_buffer_open", call_buffer_open},
    {"gpuipc_connection_send", call_send},
    {"gpuipc_connection_send_contents", call_send_contents},
    {"gpuipc_buffer_await_ready", call_await_ready},
    {"gpuipc_buffer_await_mark", call_await_mark},
    {"gpuipc_buffer_await_loan", call_await_loan},
    {"gpuipc_buffer_await_loan_async", call_await_loan_async},
    {"gpuipc_channel_loan", call_channel_loan},
    {"gpuipc_subscription_take", call_take},
    {"gpuipc_subscription_open", call_subscription_open},
    {"gpuipc_subscription_open_named", call_subscription_open_named},
};

static void connect_silent_peer(void) {
    const os_directory directory = {core_directory, false};
    char name[UNIQUE_NAME_MAX];
    unique_name(name);
    check_ok(gpuipc_listener_open(core_context, name, NULL, &listener));
    check_ok(os_connection_open(&directory, name, os_deadline_after(SOON_MS), &interrupt_peer));
    check_ok(gpuipc_listener_accept(listener, SOON_MS, &interrupt_silent));
}

/* What is behind a stream that stands still. */
static void put_behind_stream(void) {
    const gpuipc_outgoing out = {.struct_size = sizeof(out),
                                 .buffers = &exported,
                                 .buffer_count = 1,
                                 .flags = GPUIPC_SEND_ASYNC,
                                 .stream = gated};
    gpuipc_incoming in = {.struct_size = sizeof(in),
                          .buffers = &late,
                          .buffer_capacity = 1,
                          .flags = GPUIPC_RECEIVE_DEFERRED};
    check_ok(gpuipc_connection_send(pair.client, &out, SOON_MS));
    check_ok(gpuipc_connection_receive(pair.server, &in, SOON_MS));
    check_ok(gpuipc_buffer_mark(exported, gated, &mark));
}

/* One slot, one frame, and two readers: one of them came too late for it. */
static void fill_channel(void) {
    const gpuipc_channel_config config = {
        .struct_size = sizeof(config), .buffer = exported, .slots = 1, .slot_bytes = core_unit};
    gpuipc_ticket found_by;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_channel_create(server, &config, &full, &found_by));
    check_ok(gpuipc_subscription_open(core_context, &found_by, NULL, &slow_reader));
    check_ok(gpuipc_channel_loan(full, GPUIPC_NO_STREAM, SOON_MS, &frame));
    check_ok(gpuipc_channel_publish(full, &frame, GPUIPC_NO_STREAM));
    check_ok(gpuipc_subscription_open(core_context, &found_by, NULL, &reader));
}

void interrupt_begin(void) {
    core_start_without_context();
    gpuipc_context_config config = core_context_config();
    config.flags = GPUIPC_CONTEXT_INTERRUPTIBLE;
    core_open_context(&config);
    const gpuipc_server_config own = {.struct_size = sizeof(own)};
    check_ok(gpuipc_server_create(core_context, &own, &server));
    connect_silent_peer();
    core_pair_open(&pair, core_context, core_context);
    exported = core_buffer(core_unit, 0);
    check_ok(core_send(pair.client, &exported, 1));
    check_ok(core_receive(pair.server, &imported, 1));
    ticket_server_open(&mute, core_context, exported);
    stream_gate_make();
    gated = stream_gate_stream();
    stream_gate_close(gated);
    put_behind_stream();
    check_ok(gpuipc_buffer_lend_ready(exported, &loan));
    fill_channel();
}

void interrupt_finish(void) {
    stream_gate_open();
    stream_gate_synchronize(gated);
    stream_gate_stream_end(gated);
    stream_gate_end();
    check_ok(gpuipc_subscription_close(reader));
    check_ok(gpuipc_subscription_close(slow_reader));
    check_ok(gpuipc_channel_destroy(full));
    check_ok(gpuipc_buffer_release(late));
    check_ok(gpuipc_buffer_release(imported));
    check_ok(gpuipc_buffer_release(exported));
    core_pair_close(&pair);
    ticket_server_close(&mute);
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_connection_close(interrupt_silent));
    check_ok(gpuipc_listener_close(listener));
    os_connection_destroy(interrupt_peer);
    core_finish();
}

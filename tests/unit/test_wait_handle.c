/* SPDX-License-Identifier: MIT */
/** @file What a caller's own event loop waits for: clients, messages, and returns of a buffer. */
#include "native_ready.h"
#include "stream_gate.h"

static gpuipc_listener *listener;
static char name[UNIQUE_NAME_MAX];
static core_pair pair;
static gpuipc_buffer *buffer;
static intptr_t native;

static void begin(void) {
    core_start();
    unique_name(name);
    check_ok(gpuipc_listener_open(core_context, name, NULL, &listener));
    core_pair_open(&pair, core_context, core_context);
    buffer = core_buffer(core_unit, 0);
}

static void finish(void) {
    (void)!gpuipc_buffer_release(buffer);
    core_pair_close(&pair);
    check_ok(gpuipc_listener_close(listener));
    core_finish();
}

TestSuite(wait_handle, .init = begin, .fini = finish, .timeout = 60);

static bool is_ready(void) {
    return native_is_ready(native, 0);
}

static void check_gets_ready(void) {
    cr_assert(native_is_ready(native, SOON_MS));
}

enum {
    TRIES = 5
};

/* It may be ready for nothing; then the call finds nothing, and sets that right. */
static void check_rests(gpuipc_status (*look)(void)) {
    for (int i = 0; i < TRIES && is_ready(); i++) {
        check_status(GPUIPC_ERR_TIMEOUT, look());
    }
    cr_assert_not(is_ready());
}

/* ---- listeners --------------------------------------------------------------------------------- */

static gpuipc_connection *connect_one(void) {
    gpuipc_connection *made = NULL;
    check_ok(gpuipc_connection_open(core_context, name, NULL, SOON_MS, &made));
    return made;
}

static gpuipc_status look_for_clients(void) {
    gpuipc_connection *none;
    return gpuipc_listener_accept(listener, 0, &none);
}

Test(wait_handle, a_listener_is_ready_while_somebody_waits_to_be_accepted) {
    gpuipc_connection *ours[2];
    gpuipc_connection *theirs[2];
    intptr_t again = 0;
    check_ok(gpuipc_listener_get_wait_handle(listener, &native));
    check_ok(gpuipc_listener_get_wait_handle(listener, &again));
    cr_assert_eq(native, again);
    check_rests(look_for_clients);
    theirs[0] = connect_one();
    theirs[1] = connect_one();
    check_gets_ready();
    cr_assert(is_ready(), "it stays so");
    check_ok(gpuipc_listener_accept(listener, 0, &ours[0]));
    check_gets_ready();
    check_ok(gpuipc_listener_accept(listener, SOON_MS, &ours[1]));
    check_rests(look_for_clients);
    for (int i = 0; i < 2; i++) {
        check_ok(gpuipc_connection_close(theirs[i]));
        check_ok(gpuipc_connection_close(ours[i]));
    }
}

Test(wait_handle, somebody_who_came_before_it_was_asked_for_is_seen) {
    gpuipc_connection *ours;
    gpuipc_connection *theirs = connect_one();
    check_ok(gpuipc_listener_get_wait_handle(listener, &native));
    check_gets_ready();
    check_ok(gpuipc_listener_accept(listener, 0, &ours));
    check_ok(gpuipc_connection_close(theirs));
    check_ok(gpuipc_connection_close(ours));
}

static gpuipc_status accept_one(void *out) {
    return gpuipc_listener_accept(listener, SOON_MS, out);
}

Test(wait_handle, a_thread_may_wait_in_accept_beside_it) {
    gpuipc_connection *ours = NULL;
    core_waiter waiter;
    check_ok(gpuipc_listener_get_wait_handle(listener, &native));
    core_waiter_begin(&waiter, accept_one, &ours);
    gpuipc_connection *theirs = connect_one();
    check_ok(core_waiter_end(&waiter));
    check_ok(gpuipc_connection_close(theirs));
    check_ok(gpuipc_connection_close(ours));
    check_rests(look_for_clients);
}

/* ---- connections ------------------------------------------------------------------------------- */

static void send_bytes(size_t size) {
    static char bytes[200000];
    const gpuipc_outgoing out = {.struct_size = sizeof(out), .bytes = bytes, .bytes_size = size};
    check_ok(gpuipc_connection_send(pair.client, &out, SOON_MS));
}

static gpuipc_status receive_bytes(size_t room, int timeout_ms) {
    static char bytes[200000];
    gpuipc_incoming in = {.struct_size = sizeof(in), .bytes = bytes, .bytes_capacity = room};
    return gpuipc_connection_receive(pair.server, &in, timeout_ms);
}

static gpuipc_status look_for_bytes(void) {
    return receive_bytes(10, 0);
}

Test(wait_handle, a_connection_is_ready_until_all_is_received) {
    check_ok(gpuipc_connection_get_wait_handle(pair.server, &native));
    check_rests(look_for_bytes);
    send_bytes(3);
    send_bytes(5);
    check_gets_ready();
    check_ok(receive_bytes(3, 0));
    check_gets_ready();
    check_ok(receive_bytes(5, 0));
    check_rests(look_for_bytes);
}

/* It is in the library then, and no more in the socket. */
Test(wait_handle, a_message_that_was_not_taken_keeps_it_ready) {
    const gpuipc_contents contents = {
        .struct_size = sizeof(contents), .buffer = buffer, .bytes = core_unit};
    check_ok(gpuipc_connection_get_wait_handle(pair.server, &native));
    send_bytes(10);
    check_gets_ready();
    check_status(GPUIPC_ERR_TOO_SMALL, receive_bytes(9, SOON_MS));
    cr_assert(is_ready());
    check_status(GPUIPC_ERR_OTHER_KIND,
                 gpuipc_connection_receive_contents(pair.server, &contents, 0));
    cr_assert(is_ready());
    check_ok(receive_bytes(10, 0));
    check_rests(look_for_bytes);
}

Test(wait_handle, a_message_that_was_there_before_it_was_asked_for_is_seen) {
    send_bytes(10);
    check_status(GPUIPC_ERR_TOO_SMALL, receive_bytes(9, SOON_MS));
    check_ok(gpuipc_connection_get_wait_handle(pair.server, &native));
    cr_assert(is_ready());
    check_ok(receive_bytes(10, 0));
    check_rests(look_for_bytes);
}

static gpuipc_status send_much(void *unused) {
    (void)unused;
    send_bytes(200000); /* several packets */
    return GPUIPC_OK;
}

/* As an event loop does it: never waiting in the call. */
Test(wait_handle, a_message_in_parts_is_received_by_looking_only) {
    core_waiter sender;
    gpuipc_status status;
    check_ok(gpuipc_connection_get_wait_handle(pair.server, &native));
    for (int i = 0; i < 20; i++) {
        core_waiter_begin(&sender, send_much, NULL);
        do {
            check_gets_ready();
            status = receive_bytes(200000, 0);
        } while (status == GPUIPC_ERR_TIMEOUT);
        check_ok(status);
        check_ok(core_waiter_end(&sender));
    }
}

Test(wait_handle, the_end_of_the_peer_is_seen_and_stays) {
    check_ok(gpuipc_connection_get_wait_handle(pair.server, &native));
    check_ok(gpuipc_connection_close(pair.client));
    pair.client = NULL;
    check_gets_ready();
    check_status(GPUIPC_ERR_PEER_CLOSED, receive_bytes(1, 0));
    check_gets_ready();
}

static gpuipc_status receive_late(void *unused) {
    (void)unused;
    return receive_bytes(1, SOON_MS);
}

Test(wait_handle, who_receives_is_not_disturbed) {
    core_waiter waiter;
    core_waiter_start(&waiter, receive_late, NULL);
    check_status(GPUIPC_ERR_BUSY, gpuipc_connection_get_wait_handle(pair.server, &native));
    send_bytes(1);
    check_ok(core_waiter_end(&waiter));
    check_ok(gpuipc_connection_get_wait_handle(pair.server, &native));
    core_waiter_begin(&waiter, receive_late, NULL);
    send_bytes(1);
    check_ok(core_waiter_end(&waiter));
}

/* ---- returns ----------------------------------------------------------------------------------- */

static gpuipc_buffer *hand_over(void) {
    gpuipc_buffer *far = NULL;
    check_ok(core_send(pair.client, &buffer, 1));
    check_ok(core_receive(pair.server, &far, 1));
    return far;
}

Test(wait_handle, returns_are_told_once_all_are_back) {
    gpuipc_buffer *far[2];
    intptr_t again = 0;
    check_ok(gpuipc_buffer_get_returns_wait_handle(buffer, &native));
    cr_assert(is_ready(), "nobody has it");
    far[0] = hand_over();
    far[1] = hand_over();
    check_ok(gpuipc_buffer_get_returns_wait_handle(buffer, &again));
    cr_assert_eq(native, again);
    cr_assert_not(is_ready());
    check_ok(gpuipc_buffer_release(far[0]));
    cr_assert_not(native_is_ready(native, 50));
    check_ok(gpuipc_buffer_release(far[1]));
    check_gets_ready();
    check_ok(gpuipc_buffer_await_returns(buffer, 0));
    far[0] = hand_over();
    cr_assert(is_ready(), "it stays so until it is begun anew");
    check_ok(gpuipc_buffer_get_returns_wait_handle(buffer, &native));
    cr_assert_not(is_ready());
    check_ok(gpuipc_buffer_release(far[0]));
    check_gets_ready();
}

/* A return that a stream writes. */
Test(wait_handle, a_return_by_a_stream_is_told) {
    stream_gate_make();
    CUstream stream = stream_gate_stream();
    gpuipc_buffer *far = hand_over();
    stream_gate_close(stream);
    check_ok(gpuipc_buffer_release_async(far, stream));
    check_ok(gpuipc_buffer_get_returns_wait_handle(buffer, &native));
    cr_assert_not(native_is_ready(native, 50));
    stream_gate_open();
    check_gets_ready();
    stream_gate_synchronize(stream);
    stream_gate_stream_end(stream);
    stream_gate_end();
}

Test(wait_handle, a_buffer_that_is_released_meanwhile_is_no_longer_looked_at) {
    gpuipc_buffer *far = hand_over();
    check_ok(gpuipc_buffer_get_returns_wait_handle(buffer, &native));
    check_ok(gpuipc_buffer_release(buffer));
    buffer = NULL;
    check_ok(gpuipc_buffer_release(far));
}

Test(wait_handle, many_buffers_are_looked_at) {
    enum {
        MANY = 40
    };
    gpuipc_buffer *mine[MANY];
    gpuipc_buffer *far[MANY];
    intptr_t handles[MANY];
    for (int i = 0; i < MANY; i++) {
        mine[i] = core_buffer(core_unit, 0);
        check_ok(core_send(pair.client, &mine[i], 1));
        check_ok(core_receive(pair.server, &far[i], 1));
        check_ok(gpuipc_buffer_get_returns_wait_handle(mine[i], &handles[i]));
    }
    for (int i = 0; i < MANY; i++) {
        cr_assert_not(native_is_ready(handles[i], 0));
        check_ok(gpuipc_buffer_release(far[i]));
        cr_assert(native_is_ready(handles[i], SOON_MS));
    }
    for (int i = 0; i < MANY; i++) {
        check_ok(gpuipc_buffer_release(mine[i]));
    }
}

Test(wait_handle, arguments_are_checked) {
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_listener_get_wait_handle(listener, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_connection_get_wait_handle(pair.client, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_get_returns_wait_handle(buffer, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_listener_get_wait_handle(NULL, &native));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_connection_get_wait_handle(NULL, &native));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_get_returns_wait_handle(NULL, &native));
}

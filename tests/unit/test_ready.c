/* SPDX-License-Identifier: MIT */
/** @file Contents that are made later: received without waiting, and waited for afterwards, by streams and by the host.
 *  Both ends are in this process. */
#include "message/connection.h"
#include "stream_gate.h"

static core_pair pair;
static gpuipc_context *other;
static gpuipc_buffer *sent;
static gpuipc_buffer *received;
static CUstream producer;
static CUstream first;
static CUstream second;

static void begin(void) {
    core_start();
    other = core_context_new();
    stream_gate_make();
    producer = stream_gate_stream();
    first = stream_gate_stream();
    second = stream_gate_stream();
    core_pair_open(&pair, other, core_context);
    sent = core_buffer(core_unit, 0);
    core_write_pattern(sent, 5);
}

static void finish(void) {
    stream_gate_open(); /* also after a failure */
    (void)gpuipc_buffer_release(received);
    (void)gpuipc_buffer_release(sent);
    core_pair_close(&pair);
    stream_gate_stream_end(second);
    stream_gate_stream_end(first);
    stream_gate_stream_end(producer);
    stream_gate_end();
    (void)gpuipc_context_destroy(other);
    core_finish();
}

TestSuite(ready, .init = begin, .fini = finish, .timeout = 60);

static uint64_t stream_waits(void) {
    return core_calls("cuStreamWaitValue64") + core_calls("cuStreamBatchMemOp");
}

static gpuipc_status receive(uint32_t flags) {
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .buffers = &received,
                               .buffer_capacity = 1,
                               .flags = flags,
                               .stream = first};
    return gpuipc_connection_receive(pair.server, &message, SOON_MS);
}

/* Contents that are not there before stream_gate_open(). */
static void send_late(void) {
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &sent,
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_ASYNC,
                                     .stream = producer};
    stream_gate_close(producer);
    check_ok(gpuipc_connection_send(pair.client, &message, SOON_MS));
}

static void receive_late(void) {
    send_late();
    check_ok(receive(GPUIPC_RECEIVE_DEFERRED));
}

static void settle(void) {
    stream_gate_open();
    stream_gate_synchronize(producer);
    stream_gate_synchronize(first);
    stream_gate_synchronize(second);
}

/* ---- later --------------------------------------------------------------------------------- */

Test(ready, neither_the_call_nor_a_stream_waits_when_that_is_deferred) {
    send_late();
    if (core_is_emulated) {
        core_set_failures("");
    }
    check_ok(receive(GPUIPC_RECEIVE_DEFERRED | GPUIPC_RECEIVE_ASYNC));
    if (core_is_emulated) {
        cr_assert_eq(stream_waits(), 0);
    }
    stream_gate_synchronize(first);
    cr_assert_eq(core_info(received).is_ready, 0);
    cr_assert_eq(core_info(received).is_lost, 0);
    settle();
    cr_assert_eq(core_info(received).is_ready, 1);
    core_check_pattern(received, 5);
}

Test(ready, any_stream_waits_any_number_of_times) {
    receive_late();
    for (int i = 0; i < 3; i++) {
        check_ok(gpuipc_buffer_await_ready_async(received, first));
    }
    check_ok(gpuipc_buffer_await_ready_async(received, second));
    stream_gate_check_waits(first);
    stream_gate_check_waits(second);
    cr_assert_eq(core_info(received).is_ready, 0);
    settle();
    cr_assert_eq(core_info(received).is_ready, 1);
    core_check_pattern(received, 5);
}

Test(ready, nothing_is_put_on_a_stream_when_they_are_there) {
    receive_late();
    settle();
    if (core_is_emulated) {
        core_set_failures("");
    }
    check_ok(gpuipc_buffer_await_ready_async(received, first));
    check_ok(gpuipc_buffer_await_ready(received, 0));
    if (core_is_emulated) {
        cr_assert_eq(core_calls(NULL), 0);
    }
}

static gpuipc_status await_on_host(void *of) {
    return gpuipc_buffer_await_ready(of, SOON_MS);
}

Test(ready, the_host_waits_until_the_time_is_over_or_they_are_there) {
    core_waiter waiter;
    receive_late();
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_ready(received, 0));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_ready(received, 20));
    core_waiter_start(&waiter, await_on_host, received);
    stream_gate_open();
    check_ok(core_waiter_end(&waiter));
    cr_assert_eq(core_info(received).is_ready, 1);
    settle();
}

/* Where one stream cannot be made to wait as it should, the others must not be let go for that. */
Test(ready, a_failure_on_one_stream_leaves_the_others_waiting) {
    core_need_emulated();
    receive_late();
    check_ok(gpuipc_buffer_await_ready_async(received, first));
    core_set_failures("cuStreamBatchMemOp:1=719");
    check_status(GPUIPC_ERR_CUDA, gpuipc_buffer_await_ready_async(received, second));
    core_set_failures("");
    stream_gate_check_waits(first);
    cr_assert_eq(core_info(received).is_ready, 0);
    settle();
}

Test(ready, a_stream_that_is_captured_is_refused) {
    core_need_emulated();
    receive_late();
    core_set_captured(true, first);
    check_status(GPUIPC_ERR_CUDA, gpuipc_buffer_await_ready_async(received, first));
    core_set_captured(false, NULL);
    settle();
}

static gpuipc_status receive_ready(void *argument) {
    gpuipc_incoming message = {
        .struct_size = sizeof(message), .buffers = &received, .buffer_capacity = 1};
    (void)argument;
    return gpuipc_connection_receive(pair.server, &message, -1);
}

/* As a sender does whose message has left in part. */
Test(ready, who_breaks_the_connection_off_wakes_who_waits) {
    core_waiter waiter;
    connection *self;
    send_late();
    core_waiter_start(&waiter, receive_ready, NULL);
    check_ok(connection_acquire(pair.server, &self));
    connection_break(self);
    connection_unreference(self);
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, core_waiter_end(&waiter));
    settle();
}

Test(ready, who_closes_the_connection_wakes_who_waits) {
    core_waiter waiter;
    send_late();
    core_waiter_start(&waiter, receive_ready, NULL);
    check_ok(gpuipc_connection_close(pair.server));
    pair.server = NULL;
    check_status(GPUIPC_ERR_RELEASED, core_waiter_end(&waiter));
    settle();
}

/* ---- of which buffers ---------------------------------------------------------------------- */

Test(ready, what_was_made_or_wrapped_here_is) {
    gpuipc_buffer *wrapped = NULL;
    check_ok(gpuipc_buffer_wrap(core_context, core_info(sent).address, 64, &wrapped));
    cr_assert_eq(core_info(sent).is_ready, 1);
    cr_assert_eq(core_info(wrapped).is_ready, 1);
    check_ok(gpuipc_buffer_await_ready(sent, 0));
    check_ok(gpuipc_buffer_await_ready(wrapped, 0));
    check_ok(gpuipc_buffer_await_ready_async(wrapped, first));
    check_ok(gpuipc_buffer_release(wrapped));
}

Test(ready, a_view_is_when_what_it_is_over_is) {
    const gpuipc_share_config at_once = {.struct_size = sizeof(at_once),
                                         .flags = GPUIPC_SEND_READY};
    gpuipc_server *server = NULL;
    gpuipc_buffer *view = NULL;
    gpuipc_ticket ticket;
    send_late();
    check_ok(receive(GPUIPC_RECEIVE_DEFERRED | GPUIPC_RECEIVE_KEEP_HANDLES));
    check_ok(gpuipc_server_create(other, NULL, &server));
    check_ok(gpuipc_buffer_share(server, received, &at_once, &ticket));
    check_ok(gpuipc_buffer_open(core_context, &ticket, NULL, &view)); /* of another context */
    cr_assert_eq(core_info(view).is_ready, 0);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_ready(view, 0));
    check_ok(gpuipc_buffer_await_ready_async(view, second));
    check_ok(gpuipc_buffer_await_ready_async(received, first));
    stream_gate_check_waits(second);
    settle();
    cr_assert_eq(core_info(view).is_ready, 1);
    check_ok(gpuipc_buffer_await_ready(view, 0));
    check_ok(gpuipc_buffer_release(view));
    check_ok(gpuipc_server_destroy(server));
}

typedef struct again {
    gpuipc_context *by;
    gpuipc_ticket ticket;
} again;

static gpuipc_status open_again(void *argument) {
    again *self = argument;
    gpuipc_buffer *opened = NULL;
    check_refused(GPUIPC_ERR_RELEASED, "the context destroyed",
                  gpuipc_buffer_open(self->by, &self->ticket, NULL, &opened));
    return GPUIPC_ERR_RELEASED;
}

Test(ready, who_waits_in_an_opening_is_told_that_the_context_was_destroyed) {
    const gpuipc_share_config at_once = {.struct_size = sizeof(at_once),
                                         .flags = GPUIPC_SEND_READY};
    again self = {.by = core_context_new()};
    gpuipc_server *server = NULL;
    gpuipc_buffer *view = NULL;
    core_waiter waiter;
    send_late();
    check_ok(receive(GPUIPC_RECEIVE_DEFERRED | GPUIPC_RECEIVE_KEEP_HANDLES));
    check_ok(gpuipc_server_create(other, NULL, &server));
    check_ok(gpuipc_buffer_share(server, received, &at_once, &self.ticket));
    check_ok(gpuipc_buffer_open(self.by, &self.ticket, NULL, &view));
    core_waiter_start(&waiter, open_again, &self);
    check_ok(gpuipc_context_destroy(self.by));
    cr_assert_eq(core_waiter_end(&waiter), GPUIPC_ERR_RELEASED);
    settle();
    check_ok(gpuipc_buffer_release(view));
    check_ok(gpuipc_server_destroy(server));
}

Test(ready, what_was_returned_or_given_up_answers_so) {
    receive_late();
    settle();
    check_ok(gpuipc_buffer_return_async(received, first));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_await_ready(received, 0));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_await_ready_async(received, first));
    stream_gate_synchronize(first);
    check_ok(gpuipc_buffer_release(received));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_await_ready(received, 0));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_await_ready_async(received, first));
    received = NULL;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_await_ready(NULL, 0));
}

Test(ready, what_nobody_waited_for_is_released_and_comes_back) {
    receive_late();
    check_ok(gpuipc_buffer_release(received));
    received = NULL;
    check_ok(gpuipc_buffer_await_returns(sent, SOON_MS));
    settle();
}

Test(ready, a_flag_that_is_not_known_is_refused) {
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, receive(GPUIPC_RECEIVE_DEFERRED << 1));
}

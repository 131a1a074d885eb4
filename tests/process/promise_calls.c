/* SPDX-License-Identifier: MIT */
/** @file See promise_peer.h: a call of each function, between what prepares it and what undoes it. */
#include <gpuipc/gpuipc_native.h>

#include "check.h"
#include "process_case.h"
#include "promise_world.h"

uint64_t promise_begun_ns;
uint64_t promise_took_ns;

/* In a config 0 stands for five seconds. */
static int32_t config_timeout(int timeout_ms) {
    return timeout_ms == 0 ? 1 : timeout_ms;
}

/* ---- with a time-out ---------------------------------------------------------------------------- */

/* A function whose call needs nothing beside it. */
#define TIMED(function, ...)                                                                       \
    PROMISE_CALL(function) {                                                                       \
        gpuipc_status status;                                                                      \
        MEASURE(status, function(__VA_ARGS__, timeout_ms));                                        \
        return status;                                                                             \
    }

TIMED(gpuipc_buffer_await_loan, world.own, &world.loan)
TIMED(gpuipc_buffer_await_loan_async, world.own, &world.loan, NULL)
TIMED(gpuipc_buffer_await_mark, world.imported[0], &world.mark)
TIMED(gpuipc_buffer_await_ready, world.imported[0])
TIMED(gpuipc_buffer_await_returns, world.own)
TIMED(gpuipc_server_poll, world.polled)

PROMISE_CALL(gpuipc_buffer_open) {
    const gpuipc_open_config config = {.struct_size = sizeof(config),
                                       .timeout_ms = config_timeout(timeout_ms)};
    gpuipc_buffer *opened = NULL;
    gpuipc_status status;
    MEASURE(status, gpuipc_buffer_open(world.context, &world.their_ticket, &config, &opened));
    check_ok(gpuipc_buffer_release(opened));
    return status;
}

PROMISE_CALL(gpuipc_channel_loan) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status;
    MEASURE(status, gpuipc_channel_loan(world.channel, GPUIPC_NO_STREAM, timeout_ms, &frame));
    if (status == GPUIPC_OK) { /* of a reader that is dead */
        check_ok(gpuipc_channel_discard(world.channel, &frame));
    }
    return status;
}

/* Where the other one is to be reached, its listener lets whoever comes wait in a row. */
PROMISE_CALL(gpuipc_connection_open) {
    static unsigned turn;
    const char *const name = turn++ % 2 == 0 ? world.nobody : world.their_name;
    gpuipc_connection *made = NULL;
    gpuipc_status status;
    MEASURE(status, gpuipc_connection_open(world.context, name, NULL, timeout_ms, &made));
    check_ok(gpuipc_connection_close(made));
    return status;
}

PROMISE_CALL(gpuipc_connection_receive) {
    char bytes[16];
    gpuipc_incoming in = {
        .struct_size = sizeof(in), .bytes = bytes, .bytes_capacity = sizeof(bytes)};
    gpuipc_status status;
    MEASURE(status, gpuipc_connection_receive(world.connection, &in, timeout_ms));
    return status;
}

PROMISE_CALL(gpuipc_connection_send) {
    static const char bytes[4096];
    const gpuipc_outgoing out = {
        .struct_size = sizeof(out), .bytes = bytes, .bytes_size = sizeof(bytes)};
    gpuipc_status status;
    MEASURE(status, gpuipc_connection_send(world.connection, &out, timeout_ms));
    return status;
}

static gpuipc_contents all_of(gpuipc_buffer *buffer) {
    return (gpuipc_contents){
        .struct_size = sizeof(gpuipc_contents), .buffer = buffer, .bytes = MEBIBYTES_2};
}

PROMISE_CALL(gpuipc_connection_send_contents) {
    const gpuipc_contents contents = all_of(world.own);
    gpuipc_status status;
    MEASURE(status, gpuipc_connection_send_contents(world.connection, &contents, timeout_ms));
    return status;
}

PROMISE_CALL(gpuipc_connection_receive_contents) {
    const gpuipc_contents contents = all_of(world.own);
    gpuipc_status status;
    MEASURE(status, gpuipc_connection_receive_contents(world.connection, &contents, timeout_ms));
    return status;
}

PROMISE_CALL(gpuipc_listener_accept) {
    gpuipc_connection *made = NULL;
    gpuipc_status status;
    MEASURE(status, gpuipc_listener_accept(world.listener, timeout_ms, &made));
    check_ok(gpuipc_connection_close(made));
    return status;
}

static gpuipc_subscription_config subscription_config(int timeout_ms) {
    return (gpuipc_subscription_config){.struct_size = sizeof(gpuipc_subscription_config),
                                        .timeout_ms = config_timeout(timeout_ms)};
}

PROMISE_CALL(gpuipc_subscription_open) {
    const gpuipc_subscription_config config = subscription_config(timeout_ms);
    gpuipc_subscription *opened = NULL;
    gpuipc_status status;
    MEASURE(status,
            gpuipc_subscription_open(world.context, &world.their_channel, &config, &opened));
    check_ok(gpuipc_subscription_close(opened));
    return status;
}

PROMISE_CALL(gpuipc_subscription_open_named) {
    const gpuipc_subscription_config config = subscription_config(timeout_ms);
    gpuipc_subscription *opened = NULL;
    gpuipc_status status;
    MEASURE(status, gpuipc_subscription_open_named(world.context, world.their_channel_name, &config,
                                                   &opened));
    check_ok(gpuipc_subscription_close(opened));
    return status;
}

PROMISE_CALL(gpuipc_subscription_take) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status;
    MEASURE(status, gpuipc_subscription_take(world.reader, GPUIPC_NO_STREAM, timeout_ms, &frame));
    return status;
}

PROMISE_CALL(gpuipc_subscription_take_for_kernel) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_word ready;
    gpuipc_word returned;
    gpuipc_status status;
    MEASURE(status, gpuipc_subscription_take_for_kernel(world.reader, NULL, timeout_ms, &frame,
                                                        &ready, &returned));
    return status;
}

/* ---- without blocking --------------------------------------------------------------------------- */

/* A function whose call needs nothing beside it, and works. */
#define PROMPT(function, ...)                                                                      \
    PROMISE_CALL(function) {                                                                       \
        gpuipc_status status;                                                                      \
        (void)timeout_ms;                                                                          \
        MEASURE(status, function(__VA_ARGS__));                                                    \
        check_ok(status);                                                                          \
        return status;                                                                             \
    }

static intptr_t native;
static size_t count;
static uint32_t number;
static gpuipc_loan_state loan_state;
static gpuipc_device_info device = GPUIPC_DEVICE_INFO_INIT;
static gpuipc_buffer_info buffer_info = GPUIPC_BUFFER_INFO_INIT;
static gpuipc_context_info context_info = GPUIPC_CONTEXT_INFO_INIT;
static gpuipc_peer_info peer = GPUIPC_PEER_INFO_INIT;
static gpuipc_holder holders[4];
static gpuipc_reader_info readers[4];

PROMPT(gpuipc_buffer_copy_async, world.own, 0, world.own, 4096, 4096, NULL)
PROMPT(gpuipc_buffer_fill_async, world.own, 0, 4096, 1, 4, NULL)
PROMPT(gpuipc_buffer_get_info, world.imported[0], &buffer_info)
PROMPT(gpuipc_buffer_get_loan_states, world.own, &world.loan, 1, &loan_state)
PROMPT(gpuipc_buffer_get_returns_wait_handle, world.own, &native)
PROMPT(gpuipc_channel_readers, world.channel, readers, 4, &count)
PROMPT(gpuipc_connection_get_peer, world.connection, &peer)
PROMPT(gpuipc_connection_get_wait_handle, world.connection, &native)
PROMPT(gpuipc_context_get_info, world.context, &context_info)
PROMPT(gpuipc_context_wake, world.interruptible)
PROMPT(gpuipc_device_count, world.context, &number)
PROMPT(gpuipc_device_get_info, world.context, 0, &device)
PROMPT(gpuipc_listener_get_wait_handle, world.listener, &native)
PROMPT(gpuipc_server_get_wait_handle, world.polled, &native)
PROMPT(gpuipc_server_holders, world.server, &world.ticket, holders, 4, &count)
PROMPT(gpuipc_subscription_get_wait_handle, world.reader, &native)
PROMPT(gpuipc_buffer_return_async, world.imported[1 + world.given_up++], NULL)
PROMPT(gpuipc_buffer_drop_loan, world.imported[0], &world.to_drop[world.loans_dropped++])
PROMPT(gpuipc_buffer_return_loan, world.imported[0], &world.to_return[world.returned++])
PROMPT(gpuipc_buffer_return_loan_async, world.imported[0],
       &world.to_return_async[world.returned_async++], NULL)

PROMISE_CALL(gpuipc_device_find) {
    gpuipc_status status;
    (void)timeout_ms;
    check_ok(gpuipc_device_get_info(world.context, 0, &device));
    MEASURE(status, gpuipc_device_find(world.context, &device.uuid, &number));
    check_ok(status);
    return status;
}

PROMISE_CALL(gpuipc_subscription_check) {
    gpuipc_status status;
    (void)timeout_ms;
    MEASURE(status, gpuipc_subscription_check(world.reader));
    cr_assert_eq(status, promise_is_dead() ? GPUIPC_ERR_PEER_CLOSED : GPUIPC_OK, "%s",
                 gpuipc_error_text());
    return status;
}

/* The loans of a lender that is dead may be over. */
PROMISE_CALL(gpuipc_buffer_take_loan) {
    gpuipc_status status;
    (void)timeout_ms;
    MEASURE(status, gpuipc_buffer_take_loan(world.imported[0], &world.to_take[world.taken++]));
    cr_assert(status == GPUIPC_OK || promise_is_dead(), "%s", gpuipc_error_text());
    return status;
}

PROMISE_CALL(gpuipc_buffer_retain) {
    gpuipc_status status;
    (void)timeout_ms;
    MEASURE(status, gpuipc_buffer_retain(world.imported[0]));
    check_ok(status);
    check_ok(gpuipc_buffer_release(world.imported[0]));
    return status;
}

PROMISE_CALL(gpuipc_buffer_release_async) {
    gpuipc_status status;
    (void)timeout_ms;
    check_ok(gpuipc_buffer_retain(world.imported[0]));
    MEASURE(status, gpuipc_buffer_release_async(world.imported[0], NULL));
    check_ok(status);
    return status;
}

PROMISE_CALL(gpuipc_buffer_drop) {
    gpuipc_status status;
    (void)timeout_ms;
    check_ok(gpuipc_buffer_retain(world.imported[0]));
    MEASURE(status, gpuipc_buffer_drop(world.imported[0]));
    check_ok(status);
    return status;
}

PROMISE_CALL(gpuipc_buffer_find) {
    gpuipc_buffer *found = NULL;
    uint64_t offset = 0;
    gpuipc_status status;
    (void)timeout_ms;
    const uint64_t address = gpuipc_buffer_address(world.imported[0]);
    MEASURE(status, gpuipc_buffer_find(world.context, address, &found, &offset));
    check_ok(status);
    check_ok(gpuipc_buffer_release(found));
    return status;
}

PROMISE_CALL(gpuipc_buffer_lend_ready) {
    gpuipc_mark made;
    gpuipc_status status;
    (void)timeout_ms;
    MEASURE(status, gpuipc_buffer_lend_ready(world.own, &made));
    check_ok(status);
    check_ok(gpuipc_buffer_cancel_loan(world.own, &made));
    return status;
}

PROMISE_CALL(gpuipc_buffer_cancel_loan) {
    gpuipc_mark made;
    gpuipc_status status;
    (void)timeout_ms;
    check_ok(gpuipc_buffer_lend_ready(world.own, &made));
    MEASURE(status, gpuipc_buffer_cancel_loan(world.own, &made));
    check_ok(status);
    return status;
}

PROMISE_CALL(gpuipc_channel_create) {
    const gpuipc_channel_config config = {
        .struct_size = sizeof(config), .buffer = world.own, .slots = 1, .slot_bytes = 4096};
    gpuipc_channel *made;
    gpuipc_ticket of;
    gpuipc_status status;
    (void)timeout_ms;
    MEASURE(status, gpuipc_channel_create(world.server, &config, &made, &of));
    check_ok(status);
    check_ok(gpuipc_channel_destroy(made));
    return status;
}

PROMISE_CALL(gpuipc_channel_discard) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status;
    (void)timeout_ms;
    check_ok(gpuipc_channel_loan(world.free_channel, GPUIPC_NO_STREAM, 0, &frame));
    MEASURE(status, gpuipc_channel_discard(world.free_channel, &frame));
    check_ok(status);
    return status;
}

PROMISE_CALL(gpuipc_connection_close) {
    gpuipc_connection *made = NULL;
    gpuipc_status status;
    (void)timeout_ms;
    check_ok(gpuipc_connection_open(world.context, world.spare_name, NULL, PATIENCE_MS, &made));
    MEASURE(status, gpuipc_connection_close(made));
    check_ok(status);
    return status;
}

PROMISE_CALL(gpuipc_listener_open) {
    char name[UNIQUE_NAME_MAX];
    gpuipc_listener *made;
    gpuipc_status status;
    (void)timeout_ms;
    unique_name(name);
    MEASURE(status, gpuipc_listener_open(world.context, name, NULL, &made));
    check_ok(status);
    check_ok(gpuipc_listener_close(made));
    return status;
}

PROMISE_CALL(gpuipc_listener_close) {
    char name[UNIQUE_NAME_MAX];
    gpuipc_listener *made;
    gpuipc_status status;
    (void)timeout_ms;
    unique_name(name);
    check_ok(gpuipc_listener_open(world.context, name, NULL, &made));
    MEASURE(status, gpuipc_listener_close(made));
    check_ok(status);
    return status;
}

static void close_native(intptr_t value) {
    os_handle handle;
    check_ok(os_handle_adopt(value, &handle));
    os_handle_close(&handle);
}

PROMISE_CALL(gpuipc_native_export) {
    gpuipc_native_segment segment;
    gpuipc_native_layout layout = GPUIPC_NATIVE_LAYOUT_INIT;
    gpuipc_status status;
    (void)timeout_ms;
    MEASURE(status, gpuipc_native_export(world.own, &segment, 1, &layout, &count));
    check_ok(status);
    close_native(segment.handle.value);
    return status;
}

PROMISE_CALL(gpuipc_native_export_dmabuf) {
    gpuipc_native_dmabuf made = GPUIPC_NATIVE_DMABUF_INIT;
    gpuipc_status status;
    (void)timeout_ms;
    MEASURE(status, gpuipc_native_export_dmabuf(world.own, 0, MEBIBYTES_2, &made));
    if (status == GPUIPC_OK) {
        close_native(made.handle.value);
    } else {
        cr_assert_eq(status, GPUIPC_ERR_NOT_SUPPORTED, "%s", gpuipc_error_text());
    }
    return status;
}

PROMISE_CALL(gpuipc_server_revoke) {
    gpuipc_ticket made;
    gpuipc_status status;
    (void)timeout_ms;
    check_ok(gpuipc_buffer_share(world.server, world.own, NULL, &made));
    MEASURE(status, gpuipc_server_revoke(world.server, &made));
    check_ok(status);
    return status;
}

PROMISE_CALL(gpuipc_subscription_give_back) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status;
    (void)timeout_ms;
    check_ok(gpuipc_subscription_take(world.reader, GPUIPC_NO_STREAM, 0, &frame));
    MEASURE(status, gpuipc_subscription_give_back(world.reader, &frame, GPUIPC_NO_STREAM));
    check_ok(status);
    return status;
}

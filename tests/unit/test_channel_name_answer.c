/* SPDX-License-Identifier: MIT */
/** @file Who has the name of a channel and answers as no server does. */
#include "channel_case.h"
#include "message/connection.h"
#include "message/wire.h"
#include "ticket/ticket_request.h"

TestSuite(channel_name_answer, .init = channel_start, .fini = channel_finish, .timeout = 60);

static gpuipc_status open_soon(void *reader) {
    const gpuipc_subscription_config config = {.struct_size = sizeof(config),
                                               .timeout_ms = SOON_MS};
    return gpuipc_subscription_open_named(core_context, "frames", &config, reader);
}

/* Answers the one who asks for "frames", by hand. @return what the asking came to */
static gpuipc_status ask_who_replies(const wire_reply *reply, uint32_t attached) {
    uint8_t packed[WIRE_REPLY_BYTES + 512] = {0};
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .bytes = packed,
                                     .bytes_size = WIRE_REPLY_BYTES + attached,
                                     .flags = GPUIPC_SEND_READY};
    const letter as = {.kind = WIRE_REPLY};
    gpuipc_listener *there = NULL;
    gpuipc_connection *one = NULL;
    gpuipc_subscription *reader = NULL;
    connection *to;
    core_waiter waiter;
    wire_encode_reply(reply, packed);
    check_ok(gpuipc_listener_open(core_context, "channel-frames", NULL, &there));
    core_waiter_begin(&waiter, open_soon, &reader);
    check_ok(gpuipc_listener_accept(there, SOON_MS, &one));
    check_ok(connection_acquire(one, &to));
    check_ok(connection_send_message(to, &message, &as, SOON_MS));
    connection_unreference(to);
    const gpuipc_status status = core_waiter_end(&waiter);
    check_ok(gpuipc_connection_close(one));
    check_ok(gpuipc_listener_close(there));
    cr_assert_null(reader);
    return status;
}

static gpuipc_status ask_who_answers(wire_answer answer, uint32_t attached) {
    const wire_reply reply = {.answer = (uint16_t)answer, .attachment_bytes = attached};
    return ask_who_replies(&reply, attached);
}

/* The waiter's record is its thread's, so the caller's own is looked at. */
static void check_busy(uint16_t why, uint32_t limit, const char *number, const char *setting) {
    const wire_reply reply = {.answer = WIRE_BUSY, .flags = why, .attachment_bytes = limit};
    check_refused(GPUIPC_ERR_SERVER_BUSY, number, ticket_reply_status(&reply));
    check_refused(GPUIPC_ERR_SERVER_BUSY, setting, ticket_reply_status(&reply));
    cr_assert_eq(ask_who_replies(&reply, 0), GPUIPC_ERR_SERVER_BUSY);
}

Test(channel_name_answer, a_server_that_is_full_says_of_what_and_which_setting_that_is) {
    check_busy(WIRE_BUSY_USER, 1024, "has 1024 connections of this user",
               "raise max_connections_per_user ");
    check_busy(WIRE_BUSY_ALL, 4096, "has 4096 connections,", "raise max_connections ");
    check_busy(WIRE_BUSY_HANDLES, 1000, "may open 1000 descriptors", "ulimit -n");
    check_busy(WIRE_BUSY_POLICY, 0, "policy", "refuses this process");
    check_busy(WIRE_BUSY_OPEN, 0, "as much open", "as it may");
    check_busy(WIRE_BUSY_LATER, 700, "in 700 ms", "long replies to this user's");
    check_busy(WIRE_BUSY_LATER + 1, 7, "as much open", "as it may"); /* of a later version */
}

Test(channel_name_answer, each_answer_to_who_asks_for_a_name_has_a_status) {
    cr_assert_eq(ask_who_answers(WIRE_BUSY, 0), GPUIPC_ERR_SERVER_BUSY);
    cr_assert_eq(ask_who_answers(WIRE_OTHER, 0), GPUIPC_ERR_OTHER_KIND);
    cr_assert_eq(ask_who_answers(WIRE_GRANTED, 0), GPUIPC_ERR_PROTOCOL);
    cr_assert_eq(ask_who_answers(WIRE_GRANTED, sizeof(gpuipc_ticket) - 1), GPUIPC_ERR_PROTOCOL);
}

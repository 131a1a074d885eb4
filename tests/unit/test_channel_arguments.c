/* SPDX-License-Identifier: MIT */
/** @file Every call of channels with arguments that are NULL, closed, of another kind or out of bounds: it answers, and the
 *  channel and its reader go on as before. */
#include "channel_case.h"

TestSuite(channel_arguments, .init = channel_start, .fini = channel_finish, .timeout = 60);

/* ---- objects ----------------------------------------------------------------------------------- */

static void check_channel(gpuipc_channel *of, gpuipc_status expected) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_stream stream = NULL;
    gpuipc_word word;
    size_t count = 7;
    check_status(expected, gpuipc_channel_loan(of, GPUIPC_NO_STREAM, 0, &frame));
    check_status(expected, gpuipc_channel_publish(of, &frame, GPUIPC_NO_STREAM));
    check_status(expected, gpuipc_channel_discard(of, &frame));
    check_status(expected, gpuipc_channel_readers(of, NULL, 0, &count));
    check_status(expected, gpuipc_channel_publish_by_kernel(of, &frame, stream, &word, 1, &count));
    check_status(expected, gpuipc_channel_kernel_launched(of, &frame, stream));
    cr_assert_eq(count, 7, "what failed has answered");
}

static void check_subscription(gpuipc_subscription *of, gpuipc_status expected) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_stream stream = NULL;
    gpuipc_word words[2];
    intptr_t handle = 7;
    check_status(expected, gpuipc_subscription_take(of, GPUIPC_NO_STREAM, 0, &frame));
    check_status(expected, gpuipc_subscription_check(of));
    check_status(expected, gpuipc_subscription_give_back(of, &frame, GPUIPC_NO_STREAM));
    check_status(expected, gpuipc_subscription_get_wait_handle(of, &handle));
    check_status(expected,
                 gpuipc_subscription_take_for_kernel(of, stream, 0, &frame, &words[0], &words[1]));
    check_status(expected, gpuipc_subscription_kernel_launched(of, &frame, stream));
    cr_assert_eq(handle, 7, "what failed has answered");
}

Test(channel_arguments, objects_that_are_none) {
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    gpuipc_subscription *reader = channel_case_open(NULL);
    check_channel(NULL, GPUIPC_ERR_INVALID_ARGUMENT);
    check_subscription(NULL, GPUIPC_ERR_INVALID_ARGUMENT);
    check_channel((gpuipc_channel *)(void *)reader, GPUIPC_ERR_RELEASED);
    check_subscription((gpuipc_subscription *)(void *)channel_case_channel, GPUIPC_ERR_RELEASED);
    channel_case_send();
    cr_assert_eq(channel_case_receive(reader), 1);
    check_ok(gpuipc_subscription_close(reader));
    check_subscription(reader, GPUIPC_ERR_RELEASED);
    check_status(GPUIPC_ERR_RELEASED, gpuipc_subscription_close(reader));
    check_ok(gpuipc_subscription_close(NULL));
}

Test(channel_arguments, objects_that_were_given_up) {
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    gpuipc_channel *const gone = channel_case_channel;
    check_ok(gpuipc_channel_destroy(gone));
    channel_case_channel = NULL;
    check_channel(gone, GPUIPC_ERR_RELEASED);
    check_status(GPUIPC_ERR_RELEASED, gpuipc_channel_destroy(gone));
}

/* ---- making ------------------------------------------------------------------------------------ */

Test(channel_arguments, what_a_channel_is_made_of) {
    gpuipc_buffer *slots = core_buffer(core_unit, 0);
    const gpuipc_channel_config good = {
        .struct_size = sizeof(good), .buffer = slots, .slot_bytes = 64, .slots = 2};
    gpuipc_channel_config bad = good;
    gpuipc_channel *made = NULL;
    gpuipc_ticket ticket;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_create(channel_case_server, NULL, &made, &ticket));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_create(channel_case_server, &good, NULL, &ticket));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_create(channel_case_server, &good, &made, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_channel_create(NULL, &good, &made, &ticket));
    bad.struct_size = 3;
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_channel_create(channel_case_server, &bad, &made, &ticket));
    bad = good;
    bad.buffer = NULL;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_create(channel_case_server, &bad, &made, &ticket));
    cr_assert_null(made);
    check_ok(gpuipc_buffer_release(slots));
}

/* The slots must be where the server is. */
Test(channel_arguments, slots_of_another_context) {
    gpuipc_context *other = core_context_new();
    gpuipc_buffer *slots = NULL;
    gpuipc_channel *made = NULL;
    gpuipc_ticket ticket;
    const gpuipc_buffer_config wanted = {.struct_size = sizeof(wanted), .bytes = core_unit};
    check_ok(gpuipc_buffer_create(other, &wanted, &slots));
    const gpuipc_channel_config config = {
        .struct_size = sizeof(config), .buffer = slots, .slot_bytes = 64, .slots = 2};
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "another context",
                  gpuipc_channel_create(channel_case_server, &config, &made, &ticket));
    cr_assert_null(made);
    check_ok(gpuipc_buffer_release(slots));
    check_ok(gpuipc_context_destroy(other));
}

/* ---- opening ----------------------------------------------------------------------------------- */

Test(channel_arguments, what_a_subscription_is_made_of) {
    static const struct {
        gpuipc_subscription_config config;
        gpuipc_status status;
    } rows[] = {
        {{.delivery = (gpuipc_delivery)2}, GPUIPC_ERR_INVALID_ARGUMENT},
        {{.first = (gpuipc_first)3}, GPUIPC_ERR_INVALID_ARGUMENT},
        {{.look_us = GPUIPC_LOOK_US_MAX + 1}, GPUIPC_ERR_INVALID_ARGUMENT},
        {{.timeout_ms = -2}, GPUIPC_ERR_INVALID_ARGUMENT},
        {{.max_held = GPUIPC_CHANNEL_SLOTS_MAX + 1}, GPUIPC_ERR_LIMIT},
        {{.device = GPUIPC_DEVICE(99)}, GPUIPC_ERR_DEVICE_NOT_FOUND},
    };
    gpuipc_subscription *opened = NULL;
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .name = "sought"});
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gpuipc_subscription_config config = rows[i].config;
        config.struct_size = sizeof(config);
        check_status(rows[i].status, gpuipc_subscription_open(core_context, &channel_case_ticket,
                                                              &config, &opened));
        check_status(rows[i].status,
                     gpuipc_subscription_open_named(core_context, "sought", &config, &opened));
    }
    cr_assert_null(opened);
}

Test(channel_arguments, what_a_subscription_is_opened_with) {
    const gpuipc_subscription_config odd = {.struct_size = 3};
    gpuipc_subscription *opened = NULL;
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .name = "sought"});
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_open(core_context, NULL, NULL, &opened));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_open(core_context, &channel_case_ticket, NULL, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_open(NULL, &channel_case_ticket, NULL, &opened));
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_subscription_open(core_context, &channel_case_ticket, &odd, &opened));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_open_named(core_context, "sought", NULL, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_open_named(NULL, "sought", NULL, &opened));
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_subscription_open_named(core_context, "sought", &odd, &opened));
    cr_assert_null(opened);
}

/* ---- frames ------------------------------------------------------------------------------------ */

Test(channel_arguments, frames_that_are_none) {
    gpuipc_frame odd = GPUIPC_FRAME_INIT;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    gpuipc_channel *const of = channel_case_channel;
    gpuipc_subscription *reader = channel_case_open(NULL);
    odd.struct_size = 3;
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_channel_loan(of, GPUIPC_NO_STREAM, 0, &odd));
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_channel_publish(of, &odd, GPUIPC_NO_STREAM));
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_channel_discard(of, &odd));
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 0, &odd));
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_subscription_give_back(reader, &odd, GPUIPC_NO_STREAM));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_loan(of, GPUIPC_NO_STREAM, -2, &frame));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, -2, &frame));
    frame.id = 200; /* of a slot that there is not */
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_channel_discard(of, &frame));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_channel_publish(of, &frame, GPUIPC_NO_STREAM));
    channel_case_send();
    cr_assert_eq(channel_case_receive(reader), 1);
    check_ok(gpuipc_subscription_close(reader));
}

Test(channel_arguments, readers_are_told_where_there_is_room) {
    gpuipc_reader_info info;
    size_t count = 0;
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    gpuipc_channel *const of = channel_case_channel;
    gpuipc_subscription *reader = channel_case_open(NULL);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_channel_readers(of, &info, 1, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_channel_readers(of, NULL, 1, &count));
    check_status(GPUIPC_ERR_TOO_SMALL, gpuipc_channel_readers(of, NULL, 0, &count));
    cr_assert_eq(count, 1);
    check_ok(gpuipc_channel_readers(of, &info, 1, &count));
    cr_assert_eq(info.state, GPUIPC_READER_ACTIVE);
    check_ok(gpuipc_subscription_close(reader));
}

/* A ticket of this very process. */
Test(channel_arguments, a_ticket_that_was_revoked) {
    gpuipc_subscription *opened = NULL;
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    check_ok(gpuipc_server_revoke(channel_case_server, &channel_case_ticket));
    check_status(GPUIPC_ERR_TICKET_REVOKED,
                 gpuipc_subscription_open(core_context, &channel_case_ticket, NULL, &opened));
    cr_assert_null(opened);
}

/* SPDX-License-Identifier: MIT */
/** @file Channels found by their names, within one process: tests/process has those of others. */
#include "channel_case.h"

TestSuite(channel_name, .init = channel_start, .fini = channel_finish, .timeout = 60);

static gpuipc_status make_named(gpuipc_server *server, const char *name,
                                gpuipc_channel **out_channel) {
    gpuipc_ticket ticket;
    gpuipc_buffer *slots = core_buffer(core_unit, 0);
    const gpuipc_channel_config config = {.struct_size = sizeof(config),
                                          .buffer = slots,
                                          .slots = 2,
                                          .slot_bytes = CHANNEL_CASE_SLOT,
                                          .name = name};
    gpuipc_status status = gpuipc_channel_create(server, &config, out_channel, &ticket);
    check_ok(gpuipc_buffer_release(slots));
    return status;
}

static gpuipc_status open_named(const char *name, int timeout_ms,
                                gpuipc_subscription **out_reader) {
    const gpuipc_subscription_config config = {.struct_size = sizeof(config),
                                               .timeout_ms = timeout_ms};
    return gpuipc_subscription_open_named(core_context, name, &config, out_reader);
}

static gpuipc_subscription *found_by(const char *name) {
    gpuipc_subscription *reader = NULL;
    check_ok(open_named(name, SOON_MS, &reader));
    return reader;
}

Test(channel_name, a_reader_finds_the_channel) {
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .name = "frames"});
    gpuipc_subscription *by_name = found_by("frames");
    gpuipc_subscription *by_ticket = channel_case_open(NULL);
    channel_case_send();
    cr_assert_eq(channel_case_receive(by_name), 1);
    cr_assert_eq(channel_case_receive(by_ticket), 1);
    check_ok(gpuipc_subscription_close(by_name));
    check_ok(gpuipc_subscription_close(by_ticket));
}

Test(channel_name, a_name_belongs_to_one_that_lives) {
    gpuipc_channel *second = NULL;
    gpuipc_server *other = NULL;
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .name = "frames"});
    check_status(GPUIPC_ERR_NAME_IN_USE, make_named(channel_case_server, "frames", &second));
    check_ok(gpuipc_server_create(core_context, NULL, &other));
    check_status(GPUIPC_ERR_NAME_IN_USE, make_named(other, "frames", &second));
    check_ok(make_named(other, "others", &second));
    gpuipc_subscription *reader = found_by("frames");
    channel_case_send();
    cr_assert_eq(channel_case_receive(reader), 1);
    check_ok(gpuipc_subscription_close(reader));
    check_ok(gpuipc_channel_destroy(second));
    check_ok(gpuipc_server_destroy(other));
}

/* The reader of the first stays with it, although another one has its name. */
Test(channel_name, a_new_channel_takes_a_free_name) {
    gpuipc_subscription *readers[5];
    for (int i = 0; i < 5; i++) {
        channel_case_make(&(gpuipc_channel_config){.slots = 2, .name = "frames"});
        readers[i] = found_by("frames");
        channel_case_send();
        check_ok(gpuipc_channel_destroy(channel_case_channel));
        channel_case_channel = NULL;
    }
    for (int i = 0; i < 5; i++) {
        gpuipc_frame frame = GPUIPC_FRAME_INIT;
        cr_assert_eq(channel_case_receive(readers[i]), 1);
        check_status(GPUIPC_ERR_PEER_CLOSED,
                     gpuipc_subscription_take(readers[i], GPUIPC_NO_STREAM, SOON_MS, &frame));
        check_ok(gpuipc_subscription_close(readers[i]));
    }
}

/* Its channel goes on for who has it open, and another one may have the name. */
Test(channel_name, a_server_that_ends_frees_the_names_of_its_channels) {
    gpuipc_server *other = NULL;
    gpuipc_subscription *reader = NULL;
    gpuipc_channel *old = NULL;
    check_ok(gpuipc_server_create(core_context, NULL, &other));
    check_ok(make_named(other, "frames", &old));
    check_ok(gpuipc_server_destroy(other));
    check_status(GPUIPC_ERR_NOT_FOUND, open_named("frames", 1, &reader));
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .name = "frames"});
    check_ok(gpuipc_channel_destroy(old)); /* takes no name that is another's by now */
    reader = found_by("frames");
    channel_case_send();
    cr_assert_eq(channel_case_receive(reader), 1);
    check_ok(gpuipc_subscription_close(reader));
}

/* Nobody polls: the process knows its own names. */
Test(channel_name, a_polled_server_is_found_by_its_own_process) {
    const gpuipc_server_config config = {.struct_size = sizeof(config), .flags = 0};
    gpuipc_server *polled = NULL;
    gpuipc_channel *channel = NULL;
    check_ok(gpuipc_server_create(core_context, &config, &polled));
    check_ok(make_named(polled, "frames", &channel));
    check_ok(gpuipc_subscription_close(found_by("frames")));
    check_ok(gpuipc_channel_destroy(channel));
    check_ok(gpuipc_server_destroy(polled));
}

Test(channel_name, names_that_cannot_be_are_refused) {
    static const struct {
        const char *name;
        gpuipc_status status;
    } cases[] = {{"", GPUIPC_ERR_NAME_INVALID},
                 {"a/b", GPUIPC_ERR_NAME_INVALID},
                 {".frames", GPUIPC_ERR_NAME_INVALID},
                 {"@frames", GPUIPC_ERR_NAME_INVALID},
                 {"0123456789012345678901234567890123456789012345678901234567890123x",
                  GPUIPC_ERR_NAME_TOO_LONG}};
    gpuipc_channel *channel = NULL;
    gpuipc_subscription *reader = NULL;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_status(cases[i].status, make_named(channel_case_server, cases[i].name, &channel));
        check_status(cases[i].status, open_named(cases[i].name, 1, &reader));
    }
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, open_named(NULL, 1, &reader));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, open_named("frames", 1, NULL));
    check_status(GPUIPC_ERR_NOT_FOUND, open_named("frames", 1, &reader));
}

static gpuipc_status wait_for_it(void *argument) {
    return open_named("late", -1, argument);
}

Test(channel_name, a_reader_waits_for_the_writer_to_come) {
    core_waiter waiter;
    gpuipc_subscription *reader = NULL;
    core_waiter_start(&waiter, wait_for_it, &reader);
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .name = "late"});
    check_ok(core_waiter_end(&waiter));
    channel_case_send();
    cr_assert_eq(channel_case_receive(reader), 1);
    check_ok(gpuipc_subscription_close(reader));
}

/* A program of another kind that listens there. */
Test(channel_name, an_endpoint_is_no_channel) {
    gpuipc_listener *listener = NULL;
    gpuipc_channel *channel = NULL;
    gpuipc_subscription *reader = NULL;
    check_ok(gpuipc_listener_open(core_context, "frames", NULL, &listener));
    check_status(GPUIPC_ERR_NOT_FOUND, open_named("frames", 1, &reader));
    check_ok(make_named(channel_case_server, "frames", &channel));
    check_ok(gpuipc_subscription_close(found_by("frames")));
    check_ok(gpuipc_channel_destroy(channel));
    check_ok(gpuipc_listener_close(listener));
}

/* ---- who has the name and does not keep to the rules ------------------------------------------- */

static gpuipc_status open_soon(void *argument) {
    return open_named("frames", SOON_MS, argument);
}

/* It listens where a channel would, and says something else. */
Test(channel_name, what_answers_with_no_ticket_is_told) {
    static const char other[] = "no reply";
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .bytes = other, .bytes_size = sizeof(other)};
    gpuipc_listener *listener = NULL;
    gpuipc_connection *connection = NULL;
    gpuipc_subscription *reader = NULL;
    core_waiter waiter;
    check_ok(gpuipc_listener_open(core_context, "channel-frames", NULL, &listener));
    core_waiter_begin(&waiter, open_soon, &reader);
    check_ok(gpuipc_listener_accept(listener, SOON_MS, &connection));
    check_ok(gpuipc_connection_send(connection, &message, SOON_MS));
    cr_assert_eq(core_waiter_end(&waiter), GPUIPC_ERR_PROTOCOL);
    check_ok(gpuipc_connection_close(connection));
    check_ok(gpuipc_listener_close(listener));
}

/* One that goes without a word is nobody, and may be followed by one that answers. */
Test(channel_name, who_goes_without_an_answer_is_nobody) {
    gpuipc_listener *listener = NULL;
    gpuipc_connection *connection = NULL;
    gpuipc_subscription *reader = NULL;
    core_waiter waiter;
    check_ok(gpuipc_listener_open(core_context, "channel-frames", NULL, &listener));
    core_waiter_begin(&waiter, open_soon, &reader);
    check_ok(gpuipc_listener_accept(listener, SOON_MS, &connection));
    check_ok(gpuipc_listener_close(listener));
    check_ok(gpuipc_connection_close(connection));
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .name = "frames"});
    check_ok(core_waiter_end(&waiter));
    channel_case_send();
    cr_assert_eq(channel_case_receive(reader), 1);
    check_ok(gpuipc_subscription_close(reader));
}

/* A server that nobody polls. */
Test(channel_name, who_does_not_answer_is_waited_for_as_long_as_said) {
    gpuipc_listener *listener = NULL;
    gpuipc_subscription *reader = NULL;
    check_ok(gpuipc_listener_open(core_context, "channel-frames", NULL, &listener));
    check_status(GPUIPC_ERR_TIMEOUT, open_named("frames", 30, &reader));
    check_ok(gpuipc_listener_close(listener));
}

enum {
    CROWD = 200
};

/* Whoever has the name has so many who wait that there is no place for one more. */
Test(channel_name, who_takes_nobody_in_for_now_is_waited_for_as_long_as_said) {
    static gpuipc_connection *crowd[CROWD];
    gpuipc_listener *listener = NULL;
    gpuipc_subscription *reader = NULL;
    core_waiter waiter;
    size_t count = 0;
    gpuipc_status status = GPUIPC_OK;
    check_ok(gpuipc_listener_open(core_context, "channel-frames", NULL, &listener));
    while (count < CROWD && status == GPUIPC_OK) {
        status = gpuipc_connection_open(core_context, "channel-frames", NULL, 0, &crowd[count]);
        count += status == GPUIPC_OK;
    }
    cr_assert_eq(status, GPUIPC_ERR_TIMEOUT);
    const uint64_t begun_ns = os_clock_ns();
    check_status(GPUIPC_ERR_TIMEOUT, open_named("frames", 30, &reader));
    cr_assert_geq(os_clock_ns() - begun_ns, UINT64_C(30000000));
    core_waiter_begin(&waiter, open_soon, &reader);
    check_ok(gpuipc_listener_close(listener));
    while (count > 0) {
        check_ok(gpuipc_connection_close(crowd[--count]));
    }
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .name = "frames"});
    check_ok(core_waiter_end(&waiter));
    check_ok(gpuipc_subscription_close(reader));
}

static gpuipc_status open_in(void *context) {
    const gpuipc_subscription_config config = {.struct_size = sizeof(config), .timeout_ms = -1};
    gpuipc_subscription *reader = NULL;
    return gpuipc_subscription_open_named(context, "frames", &config, &reader);
}

Test(channel_name, who_waits_for_an_answer_goes_when_the_context_is_destroyed) {
    gpuipc_context *client = core_context_new();
    gpuipc_listener *listener = NULL;
    gpuipc_connection *connection = NULL;
    core_waiter waiter;
    check_ok(gpuipc_listener_open(core_context, "channel-frames", NULL, &listener));
    core_waiter_begin(&waiter, open_in, client);
    check_ok(gpuipc_listener_accept(listener, SOON_MS, &connection));
    check_ok(gpuipc_context_destroy(client));
    cr_assert_eq(core_waiter_end(&waiter), GPUIPC_ERR_RELEASED);
    check_ok(gpuipc_connection_close(connection));
    check_ok(gpuipc_listener_close(listener));
}

Test(channel_name, who_waits_for_nobody_goes_when_the_context_is_destroyed) {
    gpuipc_context *client = core_context_new();
    core_waiter waiter;
    core_waiter_start(&waiter, open_in, client);
    check_ok(gpuipc_context_destroy(client));
    cr_assert_eq(core_waiter_end(&waiter), GPUIPC_ERR_RELEASED);
}

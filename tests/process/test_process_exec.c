/* SPDX-License-Identifier: MIT */
/** @file A peer that goes on with another program: to the others it has ended, although its process lives. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "marks.h"
#include "os.h"
#include "partner.h"
#include "posix_system.h"

#define OTHER_USER 65534u /* as in test_process_user.c */

static process_case at;

TestSuite(exec, .timeout = 100);

/* The commands: the second leaves a child that has copies of all descriptors. */
static const char *const ways[] = {"exec", "exec-copied"};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static void replace(partner *other, const char *way) {
    partner_do(other, "another", "%s", way);
}

/* What it has become ends, and with it the child. */
static void end_replaced(partner *other) {
    partner_kill(other);
}

/* ---- it has memory of this process open ----------------------------------------------------- */

static gpuipc_connection *begin_importer(partner *other, gpuipc_buffer **out_buffer) {
    process_case_begin(&at, NULL);
    partner_start(other, &at, NULL, NULL);
    partner_do(other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    gpuipc_connection *connection = process_case_accept(&at);
    *out_buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    check_ok(process_case_send(connection, out_buffer, 1, 0));
    partner_do(other, "GPUIPC_OK", "receive 0 0 0 %d", PATIENCE_MS);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(*out_buffer, 0));
    return connection;
}

static int is_running(gpuipc_connection *connection) {
    gpuipc_peer_info peer = {.struct_size = sizeof(peer)};
    check_ok(gpuipc_connection_get_peer(connection, &peer));
    return peer.is_running;
}

static void check_importer(const char *way) {
    partner other;
    gpuipc_buffer *buffer;
    gpuipc_connection *connection = begin_importer(&other, &buffer);
    cr_assert_eq(is_running(connection), 1);
    replace(&other, way);
    cr_assert_eq(is_running(connection), 0);
    check_ok(gpuipc_buffer_await_returns(buffer, PATIENCE_MS));
    check_ok(gpuipc_connection_close(connection));
    check_ok(gpuipc_buffer_release(buffer));
    end_replaced(&other);
    process_case_end(&at);
}

Test(exec, an_importer_has_ended) {
    for (size_t i = 0; i < WAYS; i++) {
        check_importer(ways[i]);
    }
}

/* No connection tells of it any more. */
static void check_without_connection(const char *way) {
    partner other;
    gpuipc_buffer *buffer;
    gpuipc_connection *connection = begin_importer(&other, &buffer);
    partner_do(&other, "GPUIPC_OK", "disconnect");
    check_ok(gpuipc_connection_close(connection));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(buffer, 300));
    replace(&other, way);
    check_ok(gpuipc_buffer_await_returns(buffer, PATIENCE_MS));
    check_ok(gpuipc_buffer_release(buffer));
    end_replaced(&other);
    process_case_end(&at);
}

Test(exec, an_importer_without_a_connection_has_ended) {
    for (size_t i = 0; i < WAYS; i++) {
        check_without_connection(ways[i]);
    }
}

/* Its process goes on with the same program, and gives back what it has. */
Test(exec, who_gives_up_all_that_is_shared_has_not_ended) {
    partner other;
    gpuipc_buffer *buffer;
    gpuipc_connection *connection = begin_importer(&other, &buffer);
    partner_do(&other, "GPUIPC_OK", "release");
    partner_do(&other, "GPUIPC_OK", "disconnect");
    check_ok(gpuipc_buffer_await_returns(buffer, PATIENCE_MS));
    cr_assert_eq(is_running(connection), 1);
    check_ok(gpuipc_connection_close(connection));
    check_ok(gpuipc_buffer_release(buffer));
    partner_end(&other);
    process_case_end(&at);
}

/* A forked child ends and execs as it likes: that is not its parent's end. */
Test(exec, a_child_of_an_importer_is_not_the_importer) {
    partner other;
    gpuipc_buffer *buffer;
    gpuipc_connection *connection = begin_importer(&other, &buffer);
    partner_do(&other, "GPUIPC_OK", "exec-child");
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(buffer, 300));
    cr_assert_eq(is_running(connection), 1);
    partner_do(&other, "GPUIPC_OK", "release");
    check_ok(gpuipc_buffer_await_returns(buffer, PATIENCE_MS));
    check_ok(gpuipc_connection_close(connection));
    check_ok(gpuipc_buffer_release(buffer));
    partner_end(&other);
    process_case_end(&at);
}

static size_t count_holders(gpuipc_server *server, const gpuipc_ticket *ticket) {
    gpuipc_holder holders[4];
    size_t count = 0;
    check_ok(gpuipc_server_holders(server, ticket, holders, 4, &count));
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(holders[i].is_running, 1);
    }
    return count;
}

static void check_holder(const char *way) {
    const gpuipc_server_config config = {.struct_size = sizeof(config),
                                         .flags = GPUIPC_SERVER_THREAD};
    partner other;
    gpuipc_server *server;
    gpuipc_ticket made;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    process_case_begin(&at, NULL);
    check_ok(gpuipc_server_create(at.context, &config, &server));
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    check_ok(gpuipc_buffer_share(server, buffer, NULL, &made));
    check_ok(gpuipc_ticket_to_text(&made, text));
    partner_start(&other, &at, NULL, NULL);
    partner_do(&other, "GPUIPC_OK", "ticket %s", text);
    cr_assert_eq(count_holders(server, &made), 1);
    replace(&other, way);
    check_ok(gpuipc_buffer_await_returns(buffer, PATIENCE_MS));
    cr_assert_eq(count_holders(server, &made), 0);
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_buffer_release(buffer));
    end_replaced(&other);
    process_case_end(&at);
}

Test(exec, a_holder_of_a_ticket_has_ended) {
    for (size_t i = 0; i < WAYS; i++) {
        check_holder(ways[i]);
    }
}

/* ---- channels -------------------------------------------------------------------------------- */

static void publish(gpuipc_channel *channel) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_channel_loan(channel, GPUIPC_NO_STREAM, PATIENCE_MS, &frame));
    frame.header = &(uint64_t){1};
    frame.header_bytes = sizeof(uint64_t);
    check_ok(gpuipc_channel_publish(channel, &frame, GPUIPC_NO_STREAM));
}

static size_t count_active(gpuipc_channel *channel) {
    gpuipc_reader_info infos[4];
    size_t count = 0;
    size_t active = 0;
    check_ok(gpuipc_channel_readers(channel, infos, 4, &count));
    for (size_t i = 0; i < count; i++) {
        active += infos[i].state == GPUIPC_READER_ACTIVE;
    }
    return active;
}

/* @param other has started  @param way by which it is replaced while it holds a frame */
static void replace_reader(partner *other, const gpuipc_server_config *serving, const char *way) {
    gpuipc_channel_config config = {
        .struct_size = sizeof(config), .slots = 2, .slot_bytes = 4096, .header_bytes = 8};
    gpuipc_server *server;
    gpuipc_channel *channel;
    gpuipc_ticket made;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    check_ok(gpuipc_server_create(at.context, serving, &server));
    config.buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    check_ok(gpuipc_channel_create(server, &config, &channel, &made));
    check_ok(gpuipc_ticket_to_text(&made, text));
    partner_do(other, "GPUIPC_OK", "subscribe %s 0 1", text);
    publish(channel);
    partner_do(other, "GPUIPC_OK 1", "hold-frames 1");
    cr_assert_eq(count_active(channel), 1);
    replace(other, way);
    for (int i = 0; i < 3; i++) { /* each slot is used again, which the reader would prevent */
        publish(channel);
    }
    cr_assert_eq(count_active(channel), 0);
    check_ok(gpuipc_channel_destroy(channel));
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_buffer_release(config.buffer));
    end_replaced(other);
    process_case_end(&at);
}

Test(exec, a_reader_has_ended) {
    partner other;
    for (size_t i = 0; i < WAYS; i++) {
        process_case_begin(&at, NULL);
        partner_start(&other, &at, NULL, NULL);
        replace_reader(&other, NULL, ways[i]);
    }
}

static int admit(void *user_data, const gpuipc_peer_info *peer) {
    (void)user_data;
    (void)peer;
    return 1;
}

/* The page of such a reader goes to no other one, and comes before the first page of points: that is the lifeline all the
 * same. */
Test(exec, a_reader_of_another_user_has_ended) {
    const gpuipc_context_config shared = {.struct_size = sizeof(shared),
                                          .flags = GPUIPC_CONTEXT_SHARED_DIRECTORY};
    const gpuipc_server_config serving = {
        .struct_size = sizeof(serving), .flags = GPUIPC_SERVER_THREAD, .policy = admit};
    partner other;
    if (!system_is_root()) {
        cr_skip_test("only root can start a process of another user");
    }
    process_case_begin(&at, &shared);
    cr_assert(system_share_directory(at.directory, OTHER_USER));
    partner_start(&other, &at, (const char *const[]){"shared", "admit", NULL}, NULL);
    partner_do(&other, "GPUIPC_OK", "create 1 4096 0 0"); /* as in test_process_user.c */
    partner_do(&other, "GPUIPC_OK", "fill 0 0");
    partner_do(&other, "GPUIPC_OK", "release");
    partner_do(&other, "GPUIPC_OK", "user %u", OTHER_USER);
    replace_reader(&other, &serving, "exec");
}

static void check_writer(const char *way) {
    partner other;
    gpuipc_context *within = NULL;
    gpuipc_subscription *reader = NULL;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_ticket wanted;
    char text[CHILD_LINE_MAX] = "";
    process_case_begin(&at, NULL);
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = at.directory};
    check_ok(gpuipc_context_create(&config, &within));
    partner_start(&other, &at, NULL, NULL);
    partner_do(&other, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MEBIBYTES_2);
    partner_do(&other, "GPUIPC_OK", "channel 4");
    (void)sscanf(other.answer, "GPUIPC_OK %511s", text);
    check_ok(gpuipc_ticket_from_text(text, &wanted));
    check_ok(gpuipc_subscription_open(within, &wanted, NULL, &reader));
    partner_do(&other, "GPUIPC_OK", "publish-frames 1 1");
    replace(&other, way);
    check_ok(gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, PATIENCE_MS, &frame));
    check_ok(gpuipc_subscription_give_back(reader, &frame, GPUIPC_NO_STREAM));
    check_status(GPUIPC_ERR_PEER_CLOSED,
                 gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, PATIENCE_MS, &frame));
    check_ok(gpuipc_subscription_close(reader));
    check_ok(gpuipc_context_destroy(within));
    end_replaced(&other);
    process_case_end(&at);
}

Test(exec, a_writer_has_ended) {
    for (size_t i = 0; i < WAYS; i++) {
        check_writer(ways[i]);
    }
}

/* ---- others wait for it ---------------------------------------------------------------------- */

/* It sends a buffer whose contents wait behind its gate. */
static gpuipc_connection *begin_producer(partner *other) {
    process_case_begin(&at, NULL);
    partner_start(other, &at, NULL, NULL);
    partner_do(other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    gpuipc_connection *connection = process_case_accept(&at);
    partner_do(other, "GPUIPC_OK", "create 1 4096 0 0");
    partner_do(other, "GPUIPC_OK", "gate");
    partner_do(other, "GPUIPC_OK", "paint 7 4096");
    partner_do(other, "GPUIPC_OK", "hand %d %d", GPUIPC_SEND_ASYNC, PATIENCE_MS);
    return connection;
}

static void receive_as(gpuipc_connection *connection, uint32_t flags, gpuipc_buffer **buffer) {
    gpuipc_incoming message = {
        .struct_size = sizeof(message), .buffers = buffer, .buffer_capacity = 1, .flags = flags};
    check_ok(gpuipc_connection_receive(connection, &message, PATIENCE_MS));
}

static void check_producer(const char *way) {
    partner other;
    gpuipc_buffer *buffer;
    gpuipc_connection *connection = begin_producer(&other);
    receive_as(connection, GPUIPC_RECEIVE_DEFERRED, &buffer);
    replace(&other, way);
    check_status(GPUIPC_ERR_LOST, gpuipc_buffer_await_ready(buffer, PATIENCE_MS));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    end_replaced(&other);
    process_case_end(&at);
}

Test(exec, who_waits_for_contents_goes_on) {
    for (size_t i = 0; i < WAYS; i++) {
        check_producer(ways[i]);
    }
}

Test(exec, a_stream_that_waits_for_contents_goes_on) {
    partner other;
    gpuipc_buffer *buffer;
    uint32_t word;
    gpuipc_connection *connection = begin_producer(&other);
    gpuipc_buffer *own = process_case_buffer(&at, 0, 4096, 0, 1, 0);
    receive_as(connection, GPUIPC_RECEIVE_ASYNC, &buffer);
    check_ok(gpuipc_buffer_fill_async(own, 0, 4096, 4711, 4, NULL));
    replace(&other, ways[1]);
    check_ok(gpuipc_buffer_read(own, 0, &word, sizeof(word)));
    cr_assert_eq(word, 4711);
    check_ok(gpuipc_buffer_release(own));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    end_replaced(&other);
    process_case_end(&at);
}

Test(exec, a_loan_comes_back) {
    partner other;
    gpuipc_buffer *buffer;
    gpuipc_mark loan;
    gpuipc_connection *connection = begin_importer(&other, &buffer);
    check_ok(gpuipc_buffer_lend(buffer, NULL, &loan));
    partner_do_mark(&other, "GPUIPC_OK", "take", &loan);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_loan(buffer, &loan, 0));
    replace(&other, ways[1]);
    check_ok(gpuipc_buffer_await_loan(buffer, &loan, PATIENCE_MS));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    end_replaced(&other);
    process_case_end(&at);
}

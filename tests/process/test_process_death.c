/* SPDX-License-Identifier: MIT */
/** @file A peer that is killed before, during and after the hand-over: whoever is left goes on. */
#include <criterion/criterion.h>

#include "check.h"
#include "marks.h"
#include "partner.h"
#include "sync/monitor.h"

static process_case at;

static void begin(void) {
    process_case_begin(&at, NULL);
}

static void end(void) {
    process_case_end(&at);
}

TestSuite(death, .timeout = 100);

static gpuipc_connection *connected_partner(partner *other) {
    partner_start(other, &at, NULL, NULL);
    partner_do(other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    return process_case_accept(&at);
}

static gpuipc_status receive_nothing(gpuipc_connection *from, int timeout_ms) {
    size_t count = 0;
    return process_case_receive(from, NULL, &count, NULL, timeout_ms);
}

/* That this process is none the worse for it: another partner gets a buffer. */
static void serve_another(void) {
    partner other;
    gpuipc_connection *connection = connected_partner(&other);
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 900, 0);
    check_ok(process_case_send(connection, &buffer, 1, 0));
    partner_do(&other, "GPUIPC_OK", "receive 0 0 0 %d", PATIENCE_MS);
    partner_do(&other, "GPUIPC_OK", "check 900 0");
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
}

Test(death, before_it_was_accepted) {
    begin();
    partner other;
    gpuipc_connection *connection;
    partner_start(&other, &at, NULL, NULL);
    partner_do(&other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    child_kill(other.process);
    check_ok(child_wait(other.process, PATIENCE_MS, NULL));
    check_ok(gpuipc_listener_accept(at.listener, PATIENCE_MS, &connection));
    /* Not before: on Windows accept passes over a process of which nobody has a handle any more. */
    child_destroy(other.process);
    check_status(GPUIPC_ERR_PEER_CLOSED, receive_nothing(connection, PATIENCE_MS));
    check_ok(gpuipc_connection_close(connection));
    serve_another();
    end();
}

Test(death, before_anything_was_sent) {
    begin();
    partner other;
    gpuipc_peer_info peer = {.struct_size = sizeof(peer)};
    gpuipc_connection *connection = connected_partner(&other);
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    check_ok(gpuipc_connection_get_peer(connection, &peer));
    cr_assert_eq(peer.process_id, child_process_id(other.process));
    cr_assert_eq(peer.same_user, 1);
    cr_assert_eq(peer.is_running, 1);

    partner_kill(&other);
    check_status(GPUIPC_ERR_PEER_CLOSED, receive_nothing(connection, PATIENCE_MS));
    check_status(GPUIPC_ERR_PEER_CLOSED, process_case_send(connection, &buffer, 1, 1));
    check_ok(gpuipc_connection_get_peer(connection, &peer));
    cr_assert_eq(peer.is_running, 0);

    check_ok(marks_check(buffer, 1, 0));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    serve_another();
    end();
}

/* Half of a message has come: a buffer of it, and its memory, is here. */
Test(death, between_two_packets_of_a_message) {
    begin();
    partner other;
    partner_start(&other, &at, NULL, NULL);
    partner_do(&other, "GPUIPC_OK", "create 1 4096 0 0");
    partner_do(&other, "GPUIPC_OK", "half %s", at.name);
    gpuipc_connection *connection = process_case_accept(&at);
    check_status(GPUIPC_ERR_TIMEOUT, receive_nothing(connection, 0));
    partner_kill(&other);
    check_status(GPUIPC_ERR_PEER_CLOSED, receive_nothing(connection, PATIENCE_MS));
    check_status(GPUIPC_ERR_PEER_CLOSED, receive_nothing(connection, PATIENCE_MS));
    check_ok(gpuipc_connection_close(connection));
    serve_another();
    end();
}

/* Half of a message has come, and this end gives up before the peer does. */
Test(death, of_this_end_between_two_packets) {
    begin();
    partner other;
    partner_start(&other, &at, NULL, NULL);
    partner_do(&other, "GPUIPC_OK", "create 1 4096 0 0");
    partner_do(&other, "GPUIPC_OK", "half %s", at.name);
    gpuipc_connection *connection = process_case_accept(&at);
    check_status(GPUIPC_ERR_TIMEOUT, receive_nothing(connection, 0));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
    end();
}

Test(death, while_the_peer_does_not_read) {
    begin();
    partner other;
    gpuipc_connection *connection = connected_partner(&other);
    gpuipc_status status;
    do { /* until the connection is full */
        gpuipc_outgoing message = {.struct_size = sizeof(message),
                                   .bytes = process_case_bytes(),
                                   .bytes_size = 65536}; /* one packet */
        status = gpuipc_connection_send(connection, &message, 0);
    } while (status == GPUIPC_OK);
    cr_assert_eq(status, GPUIPC_ERR_TIMEOUT, "%s", gpuipc_status_name(status));
    partner_kill(&other);
    check_status(GPUIPC_ERR_PEER_CLOSED, process_case_send(connection, NULL, 0, 1));
    check_ok(gpuipc_connection_close(connection));
    serve_another();
    end();
}

Test(death, of_the_exporter_after_the_handover) {
    begin();
    partner other;
    gpuipc_connection *connection = connected_partner(&other);
    gpuipc_buffer *buffers[2];
    size_t count = 2;
    partner_do(&other, "GPUIPC_OK", "create 2 %d %d 0", 6 << 20, 2 << 20);
    partner_do(&other, "GPUIPC_OK", "fill 10 65536");
    partner_do(&other, "GPUIPC_OK", "send 0 0 %d", PATIENCE_MS);
    check_ok(process_case_receive(connection, buffers, &count, NULL, PATIENCE_MS));
    partner_kill(&other);

    check_status(GPUIPC_ERR_PEER_CLOSED, receive_nothing(connection, PATIENCE_MS));
    check_ok(gpuipc_connection_close(connection));
    for (uint32_t i = 0; i < 2; i++) {
        check_ok(marks_check(buffers[i], 10 + i, 65536));
        check_ok(marks_write(buffers[i], 20 + i, 65536));
        check_ok(marks_check(buffers[i], 20 + i, 65536));
        check_ok(gpuipc_buffer_release(buffers[i]));
    }
    end();
}

/* A handle that is only on its way keeps the memory alive. */
Test(death, of_the_exporter_with_the_buffer_in_flight) {
    begin();
    partner other;
    gpuipc_connection *connection = connected_partner(&other);
    gpuipc_buffer *buffer;
    size_t count = 1;
    partner_do(&other, "GPUIPC_OK", "create 1 %d 0 0", 4 << 20);
    partner_do(&other, "GPUIPC_OK", "fill 30 4096");
    partner_do(&other, "GPUIPC_OK", "send 9 0 %d", PATIENCE_MS);
    partner_kill(&other);

    check_ok(process_case_receive(connection, &buffer, &count, NULL, PATIENCE_MS));
    check_ok(marks_check(buffer, 30, 4096));
    check_status(GPUIPC_ERR_PEER_CLOSED, receive_nothing(connection, PATIENCE_MS));
    check_ok(marks_check(buffer, 30, 4096));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    end();
}

/* Everything is on its way in several packets when the exporter dies. */
Test(death, of_the_exporter_with_several_packets_in_flight) {
    begin();
    partner other;
    gpuipc_connection *connection = connected_partner(&other);
    gpuipc_buffer *buffer;
    size_t count = 1;
    partner_do(&other, "GPUIPC_OK", "create 1 %d %d 0", 300 * (2 << 20), 2 << 20);
    partner_do(&other, "GPUIPC_OK", "fill 40 %d", 2 << 20);
    partner_do(&other, "GPUIPC_OK", "send 0 0 %d", PATIENCE_MS);
    partner_kill(&other);
    check_ok(process_case_receive(connection, &buffer, &count, NULL, PATIENCE_MS));
    check_ok(marks_check(buffer, 40, 2 << 20));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    end();
}

Test(death, of_the_importer) {
    begin();
    partner other;
    gpuipc_connection *connection = connected_partner(&other);
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 50, 4096);
    check_ok(process_case_send(connection, &buffer, 1, 0));
    partner_do(&other, "GPUIPC_OK", "receive 0 0 0 %d", PATIENCE_MS);
    partner_do(&other, "GPUIPC_OK", "fill 51 4096");
    partner_kill(&other);
    check_ok(marks_check(buffer, 51, 4096));
    check_ok(marks_write(buffer, 52, 4096));
    check_status(GPUIPC_ERR_PEER_CLOSED, receive_nothing(connection, PATIENCE_MS));
    check_ok(gpuipc_connection_close(connection));
    check_ok(gpuipc_buffer_release(buffer));
    serve_another();
    end();
}

/* Memory of legacy IPC, which a partner has open, of a context that has ended. */
static void leave_open_with(partner *other) {
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = at.directory};
    const gpuipc_buffer_config wanted = {
        .struct_size = sizeof(wanted), .bytes = MEBIBYTES_2, .transport = GPUIPC_TRANSPORT_LEGACY};
    gpuipc_context *own;
    gpuipc_listener *listener;
    gpuipc_connection *connection;
    gpuipc_buffer *buffer;
    char name[UNIQUE_NAME_MAX];
    unique_name(name);
    check_ok(gpuipc_context_create(&config, &own));
    check_ok(gpuipc_listener_open(own, name, NULL, &listener));
    partner_start(other, &at, NULL, NULL);
    partner_do(other, "GPUIPC_OK", "connect %s %d", name, PATIENCE_MS);
    check_ok(gpuipc_listener_accept(listener, PATIENCE_MS, &connection));
    check_ok(gpuipc_buffer_create(own, &wanted, &buffer));
    check_ok(process_case_send(connection, &buffer, 1, 0));
    partner_do(other, "GPUIPC_OK", "receive 0 0 0 %d", PATIENCE_MS);
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    check_ok(gpuipc_listener_close(listener));
    check_ok(gpuipc_context_destroy(own));
}

/* A thread of the library's looks for it, whose own handle is there until it is joined (Windows). */
static void check_comes_back(leak_gate *gate) {
    const os_deadline deadline = os_deadline_after(BACK_MS);
    while (leak_gate_look(gate) > 0 && !os_deadline_passed(deadline)) {
        monitor_dismiss(MONITOR_FREES); /* which it is not while there is something to look for */
        os_sleep_ms(1);
    }
    cr_assert_eq(leak_gate_end(gate), 0, "%s", gate->text);
}

/* Nobody makes a call any more that would look for it. */
Test(death, of_who_had_open_what_has_outlived_its_context) {
    begin();
    partner other;
    leak_gate gate;
    if (process_case_is_emulated(&at)) { /* a real driver keeps what it opened at its first use */
        leak_gate_begin(&gate);
        leave_open_with(&other);
        cr_assert_gt(leak_gate_look(&gate), 0, "the partner has the memory open");
        partner_kill(&other);
        check_comes_back(&gate);
    }
    end();
}

/* The same, when it is given back. */
Test(death, of_a_context_before_what_it_exported_is_given_back) {
    begin();
    partner other;
    leak_gate gate;
    if (process_case_is_emulated(&at)) {
        leak_gate_begin(&gate);
        leave_open_with(&other);
        partner_do(&other, "GPUIPC_OK", "release");
        partner_end(&other);
        check_comes_back(&gate);
    }
    end();
}

/* The name of a listener that was killed is taken by the next one. */
Test(death, of_a_listener) {
    begin();
    partner first;
    partner second;
    char name[UNIQUE_NAME_MAX];
    gpuipc_connection *connection;
    unique_name(name);
    partner_start(&first, &at, NULL, NULL);
    partner_start(&second, &at, NULL, NULL);
    partner_do(&first, "GPUIPC_OK", "listen %s", name);
    partner_do(&second, "GPUIPC_ERR_NAME_IN_USE", "listen %s", name);
    partner_kill(&first);
    check_status(GPUIPC_ERR_NOT_FOUND,
                 gpuipc_connection_open(at.context, name, NULL, 0, &connection));
    partner_do(&second, "GPUIPC_OK", "listen %s", name);
    check_ok(gpuipc_connection_open(at.context, name, NULL, PATIENCE_MS, &connection));
    partner_do(&second, "GPUIPC_OK", "accept %d", PATIENCE_MS);
    check_ok(gpuipc_connection_close(connection));
    partner_end(&second);
    end();
}

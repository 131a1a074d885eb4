/* SPDX-License-Identifier: MIT */
/** @file A process that forks: its child is told so by every call, and keeps nothing of its alive. */
#include <criterion/criterion.h>

#include "check.h"
#include "marks.h"
#include "partner.h"
#include "raw_packet.h"

static process_case at;

static void begin(void) {
    process_case_begin(&at, NULL);
}

static void end(void) {
    process_case_end(&at);
}

TestSuite(forked, .timeout = 100);

/* A partner that is about to fork has a listener, a connection and a buffer that it has sent. */
static gpuipc_connection *begin_parent(partner *self, char name[UNIQUE_NAME_MAX],
                                       gpuipc_buffer **out_buffer) {
    size_t count = 1;
    unique_name(name);
    partner_start(self, &at, NULL, NULL);
    partner_do(self, "GPUIPC_OK", "listen %s", name);
    partner_do(self, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    gpuipc_connection *connection = process_case_accept(&at);
    partner_do(self, "GPUIPC_OK", "create 1 4096 0 0");
    partner_do(self, "GPUIPC_OK", "fill 1 0");
    partner_do(self, "GPUIPC_OK", "send 0 0 %d", PATIENCE_MS);
    check_ok(process_case_receive(connection, out_buffer, &count, NULL, PATIENCE_MS));
    return connection;
}

/* The partner forks and ends. */
Test(forked, child_is_told_and_keeps_nothing_alive) {
    begin();
    partner other;
    char name[UNIQUE_NAME_MAX];
    gpuipc_buffer *buffer;
    gpuipc_connection *unwanted;
    child_end how;
    gpuipc_connection *connection = begin_parent(&other, name, &buffer);

    /* every call answers FORKED, releasing is allowed, and not one call reached the driver */
    partner_do(&other, "child: all-forked GPUIPC_OK calls 0", "fork");
    check_ok(child_wait(other.process, PATIENCE_MS, &how));
    cr_assert(how.exited && how.code == 0, "the parent ended with %d", how.code);

    /* the parent is gone and the child lives: the connection is at its end all the same */
    size_t count = 0;
    check_status(GPUIPC_ERR_PEER_CLOSED,
                 process_case_receive(connection, NULL, &count, NULL, PATIENCE_MS));
    check_status(GPUIPC_ERR_NOT_FOUND,
                 gpuipc_connection_open(at.context, name, NULL, 0, &unwanted));
    partner_do(&other, "child: are you there", "are you there");
    check_ok(marks_check(buffer, 1, 0));

    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    child_close_input(other.process);
    check_status(GPUIPC_ERR_PEER_CLOSED,
                 child_read_line(other.process, other.answer, sizeof(other.answer), PATIENCE_MS));
    child_destroy(other.process);
    end();
}

/* Of everything that holds a descriptor in the parent one: a buffer and half a message with kept
 * handles, a connection and its peer, a listener. Their numbers are the child's own now. */
Test(forked, child_gives_up_what_it_inherited_and_keeps_its_own_descriptors) {
    begin();
    partner other;
    char name[UNIQUE_NAME_MAX];
    raw_packet packet;
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    unique_name(name);
    partner_start(&other, &at, NULL, NULL);
    partner_do(&other, "GPUIPC_OK", "listen %s", name);
    raw_peer *raw = raw_connect(at.directory, name);
    cr_assert_not_null(raw);
    partner_do(&other, "GPUIPC_OK", "accept %d", PATIENCE_MS);
    cr_assert(raw_packet_make(buffer, &packet));
    cr_assert(raw_packet_send(&packet, raw));
    /* it holds the buffer; what came beside it is not what the helper expects */
    partner_do(&other, "byte 0 of 3 is wrong", "receive 0 %u 0 %d", GPUIPC_RECEIVE_KEEP_HANDLES,
               PATIENCE_MS);
    packet.header.number = 1;
    packet.header.total_buffers = 2;
    packet.header.total_segments = 2;
    cr_assert(raw_packet_send(&packet, raw));
    partner_do(&other, "GPUIPC_ERR_TIMEOUT", "receive 0 %u 0 0", GPUIPC_RECEIVE_KEEP_HANDLES);

    partner_do(&other, "child: 64 of 64", "reuse");
    partner_do(&other, "GPUIPC_OK", "check 1 0"); /* and the parent has what it had */

    raw_packet_close(&packet);
    raw_close(raw);
    partner_end(&other);
    check_ok(gpuipc_buffer_release(buffer));
    end();
}

/* The partner's stream waits for this process, and a thread of the partner's watches over that. The child
 * has no such thread, and does not wait for it. */
Test(forked, child_of_a_process_whose_stream_waits_for_another) {
    begin();
    partner other;
    gpuipc_buffer *buffer;
    child_end how;
    char name[UNIQUE_NAME_MAX];
    gpuipc_connection *connection = begin_parent(&other, name, &buffer);
    partner_do(&other, "GPUIPC_OK", "await_async");

    partner_do(&other, "child: all-forked GPUIPC_OK calls 0", "fork");
    check_ok(child_wait(other.process, PATIENCE_MS, &how));
    cr_assert(how.exited && how.code == 0, "the parent ended with %d", how.code);
    partner_do(&other, "child: are you there", "are you there");

    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    child_close_input(other.process);
    check_status(GPUIPC_ERR_PEER_CLOSED,
                 child_read_line(other.process, other.answer, sizeof(other.answer), PATIENCE_MS));
    child_destroy(other.process);
    end();
}

/* SPDX-License-Identifier: MIT */
/** @file A process that forks: its child is told so by every call, and keeps nothing of its alive. */
#include <criterion/criterion.h>

#include "check.h"
#include "marks.h"
#include "partner.h"

static process_case at;

static void begin(void) {
    process_case_begin(&at, NULL);
}

static void end(void) {
    process_case_end(&at);
}

TestSuite(forked, .timeout = 100);

/* The partner has a listener, a connection and a buffer that it has sent; then it forks and ends. */
Test(forked, child_is_told_and_keeps_nothing_alive) {
    begin();
    partner other;
    char name[UNIQUE_NAME_MAX];
    gpuipc_buffer *buffer;
    gpuipc_connection *unwanted;
    size_t count = 1;
    child_end how;
    unique_name(name);
    partner_start(&other, &at, NULL, NULL);
    partner_do(&other, "GPUIPC_OK", "listen %s", name);
    partner_do(&other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    gpuipc_connection *connection = process_case_accept(&at);
    partner_do(&other, "GPUIPC_OK", "create 1 4096 0 0");
    partner_do(&other, "GPUIPC_OK", "fill 1 0");
    partner_do(&other, "GPUIPC_OK", "send 0 0 %d", PATIENCE_MS);
    check_ok(process_case_receive(connection, &buffer, &count, NULL, PATIENCE_MS));

    /* every call answers FORKED, releasing is allowed, and not one call reached the driver */
    partner_do(&other, "child: all-forked GPUIPC_OK calls 0", "fork");
    check_ok(child_wait(other.process, PATIENCE_MS, &how));
    cr_assert(how.exited && how.code == 0, "the parent ended with %d", how.code);

    /* the parent is gone and the child lives: the connection is at its end all the same */
    count = 0;
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

/* SPDX-License-Identifier: MIT */
/** @file Limits of descriptors: what is said of them, and what works again behind them. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "child.h"
#include "leak_gate.h"
#include "os_pair.h"

TestSuite(posix_limit, .timeout = 60);

static child_process *helper_start(const char *role, const os_pair *pair) {
    const char *const arguments[] = {role, pair->path, pair->name, NULL};
    child_process *helper;
    check_ok(child_start("posix_helper", arguments, NULL, &helper));
    return helper;
}

static void expect(child_process *helper, const char *line) {
    char got[CHILD_LINE_MAX];
    cr_assert(child_expect_line(helper, line, got, SOON_MS), "\"%s\" and not \"%s\"", got, line);
}

/** A helper that has said all has nothing to complain of. */
static void finish(child_process *helper) {
    child_end end;
    check_ok(child_wait(helper, SOON_MS, &end));
    cr_assert(end.exited && end.code == 0, "%d", end.code);
    child_destroy(helper);
}

Test(posix_limit, a_list_that_our_own_limit_cut_is_not_blamed_on_the_peer) {
    static const struct {
        size_t sent;
        int room;
        const char *answer;
    } rows[] = {{20, 20, "GPUIPC_OK 20"},
                {20, 19, "GPUIPC_ERR_TOO_MANY_HANDLES 0"},
                {20, 3, "GPUIPC_ERR_TOO_MANY_HANDLES 0"},
                {20, 0, "GPUIPC_ERR_TOO_MANY_HANDLES 0"},
                {1, 0, "GPUIPC_ERR_TOO_MANY_HANDLES 0"},
                {253, 252, "GPUIPC_ERR_TOO_MANY_HANDLES 0"},
                {253, 253, "GPUIPC_OK 253"},
                {0, 0, "GPUIPC_OK 0"}};
    static os_handle handles[OS_PACKET_HANDLES_MAX];
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair_make_handles(handles, OS_PACKET_HANDLES_MAX);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char line[32];
        os_pair pair;
        os_pair_listen(&pair);
        child_process *helper = helper_start("limit-receive", &pair);
        expect(helper, "GPUIPC_OK");
        check_ok(os_listener_accept(pair.listener, os_deadline_after(SOON_MS), &pair.server));
        snprintf(line, sizeof(line), "receive %d", rows[i].room);
        check_ok(os_connection_send(pair.server, "x", 1, handles, rows[i].sent,
                                    os_deadline_after(SOON_MS)));
        check_ok(child_write_line(helper, line));
        expect(helper, rows[i].answer);
        expect(helper, "left 0");
        child_close_input(helper);
        finish(helper);
        os_pair_close(&pair);
    }
    os_pair_close_handles(handles, OS_PACKET_HANDLES_MAX);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(posix_limit, a_list_that_something_else_cut_ends_the_connection_as_well) {
    os_handle handles[20];
    char line[CHILD_LINE_MAX];
    os_pair pair;
    os_pair_listen(&pair);
    os_pair_make_handles(handles, 20);
    child_process *helper = helper_start("limit-cut", &pair);
    expect(helper, "GPUIPC_OK");
    check_ok(os_listener_accept(pair.listener, os_deadline_after(SOON_MS), &pair.server));
    check_ok(os_connection_send(pair.server, "x", 1, handles, 20, os_deadline_after(SOON_MS)));
    check_ok(child_write_line(helper, "receive"));
    check_ok(child_read_line(helper, line, sizeof(line), SOON_MS));
    if (strcmp(line, "no seccomp") != 0) {
        cr_assert_str_eq(line, "GPUIPC_ERR_HANDLE_COUNT 0");
        expect(helper, "left 0");
    }
    finish(helper);
    os_pair_close_handles(handles, 20);
    os_pair_close(&pair);
}

Test(posix_limit, accept_with_no_descriptor_left_waits_idle_and_goes_on_later) {
    os_pair pair;
    os_pair_name(&pair);
    child_process *helper = helper_start("limit-accept", &pair);
    expect(helper, "GPUIPC_OK");
    check_ok(
        os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS), &pair.client));
    check_ok(child_write_line(helper, "accept"));
    expect(helper, "GPUIPC_ERR_TOO_MANY_HANDLES");
    expect(helper, "waited, idle");
    expect(helper, "GPUIPC_OK");
    finish(helper);
    os_pair_close(&pair);
}

Test(posix_limit, with_no_descriptor_left_a_client_is_refused_and_does_not_stay_ready) {
    char byte;
    size_t size;
    size_t count;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    os_pair pair;
    os_pair_name(&pair);
    child_process *helper = helper_start("limit-refuse", &pair);
    expect(helper, "GPUIPC_OK");
    for (int i = 0; i < 3; i++) {
        check_ok(os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS),
                                    &pair.client));
        check_ok(child_write_line(helper, "refuse"));
        expect(helper, "GPUIPC_OK 1 GPUIPC_ERR_TOO_MANY_HANDLES 0");
        check_status(GPUIPC_ERR_PEER_CLOSED,
                     os_connection_receive(pair.client, &byte, 1, &size, handles, &count,
                                           os_deadline_after(SOON_MS)));
        os_pair_close_client(&pair);
    }
    child_close_input(helper);
    expect(helper, "left 0");
    check_ok(
        os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS), &pair.client));
    expect(helper, "GPUIPC_OK");
    finish(helper);
    os_pair_close(&pair);
}

Test(posix_limit, a_peer_is_accepted_without_a_descriptor_of_its_process) {
    char line[CHILD_LINE_MAX];
    os_pair pair;
    os_pair_name(&pair);
    child_process *helper = helper_start("limit-peer", &pair);
    expect(helper, "GPUIPC_OK");
    check_ok(
        os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS), &pair.client));
    check_ok(child_write_line(helper, "accept"));
    expect(helper, "GPUIPC_OK");
    /* known by its credentials, but whether it runs cannot be said */
    snprintf(line, sizeof(line), "GPUIPC_OK %llu 1 -1", (unsigned long long)os_process_id());
    expect(helper, line);
    finish(helper);
    os_pair_close(&pair);
}

Test(posix_limit, everything_that_makes_a_handle_names_the_limit) {
    enum {
        CALLS = 10
    };
    os_pair pair;
    os_pair_name(&pair);
    child_process *helper = helper_start("limit-make", &pair);
    for (int i = 0; i < CALLS; i++) {
        expect(helper, "GPUIPC_ERR_TOO_MANY_HANDLES");
    }
    expect(helper, "boot id unknown");
    finish(helper);
    os_pair_close(&pair);
}

Test(posix_limit, too_many_on_their_way_has_a_status_of_its_own) {
    static const char *const arguments[] = {"in-flight", NULL};
    child_process *helper;
    check_ok(child_start("posix_helper", arguments, NULL, &helper));
    expect(helper, "GPUIPC_OK");
    expect(helper, "GPUIPC_ERR_TOO_MANY_IN_FLIGHT");
    expect(helper, "GPUIPC_OK 16");
    expect(helper, "GPUIPC_OK");
    finish(helper);
}

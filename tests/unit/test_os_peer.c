/* SPDX-License-Identifier: MIT */
/** @file Who is at the other end, and whether that process still runs. */
#include <string.h>

#include "check.h"
#include "child.h"
#include "leak_gate.h"
#include "os_pair.h"

TestSuite(os_peer, .timeout = 60);

static child_process *helper_start(const char *role, const os_pair *pair) {
    const char *const arguments[] = {role, pair->path, pair->name, NULL};
    child_process *helper;
    char line[CHILD_LINE_MAX];
    check_ok(child_start("unit_helper", arguments, NULL, &helper));
    cr_assert(child_expect_line(helper, "GPUIPC_OK", line, SOON_MS), "%s", line);
    return helper;
}

Test(os_peer, within_one_process_it_is_this_process) {
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_pair_open(&pair);
    os_connection *ends[] = {pair.client, pair.server};
    char own[sizeof(((os_peer *)NULL)->user)];
    for (int i = 0; i < 2; i++) {
        os_peer peer;
        check_ok(os_connection_get_peer(ends[i], &peer));
        cr_assert_eq(peer.process_id, os_process_id());
        cr_assert(peer.same_user);
        cr_assert(strlen(peer.user) > 0);
        cr_assert_not(peer.other_pid_namespace);
        os_own_user(own, sizeof(own));
        cr_assert_str_eq(own, peer.user);
        cr_assert_eq(os_peer_is_running(&peer), 1);
        os_peer_close(&peer);
        cr_assert_not(os_handle_is_valid(peer.process));
    }
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

/** Kills the helper and looks at what is known of it before, as it dies, and afterwards. */
static void check_death(os_connection *connection, child_process *helper) {
    os_peer peer;
    os_peer late;
    check_ok(os_connection_get_peer(connection, &peer));
    cr_assert_eq(peer.process_id, child_process_id(helper));
    cr_assert(peer.same_user);
    cr_assert_eq(os_peer_is_running(&peer), 1);
    child_kill(helper);
    char byte;
    size_t size;
    size_t count;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    check_status(GPUIPC_ERR_PEER_CLOSED, os_connection_receive(connection, &byte, 1, &size, handles,
                                                               &count, os_deadline_after(SOON_MS)));
    check_ok(child_wait(helper, SOON_MS, NULL));
    cr_assert_eq(os_peer_is_running(&peer), 0);
    os_peer_close(&peer);
    /* Who it was can still be told, and nobody takes it for alive. */
    check_ok(os_connection_get_peer(connection, &late));
    cr_assert_eq(late.process_id, child_process_id(helper));
    cr_assert_eq(os_peer_is_running(&late), 0);
    os_peer_close(&late);
}

Test(os_peer, the_listener_knows_who_connected_and_when_it_died) {
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_pair_listen(&pair);
    child_process *helper = helper_start("connect", &pair);
    check_ok(os_listener_accept(pair.listener, os_deadline_after(SOON_MS), &pair.server));
    check_death(pair.server, helper);
    child_destroy(helper);
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_peer, the_one_who_connects_knows_the_listener_and_when_it_died) {
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_pair_name(&pair);
    child_process *helper = helper_start("listen", &pair);
    check_ok(
        os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS), &pair.client));
    check_death(pair.client, helper);
    child_destroy(helper);
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_peer, nothing_is_known_of_a_peer_without_number_and_handle) {
    os_peer peer = {.process = OS_HANDLE_NONE};
    cr_assert_eq(os_peer_is_running(&peer), -1);
    peer.process_id = os_process_id();
    cr_assert_eq(os_peer_is_running(&peer), -1, "a number may have been given out anew");
    os_peer_close(&peer);
}

/* ---- a poller that is woken by the end of a process ------------------------------------------ */

static size_t wait_for_wake(os_poller *poller, int timeout_ms) {
    void *tag = poller;
    size_t count;
    check_ok(os_poller_wait(poller, os_deadline_after(timeout_ms), &tag, 1, &count));
    cr_assert(count == 0 || tag == OS_POLLER_WOKEN);
    return count;
}

Test(os_peer, a_poller_is_woken_once_when_a_process_ends) {
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_peer peer;
    os_poller *poller;
    os_process_watch *watch;
    os_process_watch *unwanted;
    os_pair_listen(&pair);
    child_process *helper = helper_start("connect", &pair);
    check_ok(os_listener_accept(pair.listener, os_deadline_after(SOON_MS), &pair.server));
    check_ok(os_connection_get_peer(pair.server, &peer));
    check_ok(os_poller_create(&poller));
    check_ok(os_poller_watch(poller, &peer, &unwanted));
    os_process_watch_destroy(unwanted);
    check_ok(os_poller_watch(poller, &peer, &watch));
    cr_assert_eq(wait_for_wake(poller, 0), 0);
    child_kill(helper);
    cr_assert_eq(wait_for_wake(poller, SOON_MS), 1);
    cr_assert_eq(os_peer_is_running(&peer), 0);
    cr_assert_eq(wait_for_wake(poller, 0), 0);
    os_process_watch_destroy(watch);
    check_ok(os_poller_watch(poller, &peer, &watch)); /* which has ended already */
    cr_assert_eq(wait_for_wake(poller, SOON_MS), 1);
    os_process_watch_destroy(watch);
    os_process_watch_destroy(NULL);
    os_peer_close(&peer);
    check_status(GPUIPC_ERR_NOT_SUPPORTED, os_poller_watch(poller, &peer, &watch));
    os_poller_destroy(poller);
    check_ok(child_wait(helper, SOON_MS, NULL));
    child_destroy(helper);
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

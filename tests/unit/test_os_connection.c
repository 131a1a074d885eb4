/* SPDX-License-Identifier: MIT */
/** @file Connections: opened in time or not at all, interrupted, ended by either side. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "os_pair.h"
#include "thread_state.h"

TestSuite(os_connection, .timeout = 60);

Test(os_connection, open_tries_until_its_deadline) {
    static const int lengths[] = {0, 5, 100};
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_pair_name(&pair);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint64_t start = os_clock_ns();
        check_refused(GPUIPC_ERR_NOT_FOUND, pair.name,
                      os_connection_open(&pair.directory, pair.name, os_deadline_after(lengths[i]),
                                         &pair.client));
        uint64_t took = (os_clock_ns() - start) / 1000000;
        cr_assert(took >= (uint64_t)lengths[i] && took < 10000, "%d", lengths[i]);
    }
    cr_assert_null(pair.client);
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_connection, the_end_of_the_other_side_can_be_asked_for) {
    os_pair pair;
    os_pair_open(&pair);
    cr_assert_not(os_connection_has_ended(pair.client));
    cr_assert_not(os_connection_has_ended(pair.server));
    os_connection_destroy(pair.client);
    pair.client = NULL;
    cr_assert(os_connection_has_ended(pair.server));
    os_connection_interrupt(pair.server);
    cr_assert_not(os_connection_has_ended(pair.server), "nothing can be told any more");
    os_pair_close(&pair);
}

Test(os_connection, a_directory_that_is_missing_is_nobody_there_and_is_not_made) {
    os_pair pair;
    os_pair_name(&pair);
    runtime_directory_remove(pair.path);
    for (int i = 0; i < 2; i++) {
        check_status(GPUIPC_ERR_NOT_FOUND, os_connection_open(&pair.directory, pair.name,
                                                              os_deadline_after(5), &pair.client));
    }
    os_pair_close(&pair);
}

typedef struct opening {
    os_pair *pair;
    atomic_ullong thread;
    gpuipc_status status;
} opening;

static void open_in_thread(void *argument) {
    opening *own = argument;
    atomic_store(&own->thread, thread_state_own_number());
    own->status = os_connection_open(&own->pair->directory, own->pair->name,
                                     os_deadline_after(SOON_MS), &own->pair->client);
}

static void wait_until_asleep(atomic_ullong *thread) {
    os_deadline deadline = os_deadline_after(SOON_MS);
    while (atomic_load(thread) == 0) {
        cr_assert_not(os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
    cr_assert(thread_state_wait_asleep(atomic_load(thread), SOON_MS));
}

Test(os_connection, who_comes_first_waits_for_the_listener) {
    os_pair pair;
    os_pair_name(&pair);
    opening own = {.pair = &pair};
    os_thread *thread;
    check_ok(os_thread_start(open_in_thread, &own, &thread));
    wait_until_asleep(&own.thread);
    check_ok(os_listener_open(&pair.directory, pair.name, NULL, &pair.listener));
    os_thread_join(thread);
    cr_assert_eq(own.status, GPUIPC_OK);
    check_ok(os_listener_accept(pair.listener, os_deadline_after(SOON_MS), &pair.server));
    os_pair_close(&pair);
}

Test(os_connection, a_listener_that_does_not_accept_makes_a_timeout) {
    enum {
        MORE_THAN_ANY_BACKLOG = 300
    };
    static os_connection *connections[MORE_THAN_ANY_BACKLOG];
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_pair_listen(&pair);
    size_t count = 0;
    gpuipc_status status = GPUIPC_OK;
    while (status == GPUIPC_OK && count < MORE_THAN_ANY_BACKLOG) {
        status = os_connection_open(&pair.directory, pair.name, os_deadline_after(10),
                                    &connections[count]);
        count += status == GPUIPC_OK;
    }
    cr_assert_eq(status, GPUIPC_ERR_TIMEOUT, "%s after %zu", gpuipc_status_name(status), count);
    for (size_t i = 0; i < count; i++) {
        os_connection_destroy(connections[i]);
    }
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

static gpuipc_status receive(os_connection *connection, int timeout_ms) {
    char bytes[64];
    size_t size = 77;
    size_t count = 77;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    gpuipc_status status = os_connection_receive(connection, bytes, sizeof(bytes), &size, handles,
                                                 &count, os_deadline_after(timeout_ms));
    cr_assert(status == GPUIPC_OK || (size == 77 && count == 77), "outputs written on failure");
    return status;
}

Test(os_connection, receive_waits_as_long_as_asked) {
    static const int lengths[] = {0, 1, 60};
    os_pair pair;
    os_pair_open(&pair);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint64_t start = os_clock_ns();
        check_status(GPUIPC_ERR_TIMEOUT, receive(pair.server, lengths[i]));
        uint64_t took = (os_clock_ns() - start) / 1000000;
        cr_assert(took >= (uint64_t)lengths[i] && took < 10000, "%d", lengths[i]);
    }
    os_pair_close(&pair);
}

/* Who looks before it sleeps misses nothing and waits no longer. */
Test(os_connection, who_looks_for_a_packet_waits_as_long_as_asked) {
    os_pair pair;
    char bytes[8];
    os_handle handles[OS_PACKET_HANDLES_MAX];
    size_t size = 0;
    size_t count = 0;
    os_pair_open(&pair);
    os_connection_set_look(pair.client, 1000);
    for (int length = 0; length < 30; length += 10) { /* shorter and longer than the look */
        const uint64_t start = os_clock_ns();
        check_status(GPUIPC_ERR_TIMEOUT,
                     os_connection_receive(pair.client, bytes, sizeof(bytes), &size, handles,
                                           &count, os_deadline_after(length)));
        cr_assert_geq((os_clock_ns() - start) / 1000000, (uint64_t)length);
    }
    cr_assert(os_connection_is_read(pair.server));
    check_ok(os_connection_send(pair.server, "here", 4, NULL, 0, os_deadline_after(SOON_MS)));
    check_ok(os_connection_receive(pair.client, bytes, sizeof(bytes), &size, handles, &count,
                                   os_deadline_after(SOON_MS)));
    cr_assert(size == 4 && count == 0);
    cr_assert(os_connection_is_read(pair.server));
    os_connection_interrupt(pair.client);
    check_status(GPUIPC_ERR_RELEASED,
                 os_connection_receive(pair.client, bytes, sizeof(bytes), &size, handles, &count,
                                       os_deadline_after(SOON_MS)));
    os_pair_close(&pair);
}

Test(os_connection, what_was_sent_before_the_end_arrives_before_the_end) {
    os_pair pair;
    os_pair_open(&pair);
    check_ok(os_connection_send(pair.client, "one", 3, NULL, 0, os_deadline_after(0)));
    check_ok(os_connection_send(pair.client, "two", 3, NULL, 0, os_deadline_after(0)));
    /* Left unread by the one who closes. */
    check_ok(os_connection_send(pair.server, "unread", 6, NULL, 0, os_deadline_after(0)));
    os_pair_close_client(&pair);
    check_ok(receive(pair.server, 0));
    check_ok(receive(pair.server, 0));
    check_status(GPUIPC_ERR_PEER_CLOSED, receive(pair.server, SOON_MS));
    check_status(GPUIPC_ERR_PEER_CLOSED, receive(pair.server, 0));
    check_status(GPUIPC_ERR_PEER_CLOSED,
                 os_connection_send(pair.server, "x", 1, NULL, 0, os_deadline_after(0)));
    os_pair_close(&pair);
}

typedef struct waiting {
    os_connection *connection;
    bool sends;
    atomic_ullong thread;
    gpuipc_status status;
} waiting;

static void wait_in_thread(void *argument) {
    waiting *own = argument;
    /* Small: a thread that is looked at while it writes more than a pipe takes at once is ended by
     * Wine 8 ("partial write"). */
    static const char bytes[4096];
    atomic_store(&own->thread, thread_state_own_number());
    do {
        own->status = own->sends ? os_connection_send(own->connection, bytes, sizeof(bytes), NULL,
                                                      0, os_deadline_after(SOON_MS))
                                 : receive(own->connection, SOON_MS);
    } while (own->status == GPUIPC_OK);
}

typedef void end_of_wait(os_pair *pair);

static void end_by_interrupt(os_pair *pair) {
    os_connection_interrupt(pair->server);
}

/** One thread waits in the server's end, sending or receiving, until @p end ends that. */
static void check_waiter(bool sends, end_of_wait *end, gpuipc_status expected) {
    os_pair pair;
    os_thread *thread;
    os_pair_open(&pair);
    waiting own = {.connection = pair.server, .sends = sends};
    check_ok(os_thread_start(wait_in_thread, &own, &thread));
    wait_until_asleep(&own.thread);
    uint64_t start = os_clock_ns();
    end(&pair);
    os_thread_join(thread);
    cr_assert_eq(own.status, expected, "%s", gpuipc_status_name(own.status));
    cr_assert((os_clock_ns() - start) / 1000000 < SOON_MS / 2);
    os_pair_close(&pair);
}

Test(os_connection, an_interrupt_wakes_who_receives) {
    check_waiter(false, end_by_interrupt, GPUIPC_ERR_RELEASED);
}

Test(os_connection, an_interrupt_wakes_who_sends) {
    check_waiter(true, end_by_interrupt, GPUIPC_ERR_RELEASED);
}

Test(os_connection, the_peers_end_wakes_who_receives) {
    check_waiter(false, os_pair_close_client, GPUIPC_ERR_PEER_CLOSED);
}

Test(os_connection, the_peers_end_wakes_who_sends) {
    check_waiter(true, os_pair_close_client, GPUIPC_ERR_PEER_CLOSED);
}

Test(os_connection, after_an_interrupt_every_call_answers_at_once_and_the_peer_sees_the_end) {
    os_pair pair;
    os_pair_open(&pair);
    check_ok(os_connection_send(pair.client, "x", 1, NULL, 0, os_deadline_after(0)));
    os_connection_interrupt(pair.server);
    os_connection_interrupt(pair.server);
    check_refused(GPUIPC_ERR_RELEASED, "another thread closed the connection",
                  receive(pair.server, -1));
    check_refused(GPUIPC_ERR_RELEASED, "another thread closed the connection",
                  os_connection_send(pair.server, "x", 1, NULL, 0, os_deadline_after(-1)));
    check_status(GPUIPC_ERR_PEER_CLOSED, receive(pair.client, SOON_MS));
    check_status(GPUIPC_ERR_PEER_CLOSED,
                 os_connection_send(pair.client, "x", 1, NULL, 0, os_deadline_after(0)));
    os_pair_close(&pair);
}

/* A packet for each that is taken: whoever reads until nothing is there would never end. */
Test(os_connection, what_is_left_ends_while_the_peer_goes_on_sending) {
    enum {
        MORE_THAN_THE_WAY_HOLDS = 1000
    };
    static char bytes[OS_PACKET_BYTES_MAX];
    os_pair pair;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    size_t size = 0;
    size_t count = 0;
    uint32_t taken = 0;
    os_pair_open(&pair);
    check_ok(os_connection_send(pair.client, bytes, sizeof(bytes), NULL, 0, os_deadline_after(0)));
    os_connection_stop(pair.server);
    while (os_connection_take_rest(pair.server, bytes, sizeof(bytes), &size, handles, &count) ==
           GPUIPC_OK) {
        taken++;
        cr_assert_lt(taken, MORE_THAN_THE_WAY_HOLDS);
        (void)os_connection_send(pair.client, bytes, sizeof(bytes), NULL, 0, os_deadline_after(0));
    }
    cr_assert_geq(taken, 1);
    cr_assert_eq(size, sizeof(bytes));
    os_connection_interrupt(pair.server);
    check_status(GPUIPC_ERR_PEER_CLOSED, os_connection_send(pair.client, bytes, sizeof(bytes), NULL,
                                                            0, os_deadline_after(SOON_MS)));
    os_pair_close(&pair);
}

static gpuipc_status take_rest(os_connection *from) {
    char bytes[64];
    size_t size = 0;
    size_t count = 0;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    return os_connection_take_rest(from, bytes, sizeof(bytes), &size, handles, &count);
}

/* On Linux nothing can come late; where it can, it is taken or the sender learns that it was not. */
Test(os_connection, an_end_takes_what_has_come_meanwhile) {
    bool peer_closed = true;
    os_pair pair;
    os_pair_open(&pair);
    os_connection_stop(pair.server);
    cr_assert_neq(take_rest(pair.server), GPUIPC_OK);
    const bool came =
        os_connection_send(pair.client, "late", 4, NULL, 0, os_deadline_after(0)) == GPUIPC_OK;
    if (came) {
        cr_assert_not(os_connection_end(pair.server, &peer_closed));
        check_ok(take_rest(pair.server));
        cr_assert_neq(take_rest(pair.server), GPUIPC_OK);
    }
    cr_assert(os_connection_end(pair.server, &peer_closed));
    cr_assert_not(peer_closed);
    check_status(GPUIPC_ERR_PEER_CLOSED, receive(pair.client, SOON_MS));
    os_connection_stop(pair.client);
    cr_assert_neq(take_rest(pair.client), GPUIPC_OK);
    cr_assert(os_connection_end(pair.client, &peer_closed));
    cr_assert_eq(peer_closed, came);
    os_pair_close(&pair);
}

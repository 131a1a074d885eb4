/* SPDX-License-Identifier: MIT */
/** @file Many endpoints waited for at once: what is ready is told, until it is looked after. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "os_crowd.h"

TestSuite(os_poller, .timeout = 60);

Test(os_poller, a_client_that_waits_makes_its_listener_ready_until_it_is_accepted) {
    int tag;
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_poller *poller;
    os_pair_listen(&pair);
    check_ok(os_poller_create(&poller));
    check_ok(os_poller_add_listener(poller, pair.listener, &tag));
    crowd_check_nothing(poller);
    for (int i = 0; i < 10; i++) { /* more than the instances that wait at once on Windows */
        check_ok(os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS),
                                    &pair.client));
        crowd_check_one(poller, &tag);
        crowd_check_one(poller, &tag);
        check_ok(os_listener_accept(pair.listener, os_deadline_after(0), &pair.server));
        crowd_check_nothing(poller);
        os_pair_close_client(&pair);
        os_pair_close_server(&pair);
    }
    os_poller_destroy(poller);
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_poller, a_client_from_before_and_one_that_is_gone_again_are_told_as_well) {
    int tag;
    char text[64];
    os_pair pair;
    os_poller *poller;
    os_pair_listen(&pair);
    check_ok(
        os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS), &pair.client));
    check_ok(os_poller_create(&poller));
    check_ok(os_poller_add_listener(poller, pair.listener, &tag));
    crowd_check_one(poller, &tag);
    check_ok(os_listener_accept(pair.listener, os_deadline_after(0), &pair.server));
    os_pair_close_client(&pair);
    os_pair_close_server(&pair);
    check_ok(
        os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS), &pair.client));
    crowd_say(pair.client, "bye");
    os_pair_close_client(&pair);
    crowd_check_one(poller, &tag);
    check_ok(os_listener_accept(pair.listener, os_deadline_after(0), &pair.server));
    check_ok(crowd_hear(pair.server, 0, text));
    check_status(GPUIPC_ERR_PEER_CLOSED, crowd_hear(pair.server, 0, text));
    os_poller_destroy(poller);
    os_pair_close(&pair);
}

Test(os_poller, a_listener_that_is_interrupted_is_ready_and_may_go_first) {
    int tag;
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_poller *poller;
    os_pair_listen(&pair);
    check_ok(os_poller_create(&poller));
    check_ok(os_poller_add_listener(poller, pair.listener, &tag));
    crowd_check_nothing(poller);
    os_listener_interrupt(pair.listener);
    crowd_check_one(poller, &tag);
    check_status(GPUIPC_ERR_RELEASED,
                 os_listener_accept(pair.listener, os_deadline_after(0), &pair.server));
    os_listener_destroy(pair.listener);
    pair.listener = NULL;
    crowd_check_nothing(poller);
    os_poller_destroy(poller);
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_poller, a_listener_works_by_itself_during_and_after) {
    int tag;
    os_pair pair;
    os_poller *poller;
    os_pair_listen(&pair);
    for (int i = 0; i < 3; i++) {
        check_ok(os_poller_create(&poller));
        check_ok(os_poller_add_listener(poller, pair.listener, &tag));
        check_status(GPUIPC_ERR_TIMEOUT,
                     os_listener_accept(pair.listener, os_deadline_after(30), &pair.server));
        if (i == 1) {
            os_poller_destroy(poller);
        }
        check_ok(os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS),
                                    &pair.client));
        if (i == 2) {
            os_poller_destroy(poller);
        }
        check_ok(os_listener_accept(pair.listener, os_deadline_after(SOON_MS), &pair.server));
        if (i == 0) {
            os_poller_destroy(poller);
        }
        os_pair_close_client(&pair);
        os_pair_close_server(&pair);
    }
    os_pair_close(&pair);
}

Test(os_poller, a_packet_makes_ready_and_waiting_for_it_takes_nothing_away) {
    leak_gate gate;
    leak_gate_begin(&gate);
    crowd own;
    crowd_open(&own, 2);
    crowd_check_nothing(own.poller);
    crowd_say(own.clients[1], "one");
    crowd_say(own.clients[1], "two");
    crowd_check_one(own.poller, &own.servers[1]);
    crowd_check_one(own.poller, &own.servers[1]);
    crowd_check_hears(own.servers[1], "one");
    crowd_check_one(own.poller, &own.servers[1]);
    crowd_check_hears(own.servers[1], "two");
    crowd_check_nothing(own.poller);
    crowd_say(own.clients[1], "three");
    crowd_say(own.clients[0], "other");
    crowd_check_hears(own.servers[1], "three"); /* without asking */
    crowd_check_one(own.poller, &own.servers[0]);
    crowd_check_hears(own.servers[0], "other");
    crowd_check_nothing(own.poller);
    crowd_close(&own);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_poller, the_largest_packet_with_all_handles_is_whole_behind_it) {
    static os_handle sent[OS_PACKET_HANDLES_MAX];
    static os_handle got[OS_PACKET_HANDLES_MAX];
    static unsigned char out[OS_PACKET_BYTES_MAX];
    static unsigned char in[OS_PACKET_BYTES_MAX];
    size_t size;
    size_t count;
    crowd own;
    crowd_open(&own, 1);
    os_pair_make_handles(sent, OS_PACKET_HANDLES_MAX);
    for (size_t i = 0; i < sizeof(out); i++) {
        out[i] = (unsigned char)(i * 7);
    }
    crowd_check_nothing(own.poller);
    check_ok(os_connection_send(own.clients[0], out, sizeof(out), sent, OS_PACKET_HANDLES_MAX,
                                os_deadline_after(SOON_MS)));
    crowd_check_one(own.poller, &own.servers[0]);
    check_ok(os_connection_receive(own.servers[0], in, sizeof(in), &size, got, &count,
                                   os_deadline_after(0)));
    cr_assert(size == sizeof(out) && count == OS_PACKET_HANDLES_MAX);
    cr_assert_eq(memcmp(in, out, sizeof(out)), 0);
    os_pair_close_handles(sent, OS_PACKET_HANDLES_MAX);
    os_pair_close_handles(got, OS_PACKET_HANDLES_MAX);
    crowd_close(&own);
}

Test(os_poller, what_came_before_it_was_added_is_told) {
    os_pair pair;
    os_poller *poller;
    os_pair_open(&pair);
    check_ok(os_poller_create(&poller));
    crowd_say(pair.client, "early");
    check_ok(os_poller_add_connection(poller, pair.server, &pair));
    crowd_check_one(poller, &pair);
    crowd_check_hears(pair.server, "early");
    crowd_check_nothing(poller);
    os_poller_destroy(poller);
    os_pair_close(&pair);
}

Test(os_poller, the_peers_end_makes_ready_behind_what_it_has_sent) {
    char text[64];
    crowd own;
    crowd_open(&own, 2);
    crowd_check_nothing(own.poller);
    crowd_say(own.clients[0], "last");
    crowd_client_end(&own, 0);
    crowd_check_one(own.poller, &own.servers[0]);
    crowd_check_hears(own.servers[0], "last");
    for (int i = 0; i < 2; i++) {
        crowd_check_one(own.poller, &own.servers[0]);
        check_status(GPUIPC_ERR_PEER_CLOSED, crowd_hear(own.servers[0], 0, text));
    }
    os_poller_remove_connection(own.poller, own.servers[0]);
    crowd_check_nothing(own.poller);
    crowd_close(&own);
}

Test(os_poller, an_interrupted_connection_is_ready_for_ever) {
    char text[64];
    leak_gate gate;
    leak_gate_begin(&gate);
    crowd own;
    crowd_open(&own, 2);
    crowd_check_nothing(own.poller);
    os_connection_interrupt(own.servers[0]);
    for (int i = 0; i < 2; i++) {
        crowd_check_one(own.poller, &own.servers[0]);
        check_status(GPUIPC_ERR_RELEASED, crowd_hear(own.servers[0], 0, text));
    }
    check_status(GPUIPC_ERR_PEER_CLOSED, crowd_hear(own.clients[0], SOON_MS, text));
    os_poller_remove_connection(own.poller, own.servers[0]);
    crowd_check_nothing(own.poller);
    check_status(GPUIPC_ERR_RELEASED,
                 os_poller_add_connection(own.poller, own.servers[0], &own.servers[0]));
    crowd_close(&own);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_poller, an_endpoint_is_added_once_and_a_place_is_asked_for) {
    size_t count = 77;
    void *tag;
    crowd own;
    crowd_open(&own, 1);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 os_poller_add_connection(own.poller, own.servers[0], &own));
    check_ok(os_poller_add_listener(own.poller, own.pair.listener, &own));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 os_poller_add_listener(own.poller, own.pair.listener, &own));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 os_poller_wait(own.poller, os_deadline_after(0), &tag, 0, &count));
    cr_assert_eq(count, 77);
    os_poller_remove_connection(own.poller, own.clients[0]); /* was never in there */
    os_poller_destroy(NULL);
    crowd_close(&own);
}

/** Marks what is ready now, in waits for a few each. @return how many waits it took to see @p wanted */
static int crowd_see(crowd *own, size_t capacity, bool *seen, size_t wanted) {
    void *tags[8];
    size_t count;
    size_t distinct = 0;
    int waits = 0;
    while (distinct < wanted && waits < 10 * CROWD_MAX) {
        check_ok(os_poller_wait(own->poller, os_deadline_after(SOON_MS), tags, capacity, &count));
        cr_assert(count > 0 && count <= capacity);
        for (size_t i = 0; i < count; i++) {
            size_t at = (size_t)((os_connection **)tags[i] - own->servers);
            distinct += !seen[at];
            seen[at] = true;
        }
        waits++;
    }
    return waits;
}

Test(os_poller, of_many_those_that_are_ready_are_told_and_no_others) {
    bool seen[CROWD_MAX] = {false};
    static crowd own;
    leak_gate gate;
    leak_gate_begin(&gate);
    crowd_open(&own, CROWD_MAX);
    crowd_check_nothing(own.poller);
    for (size_t i = 0; i < CROWD_MAX; i += 3) {
        crowd_say(own.clients[i], "x");
    }
    (void)crowd_see(&own, 8, seen, (CROWD_MAX + 2) / 3);
    for (size_t i = 0; i < CROWD_MAX; i++) {
        cr_assert_eq(seen[i], i % 3 == 0, "%zu", i);
        if (seen[i]) {
            crowd_check_hears(own.servers[i], "x");
        }
    }
    crowd_check_nothing(own.poller);
    for (size_t i = 0; i < CROWD_MAX; i += 9) {
        crowd_client_end(&own, i);
        crowd_check_one(own.poller, &own.servers[i]);
        os_poller_remove_connection(own.poller, own.servers[i]);
    }
    crowd_check_nothing(own.poller);
    crowd_close(&own);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_poller, when_more_are_ready_than_there_is_room_for_all_get_their_turn) {
    static const size_t capacities[] = {1, 3, 8};
    static crowd own;
    crowd_open(&own, 25);
    for (size_t i = 0; i < own.count; i++) {
        crowd_say(own.clients[i], "x");
    }
    for (size_t i = 0; i < sizeof(capacities) / sizeof(capacities[0]); i++) {
        bool seen[CROWD_MAX] = {false};
        size_t capacity = capacities[i];
        int waits = crowd_see(&own, capacity, seen, own.count);
        /* None is looked after, and none comes twice before each came once, but for where a round ends. */
        cr_assert_leq((size_t)waits, (own.count + capacity - 1) / capacity + 1, "%d by %zu", waits,
                      capacity);
    }
    crowd_close(&own);
}

Test(os_poller, one_that_always_has_something_does_not_keep_the_others_from_their_turn) {
    void *tag;
    size_t count;
    int others = 0;
    crowd own;
    crowd_open(&own, 3);
    crowd_say(own.clients[1], "x");
    crowd_say(own.clients[2], "x");
    for (int i = 0; i < 6; i++) {
        crowd_say(own.clients[0], "busy");
        check_ok(os_poller_wait(own.poller, os_deadline_after(SOON_MS), &tag, 1, &count));
        others += tag != &own.servers[0];
    }
    cr_assert_geq(others, 2);
    crowd_close(&own);
}

Test(os_poller, who_was_removed_is_not_told_although_it_was_found) {
    void *tag;
    size_t count;
    crowd own;
    crowd_open(&own, 3);
    for (size_t i = 0; i < 3; i++) {
        crowd_say(own.clients[i], "x");
    }
    check_ok(os_poller_wait(own.poller, os_deadline_after(SOON_MS), &tag, 1, &count));
    size_t first = (size_t)((os_connection **)tag - own.servers);
    size_t second = (first + 1) % 3;
    size_t third = (first + 2) % 3;
    os_poller_remove_connection(own.poller, own.servers[first]);
    os_poller_remove_connection(own.poller, own.servers[second]);
    for (int i = 0; i < 4; i++) {
        crowd_check_one(own.poller, &own.servers[third]);
    }
    /* And it goes on by itself, and can be added again. */
    crowd_check_hears(own.servers[second], "x");
    crowd_say(own.clients[second], "again");
    check_ok(os_poller_add_connection(own.poller, own.servers[second], &own.servers[second]));
    crowd_check_hears(own.servers[third], "x");
    crowd_check_one(own.poller, &own.servers[second]);
    crowd_close(&own);
}

Test(os_poller, destroyed_first_it_leaves_its_connections_as_they_are) {
    leak_gate gate;
    leak_gate_begin(&gate);
    crowd own;
    crowd_open(&own, 3);
    crowd_say(own.clients[0], "x");
    crowd_check_one(own.poller, &own.servers[0]);
    os_poller_destroy(own.poller);
    check_ok(os_poller_create(&own.poller));
    crowd_say(own.clients[1], "y");
    crowd_check_hears(own.servers[0], "x");
    crowd_check_hears(own.servers[1], "y");
    check_ok(os_poller_add_connection(own.poller, own.servers[2], &own));
    crowd_say(own.clients[2], "z");
    crowd_check_one(own.poller, &own);
    crowd_close(&own);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_poller, a_wait_takes_as_long_as_asked) {
    static const int lengths[] = {0, 1, 60};
    void *tags[2];
    crowd own;
    crowd_open(&own, 1);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        size_t count = 77;
        uint64_t start = os_clock_ns();
        check_ok(os_poller_wait(own.poller, os_deadline_after(lengths[i]), tags, 2, &count));
        uint64_t took = (os_clock_ns() - start) / 1000000;
        cr_assert_eq(count, 0);
        cr_assert(took >= (uint64_t)lengths[i] && took < 10000, "%d", lengths[i]);
    }
    crowd_close(&own);
}

Test(os_poller, who_receives_in_vain_in_between_still_hears_what_comes) {
    char text[64];
    crowd own;
    crowd_open(&own, 1);
    for (int i = 0; i < 3; i++) {
        crowd_check_nothing(own.poller);
        check_status(GPUIPC_ERR_TIMEOUT, crowd_hear(own.servers[0], i, text));
    }
    crowd_say(own.clients[0], "x");
    crowd_check_one(own.poller, &own.servers[0]);
    crowd_check_hears(own.servers[0], "x");
    crowd_close(&own);
}

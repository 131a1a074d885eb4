/* SPDX-License-Identifier: MIT */
/** @file Pollers among threads and in event loops: woken, missed by nobody; and clients that are refused. */
#include <stdatomic.h>
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "native_ready.h"
#include "os_crowd.h"
#include "thread_state.h"

Test(os_poller, a_wake_up_before_the_wait_is_told_once) {
    void *tag;
    size_t count;
    crowd own;
    crowd_open(&own, 1);
    os_poller_wake(own.poller);
    os_poller_wake(own.poller);
    crowd_check_one(own.poller, OS_POLLER_WOKEN);
    crowd_check_nothing(own.poller);
    /* And it gets its turn although there is always something else. */
    crowd_say(own.clients[0], "x");
    os_poller_wake(own.poller);
    bool woken = false;
    for (int i = 0; i < 3 && !woken; i++) {
        check_ok(os_poller_wait(own.poller, os_deadline_after(SOON_MS), &tag, 1, &count));
        woken = tag == OS_POLLER_WOKEN;
    }
    cr_assert(woken);
    crowd_check_one(own.poller, &own.servers[0]);
    crowd_close(&own);
}

typedef struct waiting {
    os_poller *poller;
    atomic_ullong thread;
    int timeout_ms;
    void *tags[4];
    size_t count;
    gpuipc_status status;
} waiting;

static void wait_in_thread(void *argument) {
    waiting *own = argument;
    atomic_store(&own->thread, thread_state_own_number());
    own->status =
        os_poller_wait(own->poller, os_deadline_after(own->timeout_ms), own->tags, 4, &own->count);
}

static os_thread *waiting_start(waiting *own) {
    os_thread *thread;
    os_deadline deadline = os_deadline_after(SOON_MS);
    own->count = 77;
    atomic_init(&own->thread, 0);
    check_ok(os_thread_start(wait_in_thread, own, &thread));
    while (atomic_load(&own->thread) == 0) {
        cr_assert_not(os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
    cr_assert(thread_state_wait_asleep(atomic_load(&own->thread), SOON_MS));
    return thread;
}

static void waiting_join(waiting *own, os_thread *thread, const void *tag) {
    os_thread_join(thread);
    cr_assert_eq(own->status, GPUIPC_OK);
    cr_assert_eq(own->count, 1, "%zu", own->count);
    cr_assert_eq(own->tags[0], tag);
}

Test(os_poller, whatever_comes_wakes_who_waits) {
    int tag;
    crowd own;
    crowd_open(&own, 3);
    check_ok(os_poller_add_listener(own.poller, own.pair.listener, &tag));
    waiting wait = {.poller = own.poller, .timeout_ms = -1};

    os_thread *thread = waiting_start(&wait);
    os_poller_wake(own.poller);
    waiting_join(&wait, thread, OS_POLLER_WOKEN);

    thread = waiting_start(&wait);
    crowd_say(own.clients[1], "x");
    waiting_join(&wait, thread, &own.servers[1]);
    crowd_check_hears(own.servers[1], "x");

    thread = waiting_start(&wait);
    crowd_client_end(&own, 2);
    waiting_join(&wait, thread, &own.servers[2]);
    os_poller_remove_connection(own.poller, own.servers[2]);

    thread = waiting_start(&wait);
    check_ok(os_connection_open(&own.pair.directory, own.pair.name, os_deadline_after(SOON_MS),
                                &own.pair.client));
    waiting_join(&wait, thread, &tag);
    check_ok(os_listener_accept(own.pair.listener, os_deadline_after(0), &own.pair.server));

    thread = waiting_start(&wait);
    os_connection_interrupt(own.servers[0]);
    waiting_join(&wait, thread, &own.servers[0]);
    os_poller_remove_connection(own.poller, own.servers[0]);

    thread = waiting_start(&wait);
    os_listener_interrupt(own.pair.listener);
    waiting_join(&wait, thread, &tag);
    crowd_close(&own);
}

/* On Windows the system takes back what a thread has started when it ends. */
Test(os_poller, what_a_thread_that_is_gone_waited_for_is_waited_for_still) {
    int tag;
    crowd own;
    crowd_open(&own, 2);
    check_ok(os_poller_add_listener(own.poller, own.pair.listener, &tag));
    for (int i = 0; i < 2; i++) {
        waiting wait = {.poller = own.poller, .timeout_ms = -1};
        os_thread *thread = waiting_start(&wait);
        crowd_say(own.clients[0], "x");
        waiting_join(&wait, thread, &own.servers[0]);
        crowd_check_hears(own.servers[0], "x");
    }
    /* An event loop of the caller's has looked at nothing since. */
    crowd_say(own.clients[1], "y");
    cr_assert(native_is_ready(os_poller_native(own.poller), SOON_MS));
    crowd_check_one(own.poller, &own.servers[1]);
    crowd_check_hears(own.servers[1], "y");
    check_ok(os_connection_open(&own.pair.directory, own.pair.name, os_deadline_after(SOON_MS),
                                &own.pair.client));
    crowd_check_one(own.poller, &tag);
    check_ok(os_listener_accept(own.pair.listener, os_deadline_after(0), &own.pair.server));
    crowd_check_nothing(own.poller);
    crowd_close(&own);
}

typedef struct echoing {
    crowd *crowd;
    atomic_int wrong;
} echoing;

enum {
    ECHO_ROUNDS = 100
};

/** Sends to one after the other, now alone and now together with the next, and waits for the answers. */
static void echo_ask(void *argument) {
    echoing *own = argument;
    char text[64];
    for (size_t i = 0; i < ECHO_ROUNDS; i++) {
        os_connection *one = own->crowd->clients[i % own->crowd->count];
        os_connection *other = own->crowd->clients[(i + 1) % own->crowd->count];
        bool good =
            os_connection_send(one, "x", 1, NULL, 0, os_deadline_after(SOON_MS)) == GPUIPC_OK;
        if (i % 2 == 0) {
            good &= crowd_hear(one, SOON_MS, text) == GPUIPC_OK;
            continue;
        }
        good &= os_connection_send(other, "x", 1, NULL, 0, os_deadline_after(SOON_MS)) == GPUIPC_OK;
        good &= crowd_hear(one, SOON_MS, text) == GPUIPC_OK &&
                crowd_hear(other, SOON_MS, text) == GPUIPC_OK;
        atomic_fetch_add(&own->wrong, !good);
    }
    os_poller_wake(own->crowd->poller);
}

/** Answers all that are ready. False when it was woken. */
static bool echo_answer(crowd *own, int *answered) {
    void *tags[4];
    size_t count;
    bool woken = false;
    check_ok(os_poller_wait(own->poller, os_deadline_after(SOON_MS), tags, 4, &count));
    cr_assert_gt(count, 0, "a packet was missed");
    for (size_t i = 0; i < count; i++) {
        if (tags[i] == OS_POLLER_WOKEN) {
            woken = true;
            continue;
        }
        crowd_check_hears(*(os_connection **)tags[i], "x");
        crowd_say(*(os_connection **)tags[i], "y");
        (*answered)++;
    }
    return !woken;
}

Test(os_poller, nothing_is_missed_while_packets_come_at_any_moment) {
    static crowd own;
    int answered = 0;
    os_thread *thread;
    crowd_open(&own, 5);
    echoing other = {.crowd = &own};
    check_ok(os_thread_start(echo_ask, &other, &thread));
    while (echo_answer(&own, &answered)) {
    }
    os_thread_join(thread);
    cr_assert_eq(atomic_load(&other.wrong), 0);
    cr_assert_eq(answered, ECHO_ROUNDS + ECHO_ROUNDS / 2);
    crowd_close(&own);
}

/* ---- a caller's event loop ----------------------------------------------------------------- */

/** The loop sees it; and when it was looked after and the poller asked once more, it does not any more. */
static void check_loop(crowd *own, const void *tag, os_connection *receiver) {
    intptr_t native = os_poller_native(own->poller);
    cr_assert(native_is_ready(native, SOON_MS));
    crowd_check_one(own->poller, tag);
    if (tag != OS_POLLER_WOKEN) {
        cr_assert(native_is_ready(native, 0), "as long as it is not looked after");
    }
    if (receiver != NULL) {
        crowd_check_hears(receiver, "x");
    } else if (tag != OS_POLLER_WOKEN) {
        check_ok(os_listener_accept(own->pair.listener, os_deadline_after(0), &own->pair.server));
    }
    crowd_check_nothing(own->poller);
    cr_assert_not(native_is_ready(native, 0));
}

Test(os_poller, its_native_handle_is_ready_whenever_something_is) {
    int tag;
    leak_gate gate;
    leak_gate_begin(&gate);
    crowd own;
    crowd_open(&own, 3);
    check_ok(os_poller_add_listener(own.poller, own.pair.listener, &tag));
    crowd_check_nothing(own.poller);
    cr_assert_not(native_is_ready(os_poller_native(own.poller), 0));
    for (int i = 0; i < 3; i++) {
        crowd_say(own.clients[1], "x");
        check_loop(&own, &own.servers[1], own.servers[1]);
        os_poller_wake(own.poller);
        check_loop(&own, OS_POLLER_WOKEN, NULL);
        check_ok(os_connection_open(&own.pair.directory, own.pair.name, os_deadline_after(SOON_MS),
                                    &own.pair.client));
        check_loop(&own, &tag, NULL);
        os_pair_close_client(&own.pair);
        os_pair_close_server(&own.pair);
    }
    crowd_client_end(&own, 2);
    cr_assert(native_is_ready(os_poller_native(own.poller), SOON_MS));
    crowd_close(&own);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

/** A packet that comes while the loop looks after another one is seen by the loop, not only by a wait. */
Test(os_poller, its_native_handle_tells_what_comes_in_the_middle_of_a_turn) {
    int tag;
    char text[64];
    crowd own;
    crowd_open(&own, 2);
    check_ok(os_poller_add_listener(own.poller, own.pair.listener, &tag));
    crowd_check_nothing(own.poller);
    crowd_say(own.clients[0], "x");
    crowd_check_one(own.poller, &own.servers[0]);
    crowd_check_hears(own.servers[0], "x");
    crowd_say(own.clients[0], "x");
    cr_assert(native_is_ready(os_poller_native(own.poller), SOON_MS));
    crowd_check_one(own.poller, &own.servers[0]);
    crowd_say(own.clients[1], "x");
    crowd_check_hears(own.servers[0], "x");
    cr_assert(native_is_ready(os_poller_native(own.poller), SOON_MS));
    crowd_check_one(own.poller, &own.servers[1]);
    crowd_check_hears(own.servers[1], "x");
    crowd_check_nothing(own.poller);
    /* One that comes after somebody has received in vain. */
    check_status(GPUIPC_ERR_TIMEOUT, crowd_hear(own.servers[1], 0, text));
    crowd_say(own.clients[1], "x");
    cr_assert(native_is_ready(os_poller_native(own.poller), SOON_MS));
    crowd_check_one(own.poller, &own.servers[1]);
    crowd_check_hears(own.servers[1], "x");
    crowd_check_nothing(own.poller);
    /* And one that comes while a client is accepted. */
    check_ok(os_connection_open(&own.pair.directory, own.pair.name, os_deadline_after(SOON_MS),
                                &own.pair.client));
    crowd_check_one(own.poller, &tag);
    crowd_say(own.clients[0], "x");
    check_ok(os_listener_accept(own.pair.listener, os_deadline_after(0), &own.pair.server));
    cr_assert(native_is_ready(os_poller_native(own.poller), SOON_MS));
    crowd_check_one(own.poller, &own.servers[0]);
    crowd_close(&own);
}

/* ---- clients that are not let in ----------------------------------------------------------- */

Test(os_poller, a_client_that_is_refused_sees_the_end_and_the_next_is_accepted) {
    int tag;
    char text[64];
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_poller *poller;
    os_pair_listen(&pair);
    check_ok(os_poller_create(&poller));
    check_ok(os_poller_add_listener(poller, pair.listener, &tag));
    os_listener_refuse(pair.listener); /* nobody is there */
    for (int i = 0; i < 3; i++) {
        check_ok(os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS),
                                    &pair.client));
        crowd_say(pair.client, "unread");
        crowd_check_one(poller, &tag);
        os_listener_refuse(pair.listener);
        crowd_check_nothing(poller);
        check_status(GPUIPC_ERR_PEER_CLOSED, crowd_hear(pair.client, SOON_MS, text));
        os_pair_close_client(&pair);
    }
    check_ok(
        os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS), &pair.client));
    crowd_check_one(poller, &tag);
    check_ok(os_listener_accept(pair.listener, os_deadline_after(0), &pair.server));
    os_listener_interrupt(pair.listener);
    os_listener_refuse(pair.listener);
    os_poller_destroy(poller);
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

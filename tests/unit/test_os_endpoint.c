/* SPDX-License-Identifier: MIT */
/** @file Listeners: names made, refused, replaced, taken away; accepting and its end. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "child.h"
#include "leak_gate.h"
#include "os_pair.h"
#include "thread_state.h"

TestSuite(os_endpoint, .timeout = 60);

static child_process *helper_start(const char *role, const os_pair *pair) {
    const char *const arguments[] = {role, pair->path, pair->name, NULL};
    child_process *helper;
    char line[CHILD_LINE_MAX];
    check_ok(child_start("unit_helper", arguments, NULL, &helper));
    cr_assert(child_expect_line(helper, "GPUIPC_OK", line, SOON_MS), "%s", line);
    return helper;
}

Test(os_endpoint, a_name_is_there_while_its_listener_is) {
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_connection *connection = NULL;
    os_pair_name(&pair);
    check_status(GPUIPC_ERR_NOT_FOUND,
                 os_connection_open(&pair.directory, pair.name, os_deadline_after(0), &connection));
    check_ok(os_listener_open(&pair.directory, pair.name, NULL, &pair.listener));
    check_ok(os_connection_open(&pair.directory, pair.name, os_deadline_after(0), &pair.client));
    check_ok(os_listener_accept(pair.listener, os_deadline_after(0), &pair.server));
    os_pair_close_client(&pair);
    os_pair_close_server(&pair);
    os_listener_destroy(pair.listener);
    pair.listener = NULL;
    check_status(GPUIPC_ERR_NOT_FOUND,
                 os_connection_open(&pair.directory, pair.name, os_deadline_after(0), &connection));
    cr_assert_null(connection);
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_endpoint, a_living_listener_keeps_its_name_and_is_not_disturbed) {
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_listener *second = NULL;
    os_connection *connection;
    os_pair_listen(&pair);
    check_refused(GPUIPC_ERR_NAME_IN_USE, pair.name,
                  os_listener_open(&pair.directory, pair.name, NULL, &second));
    cr_assert_null(second);
    /* Finding that out left no connection for the living one to deal with. */
    check_status(GPUIPC_ERR_TIMEOUT,
                 os_listener_accept(pair.listener, os_deadline_after(0), &connection));
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

/* ---- second names ------------------------------------------------------------------------------ */

static gpuipc_status connect_second(const os_pair *pair) {
    os_connection *connection = NULL;
    gpuipc_status status =
        os_connection_open(&pair->directory, "second", os_deadline_after(0), &connection);
    if (status == GPUIPC_OK) {
        os_connection_destroy(connection);
    }
    return status;
}

Test(os_endpoint, a_second_name_leads_to_the_listener_until_it_is_closed) {
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_name *name = NULL;
    os_name *other = NULL;
    os_pair_listen(&pair);
    check_status(GPUIPC_ERR_NOT_FOUND, connect_second(&pair));
    check_ok(os_listener_add_name(pair.listener, &pair.directory, "second", NULL, &name));
    check_status(GPUIPC_ERR_NAME_IN_USE,
                 os_listener_add_name(pair.listener, &pair.directory, "second", NULL, &other));
    check_status(GPUIPC_ERR_NAME_IN_USE,
                 os_listener_add_name(pair.listener, &pair.directory, pair.name, NULL, &other));
    cr_assert_null(other);
    check_ok(os_connection_open(&pair.directory, "second", os_deadline_after(0), &pair.client));
    check_ok(os_listener_accept(pair.listener, os_deadline_after(0), &pair.server));
    os_name_close(name);
    check_status(GPUIPC_ERR_NOT_FOUND, connect_second(&pair));
    os_name_close(NULL);
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_endpoint, a_second_name_goes_to_another_listener_when_its_own_has_ended) {
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_listener *next = NULL;
    os_name *names[2] = {NULL, NULL};
    os_pair_listen(&pair);
    check_ok(os_listener_open(&pair.directory, "next", NULL, &next));
    check_ok(os_listener_add_name(pair.listener, &pair.directory, "second", NULL, &names[0]));
    check_status(GPUIPC_ERR_NAME_IN_USE,
                 os_listener_add_name(next, &pair.directory, "second", NULL, &names[1]));
    os_listener_interrupt(pair.listener);
    os_name_close(names[0]);
    check_status(GPUIPC_ERR_NOT_FOUND, connect_second(&pair));
    check_ok(os_listener_add_name(next, &pair.directory, "second", NULL, &names[1]));
    check_ok(connect_second(&pair));
    os_name_close(names[1]);
    os_listener_destroy(next);
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

/* ---- other processes --------------------------------------------------------------------------- */

Test(os_endpoint, a_listener_of_another_process_keeps_its_name) {
    os_pair pair;
    child_end end;
    os_listener *second = NULL;
    os_pair_name(&pair);
    child_process *helper = helper_start("listen", &pair);
    check_status(GPUIPC_ERR_NAME_IN_USE,
                 os_listener_open(&pair.directory, pair.name, NULL, &second));
    /* One that is stopped lives, too. */
    child_stop(helper);
    check_status(GPUIPC_ERR_NAME_IN_USE,
                 os_listener_open(&pair.directory, pair.name, NULL, &second));
    child_continue(helper);
    check_ok(child_write_line(helper, "end"));
    check_ok(child_wait(helper, SOON_MS, &end));
    cr_assert(end.exited && end.code == 0);
    child_destroy(helper);
    check_ok(os_listener_open(&pair.directory, pair.name, NULL, &pair.listener));
    os_pair_close(&pair);
}

Test(os_endpoint, a_dead_processs_name_is_free) {
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_pair_name(&pair);
    child_process *helper = helper_start("listen", &pair);
    child_kill(helper);
    check_ok(child_wait(helper, SOON_MS, NULL));
    child_destroy(helper);
    os_connection *connection;
    check_status(GPUIPC_ERR_NOT_FOUND,
                 os_connection_open(&pair.directory, pair.name, os_deadline_after(0), &connection));
    check_ok(os_listener_open(&pair.directory, pair.name, NULL, &pair.listener));
    check_ok(
        os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS), &pair.client));
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_endpoint, of_two_who_replace_at_once_one_wins) {
    os_pair pair;
    os_pair_name(&pair);
    child_process *dead = helper_start("listen", &pair);
    child_kill(dead);
    check_ok(child_wait(dead, SOON_MS, NULL));
    child_destroy(dead);
    enum {
        COUNT = 4
    };
    const char *const arguments[] = {"listen", pair.path, pair.name, NULL};
    child_process *helpers[COUNT];
    int winners = 0;
    for (int i = 0; i < COUNT; i++) {
        check_ok(child_start("unit_helper", arguments, NULL, &helpers[i]));
    }
    for (int i = 0; i < COUNT; i++) {
        char line[CHILD_LINE_MAX];
        check_ok(child_read_line(helpers[i], line, sizeof(line), SOON_MS));
        winners += strcmp(line, "GPUIPC_OK") == 0;
        cr_assert(strcmp(line, "GPUIPC_OK") == 0 || strstr(line, "NAME_IN_USE") != NULL, "%s",
                  line);
    }
    cr_assert_eq(winners, 1);
    for (int i = 0; i < COUNT; i++) {
        child_destroy(helpers[i]);
    }
    os_pair_close(&pair);
}

Test(os_endpoint, accept_waits_as_long_as_asked) {
    static const int lengths[] = {0, 1, 60};
    os_pair pair;
    os_connection *connection = NULL;
    os_pair_listen(&pair);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint64_t start = os_clock_ns();
        check_status(GPUIPC_ERR_TIMEOUT,
                     os_listener_accept(pair.listener, os_deadline_after(lengths[i]), &connection));
        uint64_t took = (os_clock_ns() - start) / 1000000;
        cr_assert(took >= (uint64_t)lengths[i] && took < 10000, "%d", lengths[i]);
    }
    cr_assert_null(connection);
    os_pair_close(&pair);
}

typedef struct accepting {
    os_listener *listener;
    atomic_ullong thread;
    gpuipc_status status;
    os_connection *connection;
} accepting;

static void accept_in_thread(void *argument) {
    accepting *own = argument;
    atomic_store(&own->thread, thread_state_own_number());
    own->status = os_listener_accept(own->listener, os_deadline_after(SOON_MS), &own->connection);
}

static void wait_until_asleep(accepting *own) {
    os_deadline deadline = os_deadline_after(SOON_MS);
    while (atomic_load(&own->thread) == 0) {
        cr_assert_not(os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
    cr_assert(thread_state_wait_asleep(atomic_load(&own->thread), SOON_MS));
}

Test(os_endpoint, an_interrupt_wakes_all_who_accept_and_all_who_come_later) {
    enum {
        THREADS = 3
    };
    os_pair pair;
    accepting own[THREADS];
    os_thread *threads[THREADS];
    os_pair_listen(&pair);
    for (int i = 0; i < THREADS; i++) {
        own[i] = (accepting){.listener = pair.listener};
        check_ok(os_thread_start(accept_in_thread, &own[i], &threads[i]));
        wait_until_asleep(&own[i]);
    }
    uint64_t start = os_clock_ns();
    os_listener_interrupt(pair.listener);
    for (int i = 0; i < THREADS; i++) {
        os_thread_join(threads[i]);
        cr_assert_eq(own[i].status, GPUIPC_ERR_RELEASED);
        cr_assert_null(own[i].connection);
    }
    check_refused(GPUIPC_ERR_RELEASED, "another thread closed the listener",
                  os_listener_accept(pair.listener, os_deadline_after(-1), &pair.server));
    os_listener_interrupt(pair.listener);
    cr_assert((os_clock_ns() - start) / 1000000 < SOON_MS / 2);
    os_pair_close(&pair);
}

Test(os_endpoint, several_threads_accept_each_a_connection_of_its_own) {
    enum {
        THREADS = 4
    };
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    accepting own[THREADS];
    os_thread *threads[THREADS];
    os_connection *clients[THREADS];
    os_pair_listen(&pair);
    for (int i = 0; i < THREADS; i++) {
        own[i] = (accepting){.listener = pair.listener};
        check_ok(os_thread_start(accept_in_thread, &own[i], &threads[i]));
        wait_until_asleep(&own[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        check_ok(os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS),
                                    &clients[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        os_thread_join(threads[i]);
        cr_assert_eq(own[i].status, GPUIPC_OK);
        os_connection_destroy(own[i].connection);
        os_connection_destroy(clients[i]);
    }
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

static void listen_in_thread(void *argument) {
    os_pair_listen(argument);
}

typedef struct late_accept {
    os_pair *pair;
    gpuipc_status status;
} late_accept;

static void late_accept_run(void *argument) {
    late_accept *work = argument;
    work->status =
        os_listener_accept(work->pair->listener, os_deadline_after(SOON_MS), &work->pair->server);
}

/* Windows takes back what a thread has begun and not finished when that thread ends. */
Test(os_endpoint, a_listener_outlives_the_threads_that_opened_it_and_accepted) {
    enum {
        TURNS = 12 /* more than can wait at once */
    };
    os_pair pair;
    os_thread *thread;
    os_connection *nobody = NULL;
    check_ok(os_thread_start(listen_in_thread, &pair, &thread));
    os_thread_join(thread);
    for (size_t i = 0; i < TURNS; i++) {
        char byte;
        size_t size;
        size_t count;
        os_handle handles[OS_PACKET_HANDLES_MAX];
        late_accept work = {.pair = &pair};
        check_status(GPUIPC_ERR_TIMEOUT,
                     os_listener_accept(pair.listener, os_deadline_after(1), &nobody));
        check_ok(os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS),
                                    &pair.client));
        check_ok(os_thread_start(late_accept_run, &work, &thread));
        os_thread_join(thread);
        check_ok(work.status);
        check_ok(os_connection_send(pair.client, "y", 1, NULL, 0, os_deadline_after(SOON_MS)));
        check_ok(os_connection_receive(pair.server, &byte, 1, &size, handles, &count,
                                       os_deadline_after(SOON_MS)));
        os_pair_close_client(&pair);
        os_pair_close_server(&pair);
    }
    os_pair_close(&pair);
}

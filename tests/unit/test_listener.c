/* SPDX-License-Identifier: MIT */
/** @file Endpoints: their names, who is let in, and their end. */
#include "core_fixture.h"

#include <stdio.h>
#include <string.h>

#include "base/quota.h"

TestSuite(listener, .init = core_start, .fini = core_finish, .timeout = 60);

static gpuipc_status open_listener(const char *name, gpuipc_listener **out_listener) {
    return gpuipc_listener_open(core_context, name, NULL, out_listener);
}

static gpuipc_status open_connection(const char *name, int timeout_ms,
                                     gpuipc_connection **out_connection) {
    return gpuipc_connection_open(core_context, name, NULL, timeout_ms, out_connection);
}

Test(listener, a_name_is_taken_until_it_is_closed) {
    gpuipc_listener *first;
    gpuipc_listener *second = NULL;
    check_ok(open_listener("camera", &first));
    check_refused(GPUIPC_ERR_NAME_IN_USE, "camera", open_listener("camera", &second));
    cr_assert_null(second);
    check_ok(open_listener("camera2", &second));
    check_ok(gpuipc_listener_close(first));
    check_ok(open_listener("camera", &first));
    check_ok(gpuipc_listener_close(first));
    check_ok(gpuipc_listener_close(second));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_listener_close(second));
    check_ok(gpuipc_listener_close(NULL));
}

/* Where the system's files keep capitals and small letters apart, so do names. */
Test(listener, names_in_another_case) {
    gpuipc_listener *first;
    gpuipc_listener *second = NULL;
    gpuipc_connection *connection = NULL;
    check_ok(open_listener("Camera", &first));
    if (core_names_have_case) {
        check_status(GPUIPC_ERR_NOT_FOUND, open_connection("camera", 0, &connection));
        check_ok(open_listener("camera", &second));
        check_ok(gpuipc_listener_close(second));
    } else {
        check_refused(GPUIPC_ERR_NAME_IN_USE, "camera", open_listener("camera", &second));
        check_ok(open_connection("cAMERA", 0, &connection));
        check_ok(gpuipc_connection_close(connection));
        cr_assert_null(second);
    }
    check_ok(gpuipc_listener_close(first));
}

Test(listener, bad_names_are_refused_on_both_sides) {
    static const struct {
        gpuipc_status expected;
        const char *name;
    } rows[] = {
        {GPUIPC_ERR_NAME_INVALID, ""},
        {GPUIPC_ERR_NAME_INVALID, ".hidden"},
        {GPUIPC_ERR_NAME_INVALID, "../elsewhere"},
        {GPUIPC_ERR_NAME_INVALID, "a b"},
        {GPUIPC_ERR_NAME_INVALID, "@"},
        {GPUIPC_ERR_INVALID_ARGUMENT, NULL},
        {GPUIPC_ERR_NAME_TOO_LONG,
         "0123456789012345678901234567890123456789012345678901234567890123x"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gpuipc_listener *listener = NULL;
        gpuipc_connection *connection = NULL;
        check_status(rows[i].expected, open_listener(rows[i].name, &listener));
        check_status(rows[i].expected, open_connection(rows[i].name, 0, &connection));
        cr_assert_null(listener);
        cr_assert_null(connection);
    }
}

Test(listener, the_longest_name_works) {
    char name[GPUIPC_NAME_MAX + 1] = "";
    char unique[UNIQUE_NAME_MAX];
    gpuipc_listener *listener;
    gpuipc_connection *client;
    gpuipc_connection *server;
    unique_name(unique);
    memset(name, 'x', GPUIPC_NAME_MAX);
    memcpy(name, unique, strlen(unique));
    check_ok(open_listener(name, &listener));
    check_ok(open_connection(name, SOON_MS, &client));
    check_ok(gpuipc_listener_accept(listener, SOON_MS, &server));
    check_ok(gpuipc_connection_close(client));
    check_ok(gpuipc_connection_close(server));
    check_ok(gpuipc_listener_close(listener));
}

Test(listener, nobody_listens) {
    gpuipc_connection *connection = NULL;
    check_status(GPUIPC_ERR_NOT_FOUND, open_connection("nobody", 0, &connection));
    check_status(GPUIPC_ERR_NOT_FOUND, open_connection("nobody", 30, &connection));
    cr_assert_null(connection);
}

Test(listener, nobody_connects) {
    gpuipc_listener *listener;
    gpuipc_connection *connection = NULL;
    check_ok(open_listener("quiet", &listener));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(listener, 0, &connection));
    const uint64_t start = os_clock_ns();
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(listener, 30, &connection));
    cr_assert_geq(os_clock_ns() - start, UINT64_C(30000000));
    cr_assert_null(connection);
    check_ok(gpuipc_listener_close(listener));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_listener_accept(listener, 0, &connection));
}

Test(listener, a_wrong_config_is_refused) {
    gpuipc_listener *listener = NULL;
    gpuipc_connection *connection = NULL;
    const gpuipc_endpoint_config config = {.struct_size = 1};
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_listener_open(core_context, "a", &config, &listener));
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_connection_open(core_context, "a", &config, 0, &connection));
    cr_assert_null(listener);
    cr_assert_null(connection);
}

Test(listener, a_user_that_has_its_part_of_the_handles_is_not_connected_to) {
    static const quota_amount few = {.of = {2, UINT64_MAX, UINT64_MAX, UINT64_MAX}};
    gpuipc_listener *listener;
    gpuipc_connection *connection = NULL;
    check_ok(open_listener("greedy", &listener));
    quota_pretend(&few);
    check_status(GPUIPC_ERR_LIMIT, open_connection("greedy", SOON_MS, &connection));
    cr_assert_null(connection);
    quota_pretend(NULL);
    check_ok(open_connection("greedy", SOON_MS, &connection));
    check_ok(gpuipc_connection_close(connection));
    check_ok(gpuipc_listener_close(listener));
}

/* ---- who is let in ----------------------------------------------------------------------- */

typedef struct visitors {
    int calls;
    int answer;
    gpuipc_peer_info last;
} visitors;

/* A callback may call the library, and what fails there is not what the call that called back failed in. */
static void fail_in_callback(void) {
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_retain(NULL));
}

static int decide(void *user_data, const gpuipc_peer_info *peer) {
    visitors *seen = user_data;
    fail_in_callback();
    seen->calls++;
    seen->last = *peer;
    return seen->answer;
}

static gpuipc_endpoint_config policy_of(visitors *seen) {
    return (gpuipc_endpoint_config){
        .struct_size = sizeof(gpuipc_endpoint_config), .policy = decide, .policy_user_data = seen};
}

Test(listener, a_policy_sees_who_comes_and_may_let_them_in) {
    visitors seen = {.answer = 1};
    visitors seen_by_client = {.answer = 7};
    const gpuipc_endpoint_config config = policy_of(&seen);
    const gpuipc_endpoint_config client_config = policy_of(&seen_by_client);
    gpuipc_listener *listener;
    gpuipc_connection *client;
    gpuipc_connection *server;
    check_ok(gpuipc_listener_open(core_context, "door", &config, &listener));
    check_ok(gpuipc_connection_open(core_context, "door", &client_config, SOON_MS, &client));
    check_ok(gpuipc_listener_accept(listener, SOON_MS, &server));
    cr_assert_eq(seen.calls, 1);
    cr_assert_eq(seen_by_client.calls, 1);
    cr_assert_eq(seen.last.process_id, os_process_id());
    cr_assert_eq(seen.last.same_user, 1);
    cr_assert_eq(seen.last.struct_size, sizeof(seen.last));
    cr_assert_neq(seen.last.is_running, 0);
    cr_assert_neq(seen.last.user[0], '\0');

    gpuipc_peer_info peer = {.struct_size = sizeof(peer)};
    check_ok(gpuipc_connection_get_peer(server, &peer));
    cr_assert_eq(peer.process_id, os_process_id());
    cr_assert_str_eq(peer.user, seen.last.user);
    peer.struct_size = 3;
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_connection_get_peer(server, &peer));
    check_ok(gpuipc_connection_close(client));
    check_ok(gpuipc_connection_close(server));
    check_ok(gpuipc_listener_close(listener));
}

typedef struct log_book {
    int warnings;
    int others;
    char last[512];
} log_book;

static void write_log(void *user_data, gpuipc_log_level level, const char *sentence) {
    log_book *book = user_data;
    fail_in_callback();
    *(level == GPUIPC_LOG_WARNING ? &book->warnings : &book->others) += 1;
    (void)snprintf(book->last, sizeof(book->last), "%s", sentence);
}

Test(listener, one_that_is_refused_costs_only_itself) {
    log_book book = {0};
    gpuipc_context_config own = core_context_config();
    own.log = write_log;
    own.log_user_data = &book;
    gpuipc_context *context;
    check_ok(gpuipc_context_create(&own, &context));

    visitors seen = {.answer = 0};
    const gpuipc_endpoint_config config = policy_of(&seen);
    gpuipc_listener *listener;
    gpuipc_connection *first;
    gpuipc_connection *second;
    gpuipc_connection *server = NULL;
    check_ok(gpuipc_listener_open(context, "strict", &config, &listener));
    check_ok(open_connection("strict", SOON_MS, &first));
    check_ok(open_connection("strict", SOON_MS, &second));
    /* each refusal is one try, and with no time there is one try a call */
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(listener, 0, &server));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(listener, 0, &server));
    cr_assert_null(server);
    cr_assert_eq(seen.calls, 2);
    cr_assert_eq(book.warnings, 2);
    cr_assert(strstr(book.last, "refused a connection: the policy refused process") != NULL, "%s",
              book.last);
    check_status(GPUIPC_ERR_PEER_CLOSED, core_receive(first, NULL, 0));

    seen.answer = 1;
    gpuipc_connection *third;
    check_ok(open_connection("strict", SOON_MS, &third));
    check_ok(gpuipc_listener_accept(listener, SOON_MS, &server));
    check_ok(core_send(third, NULL, 0));
    check_ok(core_receive(server, NULL, 0));
    check_ok(gpuipc_connection_close(first));
    check_ok(gpuipc_connection_close(second));
    check_ok(gpuipc_connection_close(third));
    check_ok(gpuipc_connection_close(server));
    check_ok(gpuipc_listener_close(listener));
    check_ok(gpuipc_context_destroy(context));
}

typedef struct crowd {
    os_mutex mutex;
    os_condition arrived;
    uint32_t arrivals;
    uint32_t refusals;
    bool is_over;
    uint64_t patience_ends; /* then one is let in, so that a wait without an end fails the test */
} crowd;

/* Refuses, but only when the next one waits already: the listener is never without a client. */
static int refuse_one_of_many(void *user_data, const gpuipc_peer_info *peer) {
    crowd *self = user_data;
    (void)peer;
    os_mutex_lock(&self->mutex);
    self->refusals++;
    while (self->arrivals <= self->refusals) {
        (void)os_condition_wait(&self->arrived, &self->mutex, os_deadline_after(SOON_MS));
    }
    os_mutex_unlock(&self->mutex);
    return os_clock_ns() >= self->patience_ends;
}

static void keep_coming(void *argument) {
    crowd *self = argument;
    bool is_over = false;
    while (!is_over) {
        gpuipc_connection *connection = NULL;
        gpuipc_status status = open_connection("crowded", 1, &connection);
        (void)gpuipc_connection_close(connection);
        os_mutex_lock(&self->mutex);
        self->arrivals += status == GPUIPC_OK; /* else there is no more room to wait in */
        os_condition_signal_all(&self->arrived);
        is_over = self->is_over;
        os_mutex_unlock(&self->mutex);
    }
}

Test(listener, those_who_are_refused_do_not_make_accept_wait_longer) {
    crowd self = {.patience_ends = os_clock_ns() + UINT64_C(5000000000)};
    const gpuipc_endpoint_config config = {
        .struct_size = sizeof(config), .policy = refuse_one_of_many, .policy_user_data = &self};
    gpuipc_listener *listener;
    gpuipc_connection *connection = NULL;
    os_thread *thread;
    check_ok(os_condition_init(&self.arrived));
    check_ok(gpuipc_listener_open(core_context, "crowded", &config, &listener));
    check_ok(os_thread_start(keep_coming, &self, &thread));
    const uint64_t start = os_clock_ns();
    gpuipc_status status = gpuipc_listener_accept(listener, 200, &connection);
    const uint64_t waited = os_clock_ns() - start;
    os_mutex_lock(&self.mutex);
    self.is_over = true;
    os_mutex_unlock(&self.mutex);
    os_thread_join(thread);
    cr_assert_eq(status, GPUIPC_ERR_TIMEOUT, "%s after %u refusals", gpuipc_status_name(status),
                 self.refusals);
    cr_assert_gt(self.refusals, 1);
    cr_assert(waited >= UINT64_C(200000000) && waited < UINT64_C(1000000000), "%llu ns",
              (unsigned long long)waited);
    check_ok(gpuipc_listener_close(listener));
    os_condition_destroy(&self.arrived);
}

Test(listener, one_that_is_refused_needs_no_log) {
    visitors seen = {.answer = 0};
    const gpuipc_endpoint_config config = policy_of(&seen);
    gpuipc_listener *listener;
    gpuipc_connection *client;
    gpuipc_connection *server = NULL;
    check_ok(gpuipc_listener_open(core_context, "silent", &config, &listener));
    check_ok(open_connection("silent", SOON_MS, &client));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(listener, 0, &server));
    cr_assert_eq(seen.calls, 1);
    check_ok(gpuipc_connection_close(client));
    check_ok(gpuipc_listener_close(listener));
}

Test(listener, a_client_may_refuse_the_listener) {
    visitors seen = {.answer = 0};
    const gpuipc_endpoint_config config = policy_of(&seen);
    gpuipc_listener *listener;
    gpuipc_connection *client = NULL;
    check_ok(open_listener("stranger", &listener));
    check_refused(GPUIPC_ERR_ACCESS_DENIED, "the policy refused",
                  gpuipc_connection_open(core_context, "stranger", &config, SOON_MS, &client));
    cr_assert_null(client);
    check_ok(gpuipc_listener_close(listener));
}

Test(listener, a_client_that_is_gone_again_is_no_failure) {
    gpuipc_listener *listener;
    gpuipc_connection *client;
    gpuipc_connection *server = NULL;
    check_ok(open_listener("brief", &listener));
    check_ok(open_connection("brief", SOON_MS, &client));
    check_ok(gpuipc_connection_close(client));
    gpuipc_status status = gpuipc_listener_accept(listener, 0, &server);
    if (status == GPUIPC_OK) { /* the system hands out what is closed already */
        check_status(GPUIPC_ERR_PEER_CLOSED, core_receive(server, NULL, 0));
        check_ok(gpuipc_connection_close(server));
    } else {
        cr_assert_eq(status, GPUIPC_ERR_TIMEOUT);
    }
    check_ok(gpuipc_listener_close(listener));
}

/* ---- its end ----------------------------------------------------------------------------- */

static gpuipc_status wait_in_accept(void *listener) {
    gpuipc_connection *connection;
    return gpuipc_listener_accept(listener, SOON_MS, &connection);
}

Test(listener, closing_it_wakes_who_waits_in_accept) {
    gpuipc_listener *listener;
    core_waiter self;
    check_ok(open_listener("closing", &listener));
    core_waiter_start(&self, wait_in_accept, listener);
    check_ok(gpuipc_listener_close(listener));
    check_status(GPUIPC_ERR_RELEASED, core_waiter_end(&self));
}

/* Whoever is still inside accept of the old one neither holds the name nor takes it away again. */
Test(listener, its_name_is_free_at_once) {
    log_book book = {0};
    gpuipc_context_config own = core_context_config();
    own.log = write_log;
    own.log_user_data = &book;
    gpuipc_context *context;
    check_ok(gpuipc_context_create(&own, &context));
    for (int i = 0; i < 50; i++) {
        gpuipc_listener *first;
        gpuipc_listener *second;
        gpuipc_connection *client;
        core_waiter self;
        check_ok(gpuipc_listener_open(context, "again", NULL, &first));
        core_waiter_start(&self, wait_in_accept, first);
        check_ok(gpuipc_listener_close(first));
        check_ok(gpuipc_listener_open(context, "again", NULL, &second));
        cr_assert_eq(book.others, 0, "round %d: %s", i, book.last); /* it found no dead socket */
        check_status(GPUIPC_ERR_RELEASED, core_waiter_end(&self));
        check_ok(open_connection("again", SOON_MS, &client));
        check_ok(gpuipc_connection_close(client));
        check_ok(gpuipc_listener_close(second));
    }
    check_ok(gpuipc_context_destroy(context));
}

Test(listener, connections_outlive_it) {
    core_pair pair;
    core_pair_open(&pair, core_context, core_context);
    check_ok(gpuipc_listener_close(pair.listener));
    pair.listener = NULL;
    check_ok(core_send(pair.client, NULL, 0));
    check_ok(core_receive(pair.server, NULL, 0));
    core_pair_close(&pair);
}

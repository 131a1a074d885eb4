/* SPDX-License-Identifier: MIT */
/** @file Those that come to a server: too many, strange ones and hostile ones, of which none costs the others
 *  anything; and the ways in which a server is made to serve, and ends. */
#include "asker.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/quota.h"
#include "memory/registry.h"
#include "message/wire.h"
#include "native_ready.h"

static gpuipc_server *server;
static gpuipc_context *other;
static gpuipc_buffer *shared;
static gpuipc_ticket of;
static asker honest;
static asker client;

static void begin(void) {
    core_start();
    other = core_context_new();
    shared = core_buffer(core_unit, 0);
}

static void finish(void) {
    asker_end(&honest);
    asker_end(&client);
    (void)gpuipc_server_destroy(server);
    (void)gpuipc_buffer_release(shared);
    (void)gpuipc_context_destroy(other);
    core_finish();
}

TestSuite(server_clients, .init = begin, .fini = finish, .timeout = 60);

static void serve_with(const gpuipc_server_config *config) {
    check_ok(gpuipc_server_create(core_context, config, &server));
    of = asker_share(server, shared);
}

static void serve(void) {
    serve_with(NULL);
    asker_begin(&honest, other, &of);
}

static void check_honest_is_served(void) {
    cr_assert_eq(asker_answer(&honest, &of), WIRE_GRANTED);
}

/* ---- too many ------------------------------------------------------------------------------ */

static wire_answer unasked(asker *self) {
    asker_reply reply;
    check_ok(asker_receive(self, &reply));
    return reply.answer;
}

/* Until the end of another client has been noticed. */
static void wait_for_place(void) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    wire_answer found;
    do {
        cr_assert_not(os_deadline_passed(deadline));
        asker_end(&client);
        asker_begin(&client, other, &of);
        (void)asker_send(&client, &of); /* fails where the server has closed it already */
        asker_reply reply;
        check_ok(asker_receive(&client, &reply));
        found = reply.answer;
        check_ok(gpuipc_buffer_release(reply.buffer));
    } while (found == WIRE_BUSY);
    cr_assert_eq(found, WIRE_GRANTED);
}

/* @param limit what the client is told, beside why */
static void check_told(asker *self, wire_busy why, uint32_t limit) {
    asker_reply reply;
    check_ok(asker_receive(self, &reply));
    cr_assert_eq(reply.answer, WIRE_BUSY);
    cr_assert_eq(reply.flags, why);
    cr_assert_eq(reply.limit, limit);
}

static void check_limit(const gpuipc_server_config *config, wire_busy why) {
    asker third = {NULL, NULL};
    serve_with(config);
    asker_begin(&honest, other, &of);
    asker_begin(&third, other, &of);
    check_honest_is_served();
    cr_assert_eq(asker_answer(&third, &of), WIRE_GRANTED);
    asker_begin(&client, other, &of);
    check_told(&client, why, 2);
    (void)asker_send(&client, &of);
    asker_check_ended(&client);
    check_honest_is_served();
    asker_end(&third);
    wait_for_place();
    check_honest_is_served();
}

Test(server_clients, one_too_many_is_told_so) {
    const gpuipc_server_config config = {
        .struct_size = sizeof(config), .flags = GPUIPC_SERVER_THREAD, .max_connections = 2};
    check_limit(&config, WIRE_BUSY_ALL);
}

Test(server_clients, one_too_many_of_a_user_is_told_so) {
    const gpuipc_server_config config = {.struct_size = sizeof(config),
                                         .flags = GPUIPC_SERVER_THREAD,
                                         .max_connections_per_user = 2};
    check_limit(&config, WIRE_BUSY_USER);
}

Test(server_clients, who_has_something_open_keeps_its_place) {
    const gpuipc_server_config config = {
        .struct_size = sizeof(config), .flags = GPUIPC_SERVER_THREAD, .max_connections = 2};
    serve_with(&config);
    asker_begin(&honest, other, &of);
    check_honest_is_served();
    asker_begin(&client, other, &of);
    const asker_reply reply = asker_ask(&client, &of);
    cr_assert_eq(reply.answer, WIRE_GRANTED);
    asker_end(&client);
    check_honest_is_served(); /* by now its end has been noticed */
    asker_begin(&client, other, &of);
    cr_assert_eq(unasked(&client), WIRE_BUSY);
    check_ok(gpuipc_buffer_release(reply.buffer));
    wait_for_place();
}

Test(server_clients, those_that_are_too_many_do_not_pile_up) {
    enum {
        CLIENTS = 40
    };
    static asker crowd[CLIENTS];
    const gpuipc_server_config config = {
        .struct_size = sizeof(config), .flags = GPUIPC_SERVER_THREAD, .max_connections = 1};
    serve_with(&config);
    asker_begin(&honest, other, &of);
    check_honest_is_served();
    for (int i = 0; i < CLIENTS; i++) {
        asker_begin(&crowd[i], other, &of);
    }
    cr_assert_eq(unasked(&crowd[CLIENTS - 1]), WIRE_BUSY);
    cr_assert_eq(unasked(&crowd[0]), WIRE_BUSY);
    asker_check_ended(&crowd[0]); /* which never asked: the later ones have its place */
    check_honest_is_served();
    for (int i = 0; i < CLIENTS; i++) {
        asker_end(&crowd[i]);
    }
}

static int refuse_all(void *user_data, const gpuipc_peer_info *peer) {
    (void)peer;
    ++*(int *)user_data;
    return 0;
}

Test(server_clients, the_policy_decides_who_is_let_in) {
    int asked = 0;
    const gpuipc_server_config config = {.struct_size = sizeof(config),
                                         .flags = GPUIPC_SERVER_THREAD,
                                         .policy = refuse_all,
                                         .policy_user_data = &asked};
    serve_with(&config);
    asker_begin(&client, other, &of);
    check_told(&client, WIRE_BUSY_POLICY, 0);
    (void)asker_send(&client, &of);
    asker_check_ended(&client);
    check_ok(gpuipc_server_destroy(server));
    server = NULL;
    cr_assert_eq(asked, 1);
}

/* ---- what an answer costs ------------------------------------------------------------------ */

/* How often a server that is polled wakes, which begins with what its clients have sent. */
static unsigned count_wakes(void) {
    unsigned count = 0;
    while (gpuipc_server_poll(server, 0) == GPUIPC_OK) {
        count++;
    }
    return count;
}

/* Who connects and asks is answered in one wake of the server, with one message. */
static void check_wakes_once(const gpuipc_ticket *wanted, wire_answer expected) {
    asker_reply reply;
    asker_begin(&client, other, &of);
    check_ok(asker_send(&client, wanted));
    const unsigned wakes = count_wakes();
    check_ok(asker_receive(&client, &reply));
    cr_assert_eq(reply.answer, expected);
    cr_assert_eq(wakes, 1, "answer %d takes %u wakes", (int)expected, wakes);
    check_ok(gpuipc_buffer_release(reply.buffer));
    asker_end(&client);
    (void)count_wakes();
}

Test(server_clients, a_refusal_wakes_the_server_as_often_as_a_grant) {
    const gpuipc_server_config config = {.struct_size = sizeof(config)};
    serve_with(&config);
    const gpuipc_ticket revoked = asker_share(server, shared);
    const gpuipc_ticket forged = asker_forge(&of);
    check_ok(gpuipc_server_revoke(server, &revoked));
    check_wakes_once(&of, WIRE_GRANTED);
    check_wakes_once(&revoked, WIRE_REVOKED);
    check_wakes_once(&forged, WIRE_UNKNOWN);
}

Test(server_clients, one_too_many_wakes_the_server_as_often_as_a_grant) {
    const gpuipc_server_config config = {.struct_size = sizeof(config), .max_connections = 1};
    serve_with(&config);
    asker_begin(&honest, other, &of);
    (void)count_wakes();
    check_wakes_once(&of, WIRE_BUSY);
}

Test(server_clients, whom_the_policy_refuses_wakes_the_server_as_often_as_a_grant) {
    int asked = 0;
    const gpuipc_server_config config = {
        .struct_size = sizeof(config), .policy = refuse_all, .policy_user_data = &asked};
    serve_with(&config);
    check_wakes_once(&of, WIRE_BUSY);
    cr_assert_eq(asked, 1);
}

/* ---- strange and hostile ------------------------------------------------------------------- */

static void check_costs_its_connection(wire_kind kind, const void *bytes, size_t size) {
    asker_begin(&client, other, &of);
    check_ok(asker_send_bytes(&client, kind, bytes, size));
    asker_check_ended(&client);
    asker_end(&client);
    check_honest_is_served();
}

/* Who is refused asks all the same, and sends handles with it: they are closed, as core_finish() sees. */
Test(server_clients, what_comes_from_one_too_many_is_closed) {
    const gpuipc_server_config config = {.struct_size = sizeof(config), .max_connections = 1};
    const os_directory directory = {core_directory, false};
    const uint8_t asked[WIRE_HEADER_BYTES + WIRE_REQUEST_BYTES] = {0};
    uint8_t answer[WIRE_HEADER_BYTES + WIRE_REPLY_BYTES];
    char name[TICKET_ENDPOINT_SIZE];
    os_handle pages[2];
    os_connection *late;
    wire_reply reply;
    size_t size = 0;
    size_t count = 0;
    serve_with(&config);
    asker_begin(&honest, other, &of);
    check_ok(gpuipc_server_poll(server, SOON_MS));
    const ticket decoded = asker_decode(&of);
    ticket_endpoint(decoded.server_id, name);
    check_ok(os_connection_open(&directory, name, os_deadline_after(SOON_MS), &late));
    check_ok(os_memory_create("test", 4096, &pages[0]));
    check_ok(os_memory_create("test", 4096, &pages[1]));
    check_ok(os_connection_send(late, asked, sizeof(asked), pages, 2, os_deadline_after(SOON_MS)));
    os_handle_close(&pages[0]);
    os_handle_close(&pages[1]);
    check_ok(gpuipc_server_poll(server, SOON_MS));
    check_ok(os_connection_receive(late, answer, sizeof(answer), &size, pages, &count,
                                   os_deadline_after(SOON_MS)));
    cr_assert_eq(size, sizeof(answer));
    cr_assert_eq(count, 0);
    check_ok(wire_decode_reply(answer + WIRE_HEADER_BYTES, WIRE_REPLY_BYTES, &reply));
    cr_assert_eq(reply.answer, WIRE_BUSY);
    os_connection_destroy(late);
}

/* As one too many is. */
Test(server_clients, who_has_as_much_as_a_process_may_is_told_to_wait) {
    const gpuipc_server_config config = {.struct_size = sizeof(config)};
    const os_directory directory = {core_directory, false};
    const quota_amount little = {{1, 1, 1, 1}};
    uint8_t answer[WIRE_HEADER_BYTES + WIRE_REPLY_BYTES];
    char name[TICKET_ENDPOINT_SIZE];
    os_handle none[OS_PACKET_HANDLES_MAX];
    os_connection *poor;
    wire_reply reply;
    size_t size = 0;
    size_t count = 0;
    serve_with(&config);
    const ticket decoded = asker_decode(&of);
    ticket_endpoint(decoded.server_id, name);
    quota_pretend(&little);
    check_ok(os_connection_open(&directory, name, os_deadline_after(SOON_MS), &poor));
    check_ok(gpuipc_server_poll(server, SOON_MS));
    quota_pretend(NULL);
    check_ok(os_connection_receive(poor, answer, sizeof(answer), &size, none, &count,
                                   os_deadline_after(SOON_MS)));
    check_ok(wire_decode_reply(answer + WIRE_HEADER_BYTES, WIRE_REPLY_BYTES, &reply));
    cr_assert_eq(reply.answer, WIRE_BUSY);
    cr_assert_eq(reply.flags, WIRE_BUSY_HANDLES);
    cr_assert_gt(reply.attachment_bytes,
                 0); /* what the system says, in spite of what is pretended */
    os_connection_destroy(poor);
    asker_begin(&honest, other, &of);
    check_ok(asker_send(&honest, &of));
    while (gpuipc_server_poll(server, 0) == GPUIPC_OK) {
    }
    asker_reply granted;
    check_ok(asker_receive(&honest, &granted));
    cr_assert_eq(granted.answer, WIRE_GRANTED);
    check_ok(gpuipc_buffer_release(granted.buffer));
}

/* More segments than one packet has handles. */
Test(server_clients, a_buffer_of_many_packets_comes_whole) {
    const uint64_t bytes = (OS_PACKET_HANDLES_MAX + 2) * core_unit;
    serve();
    gpuipc_buffer *large = core_buffer(bytes, core_unit);
    const gpuipc_ticket whole = asker_share(server, large);
    core_write_pattern(large, 8);
    const asker_reply reply = asker_ask(&honest, &whole);
    cr_assert_eq(reply.answer, WIRE_GRANTED);
    core_check_pattern(reply.buffer, 8);
    check_ok(gpuipc_buffer_release(reply.buffer));
    check_ok(gpuipc_buffer_release(large));
}

Test(server_clients, anything_but_a_request_costs_a_client_its_connection) {
    wire_request request = {.wish = WIRE_OPEN};
    uint8_t bytes[WIRE_REQUEST_BYTES];
    serve();
    memcpy(request.ticket, of.bytes, sizeof(request.ticket));
    wire_encode_request(&request, bytes);
    check_costs_its_connection(WIRE_MESSAGE, "hello", 5);
    check_costs_its_connection(WIRE_MESSAGE, NULL, 0);
    check_costs_its_connection(WIRE_CONTENTS, bytes, sizeof(bytes));
    check_costs_its_connection(WIRE_REPLY, bytes, sizeof(bytes));
    check_costs_its_connection(WIRE_REQUEST, bytes, sizeof(bytes) - 1);
    check_costs_its_connection(WIRE_REQUEST, NULL, 0);
    bytes[2] = 1; /* reserved */
    check_costs_its_connection(WIRE_REQUEST, bytes, sizeof(bytes));
    bytes[2] = 0;
    bytes[0] = WIRE_NAME + 1; /* another wish */
    check_costs_its_connection(WIRE_REQUEST, bytes, sizeof(bytes));
    bytes[0] = WIRE_OPEN;
    bytes[20] ^= 1; /* a damaged ticket */
    check_costs_its_connection(WIRE_REQUEST, bytes, sizeof(bytes));
    request = (wire_request){.wish = WIRE_NAME, .ticket = {'n', 'a', 'm', 'e', 0, 0, 1}};
    wire_encode_request(&request, bytes); /* a name with something behind its end */
    check_costs_its_connection(WIRE_REQUEST, bytes, sizeof(bytes));
    request = (wire_request){.wish = WIRE_NAME, .ticket = {[63] = 1}};
    wire_encode_request(&request, bytes); /* no name, likewise */
    check_costs_its_connection(WIRE_REQUEST, bytes, sizeof(bytes));
}

typedef struct log_book {
    atomic_uint count;
    atomic_uint left_out;
} log_book;

static void write_log(void *user_data, gpuipc_log_level level, const char *sentence) {
    log_book *book = user_data;
    unsigned left_out = 0;
    cr_assert_eq(level, GPUIPC_LOG_WARNING);
    if (sscanf(sentence, "left out %u sentences", &left_out) == 1) {
        atomic_fetch_add(&book->left_out, left_out);
    } else {
        atomic_fetch_add(&book->count, 1u);
    }
}

#define BAD_REQUESTS 200u

/* The log is no place that others can fill. */
Test(server_clients, a_flood_of_bad_requests_is_told_of_a_few_times_and_counted) {
    static log_book book;
    gpuipc_context_config config = core_context_config();
    gpuipc_context *own;
    gpuipc_buffer *sent;
    config.log = write_log;
    config.log_user_data = &book;
    check_ok(gpuipc_context_create(&config, &own));
    const gpuipc_buffer_config ask = {.struct_size = sizeof(ask), .bytes = core_unit};
    check_ok(gpuipc_buffer_create(own, &ask, &sent));
    check_ok(gpuipc_server_create(own, NULL, &server));
    of = asker_share(server, sent);
    asker_begin(&honest, other, &of);
    const uint64_t begun_ns = os_clock_ns();
    for (unsigned i = 0; i < BAD_REQUESTS; i++) {
        check_costs_its_connection(WIRE_MESSAGE, "hello", 5);
    }
    const uint64_t seconds = (os_clock_ns() - begun_ns) / UINT64_C(1000000000) + 2;
    cr_assert_leq(atomic_load(&book.count), 16 * seconds);
    asker_end(&honest);
    check_ok(gpuipc_server_destroy(server));
    server = NULL;
    check_ok(gpuipc_buffer_release(sent));
    check_ok(gpuipc_context_destroy(own));
    cr_assert_eq(atomic_load(&book.count) + atomic_load(&book.left_out), BAD_REQUESTS);
}

Test(server_clients, memory_that_a_client_sends_is_not_taken) {
    gpuipc_buffer *own;
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = core_unit};
    serve();
    check_ok(gpuipc_buffer_create(other, &config, &own));
    asker_begin(&client, other, &of);
    (void)core_send(client.handle, &own, 1); /* ends where the page of points has come */
    asker_check_ended(&client);
    check_honest_is_served();
    check_ok(gpuipc_buffer_release(own));
}

static void check_is_nothing_for_others(wire_kind kind) {
    core_pair pair;
    char byte;
    gpuipc_incoming message = {
        .struct_size = sizeof(message), .bytes = &byte, .bytes_capacity = sizeof(byte)};
    core_pair_open(&pair, core_context, other);
    client.handle = pair.client;
    check_ok(connection_acquire(client.handle, &client.connection));
    check_ok(asker_send_bytes(&client, kind, "x", 1));
    check_status(GPUIPC_ERR_PROTOCOL, gpuipc_connection_receive(pair.server, &message, SOON_MS));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN,
                 gpuipc_connection_receive(pair.server, &message, SOON_MS));
    connection_unreference(client.connection);
    client = (asker){NULL, NULL};
    core_pair_close(&pair);
}

Test(server_clients, requests_and_replies_are_nothing_for_other_connections) {
    check_is_nothing_for_others(WIRE_REQUEST);
    check_is_nothing_for_others(WIRE_REPLY);
}

/* Asks, and reads no answer, until the server has had enough. */
static void ask_and_read_nothing(asker *self) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (asker_send(self, &of) == GPUIPC_OK) {
        cr_assert_not(os_deadline_passed(deadline));
    }
}

Test(server_clients, one_that_does_not_read_is_dropped) {
    static const char attachment[60000];
    const gpuipc_share_config config = {.struct_size = sizeof(config),
                                        .attachment = attachment,
                                        .attachment_bytes = sizeof(attachment)};
    gpuipc_ticket small;
    serve();
    small = of;
    check_ok(gpuipc_buffer_share(server, shared, &config, &of));
    asker_begin(&client, other, &of);
    ask_and_read_nothing(&client);
    of = small;
    check_honest_is_served();
}

Test(server_clients, guesses_at_secrets_cost_a_client_its_connection) {
    serve();
    const gpuipc_ticket forged = asker_forge(&of);
    for (int round = 0; round < 5; round++) {
        asker_begin(&client, other, &of);
        for (int i = 0; i < 7; i++) {
            cr_assert_eq(asker_answer(&client, &forged), WIRE_UNKNOWN);
        }
        check_honest_is_served();
        cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED); /* not yet */
        cr_assert_eq(asker_answer(&client, &forged), WIRE_UNKNOWN);
        asker_check_ended(&client);
        asker_end(&client);
    }
}

typedef struct flood {
    gpuipc_ticket forged;
    os_thread *thread;
    atomic_bool must_end;
    atomic_uint_least64_t guesses;
} flood;

static void guess(void *argument) {
    flood *self = argument;
    while (!atomic_load(&self->must_end)) {
        asker one = {NULL, NULL};
        asker_reply reply;
        asker_begin(&one, other, &self->forged);
        while (asker_send(&one, &self->forged) == GPUIPC_OK &&
               asker_receive(&one, &reply) == GPUIPC_OK) {
            atomic_fetch_add(&self->guesses, 1u);
        }
        asker_end(&one);
    }
}

static bool all_have_guessed(flood *floods, int count) {
    while (count > 0 && atomic_load(&floods[count - 1].guesses) > 0) {
        count--;
    }
    return count == 0;
}

Test(server_clients, a_flood_of_guesses_keeps_nobody_waiting) {
    static flood floods[4];
    serve();
    for (int i = 0; i < 4; i++) {
        floods[i].forged = asker_forge(&of);
        check_ok(os_thread_start(guess, &floods[i], &floods[i].thread));
    }
    for (int i = 0; i < 200 || !all_have_guessed(floods, 4); i++) { /* a thread may begin late */
        check_honest_is_served();
    }
    for (int i = 0; i < 4; i++) {
        atomic_store(&floods[i].must_end, true);
    }
    for (int i = 0; i < 4; i++) {
        os_thread_join(floods[i].thread);
    }
    check_honest_is_served();
}

/* ---- who serves, and for how long ---------------------------------------------------------- */

Test(server_clients, a_program_serves_in_its_own_loop) {
    const gpuipc_server_config config = {.struct_size = sizeof(config)};
    asker_reply reply;
    intptr_t handle;
    serve_with(&config);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_server_poll(server, 0));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_server_poll(server, 2));
    check_ok(gpuipc_server_get_wait_handle(server, &handle));
    cr_assert_not(native_is_ready(handle, 0));
    asker_begin(&client, other, &of);
    cr_assert(native_is_ready(handle, SOON_MS));
    check_ok(gpuipc_server_poll(server, 0));
    check_ok(asker_send(&client, &of));
    check_ok(asker_send(&client, &of));
    for (int i = 0; i < 2; i++) { /* one request at a time */
        cr_assert(native_is_ready(handle, SOON_MS));
        check_ok(gpuipc_server_poll(server, SOON_MS));
        check_ok(asker_receive(&client, &reply));
        cr_assert_eq(reply.answer, WIRE_GRANTED);
        check_ok(gpuipc_buffer_release(reply.buffer));
    }
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_server_poll(server, 0));
    cr_assert_not(native_is_ready(handle, 0));
    asker_end(&client);
    cr_assert(native_is_ready(handle, SOON_MS));
    check_ok(gpuipc_server_poll(server, SOON_MS)); /* the end */
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_server_poll(server, 0));
}

static gpuipc_status poll_for_ever(void *argument) {
    return gpuipc_server_poll(argument, -1);
}

Test(server_clients, one_thread_serves) {
    const gpuipc_server_config config = {.struct_size = sizeof(config)};
    core_waiter waiter;
    intptr_t handle;
    serve_with(&config);
    core_waiter_start(&waiter, poll_for_ever, server);
    check_status(GPUIPC_ERR_BUSY, gpuipc_server_poll(server, 0));
    check_ok(gpuipc_server_destroy(server));
    check_status(GPUIPC_ERR_RELEASED, core_waiter_end(&waiter));
    server = NULL;
    serve();
    check_refused(GPUIPC_ERR_BUSY, "the server has a thread", gpuipc_server_poll(server, 0));
    check_status(GPUIPC_ERR_BUSY, gpuipc_server_get_wait_handle(server, &handle));
    check_honest_is_served();
}

Test(server_clients, a_poll_that_comes_behind_the_end_does_not_wait) {
    const gpuipc_server_config config = {.struct_size = sizeof(config)};
    serve_with(&config);
    check_status(GPUIPC_ERR_RELEASED, asker_poll_late(server));
    server = NULL;
}

Test(server_clients, a_poll_that_waits_already_gives_up_what_expires) {
    const gpuipc_server_config config = {.struct_size = sizeof(config)};
    const gpuipc_share_config soon = {.struct_size = sizeof(soon), .expires_ms = 1};
    const gpuipc_buffer_info info = core_info(shared);
    const os_deadline deadline = os_deadline_after(SOON_MS);
    core_waiter waiter;
    gpuipc_ticket made;
    buffer *found;
    serve_with(&config);
    check_ok(gpuipc_server_revoke(server, &of)); /* which has the buffer as well */
    core_waiter_start(&waiter, poll_for_ever, server);
    check_ok(gpuipc_buffer_share(server, shared, &soon, &made));
    check_ok(gpuipc_buffer_release(shared));
    shared = NULL;
    while ((found = registry_find(info.exporter_id, info.buffer_id)) != NULL) {
        buffer_unreference(found);
        cr_assert_not(os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
    check_ok(gpuipc_server_destroy(server));
    server = NULL;
    check_status(GPUIPC_ERR_RELEASED, core_waiter_end(&waiter));
}

static int end_it(void *user_data, const gpuipc_peer_info *peer) {
    (void)peer;
    *(gpuipc_status *)user_data = gpuipc_server_destroy(server);
    return 1;
}

Test(server_clients, a_thread_that_serves_does_not_end_the_server) {
    gpuipc_status found = GPUIPC_OK;
    gpuipc_server_config config = {.struct_size = sizeof(config),
                                   .flags = GPUIPC_SERVER_THREAD,
                                   .policy = end_it,
                                   .policy_user_data = &found};
    serve_with(&config);
    asker_begin(&client, other, &of);
    cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
    cr_assert_eq(found, GPUIPC_ERR_BUSY);
    asker_end(&client);
    check_ok(gpuipc_server_destroy(server));
    config.flags = 0;
    found = GPUIPC_OK;
    serve_with(&config);
    asker_begin(&client, other, &of);
    check_ok(gpuipc_server_poll(server, SOON_MS));
    cr_assert_eq(found, GPUIPC_ERR_BUSY);
    asker_end(&client);
    check_ok(gpuipc_server_destroy(server));
    gpuipc_server *gone = server;
    serve_with(&config);
    gpuipc_server *serving = server;
    server = gone; /* which the policy is to end */
    asker_begin(&client, other, &of);
    check_ok(gpuipc_server_poll(serving, SOON_MS));
    server = serving;
    cr_assert_eq(found, GPUIPC_ERR_RELEASED);
}

Test(server_clients, a_server_ends_while_clients_are_there) {
    asker_reply reply;
    char name[TICKET_ENDPOINT_SIZE];
    serve();
    asker_begin(&client, other, &of);
    reply = asker_ask(&client, &of);
    ticket_endpoint(asker_decode(&of).server_id, name);
    check_ok(gpuipc_server_destroy(server));
    asker_check_ended(&client);
    asker_check_ended(&honest);
    asker late = {NULL, NULL};
    check_status(GPUIPC_ERR_NOT_FOUND, gpuipc_connection_open(other, name, NULL, 0, &late.handle));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_server_destroy(server));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_server_poll(server, 0));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_server_revoke(server, &of));
    server = NULL;
    core_write_pattern(reply.buffer, 3); /* what is open stays so */
    core_check_pattern(shared, 3);
    check_ok(gpuipc_buffer_release(reply.buffer));
    check_ok(gpuipc_server_destroy(NULL));
}

Test(server_clients, a_context_lives_as_long_as_its_server) {
    asker_reply reply;
    gpuipc_context *own = core_context_new();
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = core_unit};
    gpuipc_buffer *owned;
    check_ok(gpuipc_server_create(own, NULL, &server));
    check_ok(gpuipc_buffer_create(own, &config, &owned));
    of = asker_share(server, owned);
    check_ok(gpuipc_buffer_release(owned));
    check_ok(gpuipc_context_destroy(own));
    asker_begin(&client, other, &of);
    reply = asker_ask(&client, &of);
    cr_assert_eq(reply.answer, WIRE_GRANTED);
    check_ok(gpuipc_buffer_release(reply.buffer));
}

Test(server_clients, configs_that_make_no_sense_are_refused) {
    gpuipc_server *made = NULL;
    gpuipc_server_config config = {.struct_size = sizeof(config), .flags = 2};
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_server_create(core_context, &config, &made));
    config = (gpuipc_server_config){.struct_size = sizeof(config), .reserved = 1};
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_server_create(core_context, &config, &made));
    config = (gpuipc_server_config){.struct_size = 8};
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_server_create(core_context, &config, &made));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_server_create(core_context, NULL, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_server_create(NULL, NULL, &made));
    cr_assert_null(made);
}

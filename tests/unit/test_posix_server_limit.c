/* SPDX-License-Identifier: MIT */
/** @file A server in a process that can open no descriptor more: getrlimit(2), RLIMIT_NOFILE. */
#include <fcntl.h>
#include <sys/resource.h>

#include "asker.h"

static gpuipc_server *server;
static gpuipc_buffer *shared;
static asker honest;
static asker client;
static struct rlimit before;

static void begin(void) {
    core_start();
    server = asker_server(0);
    shared = core_buffer(core_unit, 0);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
}

static void finish(void) {
    (void)setrlimit(RLIMIT_NOFILE, &before);
    asker_end(&client);
    asker_end(&honest);
    (void)gpuipc_server_destroy(server);
    (void)gpuipc_buffer_release(shared);
    core_finish();
}

TestSuite(server_limit, .init = begin, .fini = finish, .timeout = 60);

/* From now on there is room for none. */
static void open_no_more(void) {
    struct rlimit limit = before;
    int first_free = 0;
    while (fcntl(first_free, F_GETFD) >= 0) {
        first_free++;
    }
    limit.rlim_cur = (rlim_t)first_free;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void serve_all(void) {
    while (gpuipc_server_poll(server, 0) == GPUIPC_OK) {
    }
    cr_assert_eq(gpuipc_error_get()->status, GPUIPC_ERR_TIMEOUT, "%s",
                 gpuipc_error_get()->sentence);
}

static wire_answer ask(asker *self, const gpuipc_ticket *of) {
    asker_reply reply;
    check_ok(asker_send(self, of));
    serve_all();
    check_ok(asker_receive(self, &reply));
    check_ok(gpuipc_buffer_release(reply.buffer));
    return reply.answer;
}

Test(server_limit, a_client_for_whom_there_is_no_descriptor_is_sent_away) {
    const gpuipc_ticket of = asker_share(server, shared);
    const gpuipc_ticket forged = asker_forge(&of);
    asker_begin(&honest, core_context, &of);
    cr_assert_eq(ask(&honest, &of), WIRE_GRANTED);
    asker_begin(&client, core_context, &of);
    open_no_more();
    serve_all(); /* comes to an end: the client is not ready for ever */
    asker_check_ended(&client);
    cr_assert_eq(ask(&honest, &forged), WIRE_UNKNOWN); /* a handle has no room here, either */
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    cr_assert_eq(ask(&honest, &of), WIRE_GRANTED);
    asker_end(&client);
    asker_begin(&client, core_context, &of);
    cr_assert_eq(ask(&client, &of), WIRE_GRANTED);
}

/* Eight GPUs with 64 workers each, and as many again. A descriptor for each end, and one for the process at it. */
#define DEFAULT_OF_USER 1024
#define DESCRIPTORS     (4 * DEFAULT_OF_USER)

Test(server_limit, a_user_has_1024_connections_unless_the_program_says_otherwise) {
    static os_connection *crowd[DEFAULT_OF_USER];
    const struct rlimit many = {DESCRIPTORS, before.rlim_max};
    const os_directory directory = {core_directory, false};
    const gpuipc_ticket of = asker_share(server, shared);
    const ticket decoded = asker_decode(&of);
    char name[TICKET_ENDPOINT_SIZE];
    asker_reply reply;
    cr_assert(before.rlim_cur >= DESCRIPTORS || setrlimit(RLIMIT_NOFILE, &many) == 0,
              "this test needs %d descriptors (ulimit -Hn)", DESCRIPTORS);
    ticket_endpoint(decoded.server_id, name);
    asker_begin(&honest, core_context, &of);
    cr_assert_eq(ask(&honest, &of), WIRE_GRANTED);
    for (int i = 1; i < DEFAULT_OF_USER; i++) {
        check_ok(os_connection_open(&directory, name, os_deadline_after(SOON_MS), &crowd[i]));
        serve_all();
    }
    asker_begin(&client, core_context, &of);
    serve_all();
    check_ok(asker_receive(&client, &reply));
    cr_assert_eq(reply.answer, WIRE_BUSY);
    cr_assert_eq(reply.flags, WIRE_BUSY_USER);
    cr_assert_eq(reply.limit, DEFAULT_OF_USER);
    cr_assert_eq(ask(&honest, &of), WIRE_GRANTED);
    for (int i = 1; i < DEFAULT_OF_USER; i++) {
        cr_assert_not(os_connection_has_ended(crowd[i]));
        os_connection_destroy(crowd[i]);
    }
    serve_all();
}

/* What it does not read holds descriptors of this process's user on their way. */
Test(server_limit, one_that_asks_before_it_has_read_loses_its_connection) {
    const gpuipc_ticket of = asker_share(server, shared);
    asker_reply reply;
    asker_begin(&honest, core_context, &of);
    asker_begin(&client, core_context, &of);
    check_ok(asker_send(&client, &of));
    serve_all();
    check_ok(asker_send(&client, &of)); /* the first answer is still there */
    serve_all();
    check_ok(asker_receive(&client, &reply));
    check_ok(gpuipc_buffer_release(reply.buffer));
    check_status(GPUIPC_ERR_PEER_CLOSED, asker_receive(&client, &reply));
    cr_assert_eq(ask(&honest, &of), WIRE_GRANTED);
    cr_assert_eq(ask(&honest, &of), WIRE_GRANTED);
}

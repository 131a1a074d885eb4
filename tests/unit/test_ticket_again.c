/* SPDX-License-Identifier: MIT */
/** @file Which ticket is open already, for whom; and links that nobody needs any more, or whose server goes. */
#include "memory/buffer.h"
#include "stream_gate.h"
#include "ticket_server.h"

static ticket_server server;
static gpuipc_context *client; /* who opens */
static gpuipc_buffer *original;

#define ORIGINAL_UNITS 2

static void start(void) {
    core_start();
    core_need_emulated();
    client = core_context_new();
    original = core_buffer(ORIGINAL_UNITS * core_unit, 0);
    core_write_pattern(original, 3);
    ticket_server_open(&server, core_context, original);
}

static void finish(void) {
    core_set_failures("");
    if (original != NULL) {
        (void)gpuipc_context_destroy(client);
        (void)gpuipc_connection_close(server.connection);
        (void)gpuipc_listener_close(server.listener);
        (void)gpuipc_buffer_release(original);
    }
    core_finish();
}

TestSuite(ticket_again, .init = start, .fini = finish, .timeout = 60);

static const ticket_step accept_and_grant[] = {{TICKET_ACCEPT, 0}, {TICKET_GRANT, 0}, {0, 0}};
static const ticket_step grant[] = {{TICKET_GRANT, 0}, {0, 0}};

static gpuipc_ticket whole(void) {
    return ticket_server_ticket(&server, 0, ORIGINAL_UNITS * core_unit);
}

static gpuipc_status open_as(const gpuipc_ticket *wanted, gpuipc_open_config config,
                             gpuipc_buffer **out_buffer) {
    config.struct_size = sizeof(config);
    if (config.timeout_ms == 0) {
        config.timeout_ms = SOON_MS;
    }
    return gpuipc_buffer_open(client, wanted, &config, out_buffer);
}

static gpuipc_buffer *open_while(const ticket_step *steps, const gpuipc_ticket *wanted,
                                 gpuipc_open_config config) {
    gpuipc_buffer *opened = NULL;
    ticket_server_begin(&server, steps);
    const gpuipc_status status = open_as(wanted, config, &opened);
    ticket_server_end(&server);
    check_ok(status);
    return opened;
}

static void drop(gpuipc_buffer *one) {
    check_ok(gpuipc_buffer_release(one));
}

/* ---- the same ------------------------------------------------------------------------------ */

/* A policy is what it is with its data. */
static int allow_if_told(void *user_data, const gpuipc_peer_info *peer) {
    (void)peer;
    return *(const int *)user_data;
}

Test(ticket_again, whoever_asks_with_other_data_is_asked_again) {
    int yes = 1;
    int no = 0;
    const gpuipc_open_config allowing = {.policy = allow_if_told, .policy_user_data = &yes};
    const gpuipc_open_config refusing = {.policy = allow_if_told, .policy_user_data = &no};
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *again = NULL;
    gpuipc_buffer *first = open_while(accept_and_grant, &wanted, allowing);
    check_ok(open_as(&wanted, allowing, &again));
    drop(again);
    check_status(GPUIPC_ERR_ACCESS_DENIED, open_as(&wanted, refusing, &again));
    drop(first);
}

Test(ticket_again, is_for_the_same_device_and_access_however_they_are_said) {
    const gpuipc_ticket wanted = whole();
    const gpuipc_open_config alike[] = {
        {.device = GPUIPC_DEVICE(0)},
        {.access = GPUIPC_ACCESS_READ_WRITE},
        {.device = GPUIPC_DEVICE(0), .access = GPUIPC_ACCESS_READ_WRITE},
        {.flags = GPUIPC_RECEIVE_KEEP_HANDLES}};
    gpuipc_buffer *again = NULL;
    gpuipc_buffer *first = open_while(accept_and_grant, &wanted,
                                      (gpuipc_open_config){.flags = GPUIPC_RECEIVE_KEEP_HANDLES});
    for (size_t i = 0; i < sizeof(alike) / sizeof(alike[0]); i++) {
        check_ok(open_as(&wanted, alike[i], &again));
        drop(again);
    }
    cr_assert_eq(server.requests, 1);
    drop(open_while(grant, &wanted, (gpuipc_open_config){.access = GPUIPC_ACCESS_READ}));
    /* What was restricted since serves who wants it so, and nobody else. */
    check_ok(gpuipc_buffer_set_access(first, 0, GPUIPC_ACCESS_READ));
    check_ok(open_as(&wanted, (gpuipc_open_config){.access = GPUIPC_ACCESS_READ}, &again));
    cr_assert_eq(core_info(again).access, GPUIPC_ACCESS_READ);
    drop(again);
    again = open_while(grant, &wanted, (gpuipc_open_config){0});
    cr_assert_eq(core_info(again).access, GPUIPC_ACCESS_READ_WRITE);
    drop(again);
    drop(first);
}

Test(ticket_again, who_needs_handles_asks_for_them) {
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *first = open_while(accept_and_grant, &wanted, (gpuipc_open_config){0});
    gpuipc_buffer *kept =
        open_while(grant, &wanted, (gpuipc_open_config){.flags = GPUIPC_RECEIVE_KEEP_HANDLES});
    cr_assert_eq(server.requests, 2);
    core_check_pattern(kept, 3);
    drop(first);
    drop(kept);
}

/* ---- whose it is ----------------------------------------------------------------------------- */

static int refuse(void *user_data, const gpuipc_peer_info *peer) {
    (void)peer;
    ++*(int *)user_data;
    return 0;
}

static int admit(void *user_data, const gpuipc_peer_info *peer) {
    cr_assert_eq(peer->same_user, 1);
    ++*(int *)user_data;
    return 1;
}

Test(ticket_again, another_policy_is_asked_about_what_is_open) {
    const gpuipc_ticket wanted = whole();
    int asked = 0;
    const gpuipc_open_config admits = {.policy = admit, .policy_user_data = &asked};
    const gpuipc_open_config refuses = {.policy = refuse, .policy_user_data = &asked};
    gpuipc_buffer *again = NULL;
    gpuipc_buffer *first = open_while(accept_and_grant, &wanted, admits);
    cr_assert_eq(asked, 1);
    check_ok(open_as(&wanted, admits, &again)); /* has been asked */
    drop(again);
    cr_assert_eq(asked, 1);
    check_status(GPUIPC_ERR_ACCESS_DENIED, open_as(&wanted, refuses, &again));
    cr_assert_eq(asked, 2);
    check_ok(open_as(&wanted, (gpuipc_open_config){0}, &again)); /* the same user's */
    drop(again);
    check_ok(gpuipc_buffer_return_async(first, NULL)); /* who was refused does not have it open */
    drop(first);
}

/* ---- contents -------------------------------------------------------------------------------- */

/* Opened with a stream that waits for contents which are not there. */
static gpuipc_buffer *open_unready(const gpuipc_ticket *wanted, CUstream sends, CUstream uses) {
    server.flags = GPUIPC_SEND_ASYNC;
    server.stream = sends;
    stream_gate_close(sends);
    return open_while(accept_and_grant, wanted,
                      (gpuipc_open_config){.flags = GPUIPC_RECEIVE_ASYNC, .stream = uses});
}

Test(ticket_again, contents_that_are_lost_are_not_taken_for_ready) {
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *again = NULL;
    buffer *inside;
    stream_gate_make();
    CUstream sends = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_buffer *first = open_unready(&wanted, sends, uses);
    check_ok(buffer_acquire(first, &inside));
    /* as where the process ended that shared it: watch.c */
    atomic_store(&inside->import_record->is_lost, true);
    const point_word ready = point_ready_word(&inside->import_record->at);
    point_store(&ready);
    buffer_unreference(inside);
    check_status(GPUIPC_ERR_LOST, open_as(&wanted, (gpuipc_open_config){0}, &again));
    check_ok(open_as(&wanted, (gpuipc_open_config){.flags = GPUIPC_RECEIVE_ASYNC, .stream = uses},
                     &again));
    cr_assert_eq(core_info(again).is_lost, 1);
    stream_gate_open();
    drop(again);
    drop(first);
    stream_gate_stream_end(uses);
    stream_gate_stream_end(sends);
    stream_gate_end();
}

typedef struct opening_call {
    gpuipc_ticket wanted;
    gpuipc_open_config config;
    gpuipc_buffer *opened;
} opening_call;

static gpuipc_status call_open(void *argument) {
    opening_call *self = argument;
    return open_as(&self->wanted, self->config, &self->opened);
}

Test(ticket_again, who_waits_for_contents_ends_with_the_context) {
    opening_call call = {.wanted = whole()};
    core_waiter waiter;
    stream_gate_make();
    CUstream sends = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_buffer *first = open_unready(&call.wanted, sends, uses);
    core_waiter_start(&waiter, call_open, &call);
    check_ok(gpuipc_context_destroy(client));
    client = NULL;
    cr_assert_eq(core_waiter_end(&waiter), GPUIPC_ERR_RELEASED);
    stream_gate_open();
    stream_gate_synchronize(uses);
    drop(first);
    stream_gate_stream_end(uses);
    stream_gate_stream_end(sends);
    stream_gate_end();
}

/* ---- links ----------------------------------------------------------------------------------- */

Test(ticket_again, threads_that_open_the_same_at_once_need_one_request) {
    opening_call calls[2] = {{.wanted = whole()}, {.wanted = whole()}};
    core_waiter waiters[2];
    for (size_t i = 0; i < 2; i++) {
        core_waiter_start(&waiters[i], call_open, &calls[i]);
    }
    ticket_server_begin(&server, accept_and_grant);
    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(core_waiter_end(&waiters[i]), GPUIPC_OK);
    }
    ticket_server_end(&server);
    cr_assert_eq(server.requests, 1);
    drop(calls[0].opened);
    drop(calls[1].opened);
}

/* Each link's connection has one. */
static unsigned context_references(void) {
    context *ctx;
    check_ok(context_acquire(client, &ctx));
    const unsigned count = atomic_load(&ctx->object.references);
    context_unreference(ctx);
    return count;
}

Test(ticket_again, the_link_to_a_server_that_has_ended_is_given_up) {
    unsigned first = 0;
    for (size_t i = 0; i < 4; i++) {
        const gpuipc_ticket wanted = whole();
        drop(open_while(accept_and_grant, &wanted, (gpuipc_open_config){0}));
        first = i == 0 ? context_references() : first;
        cr_assert_eq(context_references(), first, "%u references", context_references());
        ticket_server_close(&server);
        ticket_server_open(&server, core_context, original);
    }
}

/* ---- who goes ------------------------------------------------------------------------------ */

static gpuipc_status open_wanted(void *wanted) {
    gpuipc_buffer *opened = NULL;
    const gpuipc_status status = open_as(wanted, (gpuipc_open_config){0}, &opened);
    check_ok(gpuipc_buffer_release(opened));
    return status;
}

/* The process of one that accepts nobody lives on. A busy machine is late now and then; who waits for that process's end, half a
 * second, is late each time. */
Test(ticket_again, a_server_that_goes_before_it_accepts_is_told_at_once) {
    uint64_t least_ns = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        gpuipc_ticket wanted = whole();
        core_waiter waiter;
        core_waiter_start(&waiter, open_wanted, &wanted);
        const uint64_t begun_ns = os_clock_ns();
        ticket_server_close(&server);
        cr_assert_eq(core_waiter_end(&waiter), GPUIPC_ERR_EXPORTER_GONE);
        const uint64_t took_ns = os_clock_ns() - begun_ns;
        least_ns = took_ns < least_ns ? took_ns : least_ns;
        ticket_server_open(&server, core_context, original);
    }
    cr_assert_lt(least_ns, UINT64_C(400000000));
}

/* Over the same connection, as often as the server wants; but not when that is too late. */
Test(ticket_again, a_server_that_has_time_later_is_asked_again) {
    static const ticket_step later[] = {{TICKET_ACCEPT, 0},
                                        {TICKET_ANSWER, WIRE_BUSY},
                                        {TICKET_ANSWER, WIRE_BUSY},
                                        {TICKET_GRANT, 0},
                                        {0, 0}};
    static const ticket_step too_late[] = {{TICKET_ANSWER, WIRE_BUSY}, {0, 0}};
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *opened = NULL;
    server.busy = WIRE_BUSY_LATER;
    drop(open_while(later, &wanted, (gpuipc_open_config){0}));
    server.limit = UINT32_MAX;
    ticket_server_begin(&server, too_late);
    check_refused(GPUIPC_ERR_SERVER_BUSY, "long replies to this user's processes",
                  open_as(&wanted, (gpuipc_open_config){0}, &opened));
    ticket_server_end(&server);
    drop(open_while(grant, &wanted, (gpuipc_open_config){0}));
}

Test(ticket_again, a_server_that_ends_within_its_reply_is_told_from_one_that_is_full) {
    static const ticket_step cuts[] = {{TICKET_ACCEPT, 0},
                                       {TICKET_PART, 0},
                                       {TICKET_HANG_UP, 0},
                                       {TICKET_ACCEPT, 0},
                                       {TICKET_PART, 0},
                                       {TICKET_HANG_UP, 0},
                                       {0, 0}};
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *opened = NULL;
    ticket_server_begin(&server, cuts);
    check_refused(GPUIPC_ERR_SERVER_BUSY, "within its reply",
                  open_as(&wanted, (gpuipc_open_config){0}, &opened));
    ticket_server_end(&server);
    drop(open_while(accept_and_grant, &wanted, (gpuipc_open_config){0}));
}

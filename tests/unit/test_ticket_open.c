/* SPDX-License-Identifier: MIT */
/** @file Opening what a ticket stands for: asking its server, and opening again. */
#include <stdatomic.h>

#include "memory/buffer.h"
#include "stream_gate.h"
#include "ticket/ticket_cache.h"
#include "ticket_server.h"

static ticket_server server;
static gpuipc_context *client; /* who opens */
static gpuipc_buffer *original;

#define ORIGINAL_UNITS 4

static void start(void) {
    gpuipc_context_config config;
    core_start();
    core_need_emulated();
    config = core_context_config();
    config.flags = GPUIPC_CONTEXT_NO_KEEP_ALIVE;
    check_ok(gpuipc_context_create(&config, &client));
    original = core_buffer(ORIGINAL_UNITS * core_unit, 0);
    core_write_pattern(original, 3);
    ticket_server_open(&server, core_context, original);
}

static void finish(void) {
    core_set_failures("");
    if (client != NULL) {
        (void)gpuipc_context_destroy(client);
        (void)gpuipc_connection_close(server.connection);
        (void)gpuipc_listener_close(server.listener);
        (void)gpuipc_buffer_release(original);
    }
    core_finish();
}

TestSuite(ticket_open, .init = start, .fini = finish, .timeout = 60);

static gpuipc_ticket whole(void) {
    return ticket_server_ticket(&server, 0, ORIGINAL_UNITS * core_unit);
}

static gpuipc_status open_as(const gpuipc_ticket *ticket_bytes, gpuipc_open_config config,
                             gpuipc_buffer **out_buffer) {
    config.struct_size = sizeof(config);
    if (config.timeout_ms == 0) {
        config.timeout_ms = SOON_MS;
    }
    return gpuipc_buffer_open(client, ticket_bytes, &config, out_buffer);
}

static gpuipc_status open_one(const gpuipc_ticket *ticket_bytes, gpuipc_buffer **out_buffer) {
    return open_as(ticket_bytes, (gpuipc_open_config){0}, out_buffer);
}

/* Opens one while the server does these steps. */
static gpuipc_status open_while(const ticket_step *steps, const gpuipc_ticket *ticket_bytes,
                                gpuipc_buffer **out_buffer) {
    ticket_server_begin(&server, steps);
    gpuipc_status status = open_one(ticket_bytes, out_buffer);
    const gpuipc_error why = *gpuipc_error_get();
    ticket_server_end(&server);
    status_restore(&why);
    return status;
}

static const ticket_step accept_and_grant[] = {{TICKET_ACCEPT, 0}, {TICKET_GRANT, 0}, {0, 0}};
static const ticket_step accept_and_grant_two[] = {
    {TICKET_ACCEPT, 0}, {TICKET_GRANT, 0}, {TICKET_GRANT, 0}, {0, 0}};
static const ticket_step accept_and_grant_once[] = {
    {TICKET_ACCEPT, 0}, {TICKET_GRANT, 0}, {TICKET_CONFIRM, 0}, {0, 0}};
static const ticket_step grant[] = {{TICKET_GRANT, 0}, {0, 0}};

static void drop(gpuipc_buffer *buffer_handle) {
    check_ok(gpuipc_buffer_release(buffer_handle));
}

/* ---- again --------------------------------------------------------------------------------- */

Test(ticket_open, again_it_is_found_and_each_opening_is_released_on_its_own) {
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *first = NULL;
    gpuipc_buffer *second = NULL;
    check_ok(open_while(accept_and_grant, &wanted, &first));
    core_check_pattern(first, 3);
    core_set_failures("");
    check_ok(open_one(&wanted, &second));
    cr_assert_eq(core_calls(NULL), 0);
    cr_assert_neq(first, second);
    cr_assert_eq(core_info(first).address, core_info(second).address);
    drop(first);
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_release(first));
    cr_assert_eq(core_calls(NULL), 0);
    core_check_pattern(second, 3);
    core_set_failures("");
    drop(second);
    cr_assert_eq(core_calls("cuMemUnmap"), 1);
    check_ok(open_while(grant, &wanted, &first)); /* now the server has to be asked */
    cr_assert_eq(server.requests, 2);
    drop(first);
}

Test(ticket_open, another_access_or_device_is_asked_for) {
    static const ticket_step steps[] = {
        {TICKET_ACCEPT, 0}, {TICKET_GRANT, 0}, {TICKET_GRANT, 0}, {TICKET_GRANT, 0}, {0, 0}};
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *opened[3];
    core_need_devices(2);
    core_set_failures("");
    ticket_server_begin(&server, steps);
    check_ok(open_one(&wanted, &opened[0]));
    check_ok(open_as(&wanted, (gpuipc_open_config){.access = GPUIPC_ACCESS_READ}, &opened[1]));
    check_ok(open_as(&wanted, (gpuipc_open_config){.device = GPUIPC_DEVICE(1)}, &opened[2]));
    ticket_server_end(&server);
    cr_assert_eq(core_calls("cuMemImportFromShareableHandle"), 1);
    cr_assert_eq(core_info(opened[1]).access, GPUIPC_ACCESS_READ);
    cr_assert_eq(core_info(opened[2]).access_device, 1);
    for (size_t i = 0; i < 3; i++) {
        drop(opened[i]);
    }
}

Test(ticket_open, ranges_of_one_buffer_share_its_memory) {
    const gpuipc_ticket all = whole();
    gpuipc_ticket part;
    gpuipc_buffer *opened[2];
    check_ok(gpuipc_ticket_narrow(&all, core_unit, 512, &part));
    core_set_failures("");
    ticket_server_begin(&server, accept_and_grant_two);
    check_ok(open_one(&all, &opened[0]));
    check_ok(open_one(&part, &opened[1]));
    ticket_server_end(&server);
    cr_assert_eq(core_calls("cuMemImportFromShareableHandle"), 1);
    cr_assert_eq(core_calls("cuMemMap"), 1);
    cr_assert_eq(core_info(opened[1]).address, core_info(opened[0]).address + core_unit);
    cr_assert_eq(core_info(opened[1]).bytes, 512);
    drop(opened[0]);
    drop(opened[1]);
}

Test(ticket_open, what_was_attached_comes_with_it) {
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *opened[2];
    server.attachment = "a manifest";
    check_ok(open_while(accept_and_grant, &wanted, &opened[0]));
    check_ok(open_one(&wanted, &opened[1]));
    drop(opened[0]);
    cr_assert_eq(core_info(opened[1]).attachment_bytes, sizeof("a manifest"));
    cr_assert_str_eq(core_info(opened[1]).attachment, "a manifest");
    drop(opened[1]);
    server.attachment = NULL;
    server.reply_flags = WIRE_REPLY_WITHHELD;
    check_ok(open_while(grant, &wanted, &opened[0]));
    cr_assert(core_info(opened[0]).attachment == NULL &&
              core_info(opened[0]).attachment_bytes == 0);
    cr_assert_eq(core_info(opened[0]).is_attachment_withheld, 1);
    drop(opened[0]);
    cr_assert(core_info(original).attachment == NULL);
}

Test(ticket_open, what_is_open_twice_is_not_returned_and_what_is_returned_is_not_found) {
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *opened[3];
    check_ok(open_while(accept_and_grant, &wanted, &opened[0]));
    check_ok(open_one(&wanted, &opened[1]));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "more than once",
                  gpuipc_buffer_return_async(opened[0], NULL));
    drop(opened[1]);
    check_ok(gpuipc_buffer_return_async(opened[0], NULL));
    check_ok(open_while(grant, &wanted, &opened[2]));
    cr_assert_eq(server.requests, 2);
    drop(opened[0]);
    drop(opened[2]);
}

/* ---- contents that are not ready ----------------------------------------------------------- */

Test(ticket_open, contents_are_waited_for_later_where_that_is_deferred) {
    const gpuipc_ticket wanted = whole();
    const gpuipc_open_config later = {.flags = GPUIPC_RECEIVE_DEFERRED};
    gpuipc_buffer *opened[2];
    stream_gate_make();
    CUstream stream = stream_gate_stream();
    CUstream using = stream_gate_stream();
    server.flags = GPUIPC_SEND_ASYNC;
    server.stream = stream;
    stream_gate_close(stream);
    ticket_server_begin(&server, accept_and_grant);
    check_ok(open_as(&wanted, later, &opened[0]));
    ticket_server_end(&server);
    check_ok(open_as(&wanted, later, &opened[1]));
    cr_assert_eq(core_info(opened[0]).is_ready, 0);
    cr_assert_eq(core_info(opened[1]).is_ready, 0);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_ready(opened[1], 20));
    check_ok(gpuipc_buffer_await_ready_async(opened[0], using));
    stream_gate_check_waits(using);
    drop(opened[0]);
    stream_gate_open();
    check_ok(gpuipc_buffer_await_ready(opened[1], SOON_MS));
    stream_gate_synchronize(using);
    cr_assert_eq(core_info(opened[1]).is_ready, 1);
    drop(opened[1]);
    stream_gate_stream_end(using);
    stream_gate_stream_end(stream);
    stream_gate_end();
}

Test(ticket_open, who_opens_again_waits_for_the_contents_as_the_first_does) {
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *opened[3];
    stream_gate_make();
    CUstream stream = stream_gate_stream();
    CUstream using = stream_gate_stream();
    const gpuipc_open_config async = {.flags = GPUIPC_RECEIVE_ASYNC, .stream = using};
    server.flags = GPUIPC_SEND_ASYNC;
    server.stream = stream;
    stream_gate_close(stream);
    ticket_server_begin(&server, accept_and_grant);
    check_ok(open_as(&wanted, async, &opened[0]));
    ticket_server_end(&server);
    check_status(GPUIPC_ERR_TIMEOUT,
                 open_as(&wanted, (gpuipc_open_config){.timeout_ms = 20}, &opened[1]));
    check_ok(open_as(&wanted, async, &opened[1]));
    stream_gate_check_waits(using);
    stream_gate_open();
    check_ok(open_one(&wanted, &opened[2]));
    stream_gate_synchronize(using);
    for (size_t i = 0; i < 3; i++) {
        drop(opened[i]);
    }
    stream_gate_stream_end(using);
    stream_gate_stream_end(stream);
    stream_gate_end();
}

Test(ticket_open, contents_that_are_late_cost_the_opening_and_not_the_link) {
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *opened = NULL;
    stream_gate_make();
    CUstream stream = stream_gate_stream();
    server.flags = GPUIPC_SEND_ASYNC;
    server.stream = stream;
    stream_gate_close(stream);
    ticket_server_begin(&server, accept_and_grant);
    check_status(GPUIPC_ERR_TIMEOUT,
                 open_as(&wanted, (gpuipc_open_config){.timeout_ms = 200}, &opened));
    ticket_server_end(&server);
    stream_gate_open();
    check_ok(open_while(grant, &wanted, &opened));
    drop(opened);
    stream_gate_stream_end(stream);
    stream_gate_end();
}

/* A ticket that is given once, whose contents are not there: a stream that is captured cannot wait for them. */
static gpuipc_ticket keep_unready(CUstream stream) {
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *opened = NULL;
    CUstream captured = stream_gate_stream();
    server.flags = GPUIPC_SEND_ASYNC;
    server.stream = stream;
    server.reply_flags = WIRE_REPLY_ONE_SHOT;
    stream_gate_close(stream);
    ticket_server_begin(&server, accept_and_grant_once);
    core_set_captured(true, captured);
    check_status(GPUIPC_ERR_CUDA,
                 open_as(&wanted,
                         (gpuipc_open_config){.flags = GPUIPC_RECEIVE_ASYNC, .stream = captured},
                         &opened));
    core_set_captured(false, NULL);
    ticket_server_end(&server);
    stream_gate_stream_end(captured);
    cr_assert_eq(core_info(original).lent_count, 1);
    return wanted;
}

Test(ticket_open, what_is_given_once_is_kept_when_its_contents_are_late) {
    gpuipc_buffer *opened = NULL;
    stream_gate_make();
    CUstream stream = stream_gate_stream();
    const gpuipc_ticket wanted = keep_unready(stream);
    check_status(GPUIPC_ERR_TIMEOUT,
                 open_as(&wanted, (gpuipc_open_config){.timeout_ms = 1}, &opened));
    stream_gate_open();
    check_ok(open_one(&wanted, &opened));
    cr_assert_eq(server.requests, 1);
    core_check_pattern(opened, 3);
    cr_assert_eq(core_info(original).lent_count, 1);
    drop(opened);
    cr_assert_eq(core_info(original).lent_count, 0, "it is kept no more");
    stream_gate_stream_end(stream);
    stream_gate_end();
}

Test(ticket_open, what_is_given_once_and_cannot_be_mapped_is_not_confirmed) {
    static const ticket_step again[] = {{TICKET_GRANT, 0}, {TICKET_CONFIRM, 0}, {0, 0}};
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *opened = NULL;
    server.reply_flags = WIRE_REPLY_ONE_SHOT;
    core_set_failures("cuMemMap:1=2");
    check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, open_while(accept_and_grant, &wanted, &opened));
    core_set_failures("");
    check_ok(open_while(again, &wanted, &opened));
    core_check_pattern(opened, 3);
    drop(opened);
}

Test(ticket_open, what_is_kept_and_never_opened_ends_with_its_context) {
    stream_gate_make();
    CUstream stream = stream_gate_stream();
    (void)keep_unready(stream);
    check_ok(gpuipc_context_destroy(client));
    cr_assert_eq(core_info(original).lent_count, 0);
    client = core_context_new();
    stream_gate_open();
    stream_gate_stream_end(stream);
    stream_gate_end();
}

Test(ticket_open, what_is_kept_and_lost_is_kept_no_more) {
    const gpuipc_open_config none = {.struct_size = sizeof(none)};
    gpuipc_buffer *opened = NULL;
    context *within;
    stream_gate_make();
    CUstream stream = stream_gate_stream();
    const gpuipc_ticket wanted = keep_unready(stream);
    check_ok(context_acquire(client, &within));
    buffer *inside = ticket_cache_find(within, &wanted, &none);
    cr_assert_not_null(inside);
    /* as where the process ended that shared it: watch.c */
    atomic_store(&inside->import_record->is_lost, true);
    const point_word ready = point_ready_word(&inside->import_record->at);
    point_store(&ready);
    ticket_cache_give_up(inside, true);
    context_unreference(within);
    check_status(GPUIPC_ERR_LOST, open_one(&wanted, &opened));
    cr_assert_eq(core_info(original).lent_count, 0);
    stream_gate_open();
    stream_gate_stream_end(stream);
    stream_gate_end();
}

/* ---- what servers answer -------------------------------------------------------------------- */

Test(ticket_open, each_answer_has_a_status_and_the_link_stays) {
    static const struct {
        wire_answer answer;
        gpuipc_status expected;
    } rows[] = {{WIRE_EXPIRED, GPUIPC_ERR_TICKET_EXPIRED},
                {WIRE_REVOKED, GPUIPC_ERR_TICKET_REVOKED},
                {WIRE_USED_UP, GPUIPC_ERR_TICKET_USED_UP},
                {WIRE_UNKNOWN, GPUIPC_ERR_TICKET_UNKNOWN},
                {WIRE_OUT_OF_RANGE, GPUIPC_ERR_OUT_OF_RANGE},
                {WIRE_FAILED, GPUIPC_ERR_NOT_SHAREABLE},
                {WIRE_OTHER, GPUIPC_ERR_OTHER_KIND},
                {WIRE_FULL, GPUIPC_ERR_LIMIT},
                {WIRE_TOO_MANY, GPUIPC_ERR_LIMIT}};
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *opened = NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const ticket_step steps[] = {{i == 0 ? TICKET_ACCEPT : TICKET_ANSWER, rows[i].answer},
                                     {i == 0 ? TICKET_ANSWER : TICKET_END, rows[i].answer},
                                     {TICKET_END, 0}};
        check_status(rows[i].expected, open_while(steps, &wanted, &opened));
        cr_assert_null(opened);
    }
    check_ok(open_while(grant, &wanted, &opened));
    drop(opened);
}

Test(ticket_open, a_server_that_makes_no_sense_is_left) {
    static const ticket_step rows[][4] = {
        {{TICKET_ACCEPT, 0}, {TICKET_ANSWER, WIRE_GRANTED}, {0, 0}},
        {{TICKET_ACCEPT, 0}, {TICKET_WRONG, WIRE_EXPIRED}, {0, 0}},
        {{TICKET_ACCEPT, 0}, {TICKET_MESSAGE, 0}, {0, 0}}};
    gpuipc_ticket wanted = whole();
    gpuipc_buffer *opened = NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_status(GPUIPC_ERR_PROTOCOL, open_while(rows[i], &wanted, &opened));
        check_ok(open_while(accept_and_grant, &wanted, &opened));
        drop(opened);
        ticket_server_close(&server); /* which ends the link */
        ticket_server_open(&server, core_context, original);
        wanted = whole();
    }
}

Test(ticket_open, a_reply_that_comes_too_late_is_nobodys) {
    static const ticket_step hear[] = {{TICKET_ACCEPT, 0}, {TICKET_HEAR, 0}, {0, 0}};
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *opened = NULL;
    ticket_server_begin(&server, hear);
    check_status(GPUIPC_ERR_TIMEOUT,
                 open_as(&wanted, (gpuipc_open_config){.timeout_ms = 100}, &opened));
    ticket_server_end(&server);
    check_ok(open_while(accept_and_grant, &wanted, &opened)); /* over another connection */
    drop(opened);
}

Test(ticket_open, a_busy_server_says_so_or_closes) {
    static const ticket_step says[] = {
        {TICKET_ACCEPT, 0}, {TICKET_SAY, WIRE_BUSY}, {TICKET_HANG_UP, 0}, {0, 0}};
    static const ticket_step closes[] = {
        {TICKET_ACCEPT, 0}, {TICKET_HANG_UP, 0}, {TICKET_ACCEPT, 0}, {TICKET_HANG_UP, 0}, {0, 0}};
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *opened = NULL;
    check_status(GPUIPC_ERR_SERVER_BUSY, open_while(says, &wanted, &opened));
    check_status(GPUIPC_ERR_SERVER_BUSY, open_while(closes, &wanted, &opened));
    check_ok(open_while(accept_and_grant, &wanted, &opened));
    drop(opened);
}

Test(ticket_open, a_link_that_has_ended_is_made_anew_once) {
    static const ticket_step ends[] = {
        {TICKET_ACCEPT, 0}, {TICKET_GRANT, 0}, {TICKET_HANG_UP, 0}, {0, 0}};
    const gpuipc_ticket wanted = whole();
    gpuipc_ticket part;
    gpuipc_buffer *opened[2];
    check_ok(gpuipc_ticket_narrow(&wanted, 0, 64, &part));
    check_ok(open_while(ends, &wanted, &opened[0]));
    check_ok(open_while(accept_and_grant, &part, &opened[1]));
    core_check_pattern(opened[0], 3);
    drop(opened[0]);
    drop(opened[1]);
}

/* ---- servers that are not there ------------------------------------------------------------- */

Test(ticket_open, a_server_that_is_gone_is_told_at_once_and_what_is_open_stays) {
    const gpuipc_ticket wanted = whole();
    gpuipc_ticket part;
    gpuipc_buffer *opened = NULL;
    gpuipc_buffer *again = NULL;
    check_ok(gpuipc_ticket_narrow(&wanted, 0, 64, &part));
    check_ok(open_while(accept_and_grant, &wanted, &opened));
    ticket_server_close(&server);
    const uint64_t before = os_clock_ns();
    check_status(GPUIPC_ERR_EXPORTER_GONE, open_one(&part, &again));
    cr_assert_lt(os_clock_ns() - before, UINT64_C(1000000) * SOON_MS / 2);
    core_check_pattern(opened, 3);
    check_ok(open_one(&wanted, &again));
    drop(again);
    drop(opened);
    check_status(GPUIPC_ERR_EXPORTER_GONE, open_one(&wanted, &opened));
}

Test(ticket_open, who_is_not_found_is_explained_by_the_ticket) {
    gpuipc_buffer *opened = NULL;
    server.names.boot = (uint16_t)(ticket_boot() == 7 ? 8 : 7);
    server.names.user = ticket_user();
    gpuipc_ticket wanted = whole();
    check_ok(open_while(accept_and_grant, &wanted, &opened)); /* it is there: nothing to explain */
    drop(opened);
    ticket_server_close(&server);
    if (ticket_boot() != 0) {
        check_status(GPUIPC_ERR_TICKET_OTHER_BOOT, open_one(&wanted, &opened));
    }
    server.names.boot = ticket_boot();
    server.names.user = ticket_user() + 1 == 0 ? 1 : ticket_user() + 1;
    wanted = whole();
    check_status(ticket_user() == 0 ? GPUIPC_ERR_EXPORTER_GONE : GPUIPC_ERR_TICKET_OTHER_USER,
                 open_one(&wanted, &opened));
    server.names.user = 0;
    wanted = whole();
    check_status(GPUIPC_ERR_EXPORTER_GONE, open_one(&wanted, &opened));
}

/* ---- the caller ----------------------------------------------------------------------------- */

static int refuse(void *user_data, const gpuipc_peer_info *peer) {
    (void)peer;
    ++*(int *)user_data;
    return 0;
}

Test(ticket_open, the_caller_says_whose_server_it_may_be) {
    static const ticket_step twice[] = {
        {TICKET_ACCEPT, 0}, {TICKET_ACCEPT, 0}, {TICKET_GRANT, 0}, {0, 0}};
    const gpuipc_ticket wanted = whole();
    gpuipc_ticket part;
    gpuipc_buffer *opened = NULL;
    int asked = 0;
    const gpuipc_open_config careful = {.policy = refuse, .policy_user_data = &asked};
    check_ok(gpuipc_ticket_narrow(&wanted, 0, 64, &part));
    ticket_server_begin(&server, twice);
    check_status(GPUIPC_ERR_ACCESS_DENIED, open_as(&wanted, careful, &opened));
    check_ok(open_one(&wanted, &opened));
    ticket_server_end(&server);
    gpuipc_buffer *none = NULL;
    check_status(GPUIPC_ERR_ACCESS_DENIED, open_as(&part, careful, &none));
    cr_assert_eq(asked, 2);
    check_ok(open_while(grant, &part, &none)); /* the link is as it was */
    drop(none);
    drop(opened);
}

Test(ticket_open, arguments_that_make_no_sense_are_refused) {
    gpuipc_ticket wanted = whole();
    gpuipc_buffer *opened = NULL;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_open(client, NULL, NULL, &opened));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "write GPUIPC_DEVICE(1)",
                  open_as(&wanted, (gpuipc_open_config){.device = 1}, &opened));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_open(client, &wanted, NULL, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_open(NULL, &wanted, NULL, &opened));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 open_as(&wanted, (gpuipc_open_config){.timeout_ms = -2}, &opened));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 open_as(&wanted, (gpuipc_open_config){.flags = 0x80}, &opened));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 open_as(&wanted, (gpuipc_open_config){.access = (gpuipc_access)7}, &opened));
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND,
                 open_as(&wanted, (gpuipc_open_config){.device = GPUIPC_DEVICE(core_device_count)},
                         &opened));
    const gpuipc_open_config small = {.struct_size = 8};
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_buffer_open(client, &wanted, &small, &opened));
    wanted.bytes[20] ^= 1;
    check_status(GPUIPC_ERR_TICKET_DAMAGED, open_one(&wanted, &opened));
}

typedef struct opening_call {
    gpuipc_ticket wanted;
    gpuipc_buffer *opened;
    gpuipc_error why;
} opening_call;

static gpuipc_status call_open(void *argument) {
    opening_call *self = argument;
    const gpuipc_status status = open_one(&self->wanted, &self->opened);
    self->why = *gpuipc_error_get();
    return status;
}

Test(ticket_open, a_context_that_is_given_up_ends_its_links_at_once) {
    static const ticket_step hear[] = {
        {TICKET_ACCEPT, 0}, {TICKET_GRANT, 0}, {TICKET_HEAR, 0}, {0, 0}};
    opening_call call = {.wanted = whole()};
    gpuipc_buffer *opened = NULL;
    core_waiter waiter;
    ticket_server_begin(&server, hear);
    check_ok(open_one(&call.wanted, &opened));
    check_ok(gpuipc_ticket_narrow(&call.wanted, 0, 64, &call.wanted));
    core_waiter_start(&waiter, call_open, &call);
    ticket_server_end(&server);
    check_ok(gpuipc_context_destroy(client));
    client = NULL;
    cr_assert_eq(core_waiter_end(&waiter), GPUIPC_ERR_RELEASED);
    cr_assert_not_null(strstr(call.why.sentence, "the context was destroyed"), "%s",
                       call.why.sentence);
    core_check_pattern(opened, 3);
    drop(opened);
    ticket_server_close(&server);
    drop(original);
}

static atomic_bool slow_is_asked;
static atomic_bool slow_may_answer;

static void await_flag(atomic_bool *flag) {
    while (!atomic_load(flag)) {
        os_sleep_ms(1);
    }
}

static int answer_slowly(void *user_data, const gpuipc_peer_info *peer) {
    (void)user_data;
    (void)peer;
    atomic_store(&slow_is_asked, true);
    await_flag(&slow_may_answer);
    return 1;
}

static gpuipc_status call_open_slowly(void *argument) {
    opening_call *self = argument;
    return open_as(&self->wanted, (gpuipc_open_config){.policy = answer_slowly}, &self->opened);
}

/* Its server has closed its end before, and so learns of what it exported by the page alone. */
Test(ticket_open, what_had_come_over_a_busy_link_is_returned_when_its_context_is_given_up) {
    static const ticket_step let_in[] = {{TICKET_ACCEPT, 0}, {0, 0}};
    const gpuipc_outgoing exported = {
        .struct_size = sizeof(exported), .buffers = &original, .buffer_count = 1};
    opening_call call = {.wanted = whole()};
    core_waiter waiter;
    ticket_server_begin(&server, let_in);
    core_waiter_begin(&waiter, call_open_slowly, &call);
    ticket_server_end(&server);
    await_flag(&slow_is_asked);
    check_ok(gpuipc_connection_send(server.connection, &exported, SOON_MS));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(original, 0));
    check_ok(gpuipc_connection_close(server.connection));
    server.connection = NULL;
    check_ok(gpuipc_context_destroy(client));
    client = NULL;
    atomic_store(&slow_may_answer, true);
    cr_assert_eq(core_waiter_end(&waiter), GPUIPC_ERR_RELEASED);
    check_ok(gpuipc_buffer_await_returns(original, SOON_MS));
    ticket_server_close(&server);
    drop(original);
}

Test(ticket_open, requests_to_one_server_go_one_after_the_other) {
    static const ticket_step hear[] = {{TICKET_ACCEPT, 0}, {TICKET_HEAR, 0}, {0, 0}};
    opening_call call = {.wanted = whole()};
    gpuipc_buffer *opened = NULL;
    gpuipc_ticket part;
    core_waiter waiter;
    check_ok(gpuipc_ticket_narrow(&call.wanted, 0, 64, &part));
    ticket_server_begin(&server, hear);
    core_waiter_start(&waiter, call_open, &call);
    ticket_server_end(&server);
    check_refused(GPUIPC_ERR_TIMEOUT, "other threads",
                  open_as(&part, (gpuipc_open_config){.timeout_ms = 20}, &opened));
    ticket_server_begin(&server, accept_and_grant); /* which closes what the first one waits for */
    cr_assert_eq(core_waiter_end(&waiter), GPUIPC_OK);
    ticket_server_end(&server);
    drop(call.opened);
}

/* Opens a ticket whose contents are not there before stream_gate_open(): returns when it has come. */
static void start_unready(core_waiter *waiter, opening_call *call, CUstream stream) {
    server.flags = GPUIPC_SEND_ASYNC;
    server.stream = stream;
    stream_gate_close(stream);
    ticket_server_begin(&server, accept_and_grant);
    core_waiter_begin(waiter, call_open, call);
    ticket_server_end(&server);
    server.flags = GPUIPC_SEND_READY;
}

Test(ticket_open, contents_that_never_come_keep_nobody_else_waiting) {
    opening_call call = {.wanted = whole()};
    gpuipc_buffer *opened = NULL;
    gpuipc_ticket part;
    core_waiter waiter;
    stream_gate_make();
    CUstream stream = stream_gate_stream();
    check_ok(gpuipc_ticket_narrow(&call.wanted, 0, 64, &part));
    start_unready(&waiter, &call, stream);
    check_ok(open_while(grant, &part, &opened));
    drop(opened);
    stream_gate_open();
    cr_assert_eq(core_waiter_end(&waiter), GPUIPC_OK);
    drop(call.opened);
    stream_gate_stream_end(stream);
    stream_gate_end();
}

static gpuipc_status call_open_briefly(void *argument) {
    opening_call *self = argument;
    return open_as(&self->wanted, (gpuipc_open_config){.timeout_ms = 2000}, &self->opened);
}

/* First for another thread's request, and then for the contents of what that one has opened. */
Test(ticket_open, who_waits_twice_waits_no_longer_than_he_may) {
    static const ticket_step let_in[] = {{TICKET_ACCEPT, 0}, {0, 0}};
    opening_call call = {.wanted = whole()};
    opening_call second = {.wanted = whole()};
    core_waiter waiter;
    core_waiter hurried;
    stream_gate_make();
    CUstream stream = stream_gate_stream();
    ticket_server_begin(&server, let_in);
    core_waiter_begin(&waiter, call_open, &call);
    ticket_server_end(&server);
    const uint64_t begin_ns = os_clock_ns();
    core_waiter_start(&hurried, call_open_briefly, &second);
    os_sleep_ms(1600); /* of the two seconds that it has */
    server.flags = GPUIPC_SEND_ASYNC;
    server.stream = stream;
    stream_gate_close(stream);
    ticket_server_begin(&server, grant);
    ticket_server_end(&server);
    cr_assert_eq(core_waiter_end(&hurried), GPUIPC_ERR_TIMEOUT);
    cr_assert_lt(os_clock_ns() - begin_ns, UINT64_C(3000000000));
    stream_gate_open();
    cr_assert_eq(core_waiter_end(&waiter), GPUIPC_OK);
    drop(call.opened);
    stream_gate_stream_end(stream);
    stream_gate_end();
}

Test(ticket_open, openings_may_fail_and_leave_nothing) {
    const gpuipc_ticket wanted = whole();
    gpuipc_buffer *opened = NULL;
    core_set_failures("cuMemMap:1=999");
    ticket_server_begin(&server, accept_and_grant_two);
    check_status(GPUIPC_ERR_CUDA, open_one(&wanted, &opened));
    core_set_failures("");
    check_ok(open_one(&wanted, &opened));
    ticket_server_end(&server);
    drop(opened);
}

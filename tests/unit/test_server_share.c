/* SPDX-License-Identifier: MIT */
/** @file What a ticket is made of: ranges and limits that make no sense, contents that a stream still makes, memory
 *  that travels as a copy, calls of the driver that fail; and tickets that the process itself opens. */
#include "asker.h"

#include <stdlib.h>
#include <string.h>

#include "own_kinds.h"
#include "stream_gate.h"
#include "sync/deferred.h"

static gpuipc_server *server;
static gpuipc_context *other;
static gpuipc_buffer *shared;
static CUstream producer;
static asker client;

static void begin(void) {
    core_start();
    other = core_context_new();
    server = asker_server(GPUIPC_SERVER_THREAD);
    shared = core_buffer(core_unit, 0);
}

static void finish(void) {
    if (core_is_emulated) {
        core_set_failures("");
    }
    stream_gate_open();
    stream_gate_stream_end(producer);
    asker_end(&client);
    (void)gpuipc_server_destroy(server);
    (void)gpuipc_buffer_release(shared);
    (void)gpuipc_context_destroy(other);
    stream_gate_end();
    core_finish();
}

TestSuite(server_share, .init = begin, .fini = finish, .timeout = 60);

static gpuipc_status make_ticket(const gpuipc_share_config *config, gpuipc_ticket *out_ticket) {
    return gpuipc_buffer_share(server, shared, config, out_ticket);
}

/* ---- a server that ends meanwhile ---------------------------------------------------------- */

static gpuipc_status share_behind_producer(void *out_ticket) {
    return make_ticket(
        &(gpuipc_share_config){.struct_size = sizeof(gpuipc_share_config), .stream = producer},
        out_ticket);
}

Test(server_share, a_ticket_of_a_server_that_was_destroyed_meanwhile_is_none) {
    core_waiter waiter;
    gpuipc_ticket made = {{0}};
    const gpuipc_ticket untouched = made;
    core_need_emulated(); /* which sleeps while it waits for a stream */
    stream_gate_make();
    producer = stream_gate_stream();
    stream_gate_close(producer);
    core_waiter_start(&waiter, share_behind_producer, &made);
    check_ok(gpuipc_server_destroy(server));
    server = NULL;
    stream_gate_open();
    cr_assert_eq(core_waiter_end(&waiter), GPUIPC_ERR_RELEASED);
    cr_assert_eq(memcmp(&made, &untouched, sizeof(made)), 0);
}

/* A stream of this process waits for another one, which may let it wait as long as it likes. */
static void close_behind_another_process(void) {
    stream_gate_make();
    producer = stream_gate_stream();
    stream_gate_close(producer);
    deferred_wait_begins();
}

Test(server_share, contents_that_may_wait_for_another_process_are_waited_for_five_seconds) {
    gpuipc_ticket made = {{0}};
    const gpuipc_ticket untouched = made;
    close_behind_another_process();
    const uint64_t begun = os_clock_ns();
    const gpuipc_status status = share_behind_producer(&made);
    const uint64_t took_ms = (os_clock_ns() - begun) / 1000000u;
    deferred_wait_ends();
    check_status(GPUIPC_ERR_TIMEOUT, status);
    cr_assert_geq(took_ms, 5000);
    cr_assert_lt(took_ms, 5000 + SOON_MS);
    cr_assert_eq(memcmp(&made, &untouched, sizeof(made)), 0);
}

Test(server_share, the_end_of_the_server_ends_a_wait_for_such_contents) {
    core_waiter waiter;
    gpuipc_ticket made;
    close_behind_another_process();
    core_waiter_start(&waiter, share_behind_producer, &made);
    check_ok(gpuipc_server_destroy(server));
    server = NULL;
    const gpuipc_status status = core_waiter_end(&waiter);
    deferred_wait_ends();
    stream_gate_check_waits(producer);
    check_status(GPUIPC_ERR_RELEASED, status);
}

/* ---- what makes no sense ------------------------------------------------------------------- */

static void check_refused_config(gpuipc_status expected, gpuipc_share_config config) {
    gpuipc_ticket made = {{0}};
    const gpuipc_ticket untouched = made;
    config.struct_size = sizeof(config);
    check_status(expected, make_ticket(&config, &made));
    cr_assert_eq(memcmp(&made, &untouched, sizeof(made)), 0);
}

Test(server_share, ranges_and_flags_that_make_no_sense_are_refused) {
    const uint64_t bytes = core_info(shared).bytes;
    check_refused_config(GPUIPC_ERR_OUT_OF_RANGE, (gpuipc_share_config){.bytes = bytes + 1});
    check_refused_config(GPUIPC_ERR_OUT_OF_RANGE,
                         (gpuipc_share_config){.offset = 1, .bytes = bytes});
    check_refused_config(GPUIPC_ERR_OUT_OF_RANGE, (gpuipc_share_config){.offset = bytes});
    check_refused_config(GPUIPC_ERR_OUT_OF_RANGE, (gpuipc_share_config){.offset = bytes + 1});
    check_refused_config(GPUIPC_ERR_OUT_OF_RANGE,
                         (gpuipc_share_config){.offset = UINT64_MAX, .bytes = 2});
    check_refused_config(GPUIPC_ERR_INVALID_ARGUMENT, (gpuipc_share_config){.reserved = 1});
    check_refused_config(GPUIPC_ERR_INVALID_ARGUMENT, (gpuipc_share_config){.flags = 0x4});
    check_refused_config(GPUIPC_ERR_INVALID_ARGUMENT, (gpuipc_share_config){.flags = 0x200});
    check_refused_config(GPUIPC_ERR_INVALID_ARGUMENT,
                         (gpuipc_share_config){.flags = GPUIPC_SEND_READY | GPUIPC_SEND_ASYNC});
    check_refused_config(GPUIPC_ERR_INVALID_ARGUMENT,
                         (gpuipc_share_config){.access = (gpuipc_access)7});
    check_refused_config(GPUIPC_ERR_INVALID_ARGUMENT, (gpuipc_share_config){.attachment_bytes = 1});
    check_refused_config(
        GPUIPC_ERR_LIMIT,
        (gpuipc_share_config){.attachment = "", .attachment_bytes = GPUIPC_MESSAGE_BYTES_MAX - 63});
    cr_assert_not_null(strstr(gpuipc_error_get()->sentence, "the attachment has"));
}

Test(server_share, calls_refuse_null_and_what_is_not_theirs) {
    gpuipc_server *second = asker_server(0);
    const gpuipc_ticket theirs = asker_share(second, shared);
    gpuipc_ticket made;
    gpuipc_holder whom;
    size_t count = 0;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_share(server, shared, NULL, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_share(NULL, shared, NULL, &made));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_share(server, NULL, NULL, &made));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_server_revoke(server, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_server_holders(server, &theirs, NULL, 1, &count));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_server_holders(server, &theirs, &whom, 1, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_server_get_wait_handle(second, NULL));
    check_status(GPUIPC_ERR_TICKET_UNKNOWN, gpuipc_server_revoke(server, &theirs));
    check_status(GPUIPC_ERR_TICKET_UNKNOWN,
                 gpuipc_server_holders(server, &theirs, &whom, 1, &count));
    made = theirs;
    made.bytes[9] ^= 1;
    check_status(GPUIPC_ERR_TICKET_DAMAGED, gpuipc_server_revoke(second, &made));
    check_status(GPUIPC_ERR_TICKET_DAMAGED, gpuipc_server_holders(second, &made, &whom, 1, &count));
    check_ok(gpuipc_server_destroy(second));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_share(second, shared, NULL, &made));
}

Test(server_share, a_buffer_of_another_context_is_not_the_servers) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = core_unit};
    gpuipc_buffer *foreign;
    gpuipc_ticket made;
    check_ok(gpuipc_buffer_create(other, &config, &foreign));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_share(server, foreign, NULL, &made));
    check_ok(gpuipc_buffer_release(foreign));
}

/* ---- contents ------------------------------------------------------------------------------ */

/* Contents that are not there before stream_gate_open(). */
static gpuipc_ticket share_later(void) {
    const gpuipc_share_config config = {
        .struct_size = sizeof(config), .flags = GPUIPC_SEND_ASYNC, .stream = producer};
    gpuipc_ticket made;
    core_write_pattern(shared, 1);
    stream_gate_close(producer);
    check_ok(gpuipc_buffer_fill_async(shared, 0, core_unit, 0xA5A5A5A5, 4, producer));
    check_ok(make_ticket(&config, &made));
    return made;
}

static uint32_t first_word(gpuipc_buffer *of) {
    uint32_t word = 0;
    check_ok(gpuipc_buffer_read(of, 0, &word, sizeof(word)));
    return word;
}

Test(server_share, who_opens_waits_for_contents_that_a_stream_still_makes) {
    asker_reply reply;
    stream_gate_make();
    producer = stream_gate_stream();
    const gpuipc_ticket of = share_later();
    asker_begin(&client, other, &of);
    check_ok(asker_send(&client, &of));
    cr_assert_eq(asker_peek(&client), WIRE_READY_WORD); /* the server did not wait */
    stream_gate_check_waits(producer);
    stream_gate_open();
    check_ok(asker_receive(&client, &reply));
    cr_assert_eq(first_word(reply.buffer), 0xA5A5A5A5);
    check_ok(gpuipc_buffer_release(reply.buffer));
    reply = asker_ask(&client, &of);
    cr_assert_eq(reply.ready, WIRE_READY_NOW);
    check_ok(gpuipc_buffer_release(reply.buffer));
}

/* Asks, and neither opens what comes nor gives it back. */
static void ask_and_keep(const gpuipc_ticket *of) {
    connection *from = client.connection;
    check_ok(asker_send(&client, of));
    check_ok(connection_receive_whole(from, WIRE_REPLY, false, os_deadline_after(SOON_MS)));
    cr_assert_eq(from->in.buffer_count, 1);
    connection_clear_message(from, false);
}

/* Beside as many as a page of points has, it gets what is not ready as well, and the server waits for nobody. */
Test(server_share, who_has_more_than_a_page_gets_what_is_not_ready) {
    const gpuipc_share_config config = {.struct_size = sizeof(config), .flags = GPUIPC_SEND_READY};
    gpuipc_ticket ready;
    asker_reply reply;
    stream_gate_make();
    producer = stream_gate_stream();
    check_ok(make_ticket(&config, &ready));
    const gpuipc_ticket of = share_later();
    asker_begin(&client, other, &of);
    for (uint32_t i = 0; i < POINT_COUNT; i++) {
        ask_and_keep(&ready);
    }
    check_ok(asker_send(&client, &of));
    check_ok(
        connection_receive_whole(client.connection, WIRE_REPLY, false, os_deadline_after(SOON_MS)));
    stream_gate_check_waits(producer);
    stream_gate_open();
    check_ok(asker_receive(&client, &reply));
    cr_assert_eq(reply.answer, WIRE_GRANTED);
    check_ok(gpuipc_buffer_release(reply.buffer));
}

/* What it stands for, as this process itself gets it. */
static offer *pending;
static buffer *view;
static int patience_ms;
static atomic_bool server_is_over;

static gpuipc_status await_pending(void *argument) {
    const gpuipc_open_config how = {.struct_size = sizeof(how)};
    (void)argument;
    return offer_await(pending, view, &server_is_over, &how, os_deadline_after(patience_ms));
}

static void ask_for_pending(const gpuipc_ticket *of) {
    cr_assert_eq(asker_answer_here(of, &pending), WIRE_GRANTED); /* which does not wait */
    object_reference(&pending->of->object);
    check_ok(buffer_open_view(pending->of->context, pending->of, 0, core_unit, 0,
                              GPUIPC_ACCESS_DEFAULT, GPUIPC_ACCESS_READ_WRITE, &view));
}

static void settle_pending(void) {
    buffer_unreference(view);
    offer_unreference(pending, false);
}

Test(server_share, the_process_itself_waits_for_them_as_well) {
    core_waiter waiter;
    stream_gate_make();
    producer = stream_gate_stream();
    const gpuipc_ticket of = share_later();
    ask_for_pending(&of);
    patience_ms = SOON_MS;
    core_waiter_start(&waiter, await_pending, NULL);
    stream_gate_open();
    check_ok(core_waiter_end(&waiter));
    cr_assert_eq(core_driver()->cuStreamQuery(producer), CUDA_SUCCESS);
    settle_pending();
    cr_assert_eq(asker_answer_here(&of, NULL), WIRE_GRANTED); /* and again, when they are there */
}

Test(server_share, the_process_itself_waits_no_longer_than_it_may) {
    stream_gate_make();
    producer = stream_gate_stream();
    const gpuipc_ticket of = share_later();
    ask_for_pending(&of);
    for (patience_ms = 0; patience_ms < 3; patience_ms++) {
        check_status(GPUIPC_ERR_TIMEOUT, await_pending(NULL));
    }
    stream_gate_open();
    stream_gate_synchronize(producer);
    check_ok(await_pending(NULL));
    settle_pending();
}

Test(server_share, a_stream_of_the_process_itself_waits_for_them) {
    stream_gate_make();
    producer = stream_gate_stream();
    CUstream consumer = stream_gate_stream();
    const gpuipc_ticket of = share_later();
    ask_for_pending(&of);
    const gpuipc_open_config how = {
        .struct_size = sizeof(how), .flags = GPUIPC_RECEIVE_ASYNC, .stream = consumer};
    check_ok(offer_await(pending, view, &server_is_over, &how, os_deadline_after(0)));
    stream_gate_check_waits(consumer);
    stream_gate_open();
    stream_gate_synchronize(consumer);
    cr_assert_eq(core_driver()->cuStreamQuery(producer), CUDA_SUCCESS);
    settle_pending();
    stream_gate_stream_end(consumer);
}

Test(server_share, waits_for_contents_unless_told_otherwise) {
    gpuipc_share_config config = {.struct_size = sizeof(config), .flags = GPUIPC_SEND_READY};
    gpuipc_ticket made;
    stream_gate_make();
    producer = stream_gate_stream();
    stream_gate_close(producer);
    config.stream = producer;
    check_ok(make_ticket(&config, &made)); /* does not look at the stream */
    stream_gate_open();
    config.flags = 0;
    check_ok(gpuipc_buffer_fill_async(shared, 0, core_unit, 0x5A5A5A5A, 4, producer));
    check_ok(make_ticket(&config, &made));
    cr_assert_eq(core_driver()->cuStreamQuery(producer), CUDA_SUCCESS);
    config.flags = GPUIPC_SEND_ASYNC;
    config.stream = NULL; /* the default stream */
    check_ok(make_ticket(&config, &made));
    asker_begin(&client, other, &made);
    cr_assert_eq(asker_answer(&client, &made), WIRE_GRANTED);
}

Test(server_share, memory_that_no_transport_carries_is_shared_as_a_copy) {
    const gpuipc_share_config config = {
        .struct_size = sizeof(config), .offset = 4, .flags = GPUIPC_SEND_STAGED};
    core_enter_device(0);
    own_kinds own = own_kinds_make(OWN_MANAGED, 65536);
    gpuipc_buffer *wrapped;
    gpuipc_ticket of;
    check_ok(gpuipc_buffer_wrap(core_context, own.address, own.bytes, &wrapped));
    check_status(GPUIPC_ERR_NOT_SHAREABLE, gpuipc_buffer_share(server, wrapped, NULL, &of));
    own_kinds_write(&own, 5);
    const uint32_t second = first_word(wrapped);
    check_ok(gpuipc_buffer_share(server, wrapped, &config, &of));
    own_kinds_write(&own, 6); /* which the copy does not see */
    asker_begin(&client, other, &of);
    const asker_reply reply = asker_ask(&client, &of);
    cr_assert_eq(reply.answer, WIRE_GRANTED);
    cr_assert_eq(core_info(reply.buffer).bytes, 65536 - 4);
    cr_assert_neq(first_word(wrapped), second);
    check_ok(gpuipc_buffer_release(reply.buffer));
    check_ok(gpuipc_buffer_release(wrapped));
    check_ok(gpuipc_server_revoke(server, &of));
    own_kinds_undo(&own);
}

/* ---- tickets of this process's own --------------------------------------------------------- */

Test(server_share, the_process_itself_gets_the_original) {
    static const char note[] = "mine";
    const gpuipc_share_config config = {.struct_size = sizeof(config),
                                        .offset = 512,
                                        .bytes = 4096,
                                        .access = GPUIPC_ACCESS_READ,
                                        .attachment = note,
                                        .attachment_bytes = sizeof(note)};
    gpuipc_ticket of;
    gpuipc_ticket part;
    check_ok(make_ticket(&config, &of));
    offer *found;
    size_t attached = 0;
    cr_assert_eq(asker_answer_here(&of, &found), WIRE_GRANTED);
    cr_assert(found->access == GPUIPC_ACCESS_READ &&
              found->of->buffer_id == core_info(shared).buffer_id);
    cr_assert_eq(memcmp(offer_attachment(found, 512, 4096, &attached), note, sizeof(note)), 0);
    cr_assert_eq(attached, sizeof(note));
    cr_assert_null(offer_attachment(found, 512, 4095, &attached));
    cr_assert_eq(attached, 0);
    offer_unreference(found, false);
    ticket decoded = asker_decode(&of);
    decoded.bytes++;
    ticket_encode(&decoded, &part);
    cr_assert_eq(asker_answer_here(&part, NULL), WIRE_OUT_OF_RANGE);
    part = asker_forge(&of);
    cr_assert_eq(asker_answer_here(&part, NULL), WIRE_UNKNOWN);
    check_ok(gpuipc_server_revoke(server, &of));
    cr_assert_eq(asker_answer_here(&of, NULL), WIRE_REVOKED);
    check_ok(gpuipc_server_destroy(server));
    server = NULL;
    cr_assert_not(asker_is_here(&of));
}

/* ---- what it costs ------------------------------------------------------------------------- */

Test(server_share, the_next_client_costs_the_server_no_export) {
    const gpuipc_ticket of = asker_share(server, shared);
    asker second = {NULL, NULL};
    core_need_emulated();
    asker_begin(&client, other, &of);
    cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
    core_set_failures(""); /* counts from here */
    asker_begin(&second, other, &of);
    cr_assert_eq(asker_answer(&second, &of), WIRE_GRANTED);
    cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
    cr_assert_eq(core_calls("cuMemExportToShareableHandle"), 0);
    asker_end(&second);
}

/* ---- calls that fail ----------------------------------------------------------------------- */

static void check_share_fails(const char *failures) {
    const gpuipc_share_config config = {
        .struct_size = sizeof(config), .flags = GPUIPC_SEND_ASYNC, .stream = producer};
    gpuipc_ticket made;
    core_set_failures(failures);
    check_status(GPUIPC_ERR_CUDA, make_ticket(&config, &made));
    core_set_failures("");
    check_ok(make_ticket(&config, &made));
}

Test(server_share, a_driver_that_marks_nothing_fails_the_share) {
    core_need_emulated();
    stream_gate_make();
    producer = stream_gate_stream();
    check_share_fails("cuEventCreate:1=999");
    check_share_fails("cuEventRecord:1=999");
    check_share_fails("cuStreamIsCapturing:1=999");
    check_share_fails("cuStreamGetCtx:1=999");
    core_set_captured(true, producer);
    const gpuipc_share_config config = {
        .struct_size = sizeof(config), .flags = GPUIPC_SEND_ASYNC, .stream = producer};
    gpuipc_ticket made;
    check_status(GPUIPC_ERR_CUDA, make_ticket(&config, &made));
    core_set_captured(false, NULL);
}

static void check_opening_fails(const gpuipc_ticket *of, const char *failures) {
    core_set_failures(failures);
    cr_assert_eq(asker_answer(&client, of), WIRE_FAILED, "%s", failures);
    core_set_failures("");
}

Test(server_share, a_driver_that_fails_in_the_server_fails_the_opening_alone) {
    size_t count = 99;
    core_need_emulated();
    stream_gate_make();
    producer = stream_gate_stream();
    const gpuipc_ticket ready = asker_share(server, shared);
    asker_begin(&client, other, &ready);
    check_opening_fails(&ready, "cuMemExportToShareableHandle:*=999");
    const gpuipc_ticket of = share_later();
    check_opening_fails(&of, "cuCtxPushCurrent:1=999");
    check_opening_fails(&of, "cuEventQuery:1=999");
    check_opening_fails(&of, "cuStreamCreate:1=999");
    check_opening_fails(&of, "cuStreamWaitEvent:1=999");
    stream_gate_open();
    stream_gate_synchronize(producer);
    check_ok(gpuipc_server_holders(server, &of, NULL, 0, &count));
    cr_assert_eq(count, 0);
    cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
    cr_assert_eq(asker_answer(&client, &ready), WIRE_GRANTED);
}

Test(server_share, what_failed_does_not_count_as_a_process) {
    const gpuipc_share_config config = {
        .struct_size = sizeof(config), .flags = GPUIPC_SHARE_ONE_SHOT, .max_processes = 1};
    gpuipc_ticket of;
    core_need_emulated();
    check_ok(make_ticket(&config, &of));
    asker_begin(&client, other, &of);
    check_opening_fails(&of, "cuMemExportToShareableHandle:*=999");
    cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
    check_ok(asker_confirm(&client, &of));
    cr_assert_eq(asker_answer(&client, &of), WIRE_USED_UP);
}

static void check_fails_here(const gpuipc_ticket *of, const char *failure, uint32_t flags) {
    const gpuipc_open_config how = {.struct_size = sizeof(how), .flags = flags};
    ask_for_pending(of);
    core_set_failures(failure);
    check_status(GPUIPC_ERR_CUDA,
                 offer_await(pending, view, &server_is_over, &how, os_deadline_after(SOON_MS)));
    core_set_failures("");
    settle_pending();
}

Test(server_share, a_wait_that_fails_here_fails_the_opening) {
    const gpuipc_share_config config = {.struct_size = sizeof(config), .flags = GPUIPC_SEND_ASYNC};
    gpuipc_ticket of;
    core_need_emulated();
    core_enter_device(0); /* so that there is a default stream */
    check_ok(make_ticket(&config, &of));
    check_fails_here(&of, "cuEventQuery:1=999", 0);
    check_fails_here(&of, "cuCtxPushCurrent:1=999", 0);
    check_fails_here(&of, "cuStreamWaitEvent:1=999", GPUIPC_RECEIVE_ASYNC);
    check_fails_here(&of, "cuCtxPushCurrent:1=999", GPUIPC_RECEIVE_ASYNC);
}

/* SPDX-License-Identifier: MIT */
/** @file A process that opens a ticket of its own: the buffer itself, without a way through the system. */
#include "core_fixture.h"
#include "stream_gate.h"

static gpuipc_context *other;
static gpuipc_server *server;

static void start(void) {
    gpuipc_context_config config;
    core_start();
    core_need_emulated();
    config = core_context_config();
    check_ok(gpuipc_context_create(&config, &other));
    check_ok(gpuipc_server_create(core_context, NULL, &server));
    core_set_failures("");
}

static void finish(void) {
    if (server != NULL) {
        core_set_failures("");
        check_ok(gpuipc_server_destroy(server));
        check_ok(gpuipc_context_destroy(other));
    }
    core_finish();
}

TestSuite(ticket_own, .init = start, .fini = finish, .timeout = 60);

static gpuipc_ticket share(gpuipc_buffer *own, gpuipc_share_config config) {
    gpuipc_ticket made;
    config.struct_size = sizeof(config);
    check_ok(gpuipc_buffer_share(server, own, &config, &made));
    return made;
}

static gpuipc_buffer *open_in(gpuipc_context *within, const gpuipc_ticket *wanted,
                              gpuipc_open_config config) {
    gpuipc_buffer *opened = NULL;
    config.struct_size = sizeof(config);
    check_ok(gpuipc_buffer_open(within, wanted, &config, &opened));
    return opened;
}

static gpuipc_buffer *make(gpuipc_transport kind) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = kind, .bytes = 2 * core_unit};
    gpuipc_buffer *made = NULL;
    gpuipc_status status = gpuipc_buffer_create(core_context, &config, &made);
    if (status == GPUIPC_ERR_NOT_SUPPORTED && kind == GPUIPC_TRANSPORT_POOL) {
        return NULL; /* Windows shares no pools */
    }
    check_ok(status);
    core_write_pattern(made, 11);
    return made;
}

static void drop(gpuipc_buffer *one) {
    check_ok(gpuipc_buffer_release(one));
}

Test(ticket_own, every_kind_of_memory_is_the_original_itself) {
    static const gpuipc_transport kinds[] = {GPUIPC_TRANSPORT_VMM, GPUIPC_TRANSPORT_POOL,
                                             GPUIPC_TRANSPORT_LEGACY, GPUIPC_TRANSPORT_HOST};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        gpuipc_buffer *own = make(kinds[i]);
        if (own == NULL) {
            continue;
        }
        const gpuipc_ticket wanted = share(own, (gpuipc_share_config){0});
        core_set_failures("");
        gpuipc_buffer *here = open_in(core_context, &wanted, (gpuipc_open_config){0});
        gpuipc_buffer *there = open_in(other, &wanted, (gpuipc_open_config){0});
        gpuipc_buffer *again = open_in(other, &wanted, (gpuipc_open_config){0});
        cr_assert_eq(core_calls("cuMemImportFromShareableHandle"), 0);
        cr_assert_eq(core_calls("cuMemSetAccess"), 0);
        cr_assert_eq(core_info(here).address, core_info(own).address);
        cr_assert_eq(core_info(there).address, core_info(own).address);
        cr_assert_eq(core_info(there).origin, GPUIPC_BUFFER_OPENED);
        cr_assert_neq(there, again);
        drop(here);
        drop(there);
        core_check_pattern(own, 11);
        drop(again);
        core_check_pattern(own, 11);
        check_ok(gpuipc_server_revoke(server, &wanted));
        drop(own);
    }
}

Test(ticket_own, a_range_and_less_than_all_access) {
    gpuipc_buffer *own = make(GPUIPC_TRANSPORT_VMM);
    const gpuipc_ticket wanted =
        share(own, (gpuipc_share_config){
                       .offset = core_unit, .bytes = core_unit, .access = GPUIPC_ACCESS_READ});
    gpuipc_ticket part;
    check_ok(gpuipc_ticket_narrow(&wanted, 256, 512, &part));
    gpuipc_buffer *opened = open_in(core_context, &wanted, (gpuipc_open_config){0});
    gpuipc_buffer *narrow = open_in(core_context, &part, (gpuipc_open_config){0});
    cr_assert_eq(core_info(opened).address, core_info(own).address + core_unit);
    cr_assert_eq(core_info(opened).bytes, core_unit);
    cr_assert_eq(core_info(narrow).address, core_info(own).address + core_unit + 256);
    cr_assert_eq(core_info(narrow).bytes, 512);
    check_status(GPUIPC_ERR_ACCESS_DENIED, gpuipc_buffer_fill_async(opened, 0, 4, 0, 1, NULL));
    check_status(GPUIPC_ERR_ACCESS_DENIED,
                 gpuipc_buffer_set_access(opened, 0, GPUIPC_ACCESS_READ_WRITE));
    check_ok(gpuipc_buffer_set_access(opened, 0, GPUIPC_ACCESS_READ));
    check_ok(gpuipc_buffer_fill_async(own, 0, 4, 0, 1, NULL)); /* nothing is taken from the owner */
    drop(opened);
    drop(narrow);
    drop(own);
}

Test(ticket_own, another_device_is_given_access_to_the_original) {
    core_need_devices(2);
    static const gpuipc_transport kinds[] = {GPUIPC_TRANSPORT_VMM, GPUIPC_TRANSPORT_POOL,
                                             GPUIPC_TRANSPORT_LEGACY, GPUIPC_TRANSPORT_HOST};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        gpuipc_buffer *own = make(kinds[i]);
        if (own == NULL) {
            continue;
        }
        const gpuipc_ticket wanted = share(own, (gpuipc_share_config){0});
        gpuipc_buffer *opened =
            open_in(other, &wanted, (gpuipc_open_config){.device = GPUIPC_DEVICE(1)});
        cr_assert_eq(core_info(opened).access_device, 1);
        cr_assert_eq(core_info(opened).address, core_info(own).address);
        core_check_pattern(opened, 11);
        drop(opened);
        core_check_pattern(own, 11);
        check_ok(gpuipc_server_revoke(server, &wanted));
        drop(own);
    }
}

Test(ticket_own, the_original_lives_as_long_as_it_is_open) {
    gpuipc_buffer *own = make(GPUIPC_TRANSPORT_VMM);
    const gpuipc_ticket wanted = share(own, (gpuipc_share_config){0});
    gpuipc_buffer *opened = open_in(other, &wanted, (gpuipc_open_config){0});
    check_ok(gpuipc_server_revoke(server, &wanted));
    drop(own);
    core_set_failures("");
    core_check_pattern(opened, 11);
    gpuipc_buffer *again = open_in(other, &wanted, (gpuipc_open_config){0}); /* asks nobody */
    drop(opened);
    cr_assert_eq(core_calls("cuMemUnmap"), 0);
    drop(again);
    cr_assert_eq(core_calls("cuMemUnmap"), 1);
    check_status(GPUIPC_ERR_TICKET_REVOKED, gpuipc_buffer_open(other, &wanted, NULL, &opened));
}

Test(ticket_own, what_was_attached_and_refusals_are_as_of_another_process) {
    static const char attached[] = "shape";
    gpuipc_buffer *own = make(GPUIPC_TRANSPORT_VMM);
    const gpuipc_ticket wanted = share(
        own, (gpuipc_share_config){
                 .bytes = core_unit, .attachment = attached, .attachment_bytes = sizeof(attached)});
    gpuipc_ticket wrong;
    gpuipc_buffer *opened = open_in(core_context, &wanted, (gpuipc_open_config){0});
    cr_assert_eq(core_info(opened).attachment_bytes, sizeof(attached));
    cr_assert_arr_eq(core_info(opened).attachment, attached, sizeof(attached));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_return_async(opened, NULL));
    drop(opened);
    const gpuipc_ticket all = share(own, (gpuipc_share_config){0});
    check_ok(gpuipc_ticket_narrow(&all, core_unit, core_unit, &wrong));
    opened = open_in(core_context, &wrong, (gpuipc_open_config){0});
    drop(opened);
    check_ok(gpuipc_server_revoke(server, &all));
    check_status(GPUIPC_ERR_TICKET_REVOKED, gpuipc_buffer_open(other, &wrong, NULL, &opened));
    drop(own);
}

Test(ticket_own, what_was_attached_comes_with_all_of_it_only) {
    static const char attached[] = "shape";
    gpuipc_buffer *own = make(GPUIPC_TRANSPORT_VMM);
    const gpuipc_ticket wanted = share(
        own, (gpuipc_share_config){
                 .bytes = core_unit, .attachment = attached, .attachment_bytes = sizeof(attached)});
    gpuipc_ticket part;
    gpuipc_buffer *opened = open_in(other, &wanted, (gpuipc_open_config){0});
    cr_assert_eq(core_info(opened).is_attachment_withheld, 0);
    check_ok(gpuipc_ticket_narrow(&wanted, 256, 512, &part));
    gpuipc_buffer *narrow = open_in(other, &part, (gpuipc_open_config){0});
    gpuipc_buffer *again = open_in(other, &part, (gpuipc_open_config){0});
    cr_assert_null(core_info(narrow).attachment);
    cr_assert_eq(core_info(narrow).attachment_bytes, 0);
    cr_assert_eq(core_info(narrow).is_attachment_withheld, 1);
    cr_assert_eq(core_info(again).is_attachment_withheld, 1);
    drop(opened);
    drop(narrow);
    drop(again);
    const gpuipc_ticket bare = share(own, (gpuipc_share_config){0});
    check_ok(gpuipc_ticket_narrow(&bare, 256, 512, &part));
    narrow = open_in(other, &part, (gpuipc_open_config){0});
    cr_assert_eq(core_info(narrow).is_attachment_withheld, 0);
    drop(narrow);
    drop(own);
}

Test(ticket_own, what_is_opened_so_can_be_sent_on) {
    gpuipc_buffer *own = make(GPUIPC_TRANSPORT_VMM);
    const gpuipc_ticket wanted = share(own, (gpuipc_share_config){0});
    gpuipc_buffer *opened = open_in(core_context, &wanted, (gpuipc_open_config){0});
    gpuipc_buffer *received = NULL;
    gpuipc_native_segment exported;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count = 0;
    core_pair pair;
    core_pair_open(&pair, core_context, other);
    check_ok(core_send(pair.server, &opened, 1));
    check_ok(core_receive(pair.client, &received, 1));
    core_check_pattern(received, 11);
    drop(received);
    check_ok(gpuipc_native_export(opened, &exported, 1, &layout, &count));
    os_handle mine;
    check_ok(os_handle_adopt(exported.handle.value, &mine));
    os_handle_close(&mine);
    drop(opened);
    core_pair_close(&pair);
    drop(own);
}

/* What was received and given back is not this process's any more, whatever it had been shared as. */
Test(ticket_own, what_was_given_back_is_opened_no_more) {
    gpuipc_buffer *own = make(GPUIPC_TRANSPORT_VMM);
    gpuipc_buffer *none = NULL;
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .buffers = &none,
                               .buffer_capacity = 1,
                               .flags = GPUIPC_RECEIVE_KEEP_HANDLES};
    core_pair pair;
    core_pair_open(&pair, core_context, core_context);
    check_ok(core_send(pair.server, &own, 1));
    check_ok(gpuipc_connection_receive(pair.client, &message, SOON_MS));
    gpuipc_buffer *received = none;
    const gpuipc_ticket wanted = share(received, (gpuipc_share_config){0});
    check_ok(gpuipc_buffer_return_async(received, NULL));
    none = NULL;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "returned to its exporter",
                  gpuipc_buffer_open(core_context, &wanted, NULL, &none));
    cr_assert_null(none);
    drop(received);
    core_pair_close(&pair);
    drop(own);
}

/* Nothing was ever given to the device, so there is nothing to wait for. */
Test(ticket_own, contents_of_a_device_that_was_not_used_are_there) {
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    const gpuipc_ticket wanted = share(own, (gpuipc_share_config){.flags = GPUIPC_SEND_ASYNC});
    cr_assert_eq(core_calls("cuEventRecord"), 0);
    gpuipc_buffer *opened = open_in(core_context, &wanted, (gpuipc_open_config){0});
    drop(opened);
    drop(own);
}

/* What is exported of a view of a view is exported of the memory, which must stay until it is returned. */
Test(ticket_own, what_is_exported_is_counted_on_the_memory_itself) {
    gpuipc_buffer *chain[3] = {make(GPUIPC_TRANSPORT_LEGACY)};
    gpuipc_buffer *received = NULL;
    core_pair pair;
    core_pair_open(&pair, core_context, other);
    for (size_t i = 0; i < 2; i++) {
        const gpuipc_ticket wanted = share(chain[i], (gpuipc_share_config){0});
        chain[i + 1] = open_in(core_context, &wanted, (gpuipc_open_config){0});
        check_ok(gpuipc_server_revoke(server, &wanted));
    }
    check_ok(core_send(pair.server, &chain[2], 1));
    cr_assert_eq(core_info(chain[0]).lent_count, 1);
    core_set_failures("");
    for (size_t i = 3; i > 0; i--) {
        drop(chain[i - 1]);
    }
    cr_assert_eq(core_calls("cuMemFree"), 0, "freed while a message brings it");
    check_ok(core_receive(pair.client, &received, 1));
    core_check_pattern(received, 11);
    drop(received);
    core_pair_close(&pair);
}

Test(ticket_own, a_view_of_what_came_home_keeps_it_imported) {
    gpuipc_buffer *own = make(GPUIPC_TRANSPORT_LEGACY);
    gpuipc_buffer *home = NULL;
    core_pair pair;
    core_pair_open(&pair, core_context, core_context);
    check_ok(core_send(pair.server, &own, 1));
    check_ok(core_receive(pair.client, &home, 1));
    const gpuipc_ticket wanted = share(home, (gpuipc_share_config){0});
    gpuipc_buffer *view = open_in(core_context, &wanted, (gpuipc_open_config){0});
    check_ok(gpuipc_server_revoke(server, &wanted));
    cr_assert_eq(core_info(view).address, core_info(own).address);
    drop(home);
    cr_assert_eq(core_info(own).lent_count, 1);
    check_ok(core_send(pair.server, &view, 1)); /* counted on the memory */
    cr_assert_eq(core_info(own).lent_count, 2);
    check_ok(core_receive(pair.client, &home, 1));
    drop(home);
    drop(view);
    cr_assert_eq(core_info(own).lent_count, 0);
    core_pair_close(&pair);
    drop(own);
}

Test(ticket_own, may_never_do_more_than_what_it_is_over) {
    gpuipc_buffer *own = make(GPUIPC_TRANSPORT_VMM);
    const gpuipc_ticket wanted = share(own, (gpuipc_share_config){0});
    gpuipc_buffer *opened = open_in(core_context, &wanted, (gpuipc_open_config){0});
    check_ok(gpuipc_buffer_set_access(own, 0, GPUIPC_ACCESS_READ));
    cr_assert_eq(core_info(opened).access, GPUIPC_ACCESS_READ);
    check_status(GPUIPC_ERR_ACCESS_DENIED, gpuipc_buffer_fill_async(opened, 0, 4, 0, 1, NULL));
    check_status(GPUIPC_ERR_ACCESS_DENIED,
                 gpuipc_buffer_set_access(opened, 0, GPUIPC_ACCESS_READ_WRITE));
    check_ok(gpuipc_buffer_set_access(own, 0, GPUIPC_ACCESS_READ_WRITE));
    check_ok(gpuipc_buffer_set_access(opened, 0, GPUIPC_ACCESS_READ_WRITE));
    check_ok(gpuipc_buffer_fill_async(opened, 0, 4, 0, 1, NULL));
    drop(opened);
    drop(own);
}

/* The view is over memory that another context of this process may only read. */
Test(ticket_own, another_device_is_given_no_more_than_its_owner_gave) {
    core_need_devices(2);
    gpuipc_server *second = NULL;
    gpuipc_ticket made;
    gpuipc_buffer *away = NULL;
    gpuipc_buffer *own = make(GPUIPC_TRANSPORT_VMM);
    const gpuipc_share_config all = {.struct_size = sizeof(all)};
    core_pair pair;
    core_pair_open(&pair, core_context, other);
    gpuipc_outgoing message = {.struct_size = sizeof(message),
                               .buffers = &own,
                               .buffer_count = 1,
                               .access = GPUIPC_ACCESS_READ};
    gpuipc_incoming wanted = {.struct_size = sizeof(wanted),
                              .buffers = &away,
                              .buffer_capacity = 1,
                              .flags = GPUIPC_RECEIVE_KEEP_HANDLES};
    check_ok(gpuipc_connection_send(pair.server, &message, SOON_MS));
    check_ok(gpuipc_connection_receive(pair.client, &wanted, SOON_MS));
    check_ok(gpuipc_server_create(other, NULL, &second));
    check_ok(gpuipc_buffer_share(second, away, &all, &made));
    gpuipc_buffer *opened = open_in(other, &made, (gpuipc_open_config){.device = GPUIPC_DEVICE(1)});
    cr_assert_eq(core_info(opened).access, GPUIPC_ACCESS_READ);
    core_enter_device(1);
    cr_assert_neq(core_driver()->cuMemsetD32Async(core_info(opened).address, 0, 1, NULL) |
                      core_driver()->cuStreamSynchronize(NULL),
                  CUDA_SUCCESS);
    drop(opened);
    check_ok(gpuipc_server_destroy(second));
    drop(away);
    core_pair_close(&pair);
    drop(own);
}

/* ---- contents that are not ready ----------------------------------------------------------- */

Test(ticket_own, contents_are_waited_for_by_the_stream_or_until_the_time_is_over) {
    gpuipc_buffer *own = make(GPUIPC_TRANSPORT_VMM);
    gpuipc_buffer *none = NULL;
    stream_gate_make();
    CUstream stream = stream_gate_stream();
    CUstream using = stream_gate_stream();
    const gpuipc_open_config late = {.struct_size = sizeof(late), .timeout_ms = 20};
    stream_gate_close(stream);
    const gpuipc_ticket wanted =
        share(own, (gpuipc_share_config){.flags = GPUIPC_SEND_ASYNC, .stream = stream});
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_open(core_context, &wanted, &late, &none));
    gpuipc_buffer *opened =
        open_in(core_context, &wanted,
                (gpuipc_open_config){.flags = GPUIPC_RECEIVE_ASYNC, .stream = using});
    stream_gate_check_waits(using);
    /* Who opens it again does not find what only a stream may use yet. */
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_open(core_context, &wanted, &late, &none));
    stream_gate_open();
    stream_gate_synchronize(using);
    gpuipc_buffer *again = open_in(core_context, &wanted, (gpuipc_open_config){0});
    drop(again);
    drop(opened);
    drop(own);
    stream_gate_stream_end(using);
    stream_gate_stream_end(stream);
    stream_gate_end();
}

Test(ticket_own, contents_are_waited_for_later_where_that_is_deferred) {
    const gpuipc_open_config deferred = {.flags = GPUIPC_RECEIVE_DEFERRED | GPUIPC_RECEIVE_ASYNC};
    gpuipc_buffer *own = make(GPUIPC_TRANSPORT_VMM);
    stream_gate_make();
    CUstream stream = stream_gate_stream();
    CUstream using = stream_gate_stream();
    stream_gate_close(stream);
    const gpuipc_ticket wanted =
        share(own, (gpuipc_share_config){.flags = GPUIPC_SEND_ASYNC, .stream = stream});
    gpuipc_buffer *unused = open_in(core_context, &wanted, deferred);
    gpuipc_buffer *opened = open_in(other, &wanted, deferred); /* another context of the process */
    cr_assert_eq(core_info(opened).is_ready, 0);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_ready(opened, 10));
    check_ok(gpuipc_buffer_await_ready_async(opened, using));
    stream_gate_check_waits(using);
    drop(unused); /* which nobody has waited for */
    stream_gate_open();
    stream_gate_synchronize(using);
    check_ok(gpuipc_buffer_await_ready(opened, SOON_MS));
    cr_assert_neq(core_info(opened).is_ready, 0);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_return_async(opened, using));
    drop(opened);
    drop(own);
    stream_gate_stream_end(using);
    stream_gate_stream_end(stream);
    stream_gate_end();
}

Test(ticket_own, what_promises_contents_for_later_may_fail) {
    static const char *const failing[] = {"cuStreamCreate:1=2", "cuStreamWaitEvent:1=2"};
    const gpuipc_open_config deferred = {.struct_size = sizeof(deferred),
                                         .flags = GPUIPC_RECEIVE_DEFERRED};
    gpuipc_buffer *own = make(GPUIPC_TRANSPORT_VMM);
    gpuipc_buffer *none = NULL;
    stream_gate_make();
    CUstream stream = stream_gate_stream();
    stream_gate_close(stream);
    const gpuipc_ticket wanted =
        share(own, (gpuipc_share_config){.flags = GPUIPC_SEND_ASYNC, .stream = stream});
    for (size_t i = 0; i < sizeof(failing) / sizeof(failing[0]); i++) {
        core_set_failures(failing[i]);
        check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY,
                     gpuipc_buffer_open(core_context, &wanted, &deferred, &none));
    }
    core_set_failures("");
    stream_gate_open();
    drop(own);
    stream_gate_stream_end(stream);
    stream_gate_end();
}

typedef struct own_call {
    gpuipc_ticket wanted;
    gpuipc_buffer *opened;
} own_call;

static gpuipc_status call_open(void *argument) {
    own_call *self = argument;
    return gpuipc_buffer_open(other, &self->wanted, NULL, &self->opened);
}

/* Starts to open a ticket of this process, whose contents are not there before stream_gate_open(). */
static gpuipc_buffer *start_unready(core_waiter *waiter, own_call *call, CUstream stream) {
    gpuipc_buffer *own = make(GPUIPC_TRANSPORT_VMM);
    stream_gate_close(stream);
    call->wanted = share(own, (gpuipc_share_config){.flags = GPUIPC_SEND_ASYNC, .stream = stream});
    core_waiter_start(waiter, call_open, call);
    return own;
}

Test(ticket_own, who_waits_for_contents_ends_with_the_context_or_the_server) {
    own_call call = {.opened = NULL};
    core_waiter waiter;
    stream_gate_make();
    CUstream stream = stream_gate_stream();
    gpuipc_buffer *own = start_unready(&waiter, &call, stream);
    check_ok(gpuipc_context_destroy(other));
    other = NULL;
    cr_assert_eq(core_waiter_end(&waiter), GPUIPC_ERR_RELEASED);
    stream_gate_open();
    drop(own);
    other = core_context_new();
    own = start_unready(&waiter, &call, stream);
    check_ok(gpuipc_server_destroy(server));
    server = NULL;
    cr_assert_eq(core_waiter_end(&waiter), GPUIPC_ERR_EXPORTER_GONE);
    stream_gate_open();
    stream_gate_synchronize(stream);
    drop(own);
    check_ok(gpuipc_context_destroy(other)); /* which is left to the test without a server */
    stream_gate_stream_end(stream);
    stream_gate_end();
}

/* ---- threads --------------------------------------------------------------------------------- */

enum {
    THREADS = 4,
    ROUNDS = 200
};

static gpuipc_ticket common[2];

/* All of them open and release the same two, so that some find what others are just giving up. */
static gpuipc_status open_and_release(void *argument) {
    gpuipc_status status = GPUIPC_OK;
    (void)argument;
    for (size_t i = 0; i < ROUNDS && status == GPUIPC_OK; i++) {
        gpuipc_buffer *opened = NULL;
        gpuipc_buffer_info info = {.struct_size = sizeof(info)};
        status = gpuipc_buffer_open(other, &common[i % 2], NULL, &opened);
        if (status == GPUIPC_OK && (status = gpuipc_buffer_get_info(opened, &info)) == GPUIPC_OK) {
            status = gpuipc_buffer_release(opened);
        }
    }
    return status;
}

Test(ticket_own, threads_open_and_release_at_once) {
    gpuipc_buffer *own = make(GPUIPC_TRANSPORT_VMM);
    core_waiter threads[THREADS];
    common[0] = share(own, (gpuipc_share_config){0});
    common[1] = share(own, (gpuipc_share_config){.offset = core_unit});
    for (size_t i = 0; i < THREADS; i++) {
        core_waiter_begin(&threads[i], open_and_release, NULL);
    }
    for (size_t i = 0; i < THREADS; i++) {
        cr_assert_eq(core_waiter_end(&threads[i]), GPUIPC_OK);
    }
    core_check_pattern(own, 11);
    drop(own);
}

/* SPDX-License-Identifier: MIT */
/** @file Hand-overs that are not returned: counted, waited for, and over with the process that has them. What
 *  a stream writes late. Both ends are in this process. */
#include "sync/export_record.h"

#include "emulated.h"
#include "memory/buffer.h"
#include "message/connection.h"
#include "stream_gate.h"
#include "sync/deferred.h"

static context *ctx;
static core_pair pair;
static gpuipc_buffer *sent;
static CUstream producer;
static CUstream consumer;
static connection *to;       /* the end that exports, where a test looks into it */
static point_peer *own_peer; /* of the test's making */

static void connection_of_pair(void) {
    if (to == NULL) {
        check_ok(connection_acquire(pair.client, &to));
    }
}

static void begin(void) {
    core_start();
    stream_gate_make();
    check_ok(context_acquire(core_context, &ctx));
    producer = stream_gate_stream();
    consumer = stream_gate_stream();
    core_pair_open(&pair, core_context, core_context);
    sent = core_buffer(core_unit, 0);
}

static void finish(void) {
    stream_gate_open(); /* also after a failure */
    (void)gpuipc_buffer_release(sent);
    connection_unreference(to);
    core_pair_close(&pair);
    point_peer_unreference(own_peer, false);
    stream_gate_stream_end(producer);
    stream_gate_stream_end(consumer);
    context_unreference(ctx);
    stream_gate_end();
    core_finish();
}

TestSuite(export_record, .init = begin, .fini = finish, .timeout = 60);

static gpuipc_buffer *hand_over(const core_pair *by, gpuipc_buffer *handed) {
    gpuipc_buffer *opened = NULL;
    check_ok(core_send(by->client, &handed, 1));
    check_ok(core_receive(by->server, &opened, 1));
    return opened;
}

static uint32_t unreturned(gpuipc_buffer *handed) {
    return core_info(handed).lent_count;
}

static gpuipc_status await_for_ever(void *argument) {
    return gpuipc_buffer_await_returns(argument, -1);
}

Test(export_record, each_counts_until_it_is_returned_in_whatever_order) {
    enum {
        MANY = 11
    };
    static const int order[MANY] = {5, 0, 10, 1, 9, 2, 8, 3, 7, 4, 6};
    gpuipc_buffer *opened[MANY];
    for (int round = 0; round < 2; round++) {
        cr_assert_eq(unreturned(sent), 0);
        for (uint32_t i = 0; i < MANY; i++) {
            opened[i] = hand_over(&pair, sent);
            cr_assert_eq(unreturned(sent), i + 1);
        }
        for (uint32_t i = 0; i < MANY; i++) {
            if (i % 2 == 0) { /* by a stream, and then again by the release */
                check_ok(gpuipc_buffer_return_async(opened[order[i]], consumer));
                stream_gate_synchronize(consumer);
                cr_assert_eq(unreturned(sent), MANY - i - 1);
            }
            check_status(i + 1 < MANY || i % 2 != 0 ? GPUIPC_ERR_TIMEOUT : GPUIPC_OK,
                         gpuipc_buffer_await_returns(sent, 0));
            check_ok(gpuipc_buffer_release(opened[order[i]]));
            cr_assert_eq(unreturned(sent), MANY - i - 1);
        }
        check_ok(gpuipc_buffer_await_returns(sent, 0));
    }
}

/* ---- the end of the process that has it ------------------------------------------------------ */

/* Gives the connection a peer of the test's. @param until the end of which it lives; NULL: for ever, or never */
static void set_peer(const os_peer *peer, os_connection *until) {
    connection_of_pair();
    check_ok(point_peer_new(ctx, peer, until, &own_peer));
    check_ok(export_table_new(ctx, own_peer, &to->exports));
}

/* The system cannot say whether it lives, so the connection's end is its end. */
static void set_peer_that_ends_with_the_connection(void) {
    const os_peer peer = {.process_id = os_process_id(), .process = {-1}};
    connection_of_pair();
    set_peer(&peer, to->os);
}

static void peer_ends(void) {
    check_ok(gpuipc_connection_close(pair.server));
    pair.server = NULL;
}

/* Clients that end right after their connections, beside one that lives and holds much: what they leave does not
 * grow with their number. */
Test(export_record, what_dead_clients_leave_does_not_grow) {
    enum {
        HELD = 1000,
        DEAD = 400
    };
    const os_peer dead = {.process_id = 0x3FFFFFFF, .process = {-1}};
    buffer *exporter;
    export_table *held;
    export_record *one;
    point_peer *gone;
    point at;
    size_t most = 0;
    check_ok(buffer_acquire(sent, &exporter));
    connection_of_pair();
    check_ok(export_table_new(ctx, to->other_end, &held));
    for (int i = 0; i < HELD; i++) {
        check_ok(export_begin(held, &exporter->exports, &one, &at));
    }
    check_ok(point_peer_new(ctx, &dead, NULL, &gone));
    for (int i = 0; i < DEAD; i++) {
        export_table *table;
        check_ok(export_table_new(ctx, gone, &table));
        check_ok(export_begin(table, &exporter->exports, &one, &at));
        export_table_leave(table, false, false);
        const size_t left = exporter->exports.unreturned.count - HELD;
        most = left > most ? left : most;
    }
    cr_assert_leq(most, 2, "%zu", most);
    export_forget(&exporter->exports, false);
    export_table_leave(held, false, false);
    point_peer_unreference(gone, false);
    buffer_unreference(exporter);
}

/* Over a connection that is new, and is over then: both look at those that are over. */
static void export_to_another(void) {
    core_pair next;
    core_pair_open(&next, core_context, core_context);
    check_ok(gpuipc_buffer_release(hand_over(&next, sent)));
    core_pair_close(&next);
}

/* Marks and loans go over its first page for as long, also when the buffer itself is gone here. */
Test(export_record, a_connection_that_is_over_is_known_while_the_peer_has_something_open) {
    gpuipc_buffer *handed = core_buffer(core_unit, 0);
    gpuipc_buffer *opened = hand_over(&pair, handed);
    check_ok(gpuipc_connection_close(pair.client));
    pair.client = NULL;
    check_ok(gpuipc_buffer_release(handed));
    for (int i = 0; i < 3; i++) {
        export_to_another();
        cr_assert_eq(ctx->points->left.count, 1);
    }
    check_ok(gpuipc_buffer_release(opened));
    export_to_another();
    cr_assert_eq(ctx->points->left.count, 0);
}

/* ---- points ------------------------------------------------------------------------------------ */

Test(export_record, a_point_is_given_out_once_until_it_is_released_and_written) {
    static bool seen[POINT_COUNT + 8];
    buffer *exporter;
    export_table *table;
    export_record *one;
    point taken[POINT_COUNT];
    point again;
    point_word passage;
    check_ok(buffer_acquire(sent, &exporter));
    connection_of_pair();
    check_ok(export_table_new(ctx, to->other_end, &table));
    for (uint32_t i = 0; i < POINT_COUNT; i++) {
        check_ok(export_begin(table, &exporter->exports, &one, &taken[i]));
        cr_assert_not(seen[taken[i].index], "point %u twice", taken[i].index);
        cr_assert_eq(taken[i].page, taken[0].page);
        seen[taken[i].index] = true;
    }
    check_ok(
        passage_take(ctx, taken[0].page, &passage)); /* a stream has still to write the last one */
    export_set_written(one, &taken[POINT_COUNT - 1], &passage);
    const point_word returned = point_returned_word(&taken[77]);
    const point_word released = point_released_word(&taken[77]);
    const point_word last = point_released_word(&taken[POINT_COUNT - 1]);
    point_store(&returned);
    point_store(&last);
    cr_assert_eq(export_count(&exporter->exports), POINT_COUNT - 1,
                 "the last is found, the other when it is looked at");
    export_settle_all(ctx);
    cr_assert_eq(export_count(&exporter->exports), POINT_COUNT - 2);
    check_ok(export_begin(table, &exporter->exports, &one, &again));
    cr_assert_neq(again.page, taken[0].page,
                  "one is still open over there, one has still to be written");
    point_store(&released);
    passage_cancel(&passage);
    export_settle_all(ctx);
    for (int i = 0; i < 2; i++) { /* what is free is taken first */
        check_ok(export_begin(table, &exporter->exports, &one, &again));
        cr_assert_eq(again.page, taken[0].page);
        cr_assert(again.index == taken[77].index || again.index == taken[POINT_COUNT - 1].index);
        cr_assert_eq(again.value, taken[77].value + 2);
    }
    export_forget(&exporter->exports, false);
    export_table_leave(table, false, false);
    buffer_unreference(exporter);
}

/* So many pages and no more: then the call says so, and nothing is noted. */
Test(export_record, there_is_a_limit_to_what_is_not_returned) {
    buffer *exporter;
    export_table *table;
    export_record *one;
    point at;
    check_ok(buffer_acquire(sent, &exporter));
    connection_of_pair();
    check_ok(export_table_new(ctx, to->other_end, &table));
    for (uint32_t i = 0; i < POINT_PAGES_MAX * POINT_COUNT; i++) {
        check_ok(export_begin(table, &exporter->exports, &one, &at));
    }
    check_refused(GPUIPC_ERR_LIMIT, "are not returned",
                  export_begin(table, &exporter->exports, &one, &at));
    cr_assert_eq(exporter->exports.unreturned.count, POINT_PAGES_MAX * POINT_COUNT);
    export_cancel(one, &at);
    check_ok(export_begin(table, &exporter->exports, &one, &at));
    export_forget(&exporter->exports, false);
    export_table_leave(table, false, false);
    buffer_unreference(exporter);
}

/* ---- the end of a process -------------------------------------------------------------------- */

Test(export_record, a_process_that_is_gone_has_returned_all) {
    const os_peer dead = {.process_id = 0x3FFFFFFF, .process = {-1}};
    set_peer(&dead, NULL);
    for (int i = 0; i < 3; i++) {
        check_ok(core_send(pair.client, &sent, 1));
        cr_assert_eq(unreturned(sent), 0);
    }
    check_ok(gpuipc_buffer_await_returns(sent, 0));
    check_ok(gpuipc_buffer_await_returns_async(sent, producer));
    cr_assert_eq(core_driver()->cuStreamQuery(producer), CUDA_SUCCESS);
}

Test(export_record, the_end_of_a_process_returns_what_it_has_open) {
    set_peer_that_ends_with_the_connection();
    gpuipc_buffer *opened = hand_over(&pair, sent);
    cr_assert_eq(unreturned(sent), 1);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(sent, 0));
    core_waiter waiter;
    core_waiter_start(&waiter, await_for_ever, sent);
    check_ok(gpuipc_buffer_await_returns_async(sent, producer));
    stream_gate_check_waits(producer);
    peer_ends();
    check_ok(core_waiter_end(&waiter));
    stream_gate_synchronize(producer);
    cr_assert_eq(unreturned(sent), 0);
    check_ok(gpuipc_buffer_release(opened));
}

/* ---- buffers that have come home -------------------------------------------------------------- */

static gpuipc_buffer *make(gpuipc_transport transport) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = transport, .bytes = core_unit};
    gpuipc_buffer *made = NULL;
    check_ok(gpuipc_buffer_create(core_context, &config, &made));
    return made;
}

/* A server's thread does a part of it, and the rest in turn with what others ask. */
Test(export_record, what_a_peer_did_not_take_in_goes_however_much_it_is) {
    enum {
        MANY = 3000
    };
    export_table *table;
    size_t to_look = 0;
    buffer *of;
    connection_of_pair();
    check_ok(buffer_acquire(sent, &of));
    check_ok(export_table_new(ctx, to->other_end, &table));
    for (int i = 0; i < MANY; i++) {
        export_record *one;
        point at;
        check_ok(export_begin(table, &of->exports, &one, &at));
    }
    check_ok(gpuipc_connection_close(pair.server));
    pair.server = NULL;
    export_table_leave(table, true, false);
    cr_assert_eq(ctx->points->left.count, 1, "it is too much at once");
    export_look_on(ctx, &to_look);
    for (int i = 0; i < MANY && to_look > 0; i++) {
        export_look_on(ctx, &to_look);
    }
    cr_assert_eq(ctx->points->left.count, 0);
    cr_assert_eq(to_look, 0);
    buffer_unreference(of);
}

Test(export_record, a_stream_waits_for_the_hand_overs_of_what_came_home_alone) {
    core_pair other;
    gpuipc_buffer *original = make(GPUIPC_TRANSPORT_LEGACY);
    core_pair_open(&other, core_context, core_context);
    gpuipc_buffer *home = hand_over(&pair, original);
    check_ok(gpuipc_buffer_await_returns_async(home, consumer)); /* it was not handed on */
    cr_assert_eq(core_driver()->cuStreamQuery(consumer), CUDA_SUCCESS);
    gpuipc_buffer *away = hand_over(&other, home);
    cr_assert_eq(unreturned(home), 1);
    cr_assert_eq(unreturned(original), 2);
    check_ok(gpuipc_buffer_await_returns_async(home, consumer));
    check_ok(gpuipc_buffer_await_returns_async(original, producer));
    stream_gate_check_waits(consumer);
    check_ok(gpuipc_buffer_release(away));
    stream_gate_synchronize(consumer);
    stream_gate_check_waits(producer);
    cr_assert_eq(unreturned(home), 0);
    cr_assert_eq(unreturned(original), 1);
    check_ok(gpuipc_buffer_release(home));
    stream_gate_synchronize(producer);
    check_ok(gpuipc_buffer_await_returns(original, 0));
    check_ok(gpuipc_buffer_release(original));
    core_pair_close(&other);
}

/* The next one may be made at its address: of many, some are. */
Test(export_record, what_came_home_and_was_released_leaves_its_hand_overs_to_the_original) {
    enum {
        MANY = 24
    };
    core_pair other;
    gpuipc_buffer *original = make(GPUIPC_TRANSPORT_LEGACY);
    gpuipc_buffer *home[MANY];
    gpuipc_buffer *away = NULL;
    core_pair_open(&other, core_context, core_context);
    for (int i = 0; i < MANY; i++) {
        home[i] = hand_over(&pair, original);
        check_ok(core_send(other.client, &home[i], 1)); /* on its way, it holds no buffer here */
        cr_assert_eq(unreturned(home[i]), 1);
    }
    for (int i = 0; i < MANY; i++) {
        check_ok(gpuipc_buffer_release(home[i]));
    }
    cr_assert_eq(unreturned(original), MANY);
    for (int i = 0; i < MANY; i++) {
        home[i] = hand_over(&pair, original);
        cr_assert_eq(unreturned(home[i]), 0);
        check_ok(gpuipc_buffer_await_returns(home[i], 0));
    }
    for (int i = 0; i < MANY; i++) {
        check_ok(gpuipc_buffer_release(home[i]));
        check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(original, 0));
        check_ok(core_receive(other.server, &away, 1));
        check_ok(gpuipc_buffer_release(away));
    }
    check_ok(gpuipc_buffer_await_returns(original, 0));
    check_ok(gpuipc_buffer_release(original));
    core_pair_close(&other);
}

/* Memory that ends with its owner: that it may be written again does not say that it is closed. */
Test(export_record, what_is_returned_is_outstanding_until_it_is_released) {
    gpuipc_buffer *made = make(GPUIPC_TRANSPORT_LEGACY);
    gpuipc_buffer *opened = hand_over(&pair, made);
    buffer *self;
    check_ok(buffer_acquire(made, &self));
    cr_assert(export_is_outstanding(&self->exports));
    check_ok(gpuipc_buffer_return_async(opened, consumer));
    stream_gate_synchronize(consumer);
    cr_assert_eq(unreturned(made), 0);
    check_ok(gpuipc_buffer_await_returns(made, 0));
    cr_assert(export_is_outstanding(&self->exports));
    check_ok(gpuipc_buffer_release(opened));
    cr_assert_not(export_is_outstanding(&self->exports));
    buffer_unreference(self);
    check_ok(gpuipc_buffer_release(made));
}

/* ---- what a stream writes late ---------------------------------------------------------------- */

static bool exists(CUdeviceptr address) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    return core_driver()->cuMemGetAddressRange(&base, &bytes, address) == CUDA_SUCCESS;
}

/* Returned on a stream, and released before the stream came there. */
Test(export_record, a_release_leaves_the_word_to_the_stream) {
    gpuipc_buffer *opened = hand_over(&pair, sent);
    stream_gate_close(consumer);
    check_ok(gpuipc_buffer_return_async(opened, consumer));
    check_ok(gpuipc_buffer_release(opened));
    cr_assert_eq(unreturned(sent), 1);
    gpuipc_buffer *next = hand_over(&pair, sent);
    check_ok(gpuipc_buffer_release(next));
    cr_assert_eq(unreturned(sent), 1);
    stream_gate_open();
    stream_gate_synchronize(consumer);
    cr_assert_eq(unreturned(sent), 0);
}

/* Where the exporter may free only what is closed, the release has a word of its own, behind the stream's: one
 * over the other, and the memory would be reused under the stream, or never. */
Test(export_record, a_release_is_told_behind_the_streams_word) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    gpuipc_buffer *original = make(GPUIPC_TRANSPORT_LEGACY);
    const CUdeviceptr address = core_info(original).address;
    gpuipc_buffer *opened = hand_over(&pair, original);
    stream_gate_close(consumer);
    check_ok(gpuipc_buffer_return_async(opened, consumer));
    check_ok(gpuipc_buffer_release(opened));
    cr_assert_eq(unreturned(original), 1);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(original, 0));
    check_ok(gpuipc_buffer_release(original));
    cr_assert(exists(address));
    stream_gate_open();
    stream_gate_synchronize(consumer);
    while (exists(address)) {
        cr_assert_not(os_deadline_passed(deadline), "the memory is never freed");
        os_sleep_ms(1);
        check_ok(gpuipc_buffer_await_returns(sent, 0)); /* looks after what lingers */
    }
}

/* ---- the default streams of several devices --------------------------------------------------- */

/* Streams and events, which an end of the CUDA context would take along unseen. */
static uint64_t live_marks(void) {
    void *symbol = os_library_symbol(core_driver()->library, GPUIPC_EMULATED_LIVE);
    gpuipc_emulated_live_fn get_live;
    gpuipc_emulated_live live;
    cr_assert_not_null(symbol);
    memcpy(&get_live, &symbol, sizeof(get_live));
    get_live(&live);
    return live.streams + live.events;
}

/* The default stream of a device, until the gate opens. */
static void keep_busy(int ordinal) {
    const driver *drv = core_driver();
    CUcontext primary;
    cr_assert_eq(drv->cuDevicePrimaryCtxRetain(&primary, ordinal), CUDA_SUCCESS);
    cr_assert_eq(drv->cuCtxPushCurrent(primary), CUDA_SUCCESS);
    stream_gate_close(NULL);
    cr_assert_eq(drv->cuCtxPopCurrent(&primary), CUDA_SUCCESS);
    cr_assert_eq(drv->cuDevicePrimaryCtxRelease(ordinal), CUDA_SUCCESS);
}

/* One word for all of them takes a stream and an event for each. */
Test(export_record, joining_default_streams_may_fail) {
    static const char *const failures[] = {
        "cuStreamCreate:1=2",      "cuEventCreate:1=2",    "cuEventCreate:2=999",
        "cuEventRecord:1=999",     "cuEventRecord:2=999",  "cuStreamWaitEvent:1=999",
        "cuStreamWaitEvent:2=999", "cuCtxPushCurrent:1=2", "cuStreamBatchMemOp:1=999"};
    core_need_emulated();
    core_need_devices(2);
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(1), .bytes = core_unit};
    gpuipc_buffer *buffers[2] = {sent, NULL};
    gpuipc_buffer *opened[2];
    check_ok(gpuipc_buffer_create(core_context, &config, &buffers[1]));
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = buffers,
                                     .buffer_count = 2,
                                     .flags = GPUIPC_SEND_ASYNC};
    for (int i = 0; i < 2; i++) {
        keep_busy(i);
        check_ok(gpuipc_buffer_fill_async(buffers[i], 0, core_unit, 1, 4, NULL));
    }
    const uint64_t marks = live_marks();
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        core_set_failures(failures[i]);
        gpuipc_status status = gpuipc_connection_send(pair.client, &message, SOON_MS);
        core_set_failures("");
        cr_assert(status == GPUIPC_ERR_CUDA || status == GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, "%s: %s",
                  failures[i], gpuipc_status_name(status));
        for (int k = 0; k < 2; k++) {
            cr_assert_eq(unreturned(buffers[k]), 0, "%s", failures[i]);
        }
        cr_assert_eq(live_marks(), marks, "%s", failures[i]);
    }
    core_set_failures("");
    check_ok(gpuipc_connection_send(pair.client, &message, SOON_MS)); /* as good as the first */
    cr_assert_eq(core_calls("cuStreamCreate"), 1, "they were joined");
    cr_assert_eq(core_calls("cuStreamWaitEvent"), 2);
    cr_assert_eq(live_marks(), marks);
    stream_gate_open();
    check_ok(core_receive(pair.server, opened, 2));
    for (int i = 0; i < 2; i++) {
        check_ok(gpuipc_buffer_release(opened[i]));
    }
    check_ok(gpuipc_buffer_release(buffers[1]));
}

/* The peer has the page, and may give a point back before anything that it stands for was sent. */
Test(export_record, what_was_given_back_meanwhile_is_not_cancelled) {
    buffer *of;
    export_record *record = NULL;
    point at;
    core_need_emulated();
    connection_of_pair();
    check_ok(gpuipc_buffer_release(hand_over(&pair, sent))); /* so that there is a page */
    check_ok(buffer_acquire(sent, &of));
    check_ok(export_begin(to->exports, &of->exports, &record, &at));
    cr_assert_eq(unreturned(sent), 1);
    const point_word released = point_released_word(&at);
    point_store(&released);
    cr_assert_eq(unreturned(sent), 0);
    point again; /* the same place, for another hand-over */
    export_record *same = NULL;
    const point_word passed = POINT_PASSED;
    check_ok(export_begin(to->exports, &of->exports, &same, &again));
    cr_assert_eq(same, record);
    export_set_written(record, &at, &passed);
    export_cancel(record, &at);
    cr_assert_eq(unreturned(sent), 1, "what is over is nobody's to cancel");
    export_cancel(same, &again);
    cr_assert_eq(unreturned(sent), 0);
    buffer_unwind(of);
}

/* Whoever was never sent anything has no page that words could be stored in. */
Test(export_record, marks_leave_out_who_was_sent_nothing) {
    const os_peer nobody = {.process_id = 0x3FFFFFFF, .process = {-1}};
    point_words words;
    set_peer(&nobody, NULL);
    cr_assert_null(export_table_unsent(to->exports));
    check_ok(export_copy_words(ctx, 1, 1, &words));
    cr_assert_eq(words.count, 0);
    point_words_destroy(&words, false);
    export_store_words(ctx, 1, 1);
}

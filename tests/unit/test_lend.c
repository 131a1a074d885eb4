/* SPDX-License-Identifier: MIT */
/** @file Hand-overs that are not returned: counted, waited for, and over with the process that has them. What
 *  a stream writes late. Both ends are in this process. */
#include "lend.h"

#include "buffer.h"
#include "connection.h"
#include "emulated.h"
#include "point_internal.h"
#include "stream_gate.h"

static context *ctx;
static core_pair pair;
static gpuipc_buffer *sent;
static CUstream producer;
static CUstream consumer;

static void begin(void) {
    core_start();
    stream_gate_make();
    check_ok(context_acquire(core_context, "test", &ctx));
    producer = stream_gate_stream();
    consumer = stream_gate_stream();
    core_pair_open(&pair, core_context, core_context);
    sent = core_buffer(core_unit, 0);
}

static void finish(void) {
    stream_gate_open(); /* also after a failure */
    (void)gpuipc_buffer_release(sent);
    core_pair_close(&pair);
    stream_gate_stream_end(producer);
    stream_gate_stream_end(consumer);
    context_unreference(ctx);
    stream_gate_end();
    core_finish();
}

TestSuite(lend, .init = begin, .fini = finish, .timeout = 60);

static gpuipc_buffer *hand_over(const core_pair *by, gpuipc_buffer *handed) {
    gpuipc_buffer *opened = NULL;
    check_ok(core_send(by->client, &handed, 1));
    check_ok(core_receive(by->server, &opened, 1));
    return opened;
}

static uint32_t lent(gpuipc_buffer *handed) {
    return core_info(handed).lent_count;
}

static gpuipc_status await_for_ever(void *argument) {
    return gpuipc_buffer_await_returns(argument, -1);
}

static gpuipc_status await_on_producer(void *argument) {
    return gpuipc_buffer_await_returns_async(argument, producer);
}

Test(lend, each_counts_until_it_is_returned_in_whatever_order) {
    enum {
        MANY = 11
    };
    static const int order[MANY] = {5, 0, 10, 1, 9, 2, 8, 3, 7, 4, 6};
    gpuipc_buffer *opened[MANY];
    for (int round = 0; round < 2; round++) {
        cr_assert_eq(lent(sent), 0);
        for (uint32_t i = 0; i < MANY; i++) {
            opened[i] = hand_over(&pair, sent);
            cr_assert_eq(lent(sent), i + 1);
        }
        for (uint32_t i = 0; i < MANY; i++) {
            if (i % 2 == 0) { /* by a stream, and then again by the release */
                check_ok(gpuipc_buffer_return_async(opened[order[i]], consumer));
                stream_gate_synchronize(consumer);
                cr_assert_eq(lent(sent), MANY - i - 1);
            }
            check_status(i + 1 < MANY || i % 2 != 0 ? GPUIPC_ERR_TIMEOUT : GPUIPC_OK,
                         gpuipc_buffer_await_returns(sent, 0));
            check_ok(gpuipc_buffer_release(opened[order[i]]));
            cr_assert_eq(lent(sent), MANY - i - 1);
        }
        check_ok(gpuipc_buffer_await_returns(sent, 0));
    }
}

/* ---- the end of the process that has it ------------------------------------------------------ */

/* Gives the connection the page that its first buffer would have made, with a peer of the test's. */
static void set_peer(const os_peer *peer, bool ends_with_connection) {
    connection *to;
    check_ok(connection_acquire(pair.client, "test", &to));
    check_ok(point_page_create(ctx, peer, &to->points_out));
    if (ends_with_connection) {
        point_page_set_connection(to->points_out, to->os);
    }
    connection_unreference(to);
}

/* The system cannot say whether it lives, so the connection's end is its end. */
static void set_peer_that_ends_with_the_connection(void) {
    const os_peer peer = {.process_id = os_process_id(), .process = {-1}};
    set_peer(&peer, true);
}

static void peer_ends(void) {
    check_ok(gpuipc_connection_close(pair.server));
    pair.server = NULL;
}

/* There is none left, as if so many had been lent. */
static void take_every_point(void) {
    connection *to;
    point taken;
    check_ok(connection_acquire(pair.client, "test", &to));
    while (point_take(to->points_out, &taken)) {
    }
    connection_unreference(to);
}

/* Clients that end right after their connections, beside one that lives and holds much: what they leave does not
 * grow with their number. */
Test(lend, what_dead_clients_leave_does_not_grow) {
    enum {
        HELD = 1000,
        DEAD = 400
    };
    const os_peer dead = {.process_id = 0x3FFFFFFF, .process = {-1}};
    os_peer living;
    buffer *lender;
    point_page *held;
    connection *end;
    uint32_t most = 0;
    check_ok(buffer_acquire(sent, "test", &lender));
    check_ok(connection_acquire(pair.client, "test", &end));
    living = end->peer;
    check_ok(point_page_create(ctx, &living, &held));
    for (int i = 0; i < HELD; i++) {
        point at;
        cr_assert(point_take(held, &at));
        check_ok(lend_add(lender, held, &at));
    }
    for (int i = 0; i < DEAD; i++) {
        point_page *page;
        point at;
        check_ok(point_page_create(ctx, &living, &page));
        cr_assert(point_take(page, &at));
        point_collect_some(ctx);
        check_ok(lend_add(lender, page, &at));
        point_page_leave(page);
        os_handle_close(&page->peer.process); /* a little later it ends */
        page->peer = dead;
        point_page_unreference(page, false);
        point_collect_more(ctx);
        const uint32_t left = lender->lends.count - HELD;
        most = left > most ? left : most;
    }
    cr_assert_leq(most, HELD / 32, "%u", most);
    for (int i = 0; i < HELD / 64 + 1; i++) {
        point_collect_more(ctx);
    }
    cr_assert_eq(lender->lends.count, HELD);
    lend_clear(lender, false);
    point_page_unreference(held, false);
    connection_unreference(end);
    buffer_unreference(lender);
}

Test(lend, a_process_that_is_gone_has_returned_all) {
    const os_peer dead = {.process_id = 0x3FFFFFFF, .process = {-1}};
    set_peer(&dead, false);
    for (int i = 0; i < 3; i++) {
        check_ok(core_send(pair.client, &sent, 1));
        cr_assert_eq(lent(sent), 0);
    }
    check_ok(gpuipc_buffer_await_returns(sent, 0));
    check_ok(gpuipc_buffer_await_returns_async(sent, producer));
    cr_assert_eq(core_driver()->cuStreamQuery(producer), CUDA_SUCCESS);
}

Test(lend, the_end_of_a_process_returns_what_it_has_open) {
    set_peer_that_ends_with_the_connection();
    gpuipc_buffer *opened = hand_over(&pair, sent);
    cr_assert_eq(lent(sent), 1);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(sent, 0));
    core_waiter waiter;
    core_waiter_start(&waiter, await_for_ever, sent);
    check_ok(gpuipc_buffer_await_returns_async(sent, producer));
    stream_gate_check_waits(producer);
    peer_ends();
    check_ok(core_waiter_end(&waiter));
    stream_gate_synchronize(producer);
    cr_assert_eq(lent(sent), 0);
    check_ok(gpuipc_buffer_release(opened));
}

/* ---- without a point ------------------------------------------------------------------------- */

Test(lend, without_a_point_only_the_end_of_the_process_tells) {
    set_peer_that_ends_with_the_connection();
    gpuipc_buffer *with = hand_over(&pair, sent);
    take_every_point();
    gpuipc_buffer *without = hand_over(&pair, sent);
    cr_assert_eq(lent(sent), 2);
    check_ok(gpuipc_buffer_release(without));
    cr_assert_eq(lent(sent), 2);
    check_ok(gpuipc_buffer_release(with));
    cr_assert_eq(lent(sent), 1, "the one that has a point");
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(sent, 0));
    core_waiter waiter;
    core_waiter_start(&waiter, await_on_producer, sent); /* there is no word for a stream */
    cr_assert_eq(core_driver()->cuStreamQuery(producer), CUDA_SUCCESS);
    peer_ends();
    check_ok(core_waiter_end(&waiter));
    check_ok(gpuipc_buffer_await_returns(sent, 0));
    cr_assert_eq(lent(sent), 0);
}

/* ---- buffers that have come home -------------------------------------------------------------- */

static gpuipc_buffer *make(gpuipc_transport transport) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = transport, .bytes = core_unit};
    gpuipc_buffer *made = NULL;
    check_ok(gpuipc_buffer_create(core_context, &config, &made));
    return made;
}

Test(lend, a_stream_waits_for_the_hand_overs_of_what_came_home_alone) {
    core_pair other;
    gpuipc_buffer *original = make(GPUIPC_TRANSPORT_LEGACY);
    core_pair_open(&other, core_context, core_context);
    gpuipc_buffer *home = hand_over(&pair, original);
    check_ok(gpuipc_buffer_await_returns_async(home, consumer)); /* it was not lent on */
    cr_assert_eq(core_driver()->cuStreamQuery(consumer), CUDA_SUCCESS);
    gpuipc_buffer *away = hand_over(&other, home);
    cr_assert_eq(lent(home), 1);
    cr_assert_eq(lent(original), 2);
    check_ok(gpuipc_buffer_await_returns_async(home, consumer));
    check_ok(gpuipc_buffer_await_returns_async(original, producer));
    stream_gate_check_waits(consumer);
    check_ok(gpuipc_buffer_release(away));
    stream_gate_synchronize(consumer);
    stream_gate_check_waits(producer);
    cr_assert_eq(lent(home), 0);
    cr_assert_eq(lent(original), 1);
    check_ok(gpuipc_buffer_release(home));
    stream_gate_synchronize(producer);
    check_ok(gpuipc_buffer_await_returns(original, 0));
    check_ok(gpuipc_buffer_release(original));
    core_pair_close(&other);
}

/* The next one may be made at its address: of many, some are. */
Test(lend, what_came_home_and_was_released_leaves_its_hand_overs_to_the_original) {
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
        cr_assert_eq(lent(home[i]), 1);
    }
    for (int i = 0; i < MANY; i++) {
        check_ok(gpuipc_buffer_release(home[i]));
    }
    cr_assert_eq(lent(original), MANY);
    for (int i = 0; i < MANY; i++) {
        home[i] = hand_over(&pair, original);
        cr_assert_eq(lent(home[i]), 0);
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
Test(lend, what_is_returned_is_outstanding_until_it_is_released) {
    gpuipc_buffer *made = make(GPUIPC_TRANSPORT_LEGACY);
    gpuipc_buffer *opened = hand_over(&pair, made);
    buffer *self;
    check_ok(buffer_acquire(made, "test", &self));
    cr_assert(lend_is_outstanding(self));
    check_ok(gpuipc_buffer_return_async(opened, consumer));
    stream_gate_synchronize(consumer);
    cr_assert_eq(lent(made), 0);
    check_ok(gpuipc_buffer_await_returns(made, 0));
    cr_assert(lend_is_outstanding(self));
    check_ok(gpuipc_buffer_release(opened));
    cr_assert_not(lend_is_outstanding(self));
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
Test(lend, a_release_leaves_the_word_to_the_stream) {
    gpuipc_buffer *opened = hand_over(&pair, sent);
    stream_gate_close(consumer);
    check_ok(gpuipc_buffer_return_async(opened, consumer));
    check_ok(gpuipc_buffer_release(opened));
    cr_assert_eq(lent(sent), 1);
    gpuipc_buffer *next = hand_over(&pair, sent);
    check_ok(gpuipc_buffer_release(next));
    cr_assert_eq(lent(sent), 1);
    stream_gate_open();
    stream_gate_synchronize(consumer);
    cr_assert_eq(lent(sent), 0);
}

/* Where the lender may free only what is closed, the release has a word of its own, behind the stream's: one
 * over the other, and the memory would be reused under the stream, or never. */
Test(lend, a_release_is_told_behind_the_streams_word) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    gpuipc_buffer *original = make(GPUIPC_TRANSPORT_LEGACY);
    const CUdeviceptr address = core_info(original).address;
    gpuipc_buffer *opened = hand_over(&pair, original);
    stream_gate_close(consumer);
    check_ok(gpuipc_buffer_return_async(opened, consumer));
    check_ok(gpuipc_buffer_release(opened));
    cr_assert_eq(lent(original), 1);
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

/* One word for all of them takes a stream and an event for each. */
Test(lend, joining_default_streams_may_fail) {
    static const char *const failures[] = {
        "cuStreamCreate:1=2",      "cuEventCreate:1=2",    "cuEventCreate:2=999",
        "cuEventRecord:1=999",     "cuEventRecord:2=999",  "cuStreamWaitEvent:1=999",
        "cuStreamWaitEvent:2=999", "cuCtxPushCurrent:1=2", "cuStreamWriteValue64:1=999"};
    core_need_emulated();
    core_need_devices(2);
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = 1, .bytes = core_unit};
    gpuipc_buffer *buffers[2] = {sent, NULL};
    gpuipc_buffer *opened[2];
    check_ok(gpuipc_buffer_create(core_context, &config, &buffers[1]));
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = buffers,
                                     .buffer_count = 2,
                                     .flags = GPUIPC_SEND_ASYNC};
    for (int i = 0; i < 2; i++) { /* the default stream of each device is in use */
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
            cr_assert_eq(lent(buffers[k]), 0, "%s", failures[i]);
        }
        cr_assert_eq(live_marks(), marks, "%s", failures[i]);
    }
    core_set_failures("");
    check_ok(gpuipc_connection_send(pair.client, &message, SOON_MS)); /* as good as the first */
    cr_assert_eq(core_calls("cuStreamCreate"), 1, "they were joined");
    cr_assert_eq(core_calls("cuStreamWaitEvent"), 2);
    cr_assert_eq(live_marks(), marks);
    check_ok(core_receive(pair.server, opened, 2));
    for (int i = 0; i < 2; i++) {
        check_ok(gpuipc_buffer_release(opened[i]));
    }
    check_ok(gpuipc_buffer_release(buffers[1]));
}

/* SPDX-License-Identifier: MIT */
/** @file Teardown that waits for the devices: kept while a stream of the process waits for another process,
 *  and run by the calls that may wait. */
#include "sync/deferred.h"

#include "cuda/context.h"
#include "process_size.h"
#include "stream_gate.h"

/* ---- the list ------------------------------------------------------------------------------ */

TestSuite(deferred_list, .timeout = 60);

typedef struct item {
    deferred deferred;
    deferred_list *list;
    bool is_ready;
    bool was_forked;
    bool begins_wait; /* in its run */
    unsigned asked;
    unsigned run;
    struct item *adds; /* in its run */
    core_waiter waiter;
} item;

static gpuipc_status begin_wait(void *argument) {
    (void)argument;
    deferred_wait_begins();
    return GPUIPC_OK;
}

static bool is_ready(deferred *of) {
    item *self = (item *)of;
    self->asked++;
    return self->is_ready;
}

static void run(deferred *of, bool forked) {
    item *self = (item *)of;
    self->run++;
    self->was_forked = forked;
    if (self->begins_wait) { /* as another thread would, which has to wait until this is over */
        core_waiter_begin(&self->waiter, begin_wait, NULL);
        while (deferred_is_quiet()) {
            os_sleep_ms(1);
        }
    }
    if (self->adds != NULL) {
        deferred_add(self->list, &self->adds->deferred);
    }
}

static void add(deferred_list *list, item *self, uint64_t bytes) {
    self->list = list;
    self->deferred = (deferred){.bytes = bytes, .is_ready = is_ready, .run = run};
    deferred_add(list, &self->deferred);
}

Test(deferred_list, what_is_ready_runs_once_and_the_rest_is_kept) {
    deferred_list list = {0};
    item items[3] = {{.is_ready = true}, {.is_ready = false}, {.is_ready = true}};
    cr_assert(deferred_is_empty(&list));
    cr_assert_not(deferred_run(&list));
    for (int i = 0; i < 3; i++) {
        add(&list, &items[i], 1);
    }
    items[2].deferred.is_ready = NULL; /* nothing uses it */
    cr_assert(deferred_run(&list));
    cr_assert_eq(items[0].run, 1);
    cr_assert_eq(items[1].run, 0);
    cr_assert_eq(items[2].run, 1);
    cr_assert_not(items[0].was_forked);
    cr_assert_eq(deferred_additions(&list), 3, "what is kept was not added again");
    cr_assert_not(deferred_is_empty(&list));
    cr_assert_not(deferred_run(&list));
    items[1].is_ready = true;
    cr_assert(deferred_run(&list));
    cr_assert_eq(items[1].run, 1);
    cr_assert(deferred_is_empty(&list));
    cr_assert_not(deferred_take(&list, &items[1].deferred), "what ran is nobody's to take");
}

/* Of the process: whichever list the wait belongs to. */
Test(deferred_list, nothing_runs_while_any_stream_waits) {
    deferred_list lists[2] = {0};
    item items[2] = {{.is_ready = true}, {.is_ready = true}};
    for (int i = 0; i < 2; i++) {
        add(&lists[i], &items[i], 1);
    }
    deferred_wait_begins();
    deferred_wait_begins();
    for (int i = 0; i < 2; i++) {
        cr_assert_not(deferred_is_quiet());
        cr_assert_not(deferred_run(&lists[0]));
        cr_assert_not(deferred_run(&lists[1]));
        deferred_wait_ends();
    }
    cr_assert(deferred_is_quiet());
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(items[i].asked, 0, "to ask may wait as well");
        cr_assert(deferred_run(&lists[i]));
        cr_assert_eq(items[i].run, 1);
    }
}

Test(deferred_list, a_stream_that_begins_to_wait_meanwhile_keeps_the_rest) {
    deferred_list list = {0};
    item items[3] = {{.is_ready = true, .begins_wait = true},
                     {.is_ready = true, .begins_wait = true},
                     {.is_ready = true, .begins_wait = true}};
    for (int i = 0; i < 3; i++) {
        add(&list, &items[i], 1);
    }
    for (unsigned i = 1; i <= 3; i++) {
        cr_assert(deferred_run(&list));
        cr_assert_eq(items[0].run + items[1].run + items[2].run, i);
        for (int k = 0; k < 3; k++) {
            if (items[k].run > 0 && items[k].begins_wait) {
                check_ok(core_waiter_end(&items[k].waiter));
                items[k].begins_wait = false;
            }
        }
        deferred_wait_ends();
    }
    cr_assert(deferred_is_empty(&list));
}

Test(deferred_list, what_is_added_by_a_run_is_run) {
    deferred_list list = {0};
    item inner = {.is_ready = true, .list = &list};
    item outer = {.is_ready = true, .adds = &inner};
    inner.deferred = (deferred){.is_ready = is_ready, .run = run};
    add(&list, &outer, 1);
    cr_assert(deferred_run(&list));
    cr_assert_eq(inner.run, 1);
    cr_assert(deferred_is_empty(&list));
}

Test(deferred_list, many_are_many_in_number_or_in_bytes) {
    static item items[65];
    deferred_list list = {0};
    for (int i = 0; i < 65; i++) {
        cr_assert_not(deferred_are_many(&list));
        items[i] = (item){.is_ready = true};
        add(&list, &items[i], 0);
    }
    cr_assert(deferred_are_many(&list));
    cr_assert(deferred_run(&list));
    cr_assert_not(deferred_are_many(&list), "what has run no longer counts");
    add(&list, &items[0], UINT64_C(64) << 20);
    cr_assert_not(deferred_are_many(&list));
    add(&list, &items[1], 1);
    cr_assert(deferred_are_many(&list));
    items[1].is_ready = false;
    cr_assert(deferred_run(&list));
    cr_assert_not(deferred_are_many(&list), "only what is kept counts");
    items[1].is_ready = true;
    cr_assert(deferred_run(&list));
}

static gpuipc_status end_list(void *argument) {
    return deferred_end(argument, os_deadline_after(SOON_MS), false) ? GPUIPC_OK
                                                                     : GPUIPC_ERR_TIMEOUT;
}

Test(deferred_list, the_end_waits_until_the_deadline) {
    deferred_list list = {0};
    item items[2] = {{.is_ready = true}, {.is_ready = true}};
    core_waiter waiter;
    add(&list, &items[0], 1);
    add(&list, &items[1], 1);
    deferred_wait_begins();
    cr_assert_not(deferred_end(&list, os_deadline_after(20), false));
    cr_assert_eq(items[0].run + items[1].run, 0);
    core_waiter_start(&waiter, end_list, &list);
    cr_assert_eq(items[0].run + items[1].run, 0);
    deferred_wait_ends();
    check_ok(core_waiter_end(&waiter));
    cr_assert(deferred_is_empty(&list));
    cr_assert_eq(items[0].run, 1);
    cr_assert_eq(items[1].run, 1);
}

/* A child has none of the streams, and no driver. */
Test(deferred_list, the_end_in_a_child_runs_all_at_once) {
    deferred_list list = {0};
    item items[2] = {{.is_ready = true}, {.is_ready = false}};
    add(&list, &items[0], 1);
    add(&list, &items[1], 1);
    deferred_wait_begins();
    cr_assert(deferred_end(&list, os_deadline_after(0), true));
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(items[i].run, 1);
        cr_assert(items[i].was_forked);
        cr_assert_eq(items[i].asked, 0);
    }
    deferred_wait_ends();
}

/* ---- what the library puts there ------------------------------------------------------------ */

static context *ctx;
static core_pair pair;
static gpuipc_buffer *sent;
static gpuipc_buffer *opened; /* by the peer, and not returned yet */
static CUstream waiting;

static void use(void) {
    stream_gate_make();
    check_ok(context_acquire(core_context, &ctx));
    waiting = stream_gate_stream();
    core_pair_open(&pair, core_context, core_context);
    sent = core_buffer(core_unit, 0);
}

static void begin(void) {
    core_start();
    use();
}

static void begin_without_context(void) {
    core_start_without_context();
}

static void finish(void) {
    stream_gate_open(); /* also after a failure */
    (void)gpuipc_buffer_release(opened);
    (void)gpuipc_buffer_release(sent);
    core_pair_close(&pair);
    stream_gate_stream_end(waiting);
    context_unreference(ctx);
    stream_gate_end();
    core_finish();
}

TestSuite(deferred, .init = begin, .fini = finish, .timeout = 60);
TestSuite(deferred_machine, .init = begin_without_context, .fini = finish, .timeout = 60);

/* A stream waits until the peer returns a buffer. */
static void hold(gpuipc_buffer *exported) {
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &exported,
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_READY};
    check_ok(gpuipc_connection_send(pair.client, &message, SOON_MS));
    check_ok(core_receive(pair.server, &opened, 1));
    check_ok(gpuipc_buffer_await_returns_async(exported, waiting));
    stream_gate_check_waits(waiting);
    cr_assert_not(deferred_is_quiet());
}

/* The stream has passed; nothing is run by that. */
static void let_go(void) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    check_ok(gpuipc_buffer_release(opened));
    opened = NULL;
    stream_gate_synchronize(waiting);
    while (!deferred_is_quiet()) {
        cr_assert_not(os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
}

static gpuipc_buffer *make(gpuipc_context *of, gpuipc_transport transport, uint64_t bytes) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = transport, .bytes = bytes};
    gpuipc_buffer *made = NULL;
    check_ok(gpuipc_buffer_create(of, &config, &made));
    return made;
}

static bool exists(CUdeviceptr address) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    return core_driver()->cuMemGetAddressRange(&base, &bytes, address) == CUDA_SUCCESS;
}

/* Else the release would wait for the stream, and the stream for a peer that may wait for this thread. */
Test(deferred, a_release_does_not_wait_for_a_stream_that_waits) {
    static const gpuipc_transport each[] = {GPUIPC_TRANSPORT_LEGACY, GPUIPC_TRANSPORT_P2P,
                                            GPUIPC_TRANSPORT_HOST};
    gpuipc_buffer *buffers[3];
    for (size_t i = 0; i < 3; i++) {
        buffers[i] = make(core_context, each[i], core_unit);
    }
    const CUdeviceptr address = core_info(buffers[0]).address;
    hold(sent);
    for (size_t i = 0; i < 3; i++) {
        check_ok(gpuipc_buffer_release(buffers[i]));
        cr_assert_eq(ctx->deferred->ready.count, i + 1);
    }
    cr_assert(exists(address));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(sent, 0));
    cr_assert_eq(ctx->deferred->ready.count, 3);
    let_go();
    cr_assert_eq(ctx->deferred->ready.count, 3, "a release that need not wait runs nothing");
    check_ok(gpuipc_buffer_await_returns(sent, SOON_MS));
    cr_assert(deferred_is_empty(ctx->deferred));
    cr_assert_not(exists(address));
}

Test(deferred, a_release_that_waits_runs_what_was_kept) {
    gpuipc_buffer *first = make(core_context, GPUIPC_TRANSPORT_LEGACY, core_unit);
    gpuipc_buffer *second = make(core_context, GPUIPC_TRANSPORT_LEGACY, core_unit);
    const CUdeviceptr address = core_info(first).address;
    hold(sent);
    check_ok(gpuipc_buffer_release(first));
    let_go();
    cr_assert(exists(address));
    check_ok(gpuipc_buffer_release(second));
    cr_assert_not(exists(address));
    cr_assert(deferred_is_empty(ctx->deferred));
}

/* A page that is registered for a device is unregistered, which waits. */
Test(deferred, the_end_of_a_connection_does_not_wait_for_a_stream_of_another) {
    core_pair other;
    gpuipc_buffer *far = NULL;
    gpuipc_mark made;
    core_pair_open(&other, core_context, core_context);
    check_ok(core_send(other.client, &sent, 1));
    check_ok(core_receive(other.server, &far, 1));
    check_ok(gpuipc_buffer_mark(sent, NULL, &made)); /* a stream writes into its page */
    stream_gate_synchronize(NULL);
    check_ok(gpuipc_buffer_release(far));
    check_ok(gpuipc_buffer_await_returns(sent, SOON_MS));
    hold(sent);
    core_pair_close(&other);
    cr_assert_not(deferred_is_empty(ctx->deferred));
    let_go();
    check_ok(gpuipc_buffer_await_returns(sent, SOON_MS));
    cr_assert(deferred_is_empty(ctx->deferred));
}

/* Of those there are few, while a peer may let a stream wait for long. */
Test(deferred, what_is_kept_has_no_handles) {
    enum {
        COUNT = 10
    };
    gpuipc_buffer *buffers[COUNT];
    process_size before;
    process_size after;
    for (int i = 0; i < COUNT; i++) {
        buffers[i] = make(core_context, GPUIPC_TRANSPORT_HOST, 4096);
    }
    hold(sent);
    cr_assert(process_size_get(&before));
    for (int i = 0; i < COUNT; i++) {
        check_ok(gpuipc_buffer_release(buffers[i]));
    }
    cr_assert_eq(ctx->deferred->ready.count, COUNT);
    cr_assert(process_size_get(&after));
    cr_assert_leq(after.handles + COUNT, before.handles, "%d of %d", (int)after.handles,
                  (int)before.handles);
    let_go();
}

/* So that a program that only opens and closes does not gather them for ever. */
Test(deferred, the_end_of_a_connection_runs_them_when_they_are_many) {
    enum {
        MANY = 70
    };
    static gpuipc_buffer *buffers[MANY];
    core_pair others[2];
    for (int i = 0; i < MANY; i++) {
        buffers[i] = make(core_context, GPUIPC_TRANSPORT_HOST, 4096);
    }
    core_pair_open(&others[0], core_context, core_context);
    core_pair_open(&others[1], core_context, core_context);
    hold(sent);
    check_ok(gpuipc_buffer_release(buffers[0]));
    for (int i = 1; i < MANY; i++) {
        check_ok(gpuipc_buffer_release(buffers[i]));
    }
    core_pair_close(&others[0]);
    cr_assert_geq(ctx->deferred->ready.count, MANY, "a stream waits");
    let_go();
    cr_assert_geq(ctx->deferred->ready.count, MANY);
    core_pair_close(&others[1]);
    cr_assert_lt(ctx->deferred->ready.count, 64);
}

/* Nor does one that only creates and drops. */
Test(deferred, a_creation_runs_some_when_they_are_many) {
    enum {
        MANY = 100,
        AT_A_TIME = 32
    };
    static gpuipc_buffer *buffers[MANY];
    for (int i = 0; i < MANY; i++) {
        buffers[i] = make(core_context, GPUIPC_TRANSPORT_HOST, 4096);
    }
    hold(sent);
    for (int i = 0; i < MANY; i++) {
        check_ok(gpuipc_buffer_release(buffers[i]));
    }
    gpuipc_buffer *other = make(core_context, GPUIPC_TRANSPORT_HOST, 4096);
    cr_assert_eq(ctx->deferred->ready.count, MANY, "a stream waits");
    let_go();
    const size_t kept = ctx->deferred->ready.count;
    cr_assert_geq(kept, MANY);
    gpuipc_buffer *another = make(core_context, GPUIPC_TRANSPORT_HOST, 4096);
    /* What is shared with other processes may come to the list a little later. */
    cr_assert_lt(ctx->deferred->ready.count, kept);
    cr_assert_gt(ctx->deferred->ready.count, kept - 2 * AT_A_TIME);
    check_ok(gpuipc_buffer_release(other));
    check_ok(gpuipc_buffer_release(another));
}

enum {
    OPENED_AFTER = 100, /* so many are kept then */
    RUN_BY_ONE = 32
};

/* So many are kept, and no stream waits any more. @return how many */
static size_t keep_many(void) {
    static gpuipc_buffer *buffers[OPENED_AFTER];
    for (int i = 0; i < OPENED_AFTER; i++) {
        buffers[i] = make(core_context, GPUIPC_TRANSPORT_HOST, 4096);
    }
    hold(sent);
    for (int i = 0; i < OPENED_AFTER; i++) {
        check_ok(gpuipc_buffer_release(buffers[i]));
    }
    let_go();
    return ctx->deferred->ready.count;
}

static void check_some_were_run(size_t kept) {
    cr_assert_lt(ctx->deferred->ready.count, kept);
    cr_assert_gt(ctx->deferred->ready.count, kept - 2 * RUN_BY_ONE, "the call does not run all");
}

/* A process that only receives may call nothing else. */
Test(deferred, a_receive_runs_some_when_they_are_many) {
    const size_t kept = keep_many();
    check_ok(core_send(pair.client, &sent, 1));
    check_ok(core_receive(pair.server, &opened, 1));
    check_some_were_run(kept);
}

Test(deferred, an_opening_by_ticket_runs_some_when_they_are_many) {
    const gpuipc_open_config config = {.struct_size = sizeof(config), .timeout_ms = SOON_MS};
    gpuipc_server *server = NULL;
    gpuipc_ticket ticket;
    check_ok(gpuipc_server_create(core_context, NULL, &server));
    check_ok(gpuipc_buffer_share(server, sent, NULL, &ticket));
    const size_t kept = keep_many();
    check_ok(gpuipc_buffer_open(core_context, &ticket, &config, &opened));
    check_some_were_run(kept);
    check_ok(gpuipc_server_destroy(server));
}

/* ---- what was dropped, and no call follows ---------------------------------------------------- */

static void await_empty(void) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (deferred_has_ready(ctx->deferred) || deferred_additions(ctx->deferred) == 0) {
        cr_assert_not(os_deadline_passed(deadline), "memory that was dropped is kept");
        os_sleep_ms(1);
    }
}

static void drop_new(gpuipc_transport transport) {
    check_ok(gpuipc_buffer_drop(make(core_context, transport, core_unit)));
}

/* Looks, of which there are few at a device that is at work. */
static void await_looks(void) {
    const uint64_t begun = core_is_emulated ? core_calls("cuCtxRecordEvent") : 0;
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (core_is_emulated && core_calls("cuCtxRecordEvent") < begun + 3) {
        cr_assert_not(os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
}

Test(deferred, an_idle_process_frees_what_it_dropped) {
    drop_new(GPUIPC_TRANSPORT_HOST);
    drop_new(GPUIPC_TRANSPORT_LEGACY);
    drop_new(GPUIPC_TRANSPORT_P2P);
    await_empty();
    cr_assert_eq(deferred_additions(ctx->deferred), 3);
}

/* A buffer passes, and is kept while drops pause. Then a stream begins to work. */
static void keep_beside_work(void) {
    gpuipc_buffer *far = make(core_context, GPUIPC_TRANSPORT_HOST, 4096);
    check_ok(gpuipc_drops_pause());
    check_ok(gpuipc_buffer_release_async(far, NULL));
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (!deferred_has_ready(ctx->deferred)) {
        cr_assert_not(os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
    stream_gate_close(waiting);
    check_ok(gpuipc_drops_resume());
}

/* Before CUDA 12.5 the thread cannot know whether a device is idle without waiting for it. */
Test(deferred_machine, the_thread_of_an_older_driver_leaves_memory_to_calls) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", "version=12040");
    const gpuipc_context_config config = core_context_config();
    core_open_context(&config);
    core_need_emulated();
    use();
    const uint64_t waits = core_calls("cuCtxSynchronize");
    keep_beside_work();
    os_sleep_ms(200); /* the thread looks several times */
    cr_assert_eq(core_calls("cuCtxSynchronize"), waits, "it does not wait for the device");
    cr_assert(deferred_has_ready(ctx->deferred));
    stream_gate_check_waits(waiting);
    stream_gate_open();
    stream_gate_synchronize(waiting);
    os_sleep_ms(200);
    cr_assert(deferred_has_ready(ctx->deferred));
    check_ok(gpuipc_buffer_await_returns(sent, 0));
    cr_assert_not(deferred_has_ready(ctx->deferred));
}

/* To free it would wait for the work, which may wait for a call that waits for the free. */
Test(deferred, a_device_at_work_keeps_what_was_dropped) {
    keep_beside_work();
    await_looks();
    cr_assert(deferred_has_ready(ctx->deferred));
    stream_gate_check_waits(waiting);
    stream_gate_open();
    await_empty();
}

Test(deferred, a_pause_of_drops_keeps_what_was_dropped) {
    gpuipc_buffer *other = make(core_context, GPUIPC_TRANSPORT_VMM, core_unit);
    const CUdeviceptr address = core_info(other).address;
    check_ok(gpuipc_drops_pause());
    check_ok(gpuipc_buffer_release_async(make(core_context, GPUIPC_TRANSPORT_HOST, 4096), NULL));
    check_ok(gpuipc_buffer_release_async(other, NULL)); /* is released by the same thread */
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (exists(address) || !deferred_has_ready(ctx->deferred)) {
        cr_assert_not(os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
    os_sleep_ms(200); /* the thread looks ten times */
    cr_assert(deferred_has_ready(ctx->deferred));
    check_ok(gpuipc_drops_resume());
    await_empty();
}

/* With the context, whatever the thread is about. */
Test(deferred, the_end_of_the_context_frees_what_was_dropped) {
    for (unsigned i = 0; i < 8; i++) {
        gpuipc_context *made = core_context_new();
        gpuipc_buffer *dropped = make(made, GPUIPC_TRANSPORT_LEGACY, core_unit);
        const CUdeviceptr address = core_info(dropped).address;
        check_ok(gpuipc_buffer_drop(dropped));
        os_sleep_ms(i * 25); /* at another moment of the thread's each time */
        check_ok(gpuipc_context_destroy(made));
        const os_deadline deadline = os_deadline_after(SOON_MS);
        while (exists(address)) { /* the thread may be the last that has the context */
            cr_assert_not(os_deadline_passed(deadline));
            os_sleep_ms(1);
        }
    }
}

/* ---- failures --------------------------------------------------------------------------------- */

/* Whose failures are none of the creation's. */
Test(deferred, a_creation_that_runs_some_leaves_the_error_record_alone) {
    enum {
        MANY = 100
    };
    static gpuipc_buffer *buffers[MANY];
    core_need_emulated();
    for (int i = 0; i < MANY; i++) {
        buffers[i] = make(core_context, GPUIPC_TRANSPORT_LEGACY, 4096);
    }
    hold(sent);
    for (int i = 0; i < MANY; i++) {
        check_ok(gpuipc_buffer_release(buffers[i]));
    }
    let_go();
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_release(buffers[0]));
    core_set_failures("cuCtxPushCurrent:1=999");
    gpuipc_buffer *other = make(core_context, GPUIPC_TRANSPORT_LEGACY, 4096);
    core_set_failures("");
    cr_assert_lt(ctx->deferred->ready.count, MANY);
    cr_assert_eq(gpuipc_error_get()->status, GPUIPC_ERR_RELEASED, "%s",
                 gpuipc_error_get()->sentence);
    check_ok(gpuipc_buffer_release(other));
}

Test(deferred, an_allocation_that_fails_runs_them_unless_a_stream_waits) {
    core_need_emulated();
    gpuipc_device_info of = {.struct_size = sizeof(of)};
    check_ok(gpuipc_device_get_info(core_context, 0, &of));
    const gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                         .transport = GPUIPC_TRANSPORT_LEGACY,
                                         .bytes = of.memory_bytes / 2 + core_unit};
    gpuipc_buffer *first = make(core_context, GPUIPC_TRANSPORT_LEGACY, config.bytes);
    gpuipc_buffer *second = NULL;
    hold(sent);
    check_ok(gpuipc_buffer_release(first));
    check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY,
                 gpuipc_buffer_create(core_context, &config, &second));
    cr_assert_null(second);
    let_go();
    check_ok(gpuipc_buffer_create(core_context, &config, &second));
    check_ok(gpuipc_buffer_release(second));
}

/* The end of the context lets its own streams go, and then there is nothing to wait for. */
Test(deferred, the_end_of_the_context_runs_them) {
    gpuipc_context *made = core_context_new();
    core_pair between;
    core_pair own = pair;
    gpuipc_buffer *kept = make(made, GPUIPC_TRANSPORT_LEGACY, core_unit);
    gpuipc_buffer *exported = make(made, GPUIPC_TRANSPORT_VMM, core_unit);
    const CUdeviceptr address = core_info(kept).address;
    core_pair_open(&between, core_context, made);
    pair = between;
    hold(exported);
    pair = own;
    check_ok(gpuipc_buffer_release(kept));
    check_ok(gpuipc_buffer_release(exported));
    check_ok(gpuipc_connection_close(between.client));
    between.client = NULL;
    cr_assert(exists(address));
    stream_gate_check_waits(waiting);
    check_ok(gpuipc_context_destroy(made));
    cr_assert_not(exists(address));
    stream_gate_synchronize(waiting);
    cr_assert(deferred_is_quiet());
    core_pair_close(&between);
}

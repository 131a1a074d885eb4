/* SPDX-License-Identifier: MIT */
/** @file Marks: ready points of what is open already, on streams, on the host and in graphs. Both ends are in this
 *  process. What a dead or a silent one does is in process.marks. */
#include <stdlib.h>
#include <string.h>

#include "cuda/context.h"
#include "graphs.h"
#include "stream_gate.h"
#include "sync/mark.h"

static core_pair pair;
static gpuipc_buffer *sent;
static gpuipc_buffer *opened;
static CUstream producer;
static CUstream consumer;

static void begin(void) {
    core_start();
    stream_gate_make();
    producer = stream_gate_stream();
    consumer = stream_gate_stream();
    core_pair_open(&pair, core_context, core_context);
    sent = core_buffer(core_unit, 0);
}

static void hand_over(void) {
    check_ok(core_send(pair.client, &sent, 1));
    check_ok(core_receive(pair.server, &opened, 1));
}

static void begin_open(void) {
    begin();
    hand_over();
}

static void finish(void) {
    stream_gate_open(); /* also after a failure */
    if (producer != NULL) {
        stream_gate_synchronize(producer);
        stream_gate_synchronize(consumer);
    }
    (void)gpuipc_buffer_release(opened);
    (void)gpuipc_buffer_release(sent);
    core_pair_close(&pair);
    stream_gate_stream_end(producer);
    stream_gate_stream_end(consumer);
    stream_gate_end();
    core_finish();
}

TestSuite(mark, .init = begin_open, .fini = finish, .timeout = 60);
TestSuite(mark_early, .init = begin, .fini = finish, .timeout = 60);

static gpuipc_mark make(void) {
    gpuipc_mark made;
    check_ok(gpuipc_buffer_mark(sent, producer, &made));
    return made;
}

Test(mark, is_reached_when_the_stream_comes_to_it) {
    stream_gate_close(producer);
    const gpuipc_mark made = make();
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_mark(opened, &made, 0));
    stream_gate_open();
    check_ok(gpuipc_buffer_await_mark(opened, &made, SOON_MS));
    check_ok(gpuipc_buffer_await_mark(opened, &made, 0));
}

Test(mark, is_waited_for_by_a_stream) {
    stream_gate_close(producer);
    check_ok(gpuipc_buffer_fill_async(sent, 0, core_unit, 7, 4, producer));
    const gpuipc_mark made = make();
    check_ok(gpuipc_buffer_await_mark_async(opened, &made, consumer));
    check_ok(gpuipc_buffer_await_mark_async(opened, &made, consumer));
    stream_gate_check_waits(consumer);
    stream_gate_open();
    stream_gate_synchronize(consumer);
    uint32_t word = 0;
    check_ok(gpuipc_buffer_read(opened, core_unit - 4, &word, sizeof(word)));
    cr_assert_eq(word, 7);
}

Test(mark, tells_hand_overs_apart_that_are_on_their_way) {
    const gpuipc_mark first = make();
    check_ok(gpuipc_buffer_await_mark(opened, &first, SOON_MS));
    stream_gate_close(producer);
    const gpuipc_mark second = make();
    check_ok(gpuipc_buffer_await_mark(opened, &first, 0));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_mark(opened, &second, 0));
}

/* More than there are words, so that each is used again; who waits late for an old one passes. */
Test(mark, of_long_ago_is_still_reached) {
    enum {
        ROUNDS = 5000
    };
    const gpuipc_mark first = make();
    gpuipc_mark last = first;
    for (int i = 0; i < ROUNDS; i++) {
        last = make();
        if (i % 100 == 0) {
            check_ok(gpuipc_buffer_await_mark(opened, &last, SOON_MS));
        }
    }
    check_ok(gpuipc_buffer_await_mark(opened, &last, SOON_MS));
    check_ok(gpuipc_buffer_await_mark(opened, &first, 0));
}

static void check_limit(void) {
    gpuipc_mark made;
    gpuipc_status status = GPUIPC_OK;
    uint32_t count = 0;
    stream_gate_close(producer);
    while ((status = gpuipc_buffer_mark(sent, producer, &made)) == GPUIPC_OK) {
        count++;
        cr_assert_lt(count, 10000);
    }
    cr_assert_eq(status, GPUIPC_ERR_LIMIT);
    cr_assert_eq(count, 768, "the header says so");
    stream_gate_open();
}

/* Over a connection of its own, behind nothing. */
static gpuipc_buffer *hand_over_another(core_pair *by) {
    const gpuipc_outgoing outgoing = {.struct_size = sizeof(outgoing),
                                      .buffers = &sent,
                                      .buffer_count = 1,
                                      .flags = GPUIPC_SEND_READY};
    gpuipc_buffer *received = NULL;
    core_pair_open(by, core_context, core_context);
    check_ok(gpuipc_connection_send(by->client, &outgoing, SOON_MS));
    check_ok(core_receive(by->server, &received, 1));
    return received;
}

/* However many connections there are, a mark takes as little of the room in the stream's queue as one over one. */
Test(mark, over_many_connections_is_refused_beyond_as_many) {
    enum {
        MORE = 62
    };
    static core_pair more[MORE];
    gpuipc_buffer *received[MORE];
    gpuipc_mark made;
    for (int i = 0; i < MORE; i++) {
        received[i] = hand_over_another(&more[i]);
    }
    check_limit();
    stream_gate_synchronize(producer);
    check_ok(gpuipc_buffer_mark(sent, producer, &made));
    check_ok(gpuipc_buffer_await_mark(opened, &made, SOON_MS));
    for (int i = 0; i < MORE; i++) {
        check_ok(gpuipc_buffer_await_mark(received[i], &made, SOON_MS));
        check_ok(gpuipc_buffer_release(received[i]));
        core_pair_close(&more[i]);
    }
}

static gpuipc_status make_late(void *argument) {
    return gpuipc_buffer_mark(sent, producer, argument);
}

/* The call that makes it waits for the stream. Meanwhile others send, and who comes gets the mark as well. */
Test(mark, that_finds_no_room_on_its_stream_keeps_nobody_else) {
    enum {
        ROOM = 1021
    };
    core_pair another;
    core_waiter waiter;
    gpuipc_mark late;
    core_need_emulated(); /* whether another thread may call the real driver then is not known */
    for (int i = 0; i < ROOM; i++) {
        stream_gate_close(producer);
    }
    core_waiter_start(&waiter, make_late, &late);
    gpuipc_buffer *received = hand_over_another(&another);
    stream_gate_open();
    check_ok(core_waiter_end(&waiter));
    check_ok(gpuipc_buffer_await_mark(opened, &late, SOON_MS));
    check_ok(gpuipc_buffer_await_mark(received, &late, SOON_MS));
    check_ok(gpuipc_buffer_release(received));
    core_pair_close(&another);
}

Test(mark, beyond_as_many_as_there_may_be_is_refused_until_one_is_reached) {
    gpuipc_mark made;
    check_limit();
    stream_gate_synchronize(producer);
    check_ok(gpuipc_buffer_mark(sent, producer, &made));
    check_ok(gpuipc_buffer_await_mark(opened, &made, SOON_MS));
}

/* The maker has closed its end, and the buffer that was lent over it is gone: the receiver still has the memory open. */
Test(mark, reaches_who_has_memory_open_when_the_connection_is_over) {
    check_ok(gpuipc_connection_close(pair.client));
    pair.client = NULL;
    check_ok(gpuipc_buffer_release(sent));
    sent = core_buffer(core_unit, 0);
    const gpuipc_mark on_host = make();
    check_ok(gpuipc_buffer_await_mark(opened, &on_host, SOON_MS));
    stream_gate_close(producer);
    const gpuipc_mark on_stream = make();
    check_ok(gpuipc_buffer_await_mark_async(opened, &on_stream, consumer));
    stream_gate_check_waits(consumer);
    stream_gate_open();
    stream_gate_synchronize(consumer);
}

/* ---- before the buffer is open ------------------------------------------------------------------ */

Test(mark_early, that_is_reached_already) {
    const gpuipc_mark made = make();
    stream_gate_synchronize(producer);
    hand_over();
    check_ok(gpuipc_buffer_await_mark(opened, &made, 0));
}

Test(mark_early, that_is_not_reached_yet) {
    stream_gate_close(producer);
    const gpuipc_mark made = make();
    /* the hand-over itself waits for nothing */
    const gpuipc_outgoing outgoing = {.struct_size = sizeof(outgoing),
                                      .buffers = &sent,
                                      .buffer_count = 1,
                                      .flags = GPUIPC_SEND_READY};
    check_ok(gpuipc_connection_send(pair.client, &outgoing, SOON_MS));
    check_ok(core_receive(pair.server, &opened, 1));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_mark(opened, &made, 0));
    check_ok(gpuipc_buffer_await_mark_async(opened, &made, consumer));
    stream_gate_check_waits(consumer);
    stream_gate_open();
    stream_gate_synchronize(consumer);
    check_ok(gpuipc_buffer_await_mark(opened, &made, 0));
}

/* The word is used again before the thread that stores it for the new connection has looked. */
Test(mark_early, is_not_put_over_a_later_one) {
    enum {
        ROUNDS = 2000
    };
    stream_gate_close(producer);
    (void)make();
    const gpuipc_outgoing outgoing = {.struct_size = sizeof(outgoing),
                                      .buffers = &sent,
                                      .buffer_count = 1,
                                      .flags = GPUIPC_SEND_READY};
    check_ok(gpuipc_connection_send(pair.client, &outgoing, SOON_MS));
    check_ok(core_receive(pair.server, &opened, 1));
    stream_gate_open();
    stream_gate_synchronize(producer);
    for (int i = 0; i < ROUNDS; i++) {
        const gpuipc_mark made = make();
        check_ok(gpuipc_buffer_await_mark(opened, &made, SOON_MS));
    }
}

/* ---- what is refused ----------------------------------------------------------------------------- */

static void check_no_mark(gpuipc_buffer *buffer, const gpuipc_mark *bytes) {
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_await_mark(buffer, bytes, 0));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_buffer_await_mark_async(buffer, bytes, consumer));
}

Test(mark, that_is_damaged_is_refused) {
    const gpuipc_mark made = make();
    for (unsigned bit = 0; bit < 128; bit++) {
        gpuipc_mark damaged = made;
        damaged.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        check_no_mark(opened, &damaged);
    }
    const gpuipc_mark zero = {{0}};
    check_no_mark(opened, &zero);
}

/* Whole, and with numbers that nobody gives out. */
Test(mark, with_a_word_that_there_is_not_is_refused) {
    mark read;
    gpuipc_mark bytes = make();
    check_ok(mark_decode(&bytes, &read));
    const mark wrong[] = {
        {false, 0xFFFF, read.exporter, 1, 0},
        {false, MARK_SLOTS + LOAN_SLOTS, read.exporter, 1, 0},
        {false, 0, read.exporter, 1, 0},            /* of those that repeat */
        {true, read.slot, read.exporter, 1, 0},     /* of those that do not */
        {false, read.slot, read.exporter, 1, 1},    /* of a loan, with a secret */
        {false, read.slot, read.exporter ^ 2, 1, 0} /* another's */
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        mark_encode(&wrong[i], &bytes);
        check_no_mark(opened, &bytes);
    }
}

Test(mark, of_another_context_and_of_ones_own_buffer_is_refused) {
    gpuipc_mark made = make();
    check_no_mark(sent, &made);
    gpuipc_context *second = core_context_new();
    gpuipc_buffer *other = NULL;
    gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = core_unit};
    check_ok(gpuipc_buffer_create(second, &config, &other));
    check_ok(gpuipc_buffer_mark(other, producer, &made));
    check_no_mark(opened, &made);
    check_ok(gpuipc_buffer_release(other));
    check_ok(gpuipc_context_destroy(second));
}

Test(mark, arguments_are_checked) {
    gpuipc_mark made = make();
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_mark(sent, producer, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_mark(NULL, producer, &made));
    check_no_mark(opened, NULL);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_await_mark(NULL, &made, 0));
}

/* ---- the 16 bytes -------------------------------------------------------------------------------- */

Test(mark, is_not_waited_for_in_a_context_that_is_given_up) {
    gpuipc_context *second = core_context_new();
    gpuipc_buffer *theirs = NULL;
    core_pair other;
    core_pair_open(&other, second, core_context);
    check_ok(core_send(other.client, &sent, 1));
    check_ok(core_receive(other.server, &theirs, 1));
    core_pair_close(&other);
    stream_gate_close(producer);
    const gpuipc_mark made = make();
    check_ok(gpuipc_context_destroy(second));
    check_refused(GPUIPC_ERR_RELEASED, "context destroyed",
                  gpuipc_buffer_await_mark(theirs, &made, SOON_MS));
    check_ok(gpuipc_buffer_release(theirs));
}

Test(mark, of_a_default_stream_is_refused_while_another_is_captured) {
    gpuipc_mark made = make();
    core_set_captured(true, NULL);
    check_status(GPUIPC_ERR_CUDA, gpuipc_buffer_mark(sent, NULL, &made));
    check_status(GPUIPC_ERR_CUDA, gpuipc_buffer_await_mark_async(opened, &made, NULL));
    core_set_captured(false, NULL);
    check_ok(gpuipc_buffer_mark(sent, NULL, &made));
    check_ok(gpuipc_buffer_await_mark(opened, &made, SOON_MS));
}

Test(mark, has_the_bytes_of_the_wire_format) {
    static const uint8_t frozen[] = {1, 0, 0x2C, 1, 0x44, 0x33, 0x22, 0x11,
                                     5, 0, 0,    0, 0,    0,    0xC7, 0xE0};
    const mark known = {false, 300, 0x11223344u, 5, 0};
    gpuipc_mark bytes;
    mark read;
    mark_encode(&known, &bytes);
    cr_assert_arr_eq(bytes.bytes, frozen, sizeof(frozen));
    check_ok(mark_decode(&bytes, &read));
    cr_assert(!read.repeats && read.slot == 300 && read.exporter == 0x11223344u && read.value == 5);
}

/* ---- in graphs ----------------------------------------------------------------------------------- */

static void capture_begin(CUstream stream) {
    cr_assert(graphs_find(core_driver()));
    cr_assert(graphs_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static captured capture_end(CUstream stream) {
    captured made = {NULL, NULL};
    cr_assert(graphs_end(stream, &made), "the capture was made invalid");
    return made;
}

static void captured_end(captured *self) {
    cr_assert(graphs_destroy(self));
}

static void launch(const captured *self, CUstream stream) {
    cr_assert(graphs_launch(self, stream));
}

/* Two graphs that take turns, without the host: one fills and marks, the other looks at it, copies, and marks in return. */
Test(mark, repeats_in_graphs_that_take_turns) {
    enum {
        ROUNDS = 200
    };
    gpuipc_mark full;
    gpuipc_mark empty;
    gpuipc_buffer *back = core_buffer(core_unit, 0); /* by which the consumer's marks are known */
    gpuipc_buffer *back_opened = NULL;
    check_ok(core_send(pair.server, &back, 1));
    check_ok(core_receive(pair.client, &back_opened, 1));
    capture_begin(consumer);
    check_ok(gpuipc_buffer_mark(back, consumer, &empty));
    captured first = capture_end(consumer);
    capture_begin(producer);
    check_ok(gpuipc_buffer_await_mark_async(back_opened, &empty, producer));
    check_ok(gpuipc_buffer_fill_async(sent, 0, 4096, 9, 4, producer));
    check_ok(gpuipc_buffer_mark(sent, producer, &full));
    captured produce = capture_end(producer);
    capture_begin(consumer);
    check_ok(gpuipc_buffer_await_mark_async(opened, &full, consumer));
    check_ok(gpuipc_buffer_fill_async(opened, 0, 4096, 1, 4, consumer));
    captured consume = capture_end(consumer);
    for (int i = 0; i < ROUNDS; i++) {
        launch(&produce, producer);
        stream_gate_check_waits(producer); /* nobody has said that it is empty */
        launch(&first, consumer);
        launch(&consume, consumer);
        stream_gate_synchronize(consumer);
        stream_gate_synchronize(producer);
    }
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_mark(opened, &full, 0));
    captured_end(&first);
    captured_end(&produce);
    captured_end(&consume);
    check_ok(gpuipc_buffer_release(back_opened));
    check_ok(gpuipc_buffer_release(back));
}

/* Whoever waits sets it back, also the host and a stream that is not captured. */
Test(mark, that_repeats_is_waited_for_once_each_time) {
    gpuipc_mark made;
    capture_begin(producer);
    check_ok(gpuipc_buffer_mark(sent, producer, &made));
    captured graph = capture_end(producer);
    for (int i = 0; i < 20; i++) {
        check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_mark(opened, &made, 0));
        if (i % 2 == 0) {
            launch(&graph, producer);
            check_ok(gpuipc_buffer_await_mark(opened, &made, SOON_MS));
        } else {
            check_ok(gpuipc_buffer_await_mark_async(opened, &made, consumer));
            stream_gate_check_waits(consumer);
            launch(&graph, producer);
            stream_gate_synchronize(consumer);
        }
    }
    captured_end(&graph);
}

/* A stream that is behind comes to both waits when the word has long been set: for one launch it passes one of them. */
Test(mark, that_repeats_is_waited_for_each_time_by_a_stream_that_is_behind) {
    gpuipc_mark made;
    CUevent between;
    cr_assert_eq(core_driver()->cuEventCreate(&between, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    capture_begin(producer);
    check_ok(gpuipc_buffer_mark(sent, producer, &made));
    captured graph = capture_end(producer);
    launch(&graph, producer);
    stream_gate_synchronize(producer);
    stream_gate_close(consumer);
    check_ok(gpuipc_buffer_await_mark_async(opened, &made, consumer));
    cr_assert_eq(core_driver()->cuEventRecord(between, consumer), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_await_mark_async(opened, &made, consumer));
    check_ok(gpuipc_buffer_fill_async(opened, 0, 4, 7, 4, consumer));
    stream_gate_open();
    cr_assert_eq(core_driver()->cuEventSynchronize(between), CUDA_SUCCESS);
    uint32_t word = 0;
    const os_deadline end = os_deadline_after(200); /* what would go on too early does so before */
    while (!os_deadline_passed(end)) { /* gpuipc_buffer_read() would wait for the fill */
        cr_assert_eq(
            core_driver()->cuMemcpyDtoH(&word, gpuipc_buffer_address(opened), sizeof(word)),
            CUDA_SUCCESS);
        cr_assert_neq(word, 7, "one launch let two waits pass");
    }
    stream_gate_check_waits(consumer);
    launch(&graph, producer);
    stream_gate_synchronize(consumer);
    check_ok(gpuipc_buffer_read(opened, 0, &word, sizeof(word)));
    cr_assert_eq(word, 7);
    captured_end(&graph);
    cr_assert_eq(core_driver()->cuEventDestroy(between), CUDA_SUCCESS);
}

Test(mark, that_was_made_once_is_no_wait_of_a_graph) {
    const gpuipc_mark made = make();
    capture_begin(consumer);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_buffer_await_mark_async(opened, &made, consumer));
    captured graph = capture_end(consumer); /* the capture is whole */
    captured_end(&graph);
}

/* The graph writes no word there. */
Test(mark_early, that_was_captured_before_the_connection_is_refused) {
    gpuipc_mark made;
    capture_begin(producer);
    check_ok(gpuipc_buffer_mark(sent, producer, &made));
    captured graph = capture_end(producer);
    hand_over();
    check_no_mark(opened, &made);
    captured_end(&graph);
}

/* Words of graphs that are gone are given out again, and begin anew. */
Test(mark, of_a_buffer_that_is_released_makes_room) {
    for (int round = 0; round < 3; round++) {
        gpuipc_buffer *other = core_buffer(core_unit, 0);
        gpuipc_mark made;
        gpuipc_status status = GPUIPC_OK;
        int count = 0;
        capture_begin(producer);
        while ((status = gpuipc_buffer_mark(other, producer, &made)) == GPUIPC_OK) {
            count++;
        }
        cr_assert_eq(status, GPUIPC_ERR_LIMIT);
        cr_assert_eq(count, 254, "the header says so");
        captured graph = capture_end(producer);
        launch(&graph, producer); /* nobody waits: the words stay set */
        stream_gate_synchronize(producer);
        captured_end(&graph);
        check_ok(gpuipc_buffer_release(other));
        capture_begin(producer);
        check_ok(gpuipc_buffer_mark(sent, producer, &made));
        graph = capture_end(producer);
        check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_mark(opened, &made, 0));
        captured_end(&graph);
        check_ok(gpuipc_buffer_release(sent)); /* with what it had captured */
        sent = core_buffer(core_unit, 0);
    }
}

/* ---- in graphs, of a process that is gone ------------------------------------------------------ */

static const os_peer dead = {.process_id = 0x3FFFFFFF, .process = {-1}};

/* Every launch waits, and for each the word is stored anew, since each sets it back. */
Test(mark, of_a_dead_process_lets_every_launch_go) {
    context *ctx;
    point_peer *peer;
    const point none = {NULL, 0, 0};
    point_page *page;
    import_record *of;
    check_ok(context_acquire(core_context, &ctx));
    check_ok(point_peer_new(ctx, &dead, NULL, &peer));
    check_ok(point_page_create(ctx, peer, &page));
    check_ok(import_record_new(&none, false, &of));
    const point_word word = {page, POINT_WORDS_END + 2, 1};
    const point_waiter by = {.context = ctx, .stream = consumer, .of = of};
    capture_begin(consumer);
    check_ok(mark_capture_wait(&by, &word));
    captured graph = capture_end(consumer);
    for (int i = 0; i < 5; i++) {
        launch(&graph, consumer);
        stream_gate_synchronize(consumer);
    }
    cr_assert(import_record_is_lost(of));
    captured_end(&graph);
    import_record_return(of);
    import_record_unreference(of, false);
    point_page_unreference(page, false);
    point_peer_unreference(peer, false);
    context_unreference(ctx);
}

/* The word is set back once for each wait, and looked after once for all of them. */
Test(mark, of_two_marks_is_awaited_twice_by_one_graph) {
    gpuipc_mark first;
    gpuipc_mark second;
    capture_begin(producer);
    check_ok(gpuipc_buffer_mark(sent, producer, &first));
    check_ok(gpuipc_buffer_mark(sent, producer, &second));
    captured produce = capture_end(producer);
    capture_begin(consumer);
    check_ok(gpuipc_buffer_await_mark_async(opened, &first, consumer));
    check_ok(gpuipc_buffer_await_mark_async(opened, &second, consumer));
    captured consume = capture_end(consumer);
    capture_begin(consumer);
    check_ok(gpuipc_buffer_await_mark_async(opened, &first, consumer));
    captured again = capture_end(consumer);
    for (int round = 0; round < 2; round++) {
        const captured *const awaiting = round == 0 ? &consume : &again;
        launch(awaiting, consumer);
        stream_gate_check_waits(consumer);
        launch(&produce, producer);
        stream_gate_synchronize(consumer);
        stream_gate_synchronize(producer);
    }
    captured_end(&produce);
    captured_end(&consume);
    captured_end(&again);
}

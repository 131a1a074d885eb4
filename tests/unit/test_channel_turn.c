/* SPDX-License-Identifier: MIT */
/** @file Channels of turns: the four calls on streams and in graphs that are launched again and again. Both ends are in this
 *  process. What dead and stopped ones do is in process.turn. */
#include <inttypes.h>

#include "channel/subscription.h"
#include "channel_case.h"
#include "graphs.h"
#include "stream_gate.h"

#define READERS_MAX 3

static CUstream makes;
static CUstream uses[READERS_MAX];
static gpuipc_subscription *readers[READERS_MAX];
static gpuipc_buffer *seen;

static void make(void) {
    channel_case_make(&(gpuipc_channel_config){.slots = 1, .turns = 1});
}

/* On any driver. */
static void start(void) {
    core_start();
    stream_gate_make();
    cr_assert(graphs_find(core_driver()));
    check_ok(gpuipc_server_create(core_context, NULL, &channel_case_server));
    makes = stream_gate_stream();
    for (int i = 0; i < READERS_MAX; i++) {
        uses[i] = stream_gate_stream();
    }
    seen = core_buffer(core_unit, 0);
    make();
}

static void finish(void) {
    stream_gate_open();
    for (int i = 0; i < READERS_MAX; i++) {
        (void)gpuipc_subscription_close(readers[i]);
        readers[i] = NULL;
    }
    (void)gpuipc_channel_destroy(channel_case_channel);
    channel_case_channel = NULL;
    if (makes != NULL) {
        stream_gate_synchronize(makes);
        for (int i = 0; i < READERS_MAX; i++) {
            stream_gate_synchronize(uses[i]);
            stream_gate_stream_end(uses[i]);
        }
        stream_gate_stream_end(makes);
        check_ok(gpuipc_buffer_release(seen));
    }
    stream_gate_end();
    channel_finish();
}

TestSuite(channel_turn, .init = start, .fini = finish, .timeout = 60);

/* ---- what a test says ---------------------------------------------------------------------------- */

static gpuipc_frame loan(void) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_channel_loan(channel_case_channel, makes, SOON_MS, &frame));
    return frame;
}

static gpuipc_frame take(int reader) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_subscription_take(readers[reader], uses[reader], SOON_MS, &frame));
    return frame;
}

/* Each turn is first this, and then what it is to be: no reader sees the former. */
#define HALF_DONE UINT32_C(0xbadbad)
#define WORDS     1024u

static void fill(const gpuipc_frame *frame, uint32_t value) {
    const driver *drv = core_driver();
    cr_assert_eq(drv->cuMemsetD32Async(frame->address, HALF_DONE, WORDS, makes), CUDA_SUCCESS);
    cr_assert_eq(drv->cuMemsetD32Async(frame->address, value, WORDS, makes), CUDA_SUCCESS);
}

static void write_turn(uint32_t value) {
    const gpuipc_frame frame = loan();
    fill(&frame, value);
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, makes));
}

static CUdeviceptr place_of(int reader) {
    return gpuipc_buffer_address(seen) + (CUdeviceptr)reader * WORDS * 4;
}

/* What is seen is this reader's part of a buffer. */
static void read_turn(int reader) {
    const gpuipc_frame frame = take(reader);
    cr_assert_eq(frame.bytes, CHANNEL_CASE_SLOT);
    cr_assert_eq(
        core_driver()->cuMemcpyDtoDAsync(place_of(reader), frame.address, WORDS * 4, uses[reader]),
        CUDA_SUCCESS);
    check_ok(gpuipc_subscription_give_back(readers[reader], &frame, uses[reader]));
}

/* When the reader's stream has done what it was given. */
static void check_seen(int reader, uint32_t value) {
    uint32_t words[WORDS];
    stream_gate_synchronize(uses[reader]);
    check_ok(gpuipc_buffer_read(seen, (uint64_t)reader * sizeof(words), words, sizeof(words)));
    for (uint32_t i = 0; i < WORDS; i++) {
        cr_assert_eq(words[i], value, "%" PRIx32 " in place of %" PRIx32, words[i], value);
    }
}

static void open_readers(int count) {
    for (int i = 0; i < count; i++) {
        readers[i] = channel_case_open(NULL);
    }
}

static void close_reader(int reader) {
    check_ok(gpuipc_subscription_close(readers[reader]));
    readers[reader] = NULL;
}

static void capture_begin(CUstream stream) {
    cr_assert(graphs_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static captured capture_end(CUstream stream) {
    captured graph = {NULL, NULL};
    cr_assert(graphs_end(stream, &graph), "the capture was made invalid");
    return graph;
}

static captured capture_write(uint32_t value) {
    capture_begin(makes);
    write_turn(value);
    return capture_end(makes);
}

static captured capture_read(int reader) {
    capture_begin(uses[reader]);
    read_turn(reader);
    return capture_end(uses[reader]);
}

static void launch(const captured *graph, CUstream stream) {
    cr_assert(graphs_launch(graph, stream));
}

static gpuipc_reader_info info_of(int place) {
    gpuipc_reader_info infos[GPUIPC_CHANNEL_READERS_MAX];
    size_t count = 0;
    check_ok(
        gpuipc_channel_readers(channel_case_channel, infos, GPUIPC_CHANNEL_READERS_MAX, &count));
    cr_assert_lt(place, (int)count);
    return infos[place];
}

/* ---- in graphs ----------------------------------------------------------------------------------- */

/* Two graphs write by turns, one reads: none is ahead of the other, and the host has no part in it. */
static void take_turns(CUstreamCaptureMode mode) {
    enum {
        ROUNDS = 100
    };
    captured write[2];
    captured read;
    open_readers(1);
    for (uint32_t i = 0; i < 2; i++) {
        cr_assert(graphs_begin(makes, mode));
        write_turn(i + 1);
        write[i] = capture_end(makes);
    }
    cr_assert(graphs_begin(uses[0], mode));
    read_turn(0);
    read = capture_end(uses[0]);
    cr_assert_eq(info_of(0).captured, 2);
    launch(&write[0], makes);
    launch(&write[1], makes);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        stream_gate_check_waits(makes); /* the second waits for the reader */
        launch(&read, uses[0]);
        check_seen(0, i % 2 + 1);
        launch(&write[i % 2], makes);
    }
    for (uint32_t i = 0; i < 2; i++) {
        launch(&read, uses[0]);
        check_seen(0, i + 1);
    }
    stream_gate_synchronize(makes);
    launch(&read, uses[0]); /* there is no more */
    stream_gate_check_waits(uses[0]);
    launch(&write[1], makes);
    check_seen(0, 2);
    check_ok(gpuipc_subscription_check(readers[0]));
    cr_assert(graphs_destroy(&write[0]));
    cr_assert(graphs_destroy(&write[1]));
    cr_assert(graphs_destroy(&read));
}

Test(channel_turn, graphs_take_turns) {
    take_turns(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

Test(channel_turn, graphs_take_turns_captured_in_a_thread_s_mode) {
    take_turns(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

Test(channel_turn, graphs_take_turns_captured_in_relaxed_mode) {
    take_turns(CU_STREAM_CAPTURE_MODE_RELAXED);
}

Test(channel_turn, each_reader_gets_each_turn) {
    captured read[READERS_MAX];
    open_readers(READERS_MAX);
    captured write = capture_write(7);
    for (int i = 0; i < READERS_MAX; i++) {
        read[i] = capture_read(i);
    }
    for (int round = 0; round < 20; round++) {
        launch(&write, makes);
        launch(&write, makes);
        for (int i = 0; i < READERS_MAX; i++) {
            stream_gate_check_waits(makes); /* for the last of them */
            launch(&read[(i + round) % READERS_MAX], uses[(i + round) % READERS_MAX]);
        }
        for (int i = 0; i < READERS_MAX; i++) {
            launch(&read[i], uses[i]);
            check_seen(i, 7);
        }
        stream_gate_synchronize(makes);
    }
    cr_assert(graphs_destroy(&write));
    for (int i = 0; i < READERS_MAX; i++) {
        cr_assert(graphs_destroy(&read[i]));
    }
}

/* A graph and a stream that is not captured put the same words. */
Test(channel_turn, a_graph_at_one_end_and_calls_at_the_other) {
    open_readers(1);
    captured write = capture_write(5);
    for (int i = 0; i < 20; i++) {
        launch(&write, makes);
        read_turn(0);
        check_seen(0, 5);
    }
    captured read = capture_read(0);
    for (uint32_t i = 0; i < 20; i++) {
        write_turn(i);
        launch(&read, uses[0]);
        check_seen(0, i);
    }
    cr_assert(graphs_destroy(&write));
    cr_assert(graphs_destroy(&read));
}

/* Of a reader that comes later the graph knows nothing: it is not kept waiting by it, and the writer can ask. */
Test(channel_turn, a_reader_that_comes_later_is_in_the_next_capture) {
    open_readers(1);
    captured write = capture_write(3);
    captured read = capture_read(0);
    readers[1] = channel_case_open(NULL);
    cr_assert_eq(info_of(0).captured, 1);
    cr_assert_eq(info_of(1).captured, 0);
    captured late = capture_read(1);
    launch(&late, uses[1]);
    for (int i = 0; i < 5; i++) {
        launch(&write, makes);
        launch(&read, uses[0]);
        check_seen(0, 3);
    }
    stream_gate_check_waits(uses[1]);
    cr_assert(graphs_destroy(&write));
    write = capture_write(4);
    cr_assert_eq(info_of(0).captured, 2);
    cr_assert_eq(info_of(1).captured, 1);
    launch(&write, makes);
    check_seen(1, 4);
    launch(&read, uses[0]);
    check_seen(0, 4);
    cr_assert(graphs_destroy(&write));
    cr_assert(graphs_destroy(&read));
    cr_assert(graphs_destroy(&late));
}

/* The loan was for the readers of then. */
Test(channel_turn, a_reader_that_comes_between_loan_and_publication) {
    open_readers(1);
    capture_begin(makes);
    gpuipc_frame frame = loan();
    readers[1] = channel_case_open(NULL);
    fill(&frame, 6);
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, makes));
    captured write = capture_end(makes);
    cr_assert_eq(info_of(1).captured, 0);
    captured read = capture_read(0);
    for (int i = 0; i < 3; i++) {
        launch(&write, makes);
        launch(&read, uses[0]);
        check_seen(0, 6);
    }
    read_turn(1);
    stream_gate_check_waits(uses[1]);
    write_turn(8);
    check_seen(1, 8);
    cr_assert(graphs_destroy(&write));
    cr_assert(graphs_destroy(&read));
}

/* ---- not in graphs ------------------------------------------------------------------------------- */

Test(channel_turn, streams_take_turns) {
    open_readers(2);
    for (uint32_t i = 0; i < 50; i++) {
        write_turn(i);
        read_turn(0);
        read_turn(1);
        if (i % 10 == 0) {
            check_seen(0, i);
            check_seen(1, i);
        }
    }
    check_seen(0, 49);
    check_seen(1, 49);
}

/* What one stream has not come to yet, another waits for. */
Test(channel_turn, streams_of_one_end_wait_for_each_other) {
    open_readers(1);
    CUstream others[2] = {makes, stream_gate_stream()};
    CUstream theirs[2] = {uses[0], stream_gate_stream()};
    for (uint32_t i = 0; i < 50; i++) {
        makes = others[i % 2];
        uses[0] = theirs[i / 3 % 2];
        if (i % 5 == 0) {
            stream_gate_close(makes);
        }
        write_turn(i);
        read_turn(0);
        stream_gate_open();
        if (i % 10 == 9) {
            check_seen(0, i);
        }
    }
    check_seen(0, 49);
    stream_gate_synchronize(others[0]);
    stream_gate_synchronize(others[1]);
    stream_gate_synchronize(theirs[0]);
    makes = others[0];
    uses[0] = theirs[0];
    stream_gate_stream_end(others[1]);
    stream_gate_stream_end(theirs[1]);
}

Test(channel_turn, without_readers_nobody_is_waited_for) {
    write_turn(1);
    captured write = capture_write(2);
    launch(&write, makes);
    launch(&write, makes);
    stream_gate_synchronize(makes);
    cr_assert(graphs_destroy(&write));
}

/* ---- what is given up ---------------------------------------------------------------------------- */

/* A loan, or a take, that comes to nothing changes no word. */
Test(channel_turn, what_is_not_ended_is_begun_again) {
    open_readers(1);
    for (int i = 0; i < 3; i++) {
        const gpuipc_frame frame = loan();
        check_ok(gpuipc_channel_discard(channel_case_channel, &frame));
    }
    write_turn(1);
    for (int i = 0; i < 3; i++) {
        const gpuipc_frame frame = take(0);
        check_ok(gpuipc_subscription_give_back(readers[0], &frame, GPUIPC_NO_STREAM));
    }
    read_turn(0);
    check_seen(0, 1);
    capture_begin(makes);
    gpuipc_frame frame = loan();
    captured none = capture_end(makes);
    cr_assert(graphs_destroy(&none));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_publish(channel_case_channel, &frame, makes));
    check_ok(gpuipc_channel_discard(channel_case_channel, &frame));
    capture_begin(uses[0]);
    frame = take(0);
    none = capture_end(uses[0]);
    cr_assert(graphs_destroy(&none));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_give_back(readers[0], &frame, uses[0]));
    check_ok(gpuipc_subscription_give_back(readers[0], &frame, GPUIPC_NO_STREAM));
    write_turn(2);
    read_turn(0);
    check_seen(0, 2);
}

/* ---- ends ---------------------------------------------------------------------------------------- */

Test(channel_turn, a_reader_that_closes_keeps_nobody_waiting) {
    open_readers(2);
    captured write = capture_write(3);
    captured read = capture_read(0);
    launch(&write, makes);
    launch(&write, makes);
    launch(&read, uses[0]);
    stream_gate_check_waits(makes);
    close_reader(1); /* its turn was not taken */
    stream_gate_synchronize(makes);
    for (int i = 0; i < 5; i++) {
        launch(&read, uses[0]);
        check_seen(0, 3);
        launch(&write, makes);
    }
    cr_assert(graphs_destroy(&write));
    cr_assert(graphs_destroy(&read));
}

/* What waits goes on, and so does each launch that comes later; who asks is told. */
Test(channel_turn, a_channel_that_ends_keeps_nobody_waiting) {
    open_readers(1);
    captured write = capture_write(3);
    captured read = capture_read(0);
    launch(&read, uses[0]);
    stream_gate_check_waits(uses[0]);
    check_ok(gpuipc_subscription_check(readers[0]));
    cr_assert(graphs_destroy(&write));
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    stream_gate_synchronize(uses[0]);
    check_status(GPUIPC_ERR_PEER_CLOSED, gpuipc_subscription_check(readers[0]));
    for (int i = 0; i < 5; i++) {
        launch(&read, uses[0]);
        stream_gate_synchronize(uses[0]);
    }
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_status(GPUIPC_ERR_PEER_CLOSED, gpuipc_subscription_take(readers[0], uses[0], 0, &frame));
    cr_assert(graphs_destroy(&read));
}

/* The slots are gone, which this graph does not touch. The words are there. */
Test(channel_turn, a_launch_that_comes_too_late_finds_the_words) {
    open_readers(1);
    capture_begin(makes);
    gpuipc_frame frame = loan();
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, makes));
    captured write = capture_end(makes);
    capture_begin(uses[0]);
    frame = take(0);
    check_ok(gpuipc_subscription_give_back(readers[0], &frame, uses[0]));
    captured read = capture_end(uses[0]);
    launch(&write, makes);
    launch(&read, uses[0]);
    stream_gate_synchronize(uses[0]);
    close_reader(0);
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    check_ok(gpuipc_buffer_await_returns(seen, 0)); /* which tears down what it can */
    for (int i = 0; i < 3; i++) {
        launch(&write, makes);
        launch(&read, uses[0]);
        stream_gate_synchronize(makes);
        stream_gate_synchronize(uses[0]);
    }
    cr_assert(graphs_destroy(&write));
    cr_assert(graphs_destroy(&read));
}

/* Pages that were captured stay for a while, and not without end. */
Test(channel_turn, readers_that_graphs_had_waited_for_come_and_go) {
    core_need_emulated();
    core_set_failures(""); /* counts from here on */
    for (int i = 0; i < 60; i++) {
        open_readers(1);
        captured read = capture_read(0);
        write_turn(9);
        launch(&read, uses[0]);
        check_seen(0, 9);
        cr_assert(graphs_destroy(&read));
        close_reader(0);
    }
    stream_gate_synchronize(makes);
    const os_deadline end =
        os_deadline_after(SOON_MS); /* the watch sees by and by that streams have passed */
    do {
        check_ok(gpuipc_buffer_await_returns(seen, 0)); /* which tears down what it can */
        cr_assert_not(os_deadline_passed(end));
    } while (core_calls("cuMemHostRegister") > core_calls("cuMemHostUnregister") + 20);
}

Test(channel_turn, so_many_readers_are_captured) {
    core_need_emulated();
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    for (int i = 0; i < 256; i++) {
        open_readers(1);
        captured write = capture_write(1);
        cr_assert(graphs_destroy(&write));
        close_reader(0);
    }
    open_readers(1);
    capture_begin(makes);
    check_status(GPUIPC_ERR_LIMIT, gpuipc_channel_loan(channel_case_channel, makes, 0, &frame));
    captured none = capture_end(makes); /* the capture is whole */
    cr_assert(graphs_destroy(&none));
    write_turn(2);
    read_turn(0);
    check_seen(0, 2);
}

/* ---- who runs ahead ------------------------------------------------------------------------------ */

#define AHEAD_MAX 128
/* Calls that find room in a stream, on the emulated driver as on an H200. */
#define QUEUE_ROOM 1021u

/* Until it is too far ahead. @return how many turns that took */
static int run_ahead(gpuipc_status (*turn)(void)) {
    gpuipc_status status = GPUIPC_OK;
    int turns = 0;
    for (; turns <= AHEAD_MAX && (status = turn()) == GPUIPC_OK; turns++) {
    }
    check_status(GPUIPC_ERR_TIMEOUT, status);
    return turns;
}

static gpuipc_status write_at_once(void) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status = gpuipc_channel_loan(channel_case_channel, makes, 0, &frame);
    return status == GPUIPC_OK ? gpuipc_channel_publish(channel_case_channel, &frame, makes)
                               : status;
}

static gpuipc_status read_at_once(void) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status = gpuipc_subscription_take(readers[0], uses[0], 0, &frame);
    return status == GPUIPC_OK ? gpuipc_subscription_give_back(readers[0], &frame, uses[0])
                               : status;
}

static gpuipc_status loan_at_once(void) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status = gpuipc_channel_loan(channel_case_channel, makes, 0, &frame);
    return status == GPUIPC_OK ? gpuipc_channel_discard(channel_case_channel, &frame) : status;
}

/* The reader stands still: the writer's stream has room all the same, and its host is told. */
Test(channel_turn, a_writer_is_not_ahead_without_end) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    open_readers(1);
    write_turn(1);
    cr_assert_geq(run_ahead(write_at_once), AHEAD_MAX / 2);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_channel_loan(channel_case_channel, makes, 20, &frame));
    (void)info_of(0);
    for (int i = 0; i < AHEAD_MAX; i++) {
        (void)read_at_once();
    }
    write_turn(2); /* it goes on */
    close_reader(0);
    stream_gate_synchronize(makes);
}

Test(channel_turn, a_reader_is_not_ahead_without_end) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    open_readers(1);
    cr_assert_geq(run_ahead(read_at_once), AHEAD_MAX / 2);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_subscription_take(readers[0], uses[0], 20, &frame));
    close_reader(0);
    stream_gate_synchronize(uses[0]);
}

/* A loan that comes to nothing waits on the stream as well. */
Test(channel_turn, loans_that_are_given_up_are_not_ahead_without_end) {
    open_readers(1);
    write_turn(1);
    cr_assert_geq(run_ahead(loan_at_once), AHEAD_MAX / 2 - 1);
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    stream_gate_synchronize(makes);
}

/* The program has filled its stream's queue behind what waits for the other end, so that the driver waits in the call. */
static void fill_queue(CUstream stream) {
    CUdeviceptr word = gpuipc_buffer_address(seen);
    core_need_emulated();
    core_set_failures(""); /* counts from here on */
    for (unsigned i = 0; i < QUEUE_ROOM - 1; i++) {
        cr_assert_eq(core_driver()->cuStreamWriteValue64(stream, word, i, 0), CUDA_SUCCESS);
    }
}

static void await_call(void) {
    const os_deadline end = os_deadline_after(SOON_MS);
    while (core_calls("cuStreamBatchMemOp") == 0) {
        cr_assert_not(os_deadline_passed(end));
    }
}

typedef struct finishing {
    gpuipc_frame frame;
    gpuipc_status status;
} finishing;

static void publish_behind(void *argument) {
    finishing *self = argument;
    self->status = gpuipc_channel_publish(channel_case_channel, &self->frame, makes);
}

static void give_back_behind(void *argument) {
    finishing *self = argument;
    self->status = gpuipc_subscription_give_back(readers[0], &self->frame, uses[0]);
}

/* Nothing waits for it but its caller. */
Test(channel_turn, a_channel_ends_although_a_stream_is_full) {
    finishing self = {.status = GPUIPC_ERR_LOST};
    os_thread *thread;
    open_readers(1);
    write_turn(1);
    self.frame = loan(); /* the turn is the reader's */
    fill_queue(makes);
    check_ok(os_thread_start(publish_behind, &self, &thread));
    await_call();
    (void)info_of(0);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_publish(channel_case_channel, &self.frame, makes));
    gpuipc_channel *const of = channel_case_channel;
    check_ok(gpuipc_channel_destroy(of));
    os_thread_join(thread);
    channel_case_channel = NULL;
    check_ok(self.status);
    stream_gate_synchronize(makes);
}

Test(channel_turn, a_subscription_ends_although_a_stream_is_full) {
    finishing self = {.status = GPUIPC_ERR_LOST};
    os_thread *thread;
    open_readers(1);
    self.frame = take(0); /* the turn is the writer's */
    fill_queue(uses[0]);
    check_ok(os_thread_start(give_back_behind, &self, &thread));
    await_call();
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_give_back(readers[0], &self.frame, uses[0]));
    check_ok(gpuipc_subscription_close(readers[0]));
    os_thread_join(thread);
    readers[0] = NULL;
    check_ok(self.status);
    stream_gate_synchronize(uses[0]);
}

/* ---- what is refused ----------------------------------------------------------------------------- */

Test(channel_turn, its_config_is_checked) {
    const gpuipc_channel_config bad[] = {
        {.slots = 2, .turns = 1},
        {.slots = 1, .turns = 2},
        {.slots = 1, .turns = 1, .header_bytes = 8},
        {.slots = 1, .turns = 1, .full = GPUIPC_FULL_SKIP},
        {.slots = 1, .turns = 1, .reserved = 1},
    };
    const gpuipc_subscription_config wishes[] = {
        {.struct_size = sizeof(*wishes), .delivery = GPUIPC_DELIVERY_NEWEST},
        {.struct_size = sizeof(*wishes), .first = GPUIPC_FIRST_OLDEST},
    };
    gpuipc_channel *channel = NULL;
    gpuipc_ticket ticket;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        gpuipc_channel_config config = bad[i];
        config.struct_size = sizeof(config);
        config.buffer = seen;
        config.slot_bytes = CHANNEL_CASE_SLOT;
        check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                     gpuipc_channel_create(channel_case_server, &config, &channel, &ticket));
    }
    for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
        gpuipc_subscription *none = NULL;
        check_status(
            GPUIPC_ERR_INVALID_ARGUMENT,
            gpuipc_subscription_open(core_context, &channel_case_ticket, &wishes[i], &none));
    }
}

Test(channel_turn, a_turn_is_a_stream_s_and_one_at_a_time) {
    gpuipc_frame second = GPUIPC_FRAME_INIT;
    open_readers(1);
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "turns",
                  gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, 0, &second));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "turns",
                  gpuipc_subscription_take(readers[0], GPUIPC_NO_STREAM, 0, &second));
    gpuipc_frame frame = loan();
    check_status(GPUIPC_ERR_LIMIT, gpuipc_channel_loan(channel_case_channel, makes, 0, &second));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_publish(channel_case_channel, &frame, GPUIPC_NO_STREAM));
    frame.bytes--;
    check_status(GPUIPC_ERR_OUT_OF_RANGE,
                 gpuipc_channel_publish(channel_case_channel, &frame, makes));
    frame.bytes++;
    fill(&frame, 1);
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, makes));
    cr_assert_eq(info_of(0).captured, 0);
    frame = take(0);
    check_status(GPUIPC_ERR_LIMIT, gpuipc_subscription_take(readers[0], uses[0], 0, &second));
    stream_gate_synchronize(makes);
    cr_assert_eq(info_of(0).held, 1);
    check_ok(gpuipc_subscription_give_back(readers[0], &frame, uses[0]));
    stream_gate_synchronize(uses[0]);
    cr_assert_eq(info_of(0).held, 0);
}

/* It would never tell of a turn. */
Test(channel_turn, an_event_loop_cannot_wait_for_turns) {
    intptr_t handle;
    open_readers(1);
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "turns",
                  gpuipc_subscription_get_wait_handle(readers[0], &handle));
}

/* The default stream cannot be used meanwhile. That says so, and leaves the capture as it is. */
Test(channel_turn, what_a_capture_forbids_is_refused) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    open_readers(1);
    core_set_captured(true, NULL);
    check_refused(GPUIPC_ERR_CUDA, "captured",
                  gpuipc_channel_loan(channel_case_channel, NULL, 0, &frame));
    check_refused(GPUIPC_ERR_CUDA, "captured",
                  gpuipc_subscription_take(readers[0], NULL, 0, &frame));
    write_turn(1); /* of other streams it takes no notice */
    read_turn(0);
    core_set_captured(false, NULL);
    check_seen(0, 1);
}

/* ---- a reader that does not keep to the rules ------------------------------------------------------ */

static point_page *page_of(int reader) {
    object *behind;
    check_ok(object_acquire(OBJECT_SUBSCRIPTION, readers[reader], &behind));
    point_page *page = ((subscription *)behind)->page;
    point_page_reference(page);
    object_unreference(behind);
    return page;
}

/* It has closed, lives, and takes back what lets the writer go on. */
Test(channel_turn, what_lets_the_writer_go_is_not_taken_back) {
    open_readers(2);
    captured write = capture_write(3);
    captured read = capture_read(0);
    point_page *page = page_of(1);
    close_reader(1);
    for (int i = 0; i < 10; i++) {
        channel_write(page, TURN_FREE, 0);
        launch(&write, makes);
        launch(&read, uses[0]);
        check_seen(0, 3);
    }
    stream_gate_synchronize(makes);
    point_page_unreference(page, false);
    cr_assert(graphs_destroy(&write));
    cr_assert(graphs_destroy(&read));
}

/* Launched before the end, and not yet where it waits: a peer that lives does not keep it there, however often it takes
 * back what lets it go.
 * @param stream waits for nothing but the gate, and then for the other end's word */
static void check_let_go(CUstream stream, point_page *page, uint32_t word) {
    const os_deadline end = os_deadline_after(SOON_MS);
    for (int i = 0; i < 10; i++) {
        channel_write(page, word, 0);
        while (!turn_is_let_go(page, word)) {
            cr_assert_not(os_deadline_passed(end), "it is not let go any more");
        }
    }
    stream_gate_open();
    stream_gate_synchronize(stream);
    point_page_unreference(page, false);
}

Test(channel_turn, what_was_launched_before_the_channel_ends_goes_on) {
    open_readers(1);
    captured write = capture_write(3);
    launch(&write, makes);
    stream_gate_synchronize(makes);
    point_page *page = page_of(0); /* the turn is the reader's */
    stream_gate_close(makes);
    launch(&write, makes);
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    check_let_go(makes, page, TURN_FREE);
    cr_assert(graphs_destroy(&write));
}

Test(channel_turn, what_was_launched_before_the_subscription_ends_goes_on) {
    open_readers(1);
    captured read = capture_read(0);
    point_page *page = page_of(0);
    stream_gate_close(uses[0]);
    launch(&read, uses[0]);
    close_reader(0);
    check_let_go(uses[0], page, TURN_READY);
    cr_assert(graphs_destroy(&read));
}

/* Whatever it writes: who else reads sees whole turns, and when it is gone so is what it withheld. */
Test(channel_turn, any_words_of_a_reader_harm_nobody_else) {
    static const uint64_t words[] = {
        0, 1, 2, UINT64_MAX, UINT64_C(1) << 63, UINT64_C(1) << 32, UINT32_MAX, UINT64_C(1) << 62};
    open_readers(2);
    captured write = capture_write(3);
    captured read = capture_read(0);
    point_page *page = page_of(1);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        channel_write(page, TURN_READY, words[i]);
        channel_write(page, TURN_FREE, words[sizeof(words) / sizeof(words[0]) - 1 - i]);
        launch(&write, makes);
        channel_write(page, TURN_FREE, 1); /* what it withholds it withholds */
        launch(&read, uses[0]);
        check_seen(0, 3);
        (void)info_of(1);
        stream_gate_synchronize(makes);
    }
    channel_write(page, TURN_FREE,
                  (UINT64_C(1) << 63) + 1); /* behind 1, and ahead of what lets go */
    launch(&write, makes);
    close_reader(1);
    stream_gate_synchronize(makes);
    point_page_unreference(page, false);
    cr_assert(graphs_destroy(&write));
    cr_assert(graphs_destroy(&read));
}

/* ---- a machine whose streams have no words --------------------------------------------------------- */

static void start_without_words(void) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", "stream-words=0");
    core_start();
    core_need_emulated();
    check_ok(gpuipc_server_create(core_context, NULL, &channel_case_server));
    make();
}

static void finish_without_words(void) {
    channel_finish();
    core_environment_set("GPUIPC_EMULATED_MACHINE", NULL);
}

TestSuite(channel_turn_without_words, .init = start_without_words, .fini = finish_without_words,
          .timeout = 60);

Test(channel_turn_without_words, is_refused) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    open_readers(1);
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "words",
                  gpuipc_channel_loan(channel_case_channel, NULL, 0, &frame));
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "words",
                  gpuipc_subscription_take(readers[0], NULL, 0, &frame));
    close_reader(0);
}

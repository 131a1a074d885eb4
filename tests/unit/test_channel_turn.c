/* SPDX-License-Identifier: MIT */
/** @file Channels of turns: the four calls on streams and in graphs that are launched again and again. Both ends are in this
 *  process. How they end is in test_channel_turn_end.c; what dead and stopped ones do is in process.turn. */
#include "turn_case.h"

TestSuite(channel_turn, .init = turn_case_start, .fini = turn_case_finish, .timeout = 60);

/* ---- in graphs ----------------------------------------------------------------------------------- */

/* Two graphs write by turns, one reads: none is ahead of the other, and the host has no part in it. */
static void take_turns(CUstreamCaptureMode mode) {
    enum {
        ROUNDS = 100
    };
    captured write[2];
    captured read;
    turn_case_open_readers(1);
    for (uint32_t i = 0; i < 2; i++) {
        cr_assert(graphs_begin(turn_case_makes, mode));
        turn_case_write(i + 1);
        write[i] = turn_case_capture_end(turn_case_makes);
    }
    cr_assert(graphs_begin(turn_case_uses[0], mode));
    turn_case_read(0);
    read = turn_case_capture_end(turn_case_uses[0]);
    cr_assert_eq(turn_case_info_of(0).captured, 2);
    turn_case_launch(&write[0], turn_case_makes);
    turn_case_launch(&write[1], turn_case_makes);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        stream_gate_check_waits(turn_case_makes); /* the second waits for the reader */
        turn_case_launch(&read, turn_case_uses[0]);
        turn_case_check_seen(0, i % 2 + 1);
        turn_case_launch(&write[i % 2], turn_case_makes);
    }
    for (uint32_t i = 0; i < 2; i++) {
        turn_case_launch(&read, turn_case_uses[0]);
        turn_case_check_seen(0, i + 1);
    }
    stream_gate_synchronize(turn_case_makes);
    turn_case_launch(&read, turn_case_uses[0]); /* there is no more */
    stream_gate_check_waits(turn_case_uses[0]);
    turn_case_launch(&write[1], turn_case_makes);
    turn_case_check_seen(0, 2);
    check_ok(gpuipc_subscription_check(turn_case_readers[0]));
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
    captured read[TURN_CASE_READERS];
    turn_case_open_readers(TURN_CASE_READERS);
    captured write = turn_case_capture_write(7);
    for (int i = 0; i < TURN_CASE_READERS; i++) {
        read[i] = turn_case_capture_read(i);
    }
    for (int round = 0; round < 20; round++) {
        turn_case_launch(&write, turn_case_makes);
        turn_case_launch(&write, turn_case_makes);
        for (int i = 0; i < TURN_CASE_READERS; i++) {
            stream_gate_check_waits(turn_case_makes); /* for the last of them */
            turn_case_launch(&read[(i + round) % TURN_CASE_READERS],
                             turn_case_uses[(i + round) % TURN_CASE_READERS]);
        }
        for (int i = 0; i < TURN_CASE_READERS; i++) {
            turn_case_launch(&read[i], turn_case_uses[i]);
            turn_case_check_seen(i, 7);
        }
        stream_gate_synchronize(turn_case_makes);
    }
    cr_assert(graphs_destroy(&write));
    for (int i = 0; i < TURN_CASE_READERS; i++) {
        cr_assert(graphs_destroy(&read[i]));
    }
}

/* A graph and a stream that is not captured put the same words. */
Test(channel_turn, a_graph_at_one_end_and_calls_at_the_other) {
    turn_case_open_readers(1);
    captured write = turn_case_capture_write(5);
    for (int i = 0; i < 20; i++) {
        turn_case_launch(&write, turn_case_makes);
        turn_case_read(0);
        turn_case_check_seen(0, 5);
    }
    captured read = turn_case_capture_read(0);
    for (uint32_t i = 0; i < 20; i++) {
        turn_case_write(i);
        turn_case_launch(&read, turn_case_uses[0]);
        turn_case_check_seen(0, i);
    }
    cr_assert(graphs_destroy(&write));
    cr_assert(graphs_destroy(&read));
}

/* Of a reader that comes later the graph knows nothing: it is not kept waiting by it, and the writer can ask. */
Test(channel_turn, a_reader_that_comes_later_is_in_the_next_capture) {
    turn_case_open_readers(1);
    captured write = turn_case_capture_write(3);
    captured read = turn_case_capture_read(0);
    turn_case_readers[1] = channel_case_open(NULL);
    cr_assert_eq(turn_case_info_of(0).captured, 1);
    cr_assert_eq(turn_case_info_of(1).captured, 0);
    captured late = turn_case_capture_read(1);
    turn_case_launch(&late, turn_case_uses[1]);
    for (int i = 0; i < 5; i++) {
        turn_case_launch(&write, turn_case_makes);
        turn_case_launch(&read, turn_case_uses[0]);
        turn_case_check_seen(0, 3);
    }
    stream_gate_check_waits(turn_case_uses[1]);
    cr_assert(graphs_destroy(&write));
    write = turn_case_capture_write(4);
    cr_assert_eq(turn_case_info_of(0).captured, 2);
    cr_assert_eq(turn_case_info_of(1).captured, 1);
    turn_case_launch(&write, turn_case_makes);
    turn_case_check_seen(1, 4);
    turn_case_launch(&read, turn_case_uses[0]);
    turn_case_check_seen(0, 4);
    cr_assert(graphs_destroy(&write));
    cr_assert(graphs_destroy(&read));
    cr_assert(graphs_destroy(&late));
}

/* The loan was for the readers of then. */
Test(channel_turn, a_reader_that_comes_between_loan_and_publication) {
    turn_case_open_readers(1);
    turn_case_capture_begin(turn_case_makes);
    gpuipc_frame frame = turn_case_loan();
    turn_case_readers[1] = channel_case_open(NULL);
    turn_case_fill(&frame, 6);
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, turn_case_makes));
    captured write = turn_case_capture_end(turn_case_makes);
    cr_assert_eq(turn_case_info_of(1).captured, 0);
    captured read = turn_case_capture_read(0);
    for (int i = 0; i < 3; i++) {
        turn_case_launch(&write, turn_case_makes);
        turn_case_launch(&read, turn_case_uses[0]);
        turn_case_check_seen(0, 6);
    }
    turn_case_read(1);
    stream_gate_check_waits(turn_case_uses[1]);
    turn_case_write(8);
    turn_case_check_seen(1, 8);
    cr_assert(graphs_destroy(&write));
    cr_assert(graphs_destroy(&read));
}

/* ---- not in graphs ------------------------------------------------------------------------------- */

Test(channel_turn, streams_take_turns) {
    turn_case_open_readers(2);
    for (uint32_t i = 0; i < 50; i++) {
        turn_case_write(i);
        turn_case_read(0);
        turn_case_read(1);
        if (i % 10 == 0) {
            turn_case_check_seen(0, i);
            turn_case_check_seen(1, i);
        }
    }
    turn_case_check_seen(0, 49);
    turn_case_check_seen(1, 49);
}

/* What one stream has not come to yet, another waits for. */
Test(channel_turn, streams_of_one_end_wait_for_each_other) {
    turn_case_open_readers(1);
    CUstream others[2] = {turn_case_makes, stream_gate_stream()};
    CUstream theirs[2] = {turn_case_uses[0], stream_gate_stream()};
    for (uint32_t i = 0; i < 50; i++) {
        turn_case_makes = others[i % 2];
        turn_case_uses[0] = theirs[i / 3 % 2];
        if (i % 5 == 0) {
            stream_gate_close(turn_case_makes);
        }
        turn_case_write(i);
        turn_case_read(0);
        stream_gate_open();
        if (i % 10 == 9) {
            turn_case_check_seen(0, i);
        }
    }
    turn_case_check_seen(0, 49);
    stream_gate_synchronize(others[0]);
    stream_gate_synchronize(others[1]);
    stream_gate_synchronize(theirs[0]);
    turn_case_makes = others[0];
    turn_case_uses[0] = theirs[0];
    stream_gate_stream_end(others[1]);
    stream_gate_stream_end(theirs[1]);
}

Test(channel_turn, without_readers_nobody_is_waited_for) {
    turn_case_write(1);
    captured write = turn_case_capture_write(2);
    turn_case_launch(&write, turn_case_makes);
    turn_case_launch(&write, turn_case_makes);
    stream_gate_synchronize(turn_case_makes);
    cr_assert(graphs_destroy(&write));
}

/* ---- what is given up ---------------------------------------------------------------------------- */

/* A loan, or a take, that comes to nothing changes no word. */
Test(channel_turn, what_is_not_ended_is_begun_again) {
    turn_case_open_readers(1);
    for (int i = 0; i < 3; i++) {
        const gpuipc_frame frame = turn_case_loan();
        check_ok(gpuipc_channel_discard(channel_case_channel, &frame));
    }
    turn_case_write(1);
    for (int i = 0; i < 3; i++) {
        const gpuipc_frame frame = turn_case_take(0);
        check_ok(gpuipc_subscription_give_back(turn_case_readers[0], &frame, GPUIPC_NO_STREAM));
    }
    turn_case_read(0);
    turn_case_check_seen(0, 1);
    turn_case_capture_begin(turn_case_makes);
    gpuipc_frame frame = turn_case_loan();
    captured none = turn_case_capture_end(turn_case_makes);
    cr_assert(graphs_destroy(&none));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_publish(channel_case_channel, &frame, turn_case_makes));
    check_ok(gpuipc_channel_discard(channel_case_channel, &frame));
    turn_case_capture_begin(turn_case_uses[0]);
    frame = turn_case_take(0);
    none = turn_case_capture_end(turn_case_uses[0]);
    cr_assert(graphs_destroy(&none));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_give_back(turn_case_readers[0], &frame, turn_case_uses[0]));
    check_ok(gpuipc_subscription_give_back(turn_case_readers[0], &frame, GPUIPC_NO_STREAM));
    turn_case_write(2);
    turn_case_read(0);
    turn_case_check_seen(0, 2);
}

/* ---- who runs ahead ------------------------------------------------------------------------------ */

#define AHEAD_MAX 62
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
    gpuipc_status status = gpuipc_channel_loan(channel_case_channel, turn_case_makes, 0, &frame);
    return status == GPUIPC_OK
               ? gpuipc_channel_publish(channel_case_channel, &frame, turn_case_makes)
               : status;
}

static gpuipc_status read_at_once(void) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status =
        gpuipc_subscription_take(turn_case_readers[0], turn_case_uses[0], 0, &frame);
    return status == GPUIPC_OK
               ? gpuipc_subscription_give_back(turn_case_readers[0], &frame, turn_case_uses[0])
               : status;
}

static gpuipc_status loan_at_once(void) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status = gpuipc_channel_loan(channel_case_channel, turn_case_makes, 0, &frame);
    return status == GPUIPC_OK ? gpuipc_channel_discard(channel_case_channel, &frame) : status;
}

/* The reader stands still: the writer's stream has room all the same, and its host is told. */
Test(channel_turn, a_writer_is_not_ahead_without_end) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    turn_case_open_readers(1);
    turn_case_write(1);
    cr_assert_geq(run_ahead(write_at_once), AHEAD_MAX / 2);
    check_status(GPUIPC_ERR_TIMEOUT,
                 gpuipc_channel_loan(channel_case_channel, turn_case_makes, 20, &frame));
    (void)turn_case_info_of(0);
    for (int i = 0; i < AHEAD_MAX; i++) {
        (void)read_at_once();
    }
    turn_case_write(2); /* it goes on */
    turn_case_close_reader(0);
    stream_gate_synchronize(turn_case_makes);
}

Test(channel_turn, a_reader_is_not_ahead_without_end) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    turn_case_open_readers(1);
    cr_assert_geq(run_ahead(read_at_once), AHEAD_MAX / 2);
    check_status(GPUIPC_ERR_TIMEOUT,
                 gpuipc_subscription_take(turn_case_readers[0], turn_case_uses[0], 20, &frame));
    turn_case_close_reader(0);
    stream_gate_synchronize(turn_case_uses[0]);
}

/* A loan that comes to nothing waits on the stream as well. */
Test(channel_turn, loans_that_are_given_up_are_not_ahead_without_end) {
    turn_case_open_readers(1);
    turn_case_write(1);
    cr_assert_geq(run_ahead(loan_at_once), AHEAD_MAX / 2 - 1);
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    stream_gate_synchronize(turn_case_makes);
}

/* The program has filled its stream's queue behind what waits for the other end, so that the driver waits in the call. */
static void fill_queue(CUstream stream) {
    CUdeviceptr word = gpuipc_buffer_address(turn_case_seen);
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
    self->status = gpuipc_channel_publish(channel_case_channel, &self->frame, turn_case_makes);
}

static void give_back_behind(void *argument) {
    finishing *self = argument;
    self->status =
        gpuipc_subscription_give_back(turn_case_readers[0], &self->frame, turn_case_uses[0]);
}

/* Nothing waits for it but its caller. */
Test(channel_turn, a_channel_ends_although_a_stream_is_full) {
    finishing self = {.status = GPUIPC_ERR_LOST};
    os_thread *thread;
    turn_case_open_readers(1);
    turn_case_write(1);
    self.frame = turn_case_loan(); /* the turn is the reader's */
    fill_queue(turn_case_makes);
    check_ok(os_thread_start(publish_behind, &self, &thread));
    await_call();
    (void)turn_case_info_of(0);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_publish(channel_case_channel, &self.frame, turn_case_makes));
    gpuipc_channel *const of = channel_case_channel;
    check_ok(gpuipc_channel_destroy(of));
    os_thread_join(thread);
    channel_case_channel = NULL;
    check_ok(self.status);
    stream_gate_synchronize(turn_case_makes);
}

Test(channel_turn, a_subscription_ends_although_a_stream_is_full) {
    finishing self = {.status = GPUIPC_ERR_LOST};
    os_thread *thread;
    turn_case_open_readers(1);
    self.frame = turn_case_take(0); /* the turn is the writer's */
    fill_queue(turn_case_uses[0]);
    check_ok(os_thread_start(give_back_behind, &self, &thread));
    await_call();
    check_status(
        GPUIPC_ERR_INVALID_ARGUMENT,
        gpuipc_subscription_give_back(turn_case_readers[0], &self.frame, turn_case_uses[0]));
    check_ok(gpuipc_subscription_close(turn_case_readers[0]));
    os_thread_join(thread);
    turn_case_readers[0] = NULL;
    check_ok(self.status);
    stream_gate_synchronize(turn_case_uses[0]);
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
        config.buffer = turn_case_seen;
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
    turn_case_open_readers(1);
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "turns",
                  gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, 0, &second));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "turns",
                  gpuipc_subscription_take(turn_case_readers[0], GPUIPC_NO_STREAM, 0, &second));
    gpuipc_frame frame = turn_case_loan();
    check_status(GPUIPC_ERR_LIMIT,
                 gpuipc_channel_loan(channel_case_channel, turn_case_makes, 0, &second));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_publish(channel_case_channel, &frame, GPUIPC_NO_STREAM));
    frame.bytes--;
    check_status(GPUIPC_ERR_OUT_OF_RANGE,
                 gpuipc_channel_publish(channel_case_channel, &frame, turn_case_makes));
    frame.bytes++;
    turn_case_fill(&frame, 1);
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, turn_case_makes));
    cr_assert_eq(turn_case_info_of(0).captured, 0);
    frame = turn_case_take(0);
    check_status(GPUIPC_ERR_LIMIT,
                 gpuipc_subscription_take(turn_case_readers[0], turn_case_uses[0], 0, &second));
    stream_gate_synchronize(turn_case_makes);
    cr_assert_eq(turn_case_info_of(0).held, 1);
    check_ok(gpuipc_subscription_give_back(turn_case_readers[0], &frame, turn_case_uses[0]));
    stream_gate_synchronize(turn_case_uses[0]);
    cr_assert_eq(turn_case_info_of(0).held, 0);
}

/* It would never tell of a turn. */
Test(channel_turn, an_event_loop_cannot_wait_for_turns) {
    intptr_t handle;
    turn_case_open_readers(1);
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "turns",
                  gpuipc_subscription_get_wait_handle(turn_case_readers[0], &handle));
}

/* The default stream cannot be used meanwhile. That says so, and leaves the capture as it is. */
Test(channel_turn, what_a_capture_forbids_is_refused) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    turn_case_open_readers(1);
    core_set_captured(true, NULL);
    check_refused(GPUIPC_ERR_CUDA, "captured",
                  gpuipc_channel_loan(channel_case_channel, NULL, 0, &frame));
    check_refused(GPUIPC_ERR_CUDA, "captured",
                  gpuipc_subscription_take(turn_case_readers[0], NULL, 0, &frame));
    turn_case_write(1); /* of other streams it takes no notice */
    turn_case_read(0);
    core_set_captured(false, NULL);
    turn_case_check_seen(0, 1);
}

/* ---- a machine whose streams have no words --------------------------------------------------------- */

static void start_without_words(void) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", "stream-words=0");
    core_start();
    core_need_emulated();
    check_ok(gpuipc_server_create(core_context, NULL, &channel_case_server));
    turn_case_make();
}

static void finish_without_words(void) {
    channel_finish();
    core_environment_set("GPUIPC_EMULATED_MACHINE", NULL);
}

TestSuite(channel_turn_without_words, .init = start_without_words, .fini = finish_without_words,
          .timeout = 60);

Test(channel_turn_without_words, is_refused) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    turn_case_open_readers(1);
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "words",
                  gpuipc_channel_loan(channel_case_channel, NULL, 0, &frame));
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "words",
                  gpuipc_subscription_take(turn_case_readers[0], NULL, 0, &frame));
    turn_case_close_reader(0);
}

/* SPDX-License-Identifier: MIT */
/** @file Channels of turns: ends that go, and readers that do not keep to the rules. */
#include <inttypes.h>

#include "channel/subscription.h"
#include "turn_case.h"

TestSuite(channel_turn_end, .init = turn_case_start, .fini = turn_case_finish, .timeout = 60);

/* ---- ends ---------------------------------------------------------------------------------------- */

Test(channel_turn_end, a_reader_that_closes_keeps_nobody_waiting) {
    turn_case_open_readers(2);
    captured write = turn_case_capture_write(3);
    captured read = turn_case_capture_read(0);
    turn_case_launch(&write, turn_case_makes);
    turn_case_launch(&write, turn_case_makes);
    turn_case_launch(&read, turn_case_uses[0]);
    stream_gate_check_waits(turn_case_makes);
    turn_case_close_reader(1); /* its turn was not taken */
    stream_gate_synchronize(turn_case_makes);
    for (int i = 0; i < 5; i++) {
        turn_case_launch(&read, turn_case_uses[0]);
        turn_case_check_seen(0, 3);
        turn_case_launch(&write, turn_case_makes);
    }
    cr_assert(graphs_destroy(&write));
    cr_assert(graphs_destroy(&read));
}

/* What waits goes on, and so does each launch that comes later; who asks is told. */
Test(channel_turn_end, a_channel_that_ends_keeps_nobody_waiting) {
    turn_case_open_readers(1);
    captured write = turn_case_capture_write(3);
    captured read = turn_case_capture_read(0);
    turn_case_launch(&read, turn_case_uses[0]);
    stream_gate_check_waits(turn_case_uses[0]);
    check_ok(gpuipc_subscription_check(turn_case_readers[0]));
    cr_assert(graphs_destroy(&write));
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    stream_gate_synchronize(turn_case_uses[0]);
    check_status(GPUIPC_ERR_PEER_CLOSED, gpuipc_subscription_check(turn_case_readers[0]));
    for (int i = 0; i < 5; i++) {
        turn_case_launch(&read, turn_case_uses[0]);
        stream_gate_synchronize(turn_case_uses[0]);
    }
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_status(GPUIPC_ERR_PEER_CLOSED,
                 gpuipc_subscription_take(turn_case_readers[0], turn_case_uses[0], 0, &frame));
    cr_assert(graphs_destroy(&read));
}

/* The slots are gone, which this graph does not touch. The words are there. */
Test(channel_turn_end, a_launch_that_comes_too_late_finds_the_words) {
    turn_case_open_readers(1);
    turn_case_capture_begin(turn_case_makes);
    gpuipc_frame frame = turn_case_loan();
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, turn_case_makes));
    captured write = turn_case_capture_end(turn_case_makes);
    turn_case_capture_begin(turn_case_uses[0]);
    frame = turn_case_take(0);
    check_ok(gpuipc_subscription_give_back(turn_case_readers[0], &frame, turn_case_uses[0]));
    captured read = turn_case_capture_end(turn_case_uses[0]);
    turn_case_launch(&write, turn_case_makes);
    turn_case_launch(&read, turn_case_uses[0]);
    stream_gate_synchronize(turn_case_uses[0]);
    turn_case_close_reader(0);
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    check_ok(gpuipc_buffer_await_returns(turn_case_seen, 0)); /* which tears down what it can */
    for (int i = 0; i < 3; i++) {
        turn_case_launch(&write, turn_case_makes);
        turn_case_launch(&read, turn_case_uses[0]);
        stream_gate_synchronize(turn_case_makes);
        stream_gate_synchronize(turn_case_uses[0]);
    }
    cr_assert(graphs_destroy(&write));
    cr_assert(graphs_destroy(&read));
}

/* Pages that were captured stay for a while, and not without end. */
Test(channel_turn_end, readers_that_graphs_had_waited_for_come_and_go) {
    core_need_emulated();
    core_set_failures(""); /* counts from here on */
    for (int i = 0; i < 60; i++) {
        turn_case_open_readers(1);
        captured read = turn_case_capture_read(0);
        turn_case_write(9);
        turn_case_launch(&read, turn_case_uses[0]);
        turn_case_check_seen(0, 9);
        cr_assert(graphs_destroy(&read));
        turn_case_close_reader(0);
    }
    stream_gate_synchronize(turn_case_makes);
    const os_deadline end =
        os_deadline_after(SOON_MS); /* the watch sees by and by that streams have passed */
    do {
        check_ok(gpuipc_buffer_await_returns(turn_case_seen, 0)); /* which tears down what it can */
        cr_assert_not(os_deadline_passed(end));
    } while (core_calls("cuMemHostRegister") > core_calls("cuMemHostUnregister") + 36);
}

Test(channel_turn_end, so_many_readers_are_captured) {
    core_need_emulated();
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    for (int i = 0; i < 256; i++) {
        turn_case_open_readers(1);
        captured write = turn_case_capture_write(1);
        cr_assert(graphs_destroy(&write));
        turn_case_close_reader(0);
    }
    turn_case_open_readers(1);
    turn_case_capture_begin(turn_case_makes);
    check_status(GPUIPC_ERR_LIMIT,
                 gpuipc_channel_loan(channel_case_channel, turn_case_makes, 0, &frame));
    captured none = turn_case_capture_end(turn_case_makes); /* the capture is whole */
    cr_assert(graphs_destroy(&none));
    turn_case_write(2);
    turn_case_read(0);
    turn_case_check_seen(0, 2);
}

/* ---- a reader that does not keep to the rules ------------------------------------------------------ */

static point_page *page_of(int reader) {
    object *behind;
    check_ok(object_acquire(OBJECT_SUBSCRIPTION, turn_case_readers[reader], &behind));
    point_page *page = ((subscription *)behind)->page;
    point_page_reference(page);
    object_unreference(behind);
    return page;
}

/* It has closed, lives, and takes back what lets the writer go on. */
Test(channel_turn_end, what_lets_the_writer_go_is_not_taken_back) {
    turn_case_open_readers(2);
    captured write = turn_case_capture_write(3);
    captured read = turn_case_capture_read(0);
    point_page *page = page_of(1);
    turn_case_close_reader(1);
    for (int i = 0; i < 10; i++) {
        channel_write(page, TURN_FREE, 0);
        turn_case_launch(&write, turn_case_makes);
        turn_case_launch(&read, turn_case_uses[0]);
        turn_case_check_seen(0, 3);
    }
    stream_gate_synchronize(turn_case_makes);
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

Test(channel_turn_end, what_was_launched_before_the_channel_ends_goes_on) {
    turn_case_open_readers(1);
    captured write = turn_case_capture_write(3);
    turn_case_launch(&write, turn_case_makes);
    stream_gate_synchronize(turn_case_makes);
    point_page *page = page_of(0); /* the turn is the reader's */
    stream_gate_close(turn_case_makes);
    turn_case_launch(&write, turn_case_makes);
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    check_let_go(turn_case_makes, page, TURN_FREE);
    cr_assert(graphs_destroy(&write));
}

/* Their pages end first, so that those of readers that are there are among the latest. */
Test(channel_turn_end, readers_that_had_left_do_not_keep_the_latest_launch) {
    for (int i = 0; i < 40; i++) {
        turn_case_open_readers(1);
        captured earlier = turn_case_capture_write(1);
        cr_assert(graphs_destroy(&earlier));
        turn_case_close_reader(0);
    }
    turn_case_open_readers(1);
    captured write = turn_case_capture_write(3);
    turn_case_launch(&write, turn_case_makes);
    stream_gate_synchronize(turn_case_makes);
    point_page *page = page_of(0);
    stream_gate_close(turn_case_makes);
    turn_case_launch(&write, turn_case_makes);
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    check_let_go(turn_case_makes, page, TURN_FREE);
    cr_assert(graphs_destroy(&write));
}

Test(channel_turn_end, what_was_launched_before_the_subscription_ends_goes_on) {
    turn_case_open_readers(1);
    captured read = turn_case_capture_read(0);
    point_page *page = page_of(0);
    stream_gate_close(turn_case_uses[0]);
    turn_case_launch(&read, turn_case_uses[0]);
    turn_case_close_reader(0);
    check_let_go(turn_case_uses[0], page, TURN_READY);
    cr_assert(graphs_destroy(&read));
}

/* Whatever it writes: who else reads sees whole turns, and when it is gone so is what it withheld. */
Test(channel_turn_end, any_words_of_a_reader_harm_nobody_else) {
    static const uint64_t words[] = {
        0, 1, 2, UINT64_MAX, UINT64_C(1) << 63, UINT64_C(1) << 32, UINT32_MAX, UINT64_C(1) << 62};
    turn_case_open_readers(2);
    captured write = turn_case_capture_write(3);
    captured read = turn_case_capture_read(0);
    point_page *page = page_of(1);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        channel_write(page, TURN_READY, words[i]);
        channel_write(page, TURN_FREE, words[sizeof(words) / sizeof(words[0]) - 1 - i]);
        turn_case_launch(&write, turn_case_makes);
        channel_write(page, TURN_FREE, 1); /* what it withholds it withholds */
        turn_case_launch(&read, turn_case_uses[0]);
        turn_case_check_seen(0, 3);
        (void)turn_case_info_of(1);
        stream_gate_synchronize(turn_case_makes);
    }
    channel_write(page, TURN_FREE,
                  (UINT64_C(1) << 63) + 1); /* behind 1, and ahead of what lets go */
    turn_case_launch(&write, turn_case_makes);
    turn_case_close_reader(1);
    stream_gate_synchronize(turn_case_makes);
    point_page_unreference(page, false);
    cr_assert(graphs_destroy(&write));
    cr_assert(graphs_destroy(&read));
}

/* SPDX-License-Identifier: MIT */
/** @file Channels within one process: what is delivered to whom, and what is refused. */
#include "channel_case.h"
#include "stream_gate.h"

TestSuite(channel, .init = channel_start, .fini = channel_finish, .timeout = 60);

Test(channel, every_frame_comes_in_order_with_its_header) {
    channel_case_make(&(gpuipc_channel_config){.slots = 3, .header_bytes = 20});
    gpuipc_subscription *reader = channel_case_open(&(gpuipc_subscription_config){.max_held = 2});
    for (uint64_t i = 1; i <= 200; i++) {
        gpuipc_frame frame = channel_case_loan();
        char text[20] = {0}; /* some headers end behind the words */
        cr_assert_eq(frame.capacity, CHANNEL_CASE_SLOT);
        snprintf(text, sizeof(text), "frame %u", (unsigned)i);
        frame.bytes = i;
        frame.header = text;
        frame.header_bytes = i % 20;
        check_ok(gpuipc_channel_publish(channel_case_channel, &frame, GPUIPC_NO_STREAM));
        gpuipc_frame came = channel_case_take(reader);
        cr_assert_eq(came.sequence, i);
        cr_assert_eq(came.missed, 0);
        cr_assert_eq(came.bytes, i);
        cr_assert_eq(came.address, frame.address);
        cr_assert_eq(came.header_bytes, i % 20);
        cr_assert(i % 20 == 0 || memcmp(came.header, text, i % 20) == 0);
        check_ok(gpuipc_subscription_give_back(reader, &came, GPUIPC_NO_STREAM));
    }
    check_ok(gpuipc_subscription_close(reader));
}

Test(channel, a_reader_looks_without_calls_of_the_driver) {
    channel_case_make(&(gpuipc_channel_config){.slots = 4});
    gpuipc_subscription *reader = channel_case_open(NULL);
    core_set_failures("");
    for (int i = 0; i < 100; i++) {
        channel_case_send();
        channel_case_receive(reader);
    }
    cr_assert_eq(core_calls(NULL), 0);
    check_ok(gpuipc_subscription_close(reader));
}

Test(channel, frames_are_taken_in_batches_and_given_back_in_any_order) {
    gpuipc_frame frames[3];
    channel_case_make(&(gpuipc_channel_config){.slots = 4});
    gpuipc_subscription *reader = channel_case_open(&(gpuipc_subscription_config){.max_held = 3});
    for (uint64_t round = 0; round < 50; round++) {
        for (int i = 0; i < 3; i++) {
            channel_case_send();
        }
        for (size_t i = 0; i < 3; i++) {
            frames[i] = channel_case_take(reader);
            cr_assert_eq(frames[i].sequence, round * 3 + i + 1);
        }
        gpuipc_frame more = GPUIPC_FRAME_INIT;
        cr_assert_eq(gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 0, &more),
                     GPUIPC_ERR_LIMIT);
        for (size_t i = 0; i < 3; i++) {
            check_ok(
                gpuipc_subscription_give_back(reader, &frames[(i + round) % 3], GPUIPC_NO_STREAM));
        }
    }
    check_ok(gpuipc_subscription_close(reader));
}

/* Numbers run around the ring while one slot stays with its reader. */
Test(channel, a_frame_that_is_held_for_long_keeps_nothing_else) {
    channel_case_make(&(gpuipc_channel_config){.slots = 3});
    gpuipc_subscription *reader = channel_case_open(&(gpuipc_subscription_config){.max_held = 2});
    channel_case_send();
    gpuipc_frame held = channel_case_take(reader);
    for (int i = 0; i < 300; i++) {
        channel_case_send();
        gpuipc_frame came = channel_case_take(reader);
        cr_assert_neq(came.address, held.address);
        check_ok(gpuipc_subscription_give_back(reader, &came, GPUIPC_NO_STREAM));
    }
    check_ok(gpuipc_subscription_give_back(reader, &held, GPUIPC_NO_STREAM));
    check_ok(gpuipc_subscription_close(reader));
}

/* As the writer sees it. */
static void check_reader(uint64_t passed_over, uint32_t lag) {
    const gpuipc_reader_info info = channel_case_reader();
    cr_assert_eq(info.passed_over, passed_over, "%llu passed over",
                 (unsigned long long)info.passed_over);
    cr_assert_eq(info.lag, lag, "%u wait", info.lag);
}

Test(channel, a_reader_of_the_newest_counts_what_it_missed) {
    channel_case_make(&(gpuipc_channel_config){.slots = 3});
    gpuipc_subscription *reader =
        channel_case_open(&(gpuipc_subscription_config){.delivery = GPUIPC_DELIVERY_NEWEST});
    for (int i = 0; i < 10; i++) {
        channel_case_send();
    }
    check_reader(9, 1);
    gpuipc_frame came = channel_case_take(reader);
    check_reader(9, 0);
    cr_assert_eq(came.sequence, 10);
    cr_assert_eq(came.missed, 9);
    for (int i = 0; i < 7; i++) { /* all round the one that it has */
        channel_case_send();
    }
    check_ok(gpuipc_subscription_give_back(reader, &came, GPUIPC_NO_STREAM));
    came = channel_case_take(reader);
    cr_assert_eq(came.sequence, 17);
    cr_assert_eq(came.missed, 6);
    check_ok(gpuipc_subscription_give_back(reader, &came, GPUIPC_NO_STREAM));
    gpuipc_reader_info info = channel_case_reader();
    cr_assert_eq(info.state, GPUIPC_READER_ACTIVE);
    cr_assert_eq(info.passed_over, 15);
    channel_case_send();
    channel_case_send();
    check_reader(16, 1);
    check_ok(gpuipc_subscription_close(reader));
    check_reader(16, 0);
}

Test(channel, a_late_reader_begins_where_it_wants) {
    channel_case_make(&(gpuipc_channel_config){.slots = 4});
    for (int i = 0; i < 6; i++) {
        channel_case_send();
    }
    gpuipc_subscription *next = channel_case_open(NULL);
    gpuipc_subscription *newest =
        channel_case_open(&(gpuipc_subscription_config){.first = GPUIPC_FIRST_NEWEST});
    gpuipc_subscription *oldest =
        channel_case_open(&(gpuipc_subscription_config){.first = GPUIPC_FIRST_OLDEST});
    channel_case_check_nothing(next);
    cr_assert_eq(channel_case_receive(newest), 6);
    channel_case_check_nothing(newest);
    for (uint64_t i = 3; i <= 6; i++) {
        cr_assert_eq(channel_case_receive(oldest), i);
    }
    channel_case_check_nothing(oldest);
    channel_case_send();
    cr_assert_eq(channel_case_receive(next), 7);
    cr_assert_eq(channel_case_receive(newest), 7);
    cr_assert_eq(channel_case_receive(oldest), 7);
    check_ok(gpuipc_subscription_close(next));
    check_ok(gpuipc_subscription_close(newest));
    check_ok(gpuipc_subscription_close(oldest));
}

/* ---- no slot ----------------------------------------------------------------------------------- */

static gpuipc_status loan_in(int timeout_ms) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    return gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, timeout_ms, &frame);
}

Test(channel, a_loan_waits_for_who_wants_every_frame) {
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    gpuipc_subscription *reader = channel_case_open(NULL);
    channel_case_send();
    channel_case_send();
    cr_assert_eq(loan_in(0), GPUIPC_ERR_TIMEOUT);
    cr_assert_eq(loan_in(30), GPUIPC_ERR_TIMEOUT);
    gpuipc_reader_info info = channel_case_reader();
    cr_assert_eq(info.lag, 2);
    cr_assert_eq(info.held, 0);
    cr_assert_eq(channel_case_receive(reader), 1);
    channel_case_send();
    cr_assert_eq(channel_case_receive(reader), 2);
    cr_assert_eq(channel_case_receive(reader), 3);
    check_ok(gpuipc_subscription_close(reader));
}

Test(channel, a_loan_that_skips_spends_a_number) {
    channel_case_make(&(gpuipc_channel_config){.slots = 1, .full = GPUIPC_FULL_SKIP});
    gpuipc_subscription *reader = channel_case_open(NULL);
    channel_case_send();
    cr_assert_eq(loan_in(-1), GPUIPC_ERR_BUSY);
    cr_assert_eq(loan_in(-1), GPUIPC_ERR_BUSY);
    cr_assert_eq(channel_case_receive(reader), 1);
    channel_case_send();
    gpuipc_frame came = channel_case_take(reader);
    cr_assert_eq(came.sequence, 4);
    cr_assert_eq(came.missed, 2);
    check_ok(gpuipc_subscription_give_back(reader, &came, GPUIPC_NO_STREAM));
    check_ok(gpuipc_subscription_close(reader));
}

Test(channel, a_slow_reader_is_dropped_and_the_others_lose_nothing) {
    channel_case_make(
        &(gpuipc_channel_config){.slots = 2, .full = GPUIPC_FULL_DROP, .drop_after_ms = 20});
    gpuipc_subscription *slow = channel_case_open(NULL);
    gpuipc_subscription *good = channel_case_open(NULL);
    channel_case_send();
    gpuipc_frame held = channel_case_take(slow);
    cr_assert_eq(channel_case_receive(good), 1);
    for (uint64_t i = 2; i <= 5; i++) {
        channel_case_send();
        cr_assert_eq(channel_case_receive(good), i);
    }
    gpuipc_reader_info info = channel_case_reader();
    cr_assert_eq(info.state, GPUIPC_READER_DROPPED);
    check_ok(gpuipc_subscription_give_back(slow, &held, GPUIPC_NO_STREAM));
    gpuipc_frame none = GPUIPC_FRAME_INIT;
    cr_assert_eq(gpuipc_subscription_take(slow, GPUIPC_NO_STREAM, SOON_MS, &none),
                 GPUIPC_ERR_CONNECTION_BROKEN);
    check_ok(gpuipc_subscription_close(slow));
    check_ok(gpuipc_subscription_close(good));
}

Test(channel, a_slow_reader_is_dropped_also_by_loans_that_wait_for_less) {
    channel_case_make(
        &(gpuipc_channel_config){.slots = 1, .full = GPUIPC_FULL_DROP, .drop_after_ms = 20});
    gpuipc_subscription *slow = channel_case_open(NULL);
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status;
    channel_case_send();
    (void)channel_case_take(slow);
    do { /* until the test's own timeout */
        status = gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, 0, &frame);
    } while (status == GPUIPC_ERR_TIMEOUT);
    check_ok(status);
    cr_assert_eq(channel_case_reader().state, GPUIPC_READER_DROPPED);
    check_ok(gpuipc_channel_discard(channel_case_channel, &frame));
    check_ok(gpuipc_subscription_close(slow));
}

/* ---- who waits --------------------------------------------------------------------------------- */

static gpuipc_status take_late(void *argument) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_subscription *reader = argument;
    gpuipc_status status = gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, -1, &frame);
    return status == GPUIPC_OK ? gpuipc_subscription_give_back(reader, &frame, GPUIPC_NO_STREAM)
                               : status;
}

Test(channel, who_sleeps_is_woken) {
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    gpuipc_subscription *reader = channel_case_open(NULL);
    for (int i = 0; i < 20; i++) {
        core_waiter waiter;
        core_waiter_start(&waiter, take_late, reader);
        channel_case_send();
        check_ok(core_waiter_end(&waiter));
    }
    check_ok(gpuipc_subscription_close(reader));
}

static gpuipc_status loan_late(void *argument) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    (void)argument;
    gpuipc_status status = gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, -1, &frame);
    return status == GPUIPC_OK
               ? gpuipc_channel_publish(channel_case_channel, &frame, GPUIPC_NO_STREAM)
               : status;
}

Test(channel, a_writer_that_sleeps_is_woken) {
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    gpuipc_subscription *reader = channel_case_open(NULL);
    channel_case_send();
    for (uint64_t i = 1; i <= 20; i++) {
        core_waiter waiter;
        core_waiter_start(&waiter, loan_late, NULL);
        cr_assert_eq(channel_case_receive(reader), i);
        check_ok(core_waiter_end(&waiter));
    }
    check_ok(gpuipc_subscription_close(reader));
}

Test(channel, closing_and_destroying_wake_who_waits) {
    core_waiter waiter;
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    gpuipc_subscription *reader = channel_case_open(NULL);
    core_waiter_start(&waiter, take_late, reader);
    check_ok(gpuipc_subscription_close(reader));
    cr_assert_eq(core_waiter_end(&waiter), GPUIPC_ERR_RELEASED);
    reader = channel_case_open(NULL);
    core_waiter_start(&waiter, take_late, reader);
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    cr_assert_eq(core_waiter_end(&waiter), GPUIPC_ERR_PEER_CLOSED);
    check_ok(gpuipc_subscription_close(reader));
}

Test(channel, what_was_published_comes_before_the_end) {
    channel_case_make(&(gpuipc_channel_config){.slots = 3});
    gpuipc_subscription *reader = channel_case_open(NULL);
    channel_case_send();
    channel_case_send();
    (void)channel_case_loan();
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    cr_assert_eq(channel_case_receive(reader), 1);
    cr_assert_eq(channel_case_receive(reader), 2);
    gpuipc_frame none = GPUIPC_FRAME_INIT;
    cr_assert_eq(gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, -1, &none),
                 GPUIPC_ERR_PEER_CLOSED);
    check_ok(gpuipc_subscription_close(reader));
}

Test(channel, who_closes_gives_all_back) {
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    gpuipc_subscription *reader = channel_case_open(&(gpuipc_subscription_config){.max_held = 1});
    channel_case_send();
    channel_case_send();
    (void)channel_case_take(reader);
    check_ok(gpuipc_subscription_close(reader));
    channel_case_send();
    channel_case_send();
    cr_assert_eq(channel_case_reader().state, GPUIPC_READER_CLOSED);
}

/* ---- what is refused --------------------------------------------------------------------------- */

Test(channel, what_is_not_on_loan_is_not_published) {
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .header_bytes = 4});
    gpuipc_frame frame = channel_case_loan();
    gpuipc_frame wrong = frame;
    wrong.bytes = CHANNEL_CASE_SLOT + 1;
    check_status(GPUIPC_ERR_OUT_OF_RANGE,
                 gpuipc_channel_publish(channel_case_channel, &wrong, GPUIPC_NO_STREAM));
    wrong = frame;
    wrong.header = "12345";
    wrong.header_bytes = 5;
    check_status(GPUIPC_ERR_LIMIT,
                 gpuipc_channel_publish(channel_case_channel, &wrong, GPUIPC_NO_STREAM));
    wrong.header = NULL;
    wrong.header_bytes = 4;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_publish(channel_case_channel, &wrong, GPUIPC_NO_STREAM));
    wrong = (gpuipc_frame)GPUIPC_FRAME_INIT;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_publish(channel_case_channel, &wrong, GPUIPC_NO_STREAM));
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, GPUIPC_NO_STREAM));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_publish(channel_case_channel, &frame, GPUIPC_NO_STREAM));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_channel_discard(channel_case_channel, &frame));
    frame = channel_case_loan();
    check_ok(gpuipc_channel_discard(channel_case_channel, &frame));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_publish(channel_case_channel, &frame, GPUIPC_NO_STREAM));
    (void)channel_case_loan();
    (void)channel_case_loan();
    gpuipc_frame third = GPUIPC_FRAME_INIT;
    check_status(GPUIPC_ERR_LIMIT,
                 gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, -1, &third));
}

Test(channel, what_a_reader_has_not_got_it_does_not_give_back) {
    channel_case_make(&(gpuipc_channel_config){.slots = 3});
    gpuipc_subscription *one = channel_case_open(NULL);
    gpuipc_subscription *other = channel_case_open(NULL);
    channel_case_send();
    channel_case_send();
    gpuipc_frame first = channel_case_take(one);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_give_back(other, &first, GPUIPC_NO_STREAM));
    check_ok(gpuipc_subscription_give_back(one, &first, GPUIPC_NO_STREAM));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_give_back(one, &first, GPUIPC_NO_STREAM));
    gpuipc_frame wild = first;
    wild.id = UINT64_MAX;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_give_back(one, &wild, GPUIPC_NO_STREAM));
    check_ok(gpuipc_subscription_close(one));
    check_ok(gpuipc_subscription_close(other));
}

Test(channel, configs_that_cannot_be_are_refused) {
    static const struct {
        gpuipc_channel_config config;
        gpuipc_status status;
    } cases[] = {{{.slots = 0, .slot_bytes = 64}, GPUIPC_ERR_LIMIT},
                 {{.slots = 65, .slot_bytes = 64}, GPUIPC_ERR_LIMIT},
                 {{.slots = 2, .slot_bytes = 64, .max_readers = 33}, GPUIPC_ERR_LIMIT},
                 {{.slots = 2, .slot_bytes = 64, .header_bytes = 513}, GPUIPC_ERR_LIMIT},
                 {{.slots = 2, .slot_bytes = 64, .max_held = 3}, GPUIPC_ERR_LIMIT},
                 {{.slots = 2, .slot_bytes = 0}, GPUIPC_ERR_INVALID_ARGUMENT},
                 {{.slots = 2, .slot_bytes = 64, .full = (gpuipc_full_policy)3},
                  GPUIPC_ERR_INVALID_ARGUMENT},
                 {{.slots = 2, .slot_bytes = UINT64_MAX / 2 + 2}, GPUIPC_ERR_OUT_OF_RANGE}};
    gpuipc_buffer *slots = core_buffer(core_unit, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuipc_channel_config config = cases[i].config;
        gpuipc_channel *made = NULL;
        gpuipc_ticket ticket;
        config.struct_size = sizeof(config);
        config.buffer = slots;
        check_status(cases[i].status,
                     gpuipc_channel_create(channel_case_server, &config, &made, &ticket));
        cr_assert_null(made);
    }
    check_ok(gpuipc_buffer_release(slots));
}

Test(channel, tickets_of_the_other_kind_are_told) {
    gpuipc_ticket of_buffer;
    gpuipc_ticket narrowed;
    gpuipc_buffer *slots = core_buffer(core_unit, 0);
    gpuipc_buffer *opened = NULL;
    gpuipc_subscription *reader = NULL;
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    check_ok(gpuipc_buffer_share(channel_case_server, slots, NULL, &of_buffer));
    check_status(GPUIPC_ERR_OTHER_KIND,
                 gpuipc_subscription_open(core_context, &of_buffer, NULL, &reader));
    check_status(GPUIPC_ERR_OTHER_KIND,
                 gpuipc_buffer_open(core_context, &channel_case_ticket, NULL, &opened));
    check_ok(gpuipc_ticket_narrow(&channel_case_ticket, 64, 64, &narrowed));
    check_status(GPUIPC_ERR_OUT_OF_RANGE,
                 gpuipc_subscription_open(core_context, &narrowed, NULL, &reader));
    check_ok(gpuipc_ticket_narrow(&channel_case_ticket, 0, 64, &narrowed));
    check_status(GPUIPC_ERR_OUT_OF_RANGE,
                 gpuipc_subscription_open(core_context, &narrowed, NULL, &reader));
    check_ok(gpuipc_server_revoke(channel_case_server, &of_buffer));
    check_ok(gpuipc_buffer_release(slots));
}

Test(channel, no_more_readers_than_may_be) {
    gpuipc_subscription *readers[2];
    gpuipc_subscription *third = NULL;
    channel_case_make(&(gpuipc_channel_config){.slots = 3, .max_readers = 2, .max_held = 2});
    readers[0] = channel_case_open(NULL);
    readers[1] = channel_case_open(NULL);
    check_status(GPUIPC_ERR_LIMIT,
                 gpuipc_subscription_open(core_context, &channel_case_ticket, NULL, &third));
    check_ok(gpuipc_subscription_close(readers[0]));
    const gpuipc_subscription_config greedy = {.struct_size = sizeof(greedy), .max_held = 3};
    check_status(GPUIPC_ERR_LIMIT,
                 gpuipc_subscription_open(core_context, &channel_case_ticket, &greedy, &third));
    readers[0] = channel_case_open(&(gpuipc_subscription_config){.max_held = 2});
    check_ok(gpuipc_subscription_close(readers[0]));
    check_ok(gpuipc_subscription_close(readers[1]));
}

Test(channel, all_places_are_used) {
    gpuipc_subscription *readers[GPUIPC_CHANNEL_READERS_MAX];
    gpuipc_subscription *more = NULL;
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    for (int i = 0; i < GPUIPC_CHANNEL_READERS_MAX; i++) {
        readers[i] = channel_case_open(&(gpuipc_subscription_config){
            .delivery = i % 2 == 0 ? GPUIPC_DELIVERY_ALL : GPUIPC_DELIVERY_NEWEST});
    }
    check_status(GPUIPC_ERR_LIMIT,
                 gpuipc_subscription_open(core_context, &channel_case_ticket, NULL, &more));
    for (uint64_t sequence = 1; sequence <= 10; sequence++) {
        channel_case_send();
        for (int i = 0; i < GPUIPC_CHANNEL_READERS_MAX; i++) {
            cr_assert_eq(channel_case_receive(readers[i]), sequence);
        }
    }
    for (int i = 0; i < GPUIPC_CHANNEL_READERS_MAX; i++) {
        check_ok(gpuipc_subscription_close(readers[i]));
    }
}

/* ---- streams ----------------------------------------------------------------------------------- */

Test(channel, both_sides_are_in_the_order_of_their_streams) {
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_frame came = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_channel_loan(channel_case_channel, makes, 0, &frame));
    stream_gate_close(makes);
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, makes));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 0, &came));
    check_ok(gpuipc_subscription_take(reader, uses, 0, &came));
    stream_gate_check_waits(uses);
    check_ok(gpuipc_subscription_give_back(reader, &came, uses));
    stream_gate_check_waits(uses);
    check_status(GPUIPC_ERR_TIMEOUT,
                 gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, 0, &frame));
    stream_gate_open();
    stream_gate_synchronize(uses);
    check_ok(gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, SOON_MS, &frame));
    check_ok(gpuipc_channel_discard(channel_case_channel, &frame));
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

Test(channel, a_loan_makes_the_stream_wait_for_the_readers) {
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_frame came = GPUIPC_FRAME_INIT;
    for (int i = 0; i < 5; i++) {
        check_ok(gpuipc_channel_loan(channel_case_channel, makes, SOON_MS, &frame));
        check_ok(gpuipc_channel_publish(channel_case_channel, &frame, makes));
        stream_gate_synchronize(makes);
        check_ok(gpuipc_subscription_take(reader, uses, 0, &came));
        stream_gate_synchronize(uses);
        stream_gate_close(uses);
        check_ok(gpuipc_subscription_give_back(reader, &came, uses));
        check_ok(gpuipc_channel_loan(channel_case_channel, makes, 0, &frame));
        stream_gate_check_waits(makes);
        stream_gate_open();
        stream_gate_synchronize(makes);
        check_ok(gpuipc_channel_discard(channel_case_channel, &frame));
    }
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

/* Given back at any moment around the one at which its stream makes it ready, it is no loss: the writer lives. */
Test(channel, a_frame_that_becomes_ready_as_it_is_given_back) {
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 4});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    const uint64_t begun_ns = os_clock_ns();
    for (uint64_t i = 0; i < 20000 && os_clock_ns() - begun_ns < UINT64_C(4000000000); i++) {
        gpuipc_frame frame = GPUIPC_FRAME_INIT;
        gpuipc_frame came = GPUIPC_FRAME_INIT;
        check_ok(gpuipc_channel_loan(channel_case_channel, makes, SOON_MS, &frame));
        check_ok(gpuipc_channel_publish(channel_case_channel, &frame, makes));
        check_ok(gpuipc_subscription_take(reader, uses, SOON_MS, &came));
        const uint64_t taken_ns = os_clock_ns();
        while (os_clock_ns() - taken_ns < i % 64 * 100) {
        }
        check_ok(gpuipc_subscription_give_back(reader, &came, uses));
    }
    stream_gate_synchronize(uses);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

/* The frame before is not the writer's to write, although it is on loan: the stream waits. */
Test(channel, a_dropped_reader_lets_the_stream_of_the_writer_go) {
    stream_gate_make();
    channel_case_make(
        &(gpuipc_channel_config){.slots = 2, .full = GPUIPC_FULL_DROP, .drop_after_ms = 10});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(&(gpuipc_subscription_config){.max_held = 1});
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_frame came = GPUIPC_FRAME_INIT;
    channel_case_send();
    check_ok(gpuipc_subscription_take(reader, uses, 0, &came));
    stream_gate_close(uses);
    check_ok(gpuipc_subscription_give_back(reader, &came, uses));
    channel_case_send(); /* the other slot, which it never takes */
    check_ok(gpuipc_channel_loan(channel_case_channel, makes, 0, &frame));
    stream_gate_check_waits(makes);
    gpuipc_frame second = channel_case_loan(); /* for which it is dropped */
    stream_gate_synchronize(makes);
    stream_gate_open();
    check_ok(gpuipc_channel_discard(channel_case_channel, &frame));
    check_ok(gpuipc_channel_discard(channel_case_channel, &second));
    stream_gate_synchronize(uses);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

/* ---- calls of the driver ----------------------------------------------------------------------- */

enum {
    CHECK = 3, /* which stream it is, which context is current, whether it is captured */
    BATCH = 2  /* the words of all, at once, and an event behind them */
};

/* All but those of the thread that asks whether streams have gone on: two of cuThreadExchangeStreamCaptureMode, and
 * cuEventQuery between them. */
static uint64_t calls_of_this_thread(void) {
    static const char *const names[] = {"cuStreamGetCtx",
                                        "cuCtxGetCurrent",
                                        "cuStreamIsCapturing",
                                        "cuStreamGetId",
                                        "cuStreamBatchMemOp",
                                        "cuStreamWriteValue64",
                                        "cuStreamWaitValue64",
                                        "cuStreamWaitEvent",
                                        "cuEventCreate",
                                        "cuEventRecord",
                                        "cuCtxPushCurrent",
                                        "cuCtxPopCurrent",
                                        "cuCtxGetDevice",
                                        "cuStreamSynchronize",
                                        "cuStreamQuery",
                                        "cuLaunchHostFunc",
                                        "cuDeviceGetAttribute",
                                        "cuMemHostRegister",
                                        "cuMemHostGetDevicePointer"};
    uint64_t calls = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        calls += core_calls(names[i]);
    }
    return calls;
}

/* The first time pages are registered, and asked about, and whose the streams are. */
static void check_calls(gpuipc_status status, bool is_first, uint64_t expected) {
    check_ok(status);
    const uint64_t calls = calls_of_this_thread();
    cr_assert(is_first ? calls >= expected : calls == expected, "%u calls, not %u", (unsigned)calls,
              (unsigned)expected);
    core_set_failures("");
}

/* One frame for each of the readers; all has happened on the streams when it is given back. */
static void pass_frame(gpuipc_subscription *const readers[2], CUstream makes, CUstream uses,
                       bool is_first) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_frame came[2] = {GPUIPC_FRAME_INIT, GPUIPC_FRAME_INIT};
    core_set_failures("");
    check_calls(gpuipc_channel_loan(channel_case_channel, makes, 0, &frame), is_first, CHECK);
    check_calls(gpuipc_channel_publish(channel_case_channel, &frame, makes), is_first,
                CHECK + BATCH);
    stream_gate_synchronize(makes);
    core_set_failures("");
    for (int i = 0; i < 2; i++) {
        check_calls(gpuipc_subscription_take(readers[i], uses, 0, &came[i]), is_first, CHECK);
        check_calls(gpuipc_subscription_give_back(readers[i], &came[i], uses), is_first,
                    CHECK + BATCH);
    }
    stream_gate_synchronize(uses);
}

/* The same, where each has to wait. The writer's stream waits for both readers in one batch. */
static void pass_late_frame(gpuipc_subscription *const readers[2], CUstream makes, CUstream uses,
                            bool is_first) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_frame came[2] = {GPUIPC_FRAME_INIT, GPUIPC_FRAME_INIT};
    check_ok(gpuipc_channel_loan(channel_case_channel, makes, 0, &frame));
    stream_gate_close(makes);
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, makes));
    core_set_failures("");
    for (int i = 0; i < 2; i++) {
        check_calls(gpuipc_subscription_take(readers[i], uses, 0, &came[i]), is_first,
                    CHECK + BATCH);
    }
    stream_gate_open();
    stream_gate_synchronize(makes);
    stream_gate_synchronize(uses);
    stream_gate_close(uses);
    for (int i = 0; i < 2; i++) {
        check_ok(gpuipc_subscription_give_back(readers[i], &came[i], uses));
    }
    core_set_failures("");
    check_calls(gpuipc_channel_loan(channel_case_channel, makes, 0, &frame), is_first,
                CHECK + BATCH);
    stream_gate_open();
    stream_gate_synchronize(makes);
    check_ok(gpuipc_channel_discard(channel_case_channel, &frame));
}

/* Where the stream's context is current, as in most programs, on default streams too. What is reached already is not waited
 * for. */
Test(channel, a_frame_on_streams_costs_so_many_calls_of_the_driver) {
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *readers[2] = {channel_case_open(NULL), channel_case_open(NULL)};
    for (int round = 0; round < 3; round++) {
        pass_frame(readers, makes, uses, round == 0);
        pass_late_frame(readers, makes, uses, round == 0);
        pass_frame(readers, NULL, NULL, round == 0);
    }
    check_ok(gpuipc_subscription_close(readers[0]));
    check_ok(gpuipc_subscription_close(readers[1]));
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

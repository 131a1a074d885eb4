/* SPDX-License-Identifier: MIT */
/** @file Channels whose hosts are ahead of their streams: no peer fills a queue, and each is told by his time-out. */
#include "channel/subscription.h"
#include "channel_case.h"
#include "stream_gate.h"

TestSuite(channel_behind, .init = channel_start, .fini = channel_finish, .timeout = 60);

#define SLOTS      2u
#define BEHIND_MAX ((int)(2 * TRAIL_PERIOD))

static CUstream stream;
static gpuipc_subscription *reader;
static point_page *page;
static object *behind;

static void begin(const gpuipc_channel_config *config) {
    stream_gate_make();
    channel_case_make(config);
    stream = stream_gate_stream();
    reader = channel_case_open(NULL);
    check_ok(object_acquire(OBJECT_SUBSCRIPTION, reader, &behind));
    page = ((subscription *)behind)->page;
}

static void end(void) {
    object_unreference(behind);
    check_ok(gpuipc_subscription_close(reader));
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    stream_gate_stream_end(stream);
    stream_gate_end();
}

static void write_value(uint32_t word, uint64_t value) {
    for (uint32_t i = 0; i < GPUIPC_CHANNEL_SLOTS_MAX; i++) {
        channel_write(page, channel_entry(i, word), value);
    }
}

/* What streams wait for, or are to write: they go on. */
static void write_words(uint32_t word) {
    write_value(word, UINT64_C(1) << 40 | 1);
}

/* @return how many came before the first that ran out of time */
static int run_ahead(gpuipc_status (*frame)(void)) {
    gpuipc_status status = GPUIPC_OK;
    int count = 0;
    for (; count <= BEHIND_MAX && (status = frame()) == GPUIPC_OK; count++) {
    }
    check_status(GPUIPC_ERR_TIMEOUT, status);
    return count;
}

/* ---- a writer, and a reader that says "given" and never returns a frame ------------------------- */

static gpuipc_status publish(int timeout_ms) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status = gpuipc_channel_loan(channel_case_channel, stream, timeout_ms, &frame);
    return status == GPUIPC_OK ? gpuipc_channel_publish(channel_case_channel, &frame, stream)
                               : status;
}

static void say_given(void) {
    for (uint32_t i = 0; i < CHANNEL_RING_SIZE; i++) {
        const uint64_t place = channel_read(page, channel_offered_at(i, CHANNEL_PLACE));
        const uint32_t slot = (uint32_t)place & 255u;
        if (place >> 8 > channel_said(page, slot) >> 2) {
            channel_say(page, slot, place >> 8, CHANNEL_GIVEN);
        }
    }
}

static gpuipc_status publish_to_who_keeps_it(void) {
    const gpuipc_status status = publish(0);
    say_given();
    return status;
}

static gpuipc_status loan_and_give_up(void) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    const gpuipc_status status = gpuipc_channel_loan(channel_case_channel, stream, 0, &frame);
    return status == GPUIPC_OK ? gpuipc_channel_discard(channel_case_channel, &frame) : status;
}

Test(channel_behind, a_reader_that_returns_nothing_fills_no_queue) {
    gpuipc_reader_info info;
    begin(&(gpuipc_channel_config){.slots = SLOTS});
    cr_assert_geq(run_ahead(publish_to_who_keeps_it), BEHIND_MAX / 2);
    check_status(GPUIPC_ERR_TIMEOUT, publish(20));
    info = channel_case_reader();
    cr_assert_eq(info.state, GPUIPC_READER_ACTIVE);
    write_words(CHANNEL_RETURNED);
    check_ok(publish(SOON_MS));
    stream_gate_synchronize(stream);
    end();
}

Test(channel_behind, loans_that_are_given_up_fill_no_queue) {
    begin(&(gpuipc_channel_config){.slots = SLOTS});
    check_ok(publish(0));
    check_ok(publish(0));
    say_given();
    cr_assert_geq(run_ahead(loan_and_give_up), BEHIND_MAX / 2);
    write_words(CHANNEL_RETURNED);
    stream_gate_synchronize(stream);
    end();
}

/* It is the host that drops and skips, where readers have slots. */
static void check_nothing_is_done(gpuipc_full_policy full) {
    begin(&(gpuipc_channel_config){.slots = SLOTS, .full = full, .drop_after_ms = 1});
    (void)run_ahead(publish_to_who_keeps_it);
    check_status(GPUIPC_ERR_TIMEOUT, publish(20));
    cr_assert_eq(channel_case_reader().state, GPUIPC_READER_ACTIVE);
    write_words(CHANNEL_RETURNED);
    stream_gate_synchronize(stream);
    end();
}

Test(channel_behind, who_keeps_a_stream_waiting_is_not_dropped) {
    check_nothing_is_done(GPUIPC_FULL_DROP);
}

Test(channel_behind, for_who_keeps_a_stream_waiting_nothing_is_skipped) {
    check_nothing_is_done(GPUIPC_FULL_SKIP);
}

static gpuipc_status publish_three(void) {
    gpuipc_frame frames[3] = {GPUIPC_FRAME_INIT, GPUIPC_FRAME_INIT, GPUIPC_FRAME_INIT};
    gpuipc_status status = GPUIPC_OK;
    for (int i = 0; i < 3 && status == GPUIPC_OK; i++) {
        status = gpuipc_channel_loan(channel_case_channel, stream, 0, &frames[i]);
    }
    for (int i = 0; i < 3 && status == GPUIPC_OK; i++) {
        status = gpuipc_channel_publish(channel_case_channel, &frames[i], stream);
    }
    if (status == GPUIPC_OK) {
        say_given();
        write_words(
            CHANNEL_RETURNED); /* so that nothing is waited for, and publications alone count */
    }
    return status;
}

/* Whoever has several loans at a time asks between publications less often. */
Test(channel_behind, publications_alone_fill_no_queue) {
    begin(&(gpuipc_channel_config){.slots = 4});
    check_ok(publish_three());
    stream_gate_close(stream);
    cr_assert_leq(run_ahead(publish_three), BEHIND_MAX / 3 + 1);
    stream_gate_open();
    stream_gate_synchronize(stream);
    end();
}

/* Its stream still reads the frame, and another one was offered in the slot since. */
Test(channel_behind, who_closes_keeps_what_its_stream_reads) {
    CUstream uses;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    begin(&(gpuipc_channel_config){.slots = 1});
    uses = stream_gate_stream();
    check_ok(publish(0));
    stream_gate_close(uses);
    check_ok(gpuipc_subscription_take(reader, uses, 0, &frame));
    check_ok(gpuipc_subscription_give_back(reader, &frame, uses));
    check_ok(publish(0)); /* the stream waits for the first frame to be returned */
    check_ok(gpuipc_subscription_close(reader));
    cr_assert_eq(channel_case_reader().state, GPUIPC_READER_ACTIVE);
    stream_gate_check_waits(stream);
    stream_gate_open();
    stream_gate_synchronize(stream);
    cr_assert_eq(channel_case_reader().state, GPUIPC_READER_CLOSED);
    stream_gate_stream_end(uses);
    reader = NULL;
    end();
}

/* It has taken the next frame of that slot as well, or was out of time with it: that is given back, and the former is not. */
static void check_closing(bool has_taken) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    begin(&(gpuipc_channel_config){.slots = 1});
    CUstream uses = stream_gate_stream();
    check_ok(publish(0));
    stream_gate_close(uses);
    check_ok(gpuipc_subscription_take(reader, uses, 0, &frame));
    check_ok(gpuipc_subscription_give_back(reader, &frame, uses));
    check_ok(publish(0));
    if (has_taken) {
        check_ok(gpuipc_subscription_take(reader, uses, 0, &frame));
    } else {
        check_status(GPUIPC_ERR_TIMEOUT,
                     gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 0, &frame));
    }
    check_ok(gpuipc_subscription_close(reader));
    cr_assert_eq(channel_case_reader().state, GPUIPC_READER_ACTIVE);
    stream_gate_check_waits(stream);
    stream_gate_open();
    stream_gate_synchronize(stream);
    stream_gate_synchronize(uses);
    cr_assert_eq(channel_case_reader().state, GPUIPC_READER_CLOSED);
    stream_gate_stream_end(uses);
    reader = NULL;
    end();
}

Test(channel_behind, who_closes_with_the_next_frame_keeps_it_too) {
    check_closing(true);
}

Test(channel_behind, who_closes_without_its_contents_keeps_it_too) {
    check_closing(false);
}

Test(channel_behind, with_as_many_slots_as_may_be_hosts_are_ahead_no_further) {
    begin(&(gpuipc_channel_config){.slots = GPUIPC_CHANNEL_SLOTS_MAX});
    for (uint32_t i = 0; i < GPUIPC_CHANNEL_SLOTS_MAX; i++) { /* nothing is waited for yet */
        check_ok(publish_to_who_keeps_it());
        stream_gate_synchronize(stream);
    }
    cr_assert_geq(run_ahead(publish_to_who_keeps_it), BEHIND_MAX / 2);
    write_words(CHANNEL_RETURNED);
    stream_gate_synchronize(stream);
    end();
}

static gpuipc_status wait_for_a_slot(void *argument) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    return gpuipc_channel_loan(argument, GPUIPC_NO_STREAM, -1, &frame);
}

/* Another channel of this process has readers, too: so the thread that looks after all of them is not waited for. */
Test(channel_behind, destroying_wakes_a_loan_that_waits) {
    core_waiter waiter;
    gpuipc_subscription *kept[2];
    gpuipc_channel *full;
    begin(&(gpuipc_channel_config){.slots = SLOTS});
    for (int round = 0; round < 20; round++) {
        gpuipc_channel *other = channel_case_channel;
        channel_case_make(&(gpuipc_channel_config){.slots = SLOTS});
        full = channel_case_channel;
        for (int i = 0; i < 2; i++) {
            kept[i] = channel_case_open(NULL);
        }
        for (uint32_t i = 0; i < SLOTS; i++) {
            channel_case_send();
        }
        core_waiter_start(&waiter, wait_for_a_slot, full);
        check_ok(gpuipc_channel_destroy(full));
        check_status(GPUIPC_ERR_RELEASED, core_waiter_end(&waiter));
        for (int i = 0; i < 2; i++) {
            check_ok(gpuipc_subscription_close(kept[i]));
        }
        channel_case_channel = other;
    }
    end();
}

static gpuipc_status publish_and_read(void) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status = publish(0);
    if (status == GPUIPC_OK) {
        check_ok(gpuipc_subscription_take(reader, stream, 0, &frame));
        check_ok(gpuipc_subscription_give_back(reader, &frame, stream));
    }
    return status;
}

/* It is the writer's own stream that is slow: nobody is dropped for that, or skipped. */
Test(channel_behind, a_slow_stream_of_the_writer_s_is_nobody_s_fault) {
    begin(&(gpuipc_channel_config){.slots = SLOTS, .full = GPUIPC_FULL_DROP, .drop_after_ms = 1});
    stream_gate_close(stream);
    cr_assert_geq(run_ahead(publish_and_read), BEHIND_MAX / 2);
    check_status(GPUIPC_ERR_TIMEOUT, publish(50));
    cr_assert_eq(channel_case_reader().state, GPUIPC_READER_ACTIVE);
    stream_gate_open();
    check_ok(publish(SOON_MS));
    stream_gate_synchronize(stream);
    end();
}

/* ---- a reader, and a writer whose frames are never ready ---------------------------------------- */

static uint64_t number;

static void offer(void) {
    const uint32_t slot = (uint32_t)(number++ % SLOTS);
    channel_write(page, channel_offered_at(number, CHANNEL_SEQUENCE), number);
    channel_write(page, channel_offered_at(number, CHANNEL_USED), 8);
    channel_write(page, channel_offered_at(number, CHANNEL_HEADER), 0);
    channel_write(page, channel_offered_at(number, CHANNEL_WAS_READY), 0);
    channel_write(page, channel_offered_at(number, CHANNEL_PLACE), channel_place(number, slot));
}

static gpuipc_status take_and_give_back(void) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    offer();
    const gpuipc_status status = gpuipc_subscription_take(reader, stream, 0, &frame);
    return status == GPUIPC_OK ? gpuipc_subscription_give_back(reader, &frame, stream) : status;
}

Test(channel_behind, a_writer_that_is_never_ready_fills_no_queue) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    begin(&(gpuipc_channel_config){.slots = SLOTS});
    number = 0;
    cr_assert_geq(run_ahead(take_and_give_back), BEHIND_MAX / 2);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_subscription_take(reader, stream, 20, &frame));
    check_status(GPUIPC_ERR_TIMEOUT,
                 gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 20, &frame));
    write_words(CHANNEL_READY);
    check_ok(gpuipc_subscription_take(reader, stream, SOON_MS, &frame));
    check_ok(gpuipc_subscription_give_back(reader, &frame, stream));
    stream_gate_synchronize(stream);
    end();
}

/* The slot comes back before the stream has given it back, as from no writer that keeps to the rules. */
Test(channel_behind, without_its_stream_a_slot_is_not_given_back_before_the_former_frame) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    begin(&(gpuipc_channel_config){.slots = SLOTS});
    number = 0;
    stream_gate_close(stream);
    check_ok(take_and_give_back());
    check_ok(take_and_give_back());
    offer();
    write_words(CHANNEL_READY);
    check_ok(gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 0, &frame));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_give_back(reader, &frame, GPUIPC_NO_STREAM));
    stream_gate_open();
    stream_gate_synchronize(stream);
    check_ok(gpuipc_subscription_give_back(reader, &frame, GPUIPC_NO_STREAM));
    end();
}

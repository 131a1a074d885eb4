/* SPDX-License-Identifier: MIT */
/** @file The wait handle of a subscription: who waits for it learns of every frame. And who waits in a take. */
#include "channel/subscription.h"
#include "channel_case.h"
#include "native_ready.h"
#include "stream_gate.h"

TestSuite(channel_wait, .init = channel_start, .fini = channel_finish, .timeout = 60);

static gpuipc_subscription *reader;
static intptr_t native;

static void begin(const gpuipc_channel_config *config, uint32_t max_held) {
    channel_case_make(config);
    reader = channel_case_open(&(gpuipc_subscription_config){.max_held = max_held});
    check_ok(gpuipc_subscription_get_wait_handle(reader, &native));
}

static gpuipc_status take(gpuipc_stream stream, gpuipc_frame *out_frame) {
    *out_frame = (gpuipc_frame)GPUIPC_FRAME_INIT;
    return gpuipc_subscription_take(reader, stream, 0, out_frame);
}

static void check_gets_ready(void) {
    cr_assert(native_is_ready(native, SOON_MS));
}

enum {
    TRIES = 5
};

/* It may be ready for nothing; then the call finds nothing, and sets that right. */
static void check_rests(void) {
    gpuipc_frame frame;
    for (int i = 0; i < TRIES && native_is_ready(native, 0); i++) {
        check_status(GPUIPC_ERR_TIMEOUT, take(GPUIPC_NO_STREAM, &frame));
    }
    cr_assert_not(native_is_ready(native, 0));
}

static void receive(uint64_t sequence) {
    gpuipc_frame frame;
    check_ok(take(GPUIPC_NO_STREAM, &frame));
    cr_assert_eq(frame.sequence, sequence);
    check_ok(gpuipc_subscription_give_back(reader, &frame, GPUIPC_NO_STREAM));
}

Test(channel_wait, it_is_ready_while_there_are_frames) {
    intptr_t again = 0;
    begin(&(gpuipc_channel_config){.slots = 3}, 2);
    check_ok(gpuipc_subscription_get_wait_handle(reader, &again));
    cr_assert_eq(native, again);
    check_rests();
    for (uint64_t i = 1; i < 60; i += 2) {
        channel_case_send();
        check_gets_ready();
        channel_case_send();
        receive(i);
        check_gets_ready();
        receive(i + 1);
        check_rests();
    }
    check_ok(gpuipc_subscription_close(reader));
}

Test(channel_wait, what_came_before_it_was_asked_for_is_seen) {
    channel_case_make(&(gpuipc_channel_config){.slots = 3});
    reader = channel_case_open(NULL);
    channel_case_send();
    check_ok(gpuipc_subscription_get_wait_handle(reader, &native));
    check_gets_ready();
    receive(1);
    check_rests();
    check_ok(gpuipc_subscription_close(reader));
}

static gpuipc_status send_many(void *count) {
    for (int i = 0; i < *(const int *)count; i++) {
        channel_case_send();
    }
    return GPUIPC_OK;
}

/* As an event loop does it: it takes until there is nothing, and waits for the handle alone. */
Test(channel_wait, no_news_is_lost) {
    static int count = 3000;
    core_waiter writer;
    gpuipc_frame frame;
    gpuipc_status status;
    uint64_t sequence = 0;
    begin(&(gpuipc_channel_config){.slots = 3}, 1);
    core_waiter_begin(&writer, send_many, &count);
    while (sequence < (uint64_t)count) {
        check_gets_ready();
        while ((status = take(GPUIPC_NO_STREAM, &frame)) == GPUIPC_OK) {
            cr_assert_eq(frame.sequence, ++sequence);
            check_ok(gpuipc_subscription_give_back(reader, &frame, GPUIPC_NO_STREAM));
        }
        cr_assert_eq(status, GPUIPC_ERR_TIMEOUT);
    }
    check_ok(core_waiter_end(&writer));
    check_ok(gpuipc_subscription_close(reader));
}

Test(channel_wait, who_has_all_that_he_may_is_not_woken_until_he_gives_back) {
    gpuipc_frame frame;
    begin(&(gpuipc_channel_config){.slots = 3}, 1);
    channel_case_send();
    channel_case_send();
    check_gets_ready();
    check_ok(take(GPUIPC_NO_STREAM, &frame));
    cr_assert_not(native_is_ready(native, 0));
    check_ok(gpuipc_subscription_give_back(reader, &frame, GPUIPC_NO_STREAM));
    check_gets_ready();
    receive(2);
    check_rests();
    check_ok(gpuipc_subscription_close(reader));
}

static gpuipc_status take_late(void *argument) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    (void)argument;
    gpuipc_status status = gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, SOON_MS, &frame);
    return status == GPUIPC_OK ? gpuipc_subscription_give_back(reader, &frame, GPUIPC_NO_STREAM)
                               : status;
}

Test(channel_wait, a_thread_may_wait_in_take_beside_it) {
    core_waiter waiter;
    begin(&(gpuipc_channel_config){.slots = 3}, 1);
    for (int i = 0; i < 20; i++) {
        core_waiter_start(&waiter, take_late, NULL);
        check_status(GPUIPC_ERR_BUSY, gpuipc_subscription_get_wait_handle(reader, &native));
        channel_case_send();
        check_ok(core_waiter_end(&waiter));
        check_rests();
    }
    check_ok(gpuipc_subscription_close(reader));
}

/* Of a frame that is there it tells once, and again when its contents are. */
Test(channel_wait, contents_that_are_late_are_told) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_frame came;
    stream_gate_make();
    begin(&(gpuipc_channel_config){.slots = 2}, 1);
    CUstream makes = stream_gate_stream();
    check_ok(gpuipc_channel_loan(channel_case_channel, makes, 0, &frame));
    stream_gate_close(makes);
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, makes));
    check_gets_ready();
    check_status(GPUIPC_ERR_TIMEOUT, take(GPUIPC_NO_STREAM, &came));
    cr_assert_not(native_is_ready(native, 0));
    stream_gate_open();
    check_gets_ready();
    receive(1);
    check_rests();
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_end();
}

Test(channel_wait, contents_that_came_before_it_was_asked_for_are_seen) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_frame came;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    reader = channel_case_open(NULL);
    CUstream makes = stream_gate_stream();
    check_ok(gpuipc_channel_loan(channel_case_channel, makes, 0, &frame));
    stream_gate_close(makes);
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, makes));
    check_status(GPUIPC_ERR_TIMEOUT, take(GPUIPC_NO_STREAM, &came));
    stream_gate_open();
    stream_gate_synchronize(makes);
    check_ok(gpuipc_subscription_get_wait_handle(reader, &native));
    check_gets_ready();
    receive(1);
    check_rests();
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_end();
}

/* The end does not make them ready, nor the handle for who waits for them. */
Test(channel_wait, contents_that_are_late_are_waited_for_after_the_end_too) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_frame came;
    stream_gate_make();
    begin(&(gpuipc_channel_config){.slots = 2}, 1);
    CUstream makes = stream_gate_stream();
    check_ok(gpuipc_channel_loan(channel_case_channel, makes, 0, &frame));
    stream_gate_close(makes);
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, makes));
    check_status(GPUIPC_ERR_TIMEOUT, take(GPUIPC_NO_STREAM, &came));
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    check_status(GPUIPC_ERR_TIMEOUT, take(GPUIPC_NO_STREAM, &came));
    cr_assert_not(native_is_ready(native, 0));
    stream_gate_open();
    check_gets_ready();
    receive(1);
    check_gets_ready();
    check_status(GPUIPC_ERR_PEER_CLOSED, take(GPUIPC_NO_STREAM, &came));
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_end();
}

Test(channel_wait, the_end_of_the_channel_is_seen_and_stays) {
    gpuipc_frame frame;
    begin(&(gpuipc_channel_config){.slots = 2}, 1);
    check_rests();
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    check_gets_ready();
    check_status(GPUIPC_ERR_PEER_CLOSED, take(GPUIPC_NO_STREAM, &frame));
    check_gets_ready();
    check_ok(gpuipc_subscription_close(reader));
}

Test(channel_wait, a_closed_one_gives_no_handle) {
    begin(&(gpuipc_channel_config){.slots = 2}, 1);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_subscription_get_wait_handle(reader, NULL));
    check_ok(gpuipc_subscription_close(reader));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_subscription_get_wait_handle(reader, &native));
}

/* ---- in a take --------------------------------------------------------------------------------- */

/* Who falls asleep says so, and who wakes takes that back: so after a take in vain it shows. */
static bool has_slept(gpuipc_subscription *of) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    object *behind;
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_subscription_take(of, GPUIPC_NO_STREAM, 20, &frame));
    check_ok(object_acquire(OBJECT_SUBSCRIPTION, of, &behind));
    const bool is_asleep = channel_read(((subscription *)behind)->page, CHANNEL_READER_SLEEPS) == 1;
    object_unreference(behind);
    return is_asleep;
}

Test(channel_wait, who_looks_for_longer_does_not_sleep) {
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    gpuipc_subscription *sleeps = channel_case_open(NULL);
    gpuipc_subscription *looks =
        channel_case_open(&(gpuipc_subscription_config){.look_us = GPUIPC_LOOK_US_MAX});
    cr_assert(has_slept(sleeps));
    cr_assert_not(has_slept(looks));
    check_ok(gpuipc_subscription_close(sleeps));
    check_ok(gpuipc_subscription_close(looks));
}

/* Else who waits in short stretches, as Python does for Ctrl-C, would keep a processor busy for ever. (On a busy machine a
 * stretch takes as long as it takes.) */
Test(channel_wait, who_is_out_of_time_goes_on_where_it_was) {
    const uint64_t looks_ns = UINT64_C(100000000);
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    gpuipc_subscription *looks =
        channel_case_open(&(gpuipc_subscription_config){.look_us = (uint32_t)(looks_ns / 1000)});
    uint64_t begun_ns = os_clock_ns();
    while (!has_slept(looks)) { /* 20 ms each */
    }
    cr_assert_geq(os_clock_ns() - begun_ns, looks_ns);
    channel_case_send();
    cr_assert_eq(channel_case_receive(looks), 1);
    begun_ns = os_clock_ns();
    cr_assert(!has_slept(looks) || os_clock_ns() - begun_ns >= looks_ns);
    check_ok(gpuipc_subscription_close(looks));
}

/* SPDX-License-Identifier: MIT */
/** @file Contents that were sent and that nobody will receive, because one end or the other was closed: the stream that
 *  sent them goes on, as gpuipc_connection_send_contents() promises. */
#include "contents_ends.h"
#include "stream_gate.h"

/* More than any stream needs that is let go, and little enough that a whole run of failures ends. */
#define GOES_ON_MS 10000

TestSuite(contents_left, .init = core_start, .fini = core_finish, .timeout = 60);

/* What there is before the contents that nobody receives. */
typedef enum past {
    PAST_NONE,     /* nothing: the receiver knows neither points nor ring */
    PAST_CONTENTS, /* others, which were received */
    PAST_MESSAGE,  /* a message; the receiver has looked at what comes next */
    PAST_COUNT
} past;

/* Which ends are closed, one right after the other. */
typedef enum order {
    RECEIVER,
    RECEIVER_THEN_SENDER,
    SENDER_THEN_RECEIVER
} order;

static void check_goes_on(CUstream stream, past before) {
    const os_deadline deadline = os_deadline_after(GOES_ON_MS);
    CUresult result;
    while ((result = core_driver()->cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
        cr_assert_not(os_deadline_passed(deadline), "past %d: the stream still waits after %d ms",
                      before, GOES_ON_MS);
        os_sleep_ms(1);
    }
    cr_assert_eq(result, CUDA_SUCCESS);
}

/* Sends what nobody receives. */
static void send_left(contents_ends *two, gpuipc_transport way, past before) {
    gpuipc_buffer *opened = NULL;
    contents_ends_open(two, CONTENTS_MANY);
    if (before == PAST_CONTENTS) {
        check_ok(contents_send_range(two, 0, CONTENTS_MANY, way));
        check_ok(contents_receive_range(two, 0, CONTENTS_MANY, way));
        contents_both_pass(two);
    }
    if (before == PAST_MESSAGE) {
        check_ok(core_send(two->pair.server, &two->from, 1));
    }
    check_ok(contents_send_range(two, 0, CONTENTS_MANY, way));
    if (before == PAST_MESSAGE) {
        check_ok(core_receive(two->pair.client, &opened, 1));
        check_status(GPUIPC_ERR_OTHER_KIND, core_receive(two->pair.client, NULL, 0));
        check_ok(gpuipc_buffer_release(opened));
    }
}

static void close_end(gpuipc_connection **end) {
    check_ok(gpuipc_connection_close(*end));
    *end = NULL;
}

static void close_ends(contents_ends *two, order which) {
    if (which == SENDER_THEN_RECEIVER) {
        close_end(&two->pair.server);
    }
    close_end(&two->pair.client);
    if (which == RECEIVER_THEN_SENDER) {
        close_end(&two->pair.server);
    }
}

static void check_left(gpuipc_transport way, order which) {
    for (past before = 0; before < PAST_COUNT; before++) {
        contents_ends two;
        send_left(&two, way, before);
        close_ends(&two, which);
        check_goes_on(two.sends, before);
        contents_ends_close(&two);
    }
}

/* In gpuipc_connection_send() until the stream goes on. */
static gpuipc_status send_behind(void *argument) {
    const contents_ends *two = argument;
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &two->from,
                                     .buffer_count = 1,
                                     .stream = two->sends};
    return gpuipc_connection_send(two->pair.server, &message, SOON_MS);
}

static void check_left_while_another_sends(gpuipc_transport way, order which) {
    for (past before = 0; before < PAST_COUNT; before++) {
        contents_ends two;
        core_waiter other;
        send_left(&two, way, before);
        core_waiter_start(&other, send_behind, &two);
        close_ends(&two, which);
        check_goes_on(two.sends, before);
        (void)core_waiter_end(&other); /* a pipe of Windows may still take it, and throw it away */
        contents_ends_close(&two);
    }
}

Test(contents_left, by_memory_closed_by_the_receiver) {
    check_left(GPUIPC_TRANSPORT_VMM, RECEIVER);
    check_left_while_another_sends(GPUIPC_TRANSPORT_VMM, RECEIVER);
}

Test(contents_left, through_the_ring_closed_by_the_receiver) {
    check_left(GPUIPC_TRANSPORT_HOST, RECEIVER);
    check_left_while_another_sends(GPUIPC_TRANSPORT_HOST, RECEIVER);
}

Test(contents_left, by_memory_closed_by_the_receiver_and_at_once_by_the_sender) {
    check_left(GPUIPC_TRANSPORT_VMM, RECEIVER_THEN_SENDER);
}

Test(contents_left, through_the_ring_closed_by_the_receiver_and_at_once_by_the_sender) {
    check_left(GPUIPC_TRANSPORT_HOST, RECEIVER_THEN_SENDER);
}

Test(contents_left, by_memory_closed_by_the_sender_first) {
    check_left(GPUIPC_TRANSPORT_VMM, SENDER_THEN_RECEIVER);
}

Test(contents_left, through_the_ring_closed_by_the_sender_first) {
    check_left(GPUIPC_TRANSPORT_HOST, SENDER_THEN_RECEIVER);
}

/* The thread that sends has what a close would otherwise look at. */
Test(contents_left, by_memory_closed_by_both_while_another_thread_sends) {
    check_left_while_another_sends(GPUIPC_TRANSPORT_VMM, RECEIVER_THEN_SENDER);
    check_left_while_another_sends(GPUIPC_TRANSPORT_VMM, SENDER_THEN_RECEIVER);
}

Test(contents_left, through_the_ring_closed_by_both_while_another_thread_sends) {
    check_left_while_another_sends(GPUIPC_TRANSPORT_HOST, RECEIVER_THEN_SENDER);
    check_left_while_another_sends(GPUIPC_TRANSPORT_HOST, SENDER_THEN_RECEIVER);
}

/* The connection does not wait for the stream that copies; the memory that it copies from goes when it has passed. */
Test(contents_left, by_memory_that_is_copied_from_when_both_are_closed) {
    contents_ends two;
    stream_gate_make();
    contents_ends_open(&two, CONTENTS_MANY);
    buffer_marks_write(two.from, 1);
    stream_gate_close(two.receives);
    check_ok(contents_send_range(&two, 0, CONTENTS_MANY, GPUIPC_TRANSPORT_VMM));
    check_ok(contents_receive_range(&two, 0, CONTENTS_MANY, GPUIPC_TRANSPORT_VMM));
    close_ends(&two, RECEIVER_THEN_SENDER);
    stream_gate_check_waits(two.receives);
    stream_gate_open();
    contents_both_pass(&two);
    buffer_marks_check(two.into, 0, 0, CONTENTS_MANY, 1, 0);
    contents_ends_close(&two);
    stream_gate_end();
}

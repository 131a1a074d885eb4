/* SPDX-License-Identifier: MIT */
/** @file A stream that is done with all that it was given is given nothing when memory is lent or sent, and nobody waits for
 *  it. One that is not done still says when it is. */
#include "opened_case.h"

static void begin(void) {
    opened_case_begin(
        CU_STREAM_DEFAULT); /* a blocking one, for which the default stream answers as well */
}

TestSuite(stream_done, .init = begin, .fini = opened_case_finish, .timeout = 60);

/* ---- what is given to streams, and what waits for them: only the emulated driver counts ------------ */

static void begin_to_count(void) {
    if (core_is_emulated) {
        core_set_failures("");
    }
}

static void check_given(bool is_anything) {
    if (core_is_emulated) {
        const uint64_t words =
            core_calls("cuStreamWriteValue64") + core_calls("cuStreamBatchMemOp");
        cr_assert_eq(words != 0, is_anything, "%llu", (unsigned long long)words);
        cr_assert_eq(core_calls("cuStreamSynchronize"), 0);
    }
}

/* ---- loans ------------------------------------------------------------------------------------------ */

static gpuipc_mark lend_on(gpuipc_stream by, bool is_done) {
    gpuipc_mark made;
    begin_to_count();
    check_ok(gpuipc_buffer_lend(opened_case_sent, by, &made));
    check_given(!is_done);
    check_ok(gpuipc_buffer_take_loan(opened_case_opened, &made));
    check_status(is_done ? GPUIPC_OK : GPUIPC_ERR_TIMEOUT,
                 gpuipc_buffer_await_mark(opened_case_opened, &made, 0));
    return made;
}

static void check_lent_by(gpuipc_stream by) {
    check_ok(gpuipc_buffer_fill_async(opened_case_sent, 0, core_unit, 7, 4, opened_case_stream));
    stream_gate_synchronize(opened_case_stream);
    const gpuipc_mark done = lend_on(by, true);
    check_ok(gpuipc_buffer_return_loan(opened_case_opened, &done));
    stream_gate_close(opened_case_stream);
    const gpuipc_mark late = lend_on(by, false);
    stream_gate_open();
    check_ok(gpuipc_buffer_await_mark(opened_case_opened, &late, SOON_MS));
    check_ok(gpuipc_buffer_return_loan(opened_case_opened, &late));
}

Test(stream_done, lends_what_is_there) {
    check_lent_by(opened_case_stream);
}

/* It is not done before all blocking streams are (CUDA C++ Programming Guide, Default Stream). */
Test(stream_done, the_default_stream_answers_for_blocking_ones) {
    check_lent_by(NULL);
}

/* ---- messages ---------------------------------------------------------------------------------------- */

static gpuipc_buffer *hand_over(uint32_t flags, gpuipc_stream by, bool is_done) {
    gpuipc_buffer *received = NULL;
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &opened_case_sent,
                                     .buffer_count = 1,
                                     .flags = flags,
                                     .stream = by};
    gpuipc_incoming incoming = {.struct_size = sizeof(incoming),
                                .buffers = &received,
                                .buffer_capacity = 1,
                                .flags = GPUIPC_RECEIVE_DEFERRED};
    begin_to_count();
    check_ok(gpuipc_connection_send(opened_case_pair.client, &message, SOON_MS));
    check_given(!is_done);
    check_ok(gpuipc_connection_receive(opened_case_pair.server, &incoming, SOON_MS));
    check_status(is_done ? GPUIPC_OK : GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_ready(received, 0));
    return received;
}

static void check_sent_by(gpuipc_stream by) {
    check_ok(gpuipc_buffer_release(hand_over(GPUIPC_SEND_ASYNC, by, true)));
    check_ok(gpuipc_buffer_release(hand_over(0, by, true)));
    stream_gate_close(opened_case_stream);
    gpuipc_buffer *late = hand_over(GPUIPC_SEND_ASYNC, by, false);
    stream_gate_open();
    check_ok(gpuipc_buffer_await_ready(late, SOON_MS));
    check_ok(gpuipc_buffer_release(late));
}

Test(stream_done, sends_what_is_there) {
    check_sent_by(opened_case_stream);
}

Test(stream_done, the_default_stream_sends_what_is_there) {
    check_sent_by(NULL);
}

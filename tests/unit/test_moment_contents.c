/* SPDX-License-Identifier: MIT */
/** @file Contents and copies, while something happens or fails between two steps of a call. */
#include "base/status.h"
#include "contents_ends.h"
#include "moment.h"

/* Two pieces and a rest. */
#define FEW (CONTENTS_MIB * 2 + 13)

static contents_ends two;

/* ---- what cannot be mapped ----------------------------------------------------------------------- */

TestSuite(moment_contents, .init = core_start, .fini = core_finish, .timeout = 60);

static gpuipc_status fails(void) {
    return status_fail(GPUIPC_ERR_OUT_OF_MEMORY, "there is none");
}

/* First the words, then the slots: the sender would wait for ever, so the connection ends. */
Test(moment_contents, a_ring_that_cannot_be_mapped_ends_the_connection) {
    core_need_emulated();
    for (unsigned nth = 1; nth <= 2; nth++) {
        contents_ends_open(&two, FEW);
        check_ok(contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
        moment_at(MOMENT_MAP, nth, fails);
        check_refused(GPUIPC_ERR_OUT_OF_MEMORY, "there is none",
                      contents_receive_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
        moment_over();
        check_status(GPUIPC_ERR_CONNECTION_BROKEN,
                     contents_receive_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
        const gpuipc_contents back = {
            .struct_size = sizeof(back), .buffer = two.into, .bytes = FEW, .stream = two.receives};
        check_status(GPUIPC_ERR_CONNECTION_BROKEN,
                     gpuipc_connection_send_contents(two.pair.client, &back, 0));
        check_ok(gpuipc_connection_close(two.pair.client));
        two.pair.client = NULL;
        contents_both_pass(&two);
        contents_ends_close(&two);
    }
}

/* ---- a peer that is gone ------------------------------------------------------------------------- */

static void start_without_words(void) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", "stream-words=0");
    core_start();
}

TestSuite(moment_no_words, .init = start_without_words, .fini = core_finish, .timeout = 60);

static gpuipc_status is_gone(void) {
    return status_fail(GPUIPC_ERR_LOST, "the other process ended");
}

static gpuipc_status send_in_thread(void *argument) {
    (void)argument;
    return contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST);
}

/* Nobody reads any more, which is no failure of who sends; his stream goes on. */
Test(moment_no_words, contents_are_sent_to_a_process_that_ends_meanwhile) {
    core_need_emulated();
    contents_ends_open(&two, FEW);
    moment_at(MOMENT_AWAIT, 1, is_gone);
    check_ok(contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
    moment_over();
    contents_both_pass(&two);
    contents_ends_close(&two);
}

Test(moment_no_words, contents_of_a_process_that_ends_meanwhile_are_lost) {
    core_waiter sender;
    core_need_emulated();
    contents_ends_open(&two, FEW);
    core_waiter_begin(&sender, send_in_thread, NULL);
    moment_at(MOMENT_AWAIT, 1, is_gone);
    check_ok(contents_receive_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
    moment_over();
    cr_assert_eq(core_info(two.into).is_lost, 1);
    check_ok(core_waiter_end(&sender));
    contents_both_pass(&two);
    contents_ends_close(&two);
}

/* ---- staged copies ------------------------------------------------------------------------------- */

/* It is being put on its streams by another thread: so this one has another. */
Test(moment_contents, a_ring_that_another_thread_has_is_not_waited_for) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(1), .bytes = FEW};
    gpuipc_buffer *into = NULL;
    CUstream stream;
    core_need_emulated();
    core_need_devices(2);
    core_enter_device(0);
    cr_assert_eq(core_driver()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    gpuipc_buffer *from = core_buffer(FEW, 0);
    check_ok(gpuipc_buffer_create(core_context, &config, &into));
    buffer_marks_write(from, 4);
    check_ok(gpuipc_buffer_copy_async(into, 0, from, 0, FEW, stream));
    core_set_failures("");
    check_ok(gpuipc_buffer_copy_async(into, 0, from, 0, FEW, stream));
    cr_assert_eq(core_calls("cuMemHostAlloc"), 0);
    moment_at(MOMENT_TRY_LOCK, 1, fails);
    check_ok(gpuipc_buffer_copy_async(into, 0, from, 0, FEW, stream));
    moment_over();
    cr_assert_eq(core_calls("cuMemHostAlloc"), 1);
    cr_assert_eq(core_driver()->cuStreamSynchronize(stream), CUDA_SUCCESS);
    buffer_marks_check(into, 0, 0, FEW, 4, 0);
    check_ok(gpuipc_buffer_release(into));
    check_ok(gpuipc_buffer_release(from));
    cr_assert_eq(core_driver()->cuStreamDestroy(stream), CUDA_SUCCESS);
}

/* ---- what else fails ------------------------------------------------------------------------------ */

/* The page of its words, its memory, and the mapping of that: the next time it works. */
Test(moment_contents, a_ring_that_cannot_be_made_sends_nothing) {
    static const struct {
        moment where;
        unsigned nth;
    } rows[] = {{MOMENT_MEMORY, 1}, {MOMENT_MEMORY, 2}, {MOMENT_MAP, 1}, {MOMENT_MAP, 2}};
    core_need_emulated();
    contents_ends_open(&two, FEW);
    buffer_marks_write(two.from, 9);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        moment_at(rows[i].where, rows[i].nth, fails);
        check_refused(GPUIPC_ERR_OUT_OF_MEMORY, "there is none",
                      contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
        moment_over();
    }
    check_ok(contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
    check_ok(contents_receive_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
    contents_both_pass(&two);
    buffer_marks_check(two.into, 0, 0, FEW, 9, 0);
    contents_ends_close(&two);
}

/* Another thread is in a call of the same direction. */
Test(moment_contents, one_thread_sends_and_one_receives) {
    core_need_emulated();
    contents_ends_open(&two, FEW);
    moment_at(MOMENT_TRY_LOCK, 1, fails);
    check_refused(GPUIPC_ERR_BUSY, "another thread is sending",
                  contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
    moment_over();
    check_ok(contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
    moment_at(MOMENT_TRY_LOCK, 1, fails);
    check_refused(GPUIPC_ERR_BUSY, "another thread is receiving",
                  contents_receive_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
    moment_over();
    check_ok(contents_receive_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
    contents_both_pass(&two);
    contents_ends_close(&two);
}

/* Its words, or the record with the memory: what has not left goes with the next. */
Test(moment_contents, what_could_not_be_sent_is_sent_again) {
    core_need_emulated();
    for (unsigned nth = 1; nth <= 2; nth++) {
        contents_ends_open(&two, FEW);
        buffer_marks_write(two.from, nth);
        moment_at(MOMENT_SEND, nth, fails);
        check_refused(GPUIPC_ERR_OUT_OF_MEMORY, "there is none",
                      contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
        moment_over();
        check_ok(contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
        check_ok(contents_receive_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
        contents_both_pass(&two);
        buffer_marks_check(two.into, 0, 0, FEW, nth, 0);
        contents_ends_close(&two);
    }
}

/* By the memory itself: the host waits for its return. */
Test(moment_no_words, memory_sent_to_a_process_that_ends_meanwhile_comes_back) {
    core_need_emulated();
    contents_ends_open(&two, FEW);
    moment_at(MOMENT_AWAIT, 1, is_gone);
    check_ok(contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_VMM));
    moment_over();
    contents_both_pass(&two);
    contents_ends_close(&two);
}

/* SPDX-License-Identifier: MIT */
/** @file Loans that are returned behind the work that the device was given, while their buffer stays. Both ends are in this
 *  process. */
#include "memory/buffer.h"
#include "opened_case.h"
#include "sync/mark.h"

static void begin(void) {
    opened_case_begin(CU_STREAM_NON_BLOCKING);
}

TestSuite(loan_drop, .init = begin, .fini = opened_case_finish, .timeout = 60);

static gpuipc_mark take(void) {
    gpuipc_mark made;
    check_ok(gpuipc_buffer_lend_ready(opened_case_sent, &made));
    check_ok(gpuipc_buffer_take_loan(opened_case_opened, &made));
    return made;
}

static void check_state(gpuipc_loan_state expected, const gpuipc_mark *loan) {
    gpuipc_loan_state state;
    check_ok(gpuipc_buffer_get_loan_states(opened_case_sent, loan, 1, &state));
    cr_assert_eq(state, expected, "%d", (int)state);
}

/* Work of the device that the drop has to wait for. */
static void begin_work(void) {
    stream_gate_close(opened_case_stream);
    check_ok(gpuipc_buffer_fill_async(opened_case_opened, 0, core_unit, 7, 4, opened_case_stream));
}

/* Until its place is marked, and asked for. */
static void await_marked(void) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (core_is_emulated &&
           (core_calls("cuCtxRecordEvent") < 1 || core_calls("cuEventQuery") < 3)) {
        cr_assert_not(os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
}

Test(loan_drop, waits_for_the_work_of_the_device) {
    const gpuipc_mark made = take();
    begin_work();
    check_ok(gpuipc_buffer_drop_loan(opened_case_opened, &made));
    await_marked();
    check_state(GPUIPC_LOAN_TAKEN, &made);
    stream_gate_check_waits(opened_case_stream);
    stream_gate_open();
    check_ok(gpuipc_buffer_await_loan(opened_case_sent, &made, SOON_MS));
    cr_assert_eq(core_info(opened_case_opened).bytes, core_unit); /* it is still open */
}

Test(loan_drop, ends_what_was_taken) {
    const gpuipc_mark made = take();
    const gpuipc_mark other = take();
    begin_work();
    check_ok(gpuipc_buffer_drop_loan(opened_case_opened, &made));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_drop_loan(opened_case_opened, &made));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_return_loan(opened_case_opened, &made));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_take_loan(opened_case_opened, &made));
    stream_gate_open();
    check_ok(gpuipc_buffer_await_loan(opened_case_sent, &made, SOON_MS));
    check_state(GPUIPC_LOAN_TAKEN, &other);
}

Test(loan_drop, makes_no_call_of_the_driver) {
    core_need_emulated();
    const gpuipc_mark made = take();
    check_ok(gpuipc_drops_pause()); /* or the thread would make some */
    core_set_failures("");
    check_ok(gpuipc_buffer_drop_loan(opened_case_opened, &made));
    cr_assert_eq(core_calls("cuCtxPushCurrent"), 0);
    cr_assert_eq(core_calls("cuCtxRecordEvent"), 0);
    cr_assert_eq(core_calls("cuStreamBatchMemOp"), 0);
    check_state(GPUIPC_LOAN_TAKEN, &made);
    check_ok(gpuipc_drops_resume());
    check_ok(gpuipc_buffer_await_loan(opened_case_sent, &made, SOON_MS));
}

/* The memory may still be used, so it is kept. */
Test(loan_drop, keeps_the_memory_until_it_is_returned) {
    const gpuipc_mark made = take();
    const CUdeviceptr at = core_info(opened_case_opened).address;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    begin_work();
    check_ok(gpuipc_buffer_drop_loan(opened_case_opened, &made));
    check_ok(gpuipc_buffer_release(opened_case_opened));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_drop_loan(opened_case_opened, &made));
    opened_case_opened = NULL;
    await_marked();
    cr_assert_eq(core_driver()->cuMemGetAddressRange(&base, &bytes, at), CUDA_SUCCESS);
    check_state(GPUIPC_LOAN_TAKEN, &made);
    cr_assert_eq(core_info(opened_case_sent).lent_count, 1);
    stream_gate_open();
    check_ok(gpuipc_buffer_await_loan(opened_case_sent, &made, SOON_MS));
    check_ok(gpuipc_buffer_await_returns(opened_case_sent, SOON_MS));
}

/* More than may be out at a time, by one who never lets go of the buffer. */
Test(loan_drop, goes_on_without_end) {
    enum {
        MANY = 5000
    };
    gpuipc_mark made;
    const gpuipc_mark kept = take();
    for (int i = 0; i < MANY; i++) {
        gpuipc_status status;
        const os_deadline deadline = os_deadline_after(SOON_MS);
        while ((status = gpuipc_buffer_lend_ready(opened_case_sent, &made)) == GPUIPC_ERR_LIMIT) {
            cr_assert_not(os_deadline_passed(deadline), "nothing comes back after %d", i);
            os_sleep_ms(1);
        }
        check_ok(status);
        check_ok(gpuipc_buffer_take_loan(opened_case_opened, &made));
        check_ok(gpuipc_buffer_drop_loan(opened_case_opened, &made));
    }
    check_ok(gpuipc_buffer_await_loan(opened_case_sent, &made, SOON_MS));
    check_state(GPUIPC_LOAN_TAKEN, &kept);
}

/* A lender that does not keep to the rules: its next loan in a place that is not returned yet. */
Test(loan_drop, leaves_no_place_for_another) {
    mark read;
    gpuipc_mark made = take();
    check_ok(gpuipc_drops_pause());
    check_ok(gpuipc_buffer_drop_loan(opened_case_opened, &made));
    check_ok(mark_decode(&made, &read));
    read.value++;
    gpuipc_mark early;
    mark_encode(&read, &early);
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_take_loan(opened_case_opened, &early));
    check_ok(gpuipc_drops_resume());
    check_ok(gpuipc_buffer_await_loan(opened_case_sent, &made, SOON_MS));
}

typedef struct dropping {
    gpuipc_mark loan;
} dropping;

static gpuipc_status drop(void *argument) {
    const dropping *self = argument;
    return gpuipc_buffer_drop_loan(opened_case_opened, &self->loan);
}

/* One of them does. */
Test(loan_drop, by_two_threads) {
    for (int i = 0; i < 100; i++) {
        dropping what = {take()};
        core_waiter other;
        core_waiter_begin(&other, drop, &what);
        const gpuipc_status here = drop(&what);
        const gpuipc_status there = core_waiter_end(&other);
        cr_assert((here == GPUIPC_OK) != (there == GPUIPC_OK), "%d and %d", (int)here, (int)there);
        check_ok(gpuipc_buffer_await_loan(opened_case_sent, &what.loan, SOON_MS));
    }
}

Test(loan_drop, one_that_is_none_ends_the_look_at_all) {
    const gpuipc_mark good = take();
    const gpuipc_mark loans[] = {good, {{0}}, good};
    gpuipc_loan_state states[3];
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_buffer_get_loan_states(opened_case_sent, loans, 3, states));
    check_state(GPUIPC_LOAN_TAKEN, &good);
    check_ok(gpuipc_buffer_return_loan(opened_case_opened, &good));
    check_state(GPUIPC_LOAN_OVER, &good);
}

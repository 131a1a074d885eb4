/* SPDX-License-Identifier: MIT */
/** @file Loans of parts. Both ends are in this process. What a dead or a silent borrower does is in process.loan. */
#include <stdlib.h>
#include <string.h>

#include "cuda/context.h"
#include "memory/buffer.h"
#include "stream_gate.h"
#include "sync/loan.h"

static core_pair pair;
static gpuipc_buffer *sent;
static gpuipc_buffer *opened;
static CUstream lender;
static CUstream borrower;

static gpuipc_buffer *hand_over(const core_pair *by) {
    gpuipc_buffer *received = NULL;
    check_ok(core_send(by->client, &sent, 1));
    check_ok(core_receive(by->server, &received, 1));
    return received;
}

static void begin(void) {
    core_start();
    stream_gate_make();
    lender = stream_gate_stream();
    borrower = stream_gate_stream();
    core_pair_open(&pair, core_context, core_context);
    sent = core_buffer(core_unit, 0);
    opened = hand_over(&pair);
}

static void finish(void) {
    stream_gate_open(); /* also after a failure */
    if (lender != NULL) {
        stream_gate_synchronize(lender);
        stream_gate_synchronize(borrower);
    }
    (void)gpuipc_buffer_release(opened);
    (void)gpuipc_buffer_release(sent);
    core_pair_close(&pair);
    stream_gate_stream_end(lender);
    stream_gate_stream_end(borrower);
    stream_gate_end();
    core_finish();
}

TestSuite(loan, .init = begin, .fini = finish, .timeout = 60);

static gpuipc_mark lend(void) {
    gpuipc_mark made;
    check_ok(gpuipc_buffer_lend(sent, lender, &made));
    return made;
}

static void check_state(gpuipc_loan_state expected, const gpuipc_mark *loan) {
    gpuipc_loan_state state;
    check_ok(gpuipc_buffer_get_loan_states(sent, loan, 1, &state));
    cr_assert_eq(state, expected, "%d", (int)state);
}

/* Until it is over, a stream that waits for it goes on. */
static void take_and_return(gpuipc_buffer *by, const gpuipc_mark *loan) {
    check_ok(gpuipc_buffer_take_loan(by, loan));
    check_ok(gpuipc_buffer_return_loan(by, loan));
}

/* ---- connections that are over -------------------------------------------------------------------- */

/* What was lent over it is gone on this side, and open on the other: so a loan can be taken there, and given back. */
Test(loan, goes_on_when_the_connection_is_over) {
    const gpuipc_mark before = lend();
    gpuipc_buffer *arena = core_buffer(core_unit, 0);
    check_ok(gpuipc_buffer_take_loan(opened, &before));
    check_ok(gpuipc_connection_close(pair.client));
    pair.client = NULL;
    check_ok(gpuipc_buffer_release(sent));
    sent = arena;
    check_state(GPUIPC_LOAN_TAKEN, &before);
    check_ok(gpuipc_buffer_return_loan(opened, &before));
    check_state(GPUIPC_LOAN_OVER, &before);
    const gpuipc_mark after = lend();
    check_ok(gpuipc_buffer_take_loan(opened, &after));
    check_state(GPUIPC_LOAN_TAKEN, &after);
    check_ok(gpuipc_buffer_release(opened));
    opened = NULL;
    check_state(GPUIPC_LOAN_OVER, &after);
}

/* ---- there and back ------------------------------------------------------------------------------ */

Test(loan, states_of_no_loans_are_asked_for) {
    gpuipc_loan_state state = GPUIPC_LOAN_TAKEN;
    const gpuipc_mark loan = lend();
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "loans is NULL",
                  gpuipc_buffer_get_loan_states(sent, NULL, 1, &state));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "out_states is NULL",
                  gpuipc_buffer_get_loan_states(sent, &loan, 1, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_buffer_get_loan_states(NULL, &loan, 1, &state));
    check_ok(gpuipc_buffer_get_loan_states(sent, NULL, 0, NULL));
    cr_assert_eq(state, GPUIPC_LOAN_TAKEN, "what failed has answered");
}

Test(loan, is_lent_then_taken_then_over) {
    const gpuipc_mark made = lend();
    check_state(GPUIPC_LOAN_LENT, &made);
    check_ok(gpuipc_buffer_take_loan(opened, &made));
    check_state(GPUIPC_LOAN_TAKEN, &made);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_loan(sent, &made, 0));
    check_ok(gpuipc_buffer_return_loan(opened, &made));
    check_state(GPUIPC_LOAN_OVER, &made);
    check_ok(gpuipc_buffer_await_loan(sent, &made, 0));
    check_ok(gpuipc_buffer_cancel_loan(sent, &made)); /* it is over anyway */
}

/* The one token says both when the part is ready and when it is back. */
Test(loan, is_a_mark_as_well) {
    stream_gate_close(lender);
    check_ok(gpuipc_buffer_fill_async(sent, 0, core_unit, 7, 4, lender));
    const gpuipc_mark made = lend();
    check_ok(gpuipc_buffer_take_loan(opened, &made));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_mark(opened, &made, 0));
    check_ok(gpuipc_buffer_await_mark_async(opened, &made, borrower));
    check_ok(gpuipc_buffer_return_loan_async(opened, &made, borrower));
    stream_gate_check_waits(borrower);
    check_state(GPUIPC_LOAN_TAKEN, &made);
    stream_gate_open();
    check_ok(gpuipc_buffer_await_loan(sent, &made, SOON_MS));
    check_ok(gpuipc_buffer_await_mark(opened, &made, 0));
}

Test(loan, is_waited_for_by_a_stream) {
    const gpuipc_mark made = lend();
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_loan_async(sent, &made, lender, 0));
    check_ok(gpuipc_buffer_take_loan(opened, &made));
    check_ok(gpuipc_buffer_await_loan_async(sent, &made, lender, 0));
    stream_gate_check_waits(lender);
    stream_gate_close(borrower);
    check_ok(gpuipc_buffer_return_loan_async(opened, &made, borrower));
    stream_gate_check_waits(lender);
    stream_gate_open();
    stream_gate_synchronize(lender);
    check_state(GPUIPC_LOAN_OVER, &made);
    check_ok(gpuipc_buffer_await_loan_async(sent, &made, lender, 0));
    stream_gate_synchronize(lender);
}

typedef struct waiting {
    gpuipc_mark loan;
    bool on_stream;
} waiting;

static gpuipc_status wait_for(void *argument) {
    const waiting *self = argument;
    return self->on_stream ? gpuipc_buffer_await_loan_async(sent, &self->loan, lender, SOON_MS)
                           : gpuipc_buffer_await_loan(sent, &self->loan, SOON_MS);
}

Test(loan, is_taken_and_returned_while_calls_wait) {
    for (int i = 0; i < 2; i++) {
        waiting what = {lend(), i == 0};
        core_waiter thread;
        core_waiter_start(&thread, wait_for, &what);
        take_and_return(opened, &what.loan);
        check_ok(core_waiter_end(&thread));
    }
    stream_gate_synchronize(lender);
}

Test(loan, ends_in_a_context_that_is_given_up) {
    gpuipc_context *second = core_context_new();
    gpuipc_buffer *other = NULL;
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = core_unit};
    gpuipc_mark made;
    check_ok(gpuipc_buffer_create(second, &config, &other));
    check_ok(gpuipc_buffer_lend(other, lender, &made));
    check_ok(gpuipc_context_destroy(second));
    check_refused(GPUIPC_ERR_RELEASED, "context was destroyed",
                  gpuipc_buffer_await_loan(other, &made, SOON_MS));
    check_status(GPUIPC_ERR_RELEASED,
                 gpuipc_buffer_await_loan_async(other, &made, lender, SOON_MS));
    check_ok(gpuipc_buffer_release(other));
}

/* ---- many ---------------------------------------------------------------------------------------- */

#define MOST 2047

/* The states of all are asked for at once; places are used again, and what is old stays over. */
Test(loan, beyond_as_many_as_there_may_be_is_refused) {
    static gpuipc_mark made[MOST];
    static gpuipc_loan_state states[MOST];
    gpuipc_mark more;
    for (int i = 0; i < MOST; i++) {
        made[i] = lend();
    }
    check_status(GPUIPC_ERR_LIMIT, gpuipc_buffer_lend(sent, lender, &more));
    for (int i = 0; i < MOST; i += 2) {
        check_ok(gpuipc_buffer_take_loan(opened, &made[i]));
    }
    stream_gate_close(lender);
    check_status(GPUIPC_ERR_LIMIT, gpuipc_buffer_lend(sent, lender, &more));
    stream_gate_open();
    check_ok(gpuipc_buffer_return_loan(opened, &made[1024]));
    check_ok(gpuipc_buffer_get_loan_states(sent, made, MOST, states));
    for (int i = 0; i < MOST; i++) {
        const gpuipc_loan_state expected = i == 1024    ? GPUIPC_LOAN_OVER
                                           : i % 2 == 0 ? GPUIPC_LOAN_TAKEN
                                                        : GPUIPC_LOAN_LENT;
        cr_assert_eq(states[i], expected, "%d: %d", i, (int)states[i]);
    }
    stream_gate_synchronize(lender);
    more = lend();
    check_state(GPUIPC_LOAN_LENT, &more);
    check_state(GPUIPC_LOAN_OVER, &made[1024]);
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_take_loan(opened, &made[1024]));
    take_and_return(opened, &more);
}

Test(loan, of_long_ago_is_over) {
    const gpuipc_mark first = lend();
    take_and_return(opened, &first);
    for (int i = 0; i < 3 * MOST; i++) {
        const gpuipc_mark made = lend();
        take_and_return(opened, &made);
    }
    check_state(GPUIPC_LOAN_OVER, &first);
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_take_loan(opened, &first));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_return_loan(opened, &first));
}

/* A borrower who comes later has the same words as if he had been there before. */
Test(loan, is_taken_over_a_connection_that_comes_later) {
    core_pair later;
    for (int i = 0; i < 3; i++) {
        const gpuipc_mark before = lend();
        take_and_return(opened, &before);
    }
    const gpuipc_mark over = lend();
    const gpuipc_mark made = lend();
    take_and_return(opened, &over);
    check_state(GPUIPC_LOAN_OVER, &over);
    core_pair_open(&later, core_context, core_context);
    gpuipc_buffer *second = hand_over(&later);
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_take_loan(second, &over));
    check_ok(gpuipc_buffer_take_loan(second, &made));
    check_ok(gpuipc_buffer_await_mark(second, &made, SOON_MS));
    check_state(GPUIPC_LOAN_TAKEN, &made);
    check_ok(gpuipc_buffer_return_loan(second, &made));
    check_state(GPUIPC_LOAN_OVER, &made);
    check_ok(gpuipc_buffer_release(second));
    core_pair_close(&later);
}

/* ---- several borrowers --------------------------------------------------------------------------- */

/* Whoever has taken it before it is over is waited for; who comes afterwards is refused. */
Test(loan, of_two_takers_is_over_when_both_have_returned_it) {
    core_pair other;
    core_pair third;
    core_pair_open(&other, core_context, core_context);
    core_pair_open(&third, core_context, core_context);
    gpuipc_buffer *second = hand_over(&other);
    gpuipc_buffer *late = hand_over(&third);
    for (int i = 0; i < 2; i++) {
        const gpuipc_mark made = lend();
        check_ok(gpuipc_buffer_take_loan(opened, &made));
        check_ok(gpuipc_buffer_take_loan(second, &made));
        check_ok(gpuipc_buffer_return_loan(i == 0 ? opened : second, &made));
        check_state(GPUIPC_LOAN_TAKEN, &made);
        check_ok(gpuipc_buffer_await_loan_async(sent, &made, lender, 0));
        check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_take_loan(late, &made));
        stream_gate_check_waits(lender);
        check_ok(gpuipc_buffer_return_loan(i == 0 ? second : opened, &made));
        stream_gate_synchronize(lender);
        check_state(GPUIPC_LOAN_OVER, &made);
        check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_take_loan(late, &made));
    }
    check_ok(gpuipc_buffer_release(second));
    check_ok(gpuipc_buffer_release(late));
    core_pair_close(&third);
    core_pair_close(&other);
}

/* ---- the end of either side ---------------------------------------------------------------------- */

Test(loan, is_returned_by_who_releases_the_buffer) {
    const gpuipc_mark made = lend();
    const gpuipc_mark returned = lend();
    check_ok(gpuipc_buffer_take_loan(opened, &made));
    take_and_return(opened, &returned);
    check_ok(gpuipc_buffer_release(opened));
    opened = NULL;
    check_state(GPUIPC_LOAN_OVER, &made);
    check_state(GPUIPC_LOAN_OVER, &returned);
}

Test(loan, is_returned_by_who_drops_the_buffer) {
    const gpuipc_mark made = lend();
    check_ok(gpuipc_buffer_take_loan(opened, &made));
    check_ok(gpuipc_buffer_drop(opened));
    opened = NULL;
    check_ok(gpuipc_buffer_await_loan(sent, &made, SOON_MS));
}

/* The lender has not looked in between. */
Test(loan, is_over_when_it_was_returned_and_the_connection_is_gone) {
    const gpuipc_mark made = lend();
    check_ok(gpuipc_buffer_take_loan(opened, &made));
    check_ok(gpuipc_buffer_release(opened));
    opened = NULL;
    core_pair_close(&pair);
    check_state(GPUIPC_LOAN_OVER, &made);
    core_pair_open(&pair, core_context, core_context); /* for the end */
}

/* Nobody can take it any more, and what is taken may be returned; its place is used again. */
Test(loan, ends_with_the_lenders_buffer) {
    gpuipc_loan_state states[2];
    const gpuipc_mark made[2] = {lend(), lend()};
    check_ok(gpuipc_buffer_take_loan(opened, &made[0]));
    check_ok(gpuipc_buffer_release(sent));
    sent = core_buffer(core_unit, 0); /* of the same context */
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_take_loan(opened, &made[1]));
    check_ok(gpuipc_buffer_get_loan_states(sent, made, 2, states));
    cr_assert(states[0] == GPUIPC_LOAN_TAKEN && states[1] == GPUIPC_LOAN_OVER);
    check_ok(gpuipc_buffer_return_loan(opened, &made[0]));
    check_state(GPUIPC_LOAN_OVER, &made[0]);
}

/* The lender is gone: the words are there as long as the borrower wants. */
Test(loan, is_returned_to_a_context_that_is_gone) {
    gpuipc_context *second = core_context_new();
    core_pair to;
    gpuipc_buffer *other = NULL;
    gpuipc_buffer *theirs = NULL;
    gpuipc_mark made;
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = core_unit};
    check_ok(gpuipc_buffer_create(second, &config, &other));
    core_pair_open(&to, core_context, second);
    check_ok(core_send(to.client, &other, 1));
    check_ok(core_receive(to.server, &theirs, 1));
    check_ok(gpuipc_buffer_lend(other, lender, &made));
    stream_gate_synchronize(lender);
    check_ok(gpuipc_buffer_take_loan(theirs, &made));
    check_ok(gpuipc_buffer_release(other));
    check_ok(gpuipc_connection_close(to.client));
    to.client = NULL;
    check_ok(gpuipc_context_destroy(second));
    check_ok(gpuipc_buffer_return_loan_async(theirs, &made, borrower));
    stream_gate_synchronize(borrower);
    check_ok(gpuipc_buffer_release(theirs));
    core_pair_close(&to);
}

/* ---- taking back --------------------------------------------------------------------------------- */

Test(loan, that_nobody_took_is_taken_back) {
    const gpuipc_mark made = lend();
    check_ok(gpuipc_buffer_cancel_loan(sent, &made));
    check_state(GPUIPC_LOAN_OVER, &made);
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_take_loan(opened, &made));
    check_ok(gpuipc_buffer_await_mark(opened, &made, SOON_MS));
}

Test(loan, that_was_taken_is_not_taken_back) {
    const gpuipc_mark made = lend();
    check_ok(gpuipc_buffer_take_loan(opened, &made));
    check_status(GPUIPC_ERR_BUSY, gpuipc_buffer_cancel_loan(sent, &made));
    check_state(GPUIPC_LOAN_TAKEN, &made);
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_take_loan(opened, &made));
    check_ok(gpuipc_buffer_return_loan(opened, &made));
    check_state(GPUIPC_LOAN_OVER, &made);
}

/* Its stream has not come to the mark: the place is not used again before. */
Test(loan, that_is_taken_back_before_it_is_ready_keeps_its_place) {
    stream_gate_close(lender);
    gpuipc_mark made = lend();
    gpuipc_mark next;
    mark first;
    check_ok(gpuipc_buffer_cancel_loan(sent, &made));
    check_ok(mark_decode(&made, &first));
    for (int i = 0; i < MOST - 1; i++) {
        mark read;
        check_ok(gpuipc_buffer_lend(sent, borrower, &next));
        check_ok(mark_decode(&next, &read));
        cr_assert_neq(read.slot, first.slot);
        check_ok(gpuipc_buffer_cancel_loan(sent, &next));
        stream_gate_synchronize(borrower);
    }
    stream_gate_open();
    stream_gate_synchronize(lender);
    made = lend();
    take_and_return(opened, &made);
}

typedef struct taking {
    gpuipc_mark loan;
    os_mutex *start;
} taking;

static gpuipc_status take_at_once(void *argument) {
    taking *self = argument;
    os_mutex_lock(self->start);
    os_mutex_unlock(self->start);
    return gpuipc_buffer_take_loan(opened, &self->loan);
}

/* One of the two gets it, and never both or none. */
Test(loan, is_taken_and_taken_back_at_the_same_time) {
    os_mutex start = {0};
    int taken = 0;
    for (int i = 0; i < 300; i++) {
        taking what = {lend(), &start};
        core_waiter thread;
        os_mutex_lock(&start);
        core_waiter_begin(&thread, take_at_once, &what);
        os_mutex_unlock(&start);
        const gpuipc_status cancelled = gpuipc_buffer_cancel_loan(sent, &what.loan);
        const gpuipc_status got = core_waiter_end(&thread);
        cr_assert((cancelled == GPUIPC_OK && got == GPUIPC_ERR_RELEASED) ||
                      (cancelled == GPUIPC_ERR_BUSY && got == GPUIPC_OK),
                  "%d and %d", (int)cancelled, (int)got);
        check_state(got == GPUIPC_OK ? GPUIPC_LOAN_TAKEN : GPUIPC_LOAN_OVER, &what.loan);
        if (got == GPUIPC_OK) {
            taken++;
            check_ok(gpuipc_buffer_return_loan(opened, &what.loan));
        }
    }
    cr_log_info("%d of 300 were taken", taken);
}

/* ---- what is refused ----------------------------------------------------------------------------- */

static void check_no_loan(const gpuipc_mark *bytes) {
    gpuipc_loan_state state;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_buffer_get_loan_states(sent, bytes, 1, &state));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_await_loan(sent, bytes, 0));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_buffer_await_loan_async(sent, bytes, lender, 0));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_cancel_loan(sent, bytes));
}

static void check_not_taken(gpuipc_buffer *by, const gpuipc_mark *bytes) {
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_take_loan(by, bytes));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_return_loan(by, bytes));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_drop_loan(by, bytes));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_return_loan_async(by, bytes, borrower));
}

Test(loan, that_is_damaged_is_refused) {
    const gpuipc_mark made = lend();
    for (unsigned bit = 0; bit < 128; bit++) {
        gpuipc_mark damaged = made;
        damaged.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        check_no_loan(&damaged);
        check_not_taken(opened, &damaged);
    }
    check_no_loan(NULL);
    check_not_taken(opened, NULL);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_lend(sent, lender, NULL));
    check_state(GPUIPC_LOAN_LENT, &made);
}

Test(loan, of_elsewhere_is_refused) {
    gpuipc_mark made;
    check_ok(gpuipc_buffer_mark(sent, lender, &made)); /* no loan */
    check_no_loan(&made);
    check_not_taken(opened, &made);
    gpuipc_context *second = core_context_new();
    gpuipc_buffer *other = NULL;
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = core_unit};
    check_ok(gpuipc_buffer_create(second, &config, &other));
    check_ok(gpuipc_buffer_lend(other, lender, &made));
    check_no_loan(&made);
    check_not_taken(opened, &made);
    check_ok(gpuipc_buffer_release(other));
    check_ok(gpuipc_context_destroy(second));
    made = lend();
    check_not_taken(sent, &made); /* one's own buffer */
}

/* Whole, and never given out. */
Test(loan, that_was_not_made_is_refused) {
    mark read;
    gpuipc_mark bytes = lend();
    check_ok(mark_decode(&bytes, &read));
    mark wrong[] = {read, read, read};
    wrong[0].value++;
    wrong[1].secret ^= 1u;
    wrong[2].slot++;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        mark_encode(&wrong[i], &bytes);
        check_no_loan(&bytes);
    }
}

Test(loan, is_returned_once_and_by_who_took_it) {
    const gpuipc_mark made = lend();
    gpuipc_buffer *again = hand_over(&pair);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_return_loan(opened, &made));
    check_ok(gpuipc_buffer_take_loan(opened, &made));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_return_loan(again, &made));
    check_ok(gpuipc_buffer_return_loan(opened, &made));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_return_loan(opened, &made));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_buffer_return_loan_async(opened, &made, borrower));
    check_ok(gpuipc_buffer_release(again));
}

Test(loan, is_not_captured) {
    gpuipc_mark made = lend();
    check_ok(gpuipc_buffer_take_loan(opened, &made));
    core_set_captured(true, borrower);
    check_status(GPUIPC_ERR_CUDA, gpuipc_buffer_return_loan_async(opened, &made, borrower));
    check_status(GPUIPC_ERR_CUDA, gpuipc_buffer_await_loan_async(sent, &made, borrower, 0));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_buffer_await_mark_async(opened, &made, borrower));
    gpuipc_mark second;
    check_status(GPUIPC_ERR_CUDA, gpuipc_buffer_lend(sent, borrower, &second));
    core_set_captured(false, NULL);
    check_state(GPUIPC_LOAN_TAKEN, &made);
    check_ok(gpuipc_buffer_return_loan(opened, &made)); /* it was still taken */
}

/* ---- contents that are there --------------------------------------------------------------------- */

static gpuipc_mark lend_ready(gpuipc_buffer *of) {
    gpuipc_mark made;
    check_ok(gpuipc_buffer_lend_ready(of, &made));
    return made;
}

/* Whatever the streams of the lender do. */
Test(loan, of_what_is_there_is_ready_at_once) {
    stream_gate_close(lender);
    if (core_is_emulated) {
        core_set_failures(""); /* counts from here on */
    }
    const gpuipc_mark made = lend_ready(sent);
    if (core_is_emulated) {
        cr_assert_eq(core_calls("cuCtxPushCurrent"), 0);
        cr_assert_eq(core_calls("cuStreamBatchMemOp"), 0);
        cr_assert_eq(core_calls("cuStreamWriteValue64"), 0);
    }
    check_ok(gpuipc_buffer_await_mark(opened, &made, 0));
    check_state(GPUIPC_LOAN_LENT, &made);
    take_and_return(opened, &made);
    check_state(GPUIPC_LOAN_OVER, &made);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_lend_ready(sent, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_lend_ready(NULL, NULL));
}

Test(loan, of_what_is_there_is_ready_over_a_connection_that_comes_later) {
    core_pair later;
    const gpuipc_mark made = lend_ready(sent);
    core_pair_open(&later, core_context, core_context);
    gpuipc_buffer *theirs = hand_over(&later);
    check_ok(gpuipc_buffer_await_mark(theirs, &made, 0));
    take_and_return(theirs, &made);
    check_state(GPUIPC_LOAN_OVER, &made);
    check_ok(gpuipc_buffer_release(theirs));
    core_pair_close(&later);
}

/* The same places, in turns with those that streams make ready. */
Test(loan, of_what_is_there_uses_places_again) {
    for (int i = 0; i < 2 * MOST; i++) {
        const gpuipc_mark made = i % 3 == 0 ? lend() : lend_ready(sent);
        check_ok(gpuipc_buffer_await_mark(opened, &made, SOON_MS));
        take_and_return(opened, &made);
        check_state(GPUIPC_LOAN_OVER, &made);
    }
    for (int i = 0; i < MOST; i++) {
        (void)lend_ready(sent);
    }
    gpuipc_mark more;
    check_status(GPUIPC_ERR_LIMIT, gpuipc_buffer_lend_ready(sent, &more));
}

Test(loan, of_what_is_there_may_be_lent_during_a_capture) {
    core_set_captured(true, borrower);
    const gpuipc_mark made = lend_ready(sent);
    core_set_captured(false, NULL);
    take_and_return(opened, &made);
}

/* ---- a borrower that writes what it likes --------------------------------------------------------- */

static point_page *page_of(gpuipc_buffer *received) {
    buffer *self;
    check_ok(buffer_acquire(received, &self));
    point_page *page = self->import_record->marks;
    buffer_unreference(self); /* the handle has it */
    return page;
}

static atomic_uint_least64_t *takes_of(gpuipc_buffer *received) {
    return &page_of(received)->words[MARK_WORDS_END];
}

static atomic_uint_least64_t *word_of(gpuipc_buffer *received, const gpuipc_mark *loan) {
    mark read;
    check_ok(mark_decode(loan, &read));
    return takes_of(received) + 1 + (read.slot - MARK_SLOTS);
}

/* It has memory of this context open, but was not given the loan. */
Test(loan, is_not_ended_by_who_has_not_its_secret) {
    core_pair other;
    mark read;
    core_pair_open(&other, core_context, core_context);
    gpuipc_buffer *liar = hand_over(&other);
    const gpuipc_mark made = lend();
    check_ok(mark_decode(&made, &read));
    for (uint32_t state = 1; state < 3; state++) {
        const uint64_t guessed =
            (uint64_t)read.value << 32 | (uint64_t)(uint16_t)(read.secret + 1u) << 8 | state;
        atomic_store(word_of(liar, &made), guessed);
        atomic_fetch_add(takes_of(liar), 1u);
        check_state(GPUIPC_LOAN_LENT, &made);
    }
    /* and who has guessed once is not believed when it is right */
    atomic_store(word_of(liar, &made),
                 (uint64_t)read.value << 32 | (uint64_t)read.secret << 8 | 2u);
    atomic_fetch_add(takes_of(liar), 1u);
    check_state(GPUIPC_LOAN_LENT, &made);
    check_ok(gpuipc_buffer_take_loan(opened, &made));
    check_state(GPUIPC_LOAN_TAKEN, &made);
    check_ok(gpuipc_buffer_return_loan(opened, &made));
    check_state(GPUIPC_LOAN_OVER, &made);
    check_ok(gpuipc_buffer_release(liar));
    core_pair_close(&other);
}

/* What stands in its words and the count is misleading about its own loans only. */
Test(loan, of_others_stands_whatever_one_writes) {
    static const uint64_t values[] = {0, 1, UINT64_MAX, UINT64_C(1) << 63, UINT64_C(1) << 32};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        core_pair other;
        core_pair_open(&other, core_context, core_context);
        gpuipc_buffer *liar = hand_over(&other);
        const gpuipc_mark its = lend();
        const gpuipc_mark made = lend();
        check_ok(gpuipc_buffer_take_loan(liar, &its));
        check_ok(gpuipc_buffer_take_loan(opened, &made));
        check_state(GPUIPC_LOAN_TAKEN, &its);
        for (uint32_t at = 0; at < LOAN_SLOTS + 1; at++) {
            atomic_store(takes_of(liar) + at, values[i]);
        }
        check_state(GPUIPC_LOAN_OVER, &its);
        check_state(GPUIPC_LOAN_TAKEN, &made);
        check_status(GPUIPC_ERR_BUSY, gpuipc_buffer_cancel_loan(sent, &made));
        check_ok(gpuipc_buffer_return_loan(opened, &made));
        check_state(GPUIPC_LOAN_OVER, &made);
        check_ok(gpuipc_buffer_release(liar));
        core_pair_close(&other);
    }
}

/* ---- failures ------------------------------------------------------------------------------------ */

Test(loan, that_could_not_be_marked_is_none) {
    core_need_emulated();
    gpuipc_mark made = lend();
    check_ok(gpuipc_buffer_take_loan(opened, &made));
    core_set_failures("cuStreamQuery:1=1;cuStreamBatchMemOp:1=1"); /* or it is found to be done */
    gpuipc_mark second;
    cr_assert_neq(gpuipc_buffer_lend(sent, lender, &second), GPUIPC_OK);
    core_set_failures("cuStreamBatchMemOp:1=1");
    cr_assert_neq(gpuipc_buffer_return_loan_async(opened, &made, borrower), GPUIPC_OK);
    core_set_failures("");
    check_state(GPUIPC_LOAN_TAKEN, &made);
    check_ok(gpuipc_buffer_return_loan_async(opened, &made, borrower));
    check_ok(gpuipc_buffer_await_loan(sent, &made, SOON_MS));
    made = lend();
    take_and_return(opened, &made);
}

/* ---- the bytes ----------------------------------------------------------------------------------- */

Test(loan, has_the_bytes_of_the_wire_format) {
    static const uint8_t frozen[] = {1, 2, 0xFF, 3, 0x44, 0x33, 0x22, 0x11,
                                     5, 0, 0,    0, 0x34, 0x12, 0xE8, 0x67};
    const mark known = {false, MARK_SLOTS + 1, 0x11223344u, 5, 0x1234};
    gpuipc_mark bytes;
    mark read;
    mark_encode(&known, &bytes);
    cr_assert_arr_eq(bytes.bytes, frozen, sizeof(frozen));
    check_ok(mark_decode(&bytes, &read));
    cr_assert(!read.repeats && read.slot == MARK_SLOTS + 1 && read.exporter == 0x11223344u &&
              read.value == 5 && read.secret == 0x1234);
}

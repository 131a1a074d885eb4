/* SPDX-License-Identifier: MIT */
/** @file Loans between two and three processes, one of which keeps silent, is stopped, hangs up, or ends at any moment.
 *  Mostly this process lends, and its partners borrow. */
#include <criterion/criterion.h>

#include "check.h"
#include "partner.h"

#define BYTES 4096

static process_case at;
static partner other;
static gpuipc_connection *connection;
static gpuipc_buffer *arena;

TestSuite(loan, .timeout = 100);

static gpuipc_connection *connect_to(partner *borrower) {
    partner_start(borrower, &at, NULL, NULL);
    partner_do(borrower, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    return process_case_accept(&at);
}

static void give_arena(gpuipc_connection *by, partner *borrower) {
    check_ok(process_case_send(by, &arena, 1, 0));
    partner_do(borrower, "GPUIPC_OK 0 bytes", "receive 0 0 0 %d", PATIENCE_MS);
}

static void begin(void) {
    process_case_begin(&at, NULL);
    arena = process_case_buffer(&at, 0, BYTES, 0, 1, 0);
    connection = connect_to(&other);
    give_arena(connection, &other);
}

/* The partner is gone, or ends here. */
static void end(void) {
    if (other.process != NULL) {
        partner_end(&other);
    }
    check_ok(gpuipc_connection_close(connection));
    check_ok(gpuipc_buffer_release(arena));
    process_case_end(&at);
}

static gpuipc_mark lend(void) {
    gpuipc_mark made;
    check_ok(gpuipc_buffer_lend(arena, NULL, &made));
    return made;
}

static gpuipc_mark lend_and_take(void) {
    const gpuipc_mark made = lend();
    partner_do_mark(&other, "GPUIPC_OK", "take", &made);
    return made;
}

static void check_state(gpuipc_loan_state expected, const gpuipc_mark *loan) {
    gpuipc_loan_state state;
    check_ok(gpuipc_buffer_get_loan_states(arena, loan, 1, &state));
    cr_assert_eq(state, expected, "%d", (int)state);
}

static void check_comes_back(const gpuipc_mark *loan) {
    check_ok(gpuipc_buffer_await_loan(arena, loan, PATIENCE_MS));
    check_state(GPUIPC_LOAN_OVER, loan);
}

/* ---- both live ------------------------------------------------------------------------------ */

Test(loan, orders_work_of_two_processes_on_a_part) {
    begin();
    const gpuipc_mark made = lend_and_take();
    check_state(GPUIPC_LOAN_TAKEN, &made);
    partner_do(&other, "GPUIPC_OK", "gate");
    partner_do(&other, "GPUIPC_OK", "paint 7 %d", BYTES);
    partner_do_mark(&other, "GPUIPC_OK", "give_async", &made);
    check_refused(GPUIPC_ERR_TIMEOUT, "not returned", gpuipc_buffer_await_loan(arena, &made, 30));
    check_ok(gpuipc_buffer_await_loan_async(arena, &made, NULL, 0));
    partner_do(&other, "GPUIPC_OK", "open");
    uint32_t word = 0;
    check_ok(gpuipc_buffer_read(arena, 0, &word, sizeof(word)));
    cr_assert_eq(word, 7, "the stream waited until it was back");
    check_state(GPUIPC_LOAN_OVER, &made);
    end();
}

/* The ticket and the loan come together over another channel: the lender knows the borrower only when it takes. */
Test(loan, is_taken_by_who_opened_a_ticket_afterwards) {
    gpuipc_server *server;
    gpuipc_ticket ticket;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    process_case_begin(&at, NULL);
    arena = process_case_buffer(&at, 0, BYTES, 0, 1, 0);
    check_ok(gpuipc_server_create(at.context, NULL, &server));
    check_ok(gpuipc_buffer_share(server, arena, NULL, &ticket));
    check_ok(gpuipc_ticket_to_text(&ticket, text));
    const gpuipc_mark made = lend();
    check_refused(GPUIPC_ERR_TIMEOUT, "nobody", gpuipc_buffer_await_loan(arena, &made, 0));
    partner_start(&other, &at, NULL, NULL);
    partner_do(&other, "GPUIPC_OK", "ticket %s", text);
    partner_do_mark(&other, "GPUIPC_OK", "take", &made);
    check_state(GPUIPC_LOAN_TAKEN, &made);
    partner_do_mark(&other, "GPUIPC_OK", "give", &made);
    check_state(GPUIPC_LOAN_OVER, &made);
    partner_end(&other);
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_buffer_release(arena));
    process_case_end(&at);
}

/* ---- the borrower is silent, or hangs up ------------------------------------------------------ */

Test(loan, of_a_stopped_borrower_stays_and_holds_up_no_other) {
    partner second;
    begin();
    gpuipc_connection *to_second = connect_to(&second);
    give_arena(to_second, &second);
    const gpuipc_mark made = lend_and_take();
    child_stop(other.process);
    check_state(GPUIPC_LOAN_TAKEN, &made);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_loan(arena, &made, 50));
    check_status(GPUIPC_ERR_BUSY, gpuipc_buffer_cancel_loan(arena, &made));
    for (int i = 0; i < 50; i++) {
        const gpuipc_mark next = lend();
        partner_do_mark(&second, "GPUIPC_OK", "take", &next);
        partner_do_mark(&second, "GPUIPC_OK", "give", &next);
        check_state(GPUIPC_LOAN_OVER, &next);
    }
    check_state(GPUIPC_LOAN_TAKEN, &made);
    child_continue(other.process);
    partner_do_mark(&other, "GPUIPC_OK", "give", &made);
    check_comes_back(&made);
    partner_end(&second);
    check_ok(gpuipc_connection_close(to_second));
    end();
}

Test(loan, outlives_the_connection_as_the_buffer_does) {
    begin();
    const gpuipc_mark made = lend_and_take();
    partner_do(&other, "GPUIPC_OK", "disconnect");
    const gpuipc_mark second = lend_and_take();
    check_state(GPUIPC_LOAN_TAKEN, &made);
    partner_do_mark(&other, "GPUIPC_OK", "give", &made);
    check_state(GPUIPC_LOAN_OVER, &made);
    check_state(GPUIPC_LOAN_TAKEN, &second);
    partner_do(&other, "GPUIPC_OK", "release");
    check_state(GPUIPC_LOAN_OVER, &second);
    end();
}

/* Whichever of the two is first, all is back afterwards. */
Test(loan, both_close_at_the_same_time) {
    begin();
    const gpuipc_mark made = lend_and_take();
    partner_tell(&other, "release");
    check_ok(gpuipc_connection_close(connection));
    connection = NULL;
    partner_hear(&other, "GPUIPC_OK");
    check_comes_back(&made);
    partner_do(&other, "GPUIPC_OK", "disconnect");
    end();
}

/* ---- the borrower ends ------------------------------------------------------------------------ */

Test(loan, of_a_killed_borrower_comes_back) {
    begin();
    const gpuipc_mark made = lend_and_take();
    const gpuipc_mark untaken = lend();
    partner_kill(&other);
    check_comes_back(&made);
    /* that it was this one who was to take it, nobody knows */
    check_state(GPUIPC_LOAN_LENT, &untaken);
    check_ok(gpuipc_buffer_cancel_loan(arena, &untaken));
    check_state(GPUIPC_LOAN_OVER, &untaken);
    end();
}

Test(loan, of_a_killed_borrower_lets_the_stream_go_on) {
    begin();
    const gpuipc_mark made = lend_and_take();
    check_ok(gpuipc_buffer_await_loan_async(arena, &made, NULL, 0));
    check_ok(gpuipc_buffer_fill_async(arena, 0, BYTES, 4711, 4, NULL));
    partner_kill(&other);
    uint32_t word = 0;
    check_ok(gpuipc_buffer_read(arena, 0, &word, sizeof(word)));
    cr_assert_eq(word, 4711, "the stream has gone on");
    check_comes_back(&made);
    end();
}

/* What the living one has is waited for. */
Test(loan, of_two_borrowers_one_of_whom_is_killed) {
    partner second;
    begin();
    gpuipc_connection *to_second = connect_to(&second);
    give_arena(to_second, &second);
    const gpuipc_mark both = lend_and_take();
    const gpuipc_mark first = lend_and_take();
    partner_do_mark(&second, "GPUIPC_OK", "take", &both);
    partner_kill(&other);
    check_comes_back(&first);
    check_state(GPUIPC_LOAN_TAKEN, &both);
    partner_do_mark(&second, "GPUIPC_OK", "give", &both);
    check_comes_back(&both);
    partner_end(&second);
    check_ok(gpuipc_connection_close(to_second));
    end();
}

/* ---- the lender ends --------------------------------------------------------------------------- */

Test(loan, of_a_killed_lender_is_returned_to_nobody) {
    gpuipc_buffer *opened;
    size_t count = 1;
    size_t bytes = 0;
    process_case_begin(&at, NULL);
    connection = connect_to(&other);
    partner_do(&other, "GPUIPC_OK", "create 1 %d 0 0", BYTES);
    partner_do(&other, "GPUIPC_OK", "hand %u %d", (unsigned)GPUIPC_SEND_READY, PATIENCE_MS);
    check_ok(process_case_receive(connection, &opened, &count, &bytes, PATIENCE_MS));
    gpuipc_mark made[3];
    for (int i = 0; i < 3; i++) {
        made[i] = partner_mark(&other, "lend");
        check_ok(gpuipc_buffer_await_mark(opened, &made[i], PATIENCE_MS));
    }
    check_ok(gpuipc_buffer_take_loan(opened, &made[0]));
    check_ok(gpuipc_buffer_take_loan(opened, &made[1]));
    partner_kill(&other);
    check_ok(gpuipc_buffer_return_loan(opened, &made[0]));
    check_ok(gpuipc_buffer_return_loan_async(opened, &made[1], NULL));
    check_ok(
        gpuipc_buffer_take_loan(opened, &made[2])); /* its words are there as long as the buffer */
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_connection_close(connection));
    process_case_end(&at);
}

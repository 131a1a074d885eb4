/* SPDX-License-Identifier: MIT */
/** @file See growth.h: calls about marks and loans. What was lent and taken is back when a row is over. */
#include "growth.h"

static void mark(unsigned i) {
    MUST(gpuipc_buffer_mark(world.arena, NULL, &growth_items[i].mark));
}

static void synchronize(unsigned i) {
    (void)i;
    growth_synchronize();
}

static void mark_and_pass(unsigned i) {
    mark(i);
    growth_synchronize();
}

static void await_mark(unsigned i) {
    MUST(gpuipc_buffer_await_mark(world.imported, &growth_items[i].mark, GROWTH_SOON_MS));
}

static void await_mark_async(unsigned i) {
    MUST(gpuipc_buffer_await_mark_async(world.imported, &growth_items[i].mark, NULL));
}

static void lend(unsigned i) {
    MUST(gpuipc_buffer_lend(world.arena, NULL, &growth_items[i].mark));
}

static void lend_ready(unsigned i) {
    MUST(gpuipc_buffer_lend_ready(world.arena, &growth_items[i].mark));
}

static void cancel(unsigned i) {
    MUST(gpuipc_buffer_cancel_loan(world.arena, &growth_items[i].mark));
}

/* A loan has its place until its stream has written the mark. */
static void pass_and_cancel(unsigned i) {
    growth_synchronize();
    cancel(i);
}

static void take(unsigned i) {
    MUST(gpuipc_buffer_take_loan(world.imported, &growth_items[i].mark));
}

static void give_back(unsigned i) {
    MUST(gpuipc_buffer_return_loan(world.imported, &growth_items[i].mark));
}

static void give_back_async(unsigned i) {
    MUST(gpuipc_buffer_return_loan_async(world.imported, &growth_items[i].mark, NULL));
}

static void drop(unsigned i) {
    MUST(gpuipc_buffer_drop_loan(world.imported, &growth_items[i].mark));
}

static void await_loan(unsigned i) {
    MUST(gpuipc_buffer_await_loan(world.arena, &growth_items[i].mark, GROWTH_SOON_MS));
}

static void await_loan_async(unsigned i) {
    MUST(gpuipc_buffer_await_loan_async(world.arena, &growth_items[i].mark, NULL, GROWTH_SOON_MS));
}

static void get_states(unsigned i) {
    gpuipc_loan_state state;
    MUST(gpuipc_buffer_get_loan_states(world.arena, &growth_items[i].mark, 1, &state));
}

/* Lending looks at words of all who have memory of the context open, so that other things are in no cache afterwards. So all
 * of a row is lent first, and then touched: what is timed is the call. */
static void lend_all(unsigned i, void (*then)(unsigned i)) {
    lend_ready(i);
    for (unsigned at = 0; i + 1 == GROWTH_ITEMS && at < GROWTH_ITEMS; at++) {
        then(at);
    }
}

static void lend_and_touch(unsigned i) {
    lend_all(i, await_mark);
}

static void lend_and_take(unsigned i) {
    lend_all(i, take);
}

static void take_and_give_back(unsigned i) {
    take(i);
    give_back(i);
}

static void lend_take_and_give_back(unsigned i) {
    lend_all(i, take_and_give_back);
}

static void give_back_and_await(unsigned i) {
    give_back(i);
    await_loan(i);
}

static void pass_and_await(unsigned i) {
    growth_synchronize();
    await_loan(i);
}

static const growth_call calls[] = {
    {"gpuipc_buffer_mark", NULL, NULL, mark, synchronize, 0, NULL},
    {"gpuipc_buffer_await_mark", NULL, mark_and_pass, await_mark, NULL, 0, NULL},
    {"gpuipc_buffer_await_mark_async", NULL, mark_and_pass, await_mark_async, synchronize, 0, NULL},
    {"gpuipc_buffer_lend", NULL, NULL, lend, pass_and_cancel, 0, NULL},
    {"gpuipc_buffer_lend_ready", NULL, NULL, lend_ready, cancel, 0, NULL},
    {"gpuipc_buffer_cancel_loan", NULL, lend_ready, cancel, NULL, 0, NULL},
    {"gpuipc_buffer_get_loan_states", NULL, lend_ready, get_states, cancel, 0, NULL},
    {"gpuipc_buffer_take_loan", NULL, lend_and_touch, take, give_back_and_await, 0, NULL},
    {"gpuipc_buffer_return_loan", NULL, lend_and_take, give_back, await_loan, 0, NULL},
    {"gpuipc_buffer_return_loan_async", NULL, lend_and_take, give_back_async, pass_and_await, 0,
     NULL},
    {"gpuipc_buffer_drop_loan", NULL, lend_and_take, drop, await_loan, 0, NULL},
    {"gpuipc_buffer_await_loan", NULL, lend_take_and_give_back, await_loan, NULL, 0, NULL},
    {"gpuipc_buffer_await_loan_async", NULL, lend_take_and_give_back, await_loan_async, synchronize,
     0, NULL},
};

const growth_calls growth_loan_calls = {calls, sizeof(calls) / sizeof(calls[0])};

/* SPDX-License-Identifier: MIT */
/** @file What a borrower tells its lender when the buffer is returned on a stream: closed before or after the
 *  stream has passed, the last word is the one that counts. The stream is the test's own doing. */
#include "borrow.h"

#include "connection.h"
#include "core_fixture.h"

static context *ctx;
static core_pair pair;

static void begin(void) {
    core_start();
    check_ok(context_acquire(core_context, "test", &ctx));
    core_pair_open(&pair, core_context, core_context);
}

static void finish(void) {
    core_pair_close(&pair);
    context_unreference(ctx);
    core_finish();
}

TestSuite(borrow, .init = begin, .fini = finish, .timeout = 60);

/* A point of a page that both sides have, lent and borrowed, and returned on a stream that is the test's. */
typedef struct late {
    point_page *mine;
    point_page *theirs;
    point at;
    point_word returned;
    point_word released;
    borrow *of;
} late;

static late late_begin(void) {
    late self;
    connection *to;
    check_ok(connection_acquire(pair.client, "test", &to));
    check_ok(point_page_create(ctx, &to->peer, &self.mine));
    check_ok(point_page_open(ctx, &to->peer, point_page_handle(self.mine), &self.theirs));
    connection_unreference(to);
    cr_assert(point_take(self.mine, &self.at));
    self.returned = point_returned_word(&self.at);
    self.released = point_released_word(&self.at);
    check_ok(borrow_begin(self.theirs, &self.at, true, &self.of));
    check_ok(point_passage_take(self.theirs, &self.of->passage));
    atomic_store(&self.of->is_returned, true);
    return self;
}

/* The stream writes, and passes. */
static void late_pass(const late *self) {
    point_store(self->theirs, &self->returned);
    point_passage_cancel(ctx, &self->of->passage);
    borrow_passed(self->of);
}

/* Whether it is @p released, what it is not before that is reached. */
static void late_check(const late *self, bool released) {
    cr_assert_eq(point_is_reached(self->mine, &self->released), released);
}

static void late_end(late *self) {
    borrow_unreference(self->of, false);
    point_page_unreference(self->theirs, false);
    point_page_unreference(self->mine, false);
    point_collect_more(ctx);
}

Test(borrow, closed_before_the_stream_has_passed) {
    late self = late_begin();
    borrow_return(self.of);
    cr_assert_not(point_is_reached(self.mine, &self.returned), "the stream says so, not the host");
    borrow_end(self.of);
    late_check(&self, false);
    borrow_passed(self.of); /* somebody looks too early */
    late_check(&self, false);
    late_pass(&self);
    late_check(&self, true);
    late_end(&self);
}

Test(borrow, closed_after_the_stream_has_passed) {
    late self = late_begin();
    late_pass(&self);
    cr_assert(point_is_reached(self.mine, &self.returned));
    late_check(&self, false);
    borrow_end(self.of);
    late_check(&self, true);
    late_end(&self);
}

/* From then on the point is the next borrower's. */
Test(borrow, the_last_word_is_stored_once) {
    late self = late_begin();
    point again = {0, 0};
    while (point_take(self.mine, &again)) {
    }
    borrow_end(self.of);
    cr_assert_not(point_take(self.mine, &again));
    late_pass(&self);
    cr_assert(point_take(self.mine, &again));
    cr_assert_eq(again.index, self.at.index);
    point_borrow(self.theirs, &again, true);
    const point_word returned = point_returned_word(&again);
    point_store(self.theirs, &returned);
    borrow_passed(self.of);
    borrow_end(self.of);
    cr_assert(point_is_reached(self.mine, &returned), "the next borrower's word is overwritten");
    point_page_return_rest(self.theirs);
    const point_word released = point_released_word(&again);
    cr_assert_not(point_is_reached(self.mine, &released), "the next borrower is forgotten");
    point_borrow(self.theirs, &again, false);
    late_end(&self);
}

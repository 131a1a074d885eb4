/* SPDX-License-Identifier: MIT */
/** @file What an importer tells its exporter when the buffer is returned on a stream: closed before or after the
 *  stream has passed, the last word is the one that counts. The stream is the test's own doing. */
#include "sync/import_record.h"

#include "core_fixture.h"
#include "message/connection.h"

static context *ctx;
static core_pair pair;

static void begin(void) {
    core_start();
    check_ok(context_acquire(core_context, &ctx));
    core_pair_open(&pair, core_context, core_context);
}

static void finish(void) {
    core_pair_close(&pair);
    context_unreference(ctx);
    core_finish();
}

TestSuite(import_record, .init = begin, .fini = finish, .timeout = 60);

/* A point of a page that both sides have, exported and imported, and returned on a stream that is the test's. */
typedef struct late {
    point_page *mine;
    point_page *theirs;
    point at;
    point_word returned;
    point_word released;
    import_record *of;
} late;

static late late_begin(void) {
    late self;
    connection *to;
    check_ok(connection_acquire(pair.client, &to));
    check_ok(point_page_create(ctx, to->other_end, &self.mine));
    check_ok(point_page_open(ctx, to->other_end, self.mine->handle, &self.theirs));
    connection_unreference(to);
    self.at = (point){self.mine, 7, 2};
    const point there = {self.theirs, 7, 2};
    self.returned = point_returned_word(&self.at);
    self.released = point_released_word(&self.at);
    check_ok(import_record_new(&there, true, &self.of));
    check_ok(passage_take(ctx, self.theirs, &self.of->passage));
    atomic_store(&self.of->is_returned, true);
    return self;
}

/* The stream writes, and passes. */
static void late_pass(const late *self) {
    point_store(&self->returned);
    passage_cancel(&self->of->passage);
    import_record_passed(self->of);
}

/* Whether it is @p released, what it is not before that is reached. */
static void late_check(const late *self, bool released) {
    cr_assert_eq(point_is_reached(&self->released), released);
}

static void late_end(late *self) {
    import_record_unreference(self->of, false);
    point_page_unreference(self->theirs, false);
    point_page_unreference(self->mine, false);
}

Test(import_record, closed_before_the_stream_has_passed) {
    late self = late_begin();
    import_record_return(self.of);
    cr_assert_not(point_is_reached(&self.returned), "the stream says so, not the host");
    import_record_end(self.of);
    late_check(&self, false);
    import_record_passed(self.of); /* somebody looks too early */
    late_check(&self, false);
    late_pass(&self);
    late_check(&self, true);
    late_end(&self);
}

Test(import_record, closed_after_the_stream_has_passed) {
    late self = late_begin();
    late_pass(&self);
    cr_assert(point_is_reached(&self.returned));
    late_check(&self, false);
    import_record_end(self.of);
    late_check(&self, true);
    late_end(&self);
}

/* From then on the point is the next hand-over's. */
Test(import_record, the_last_word_is_stored_once) {
    late self = late_begin();
    import_record *next;
    import_record_end(self.of);
    late_check(&self, false);
    late_pass(&self);
    late_check(&self, true);
    const point again = {self.theirs, self.at.index, self.at.value + 2};
    const point mine = {self.mine, again.index, again.value};
    const point_word returned = point_returned_word(&mine);
    const point_word released = point_released_word(&mine);
    check_ok(import_record_new(&again, true, &next));
    import_record_return(next);
    import_record_passed(self.of);
    import_record_end(self.of);
    cr_assert(point_is_reached(&returned), "the next one's word is overwritten");
    point_page_return_rest(self.theirs, false);
    cr_assert_not(point_is_reached(&released), "the next one is forgotten");
    import_record_end(next);
    cr_assert(point_is_reached(&released));
    import_record_unreference(next, false);
    late_end(&self);
}

/* A stream may have returned it, and its point been used again, before it is closed here. */
Test(import_record, one_that_is_closed_late_leaves_the_next_one_open) {
    late self = late_begin();
    import_record *next;
    self.of->ends_with_owner = false;
    point_store(&self.released); /* the stream has written all there is */
    passage_cancel(&self.of->passage);
    const point again = {self.theirs, self.at.index, self.at.value + 2};
    const point mine = {self.mine, again.index, again.value};
    const point_word returned = point_returned_word(&mine);
    check_ok(import_record_new(&again, false, &next));
    import_record_end(self.of);
    point_page_return_rest(self.theirs, false);
    cr_assert_not(point_is_reached(&returned), "the next one is forgotten");
    import_record_end(next);
    import_record_unreference(next, false);
    late_end(&self);
}

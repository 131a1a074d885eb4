/* SPDX-License-Identifier: MIT */
/** @file What a trail knows of streams when the driver does not say where they are, or cannot mark it. */
#include "sync/trail.h"

#include "cuda/context.h"
#include "stream_gate.h"

static context *inside;
static trail *subject;
static CUstream stream;
static trail_stream by;

static void begin(void) {
    core_start();
    core_need_emulated();
    stream_gate_make();
    stream = stream_gate_stream();
    check_ok(context_acquire(core_context, &inside));
    check_ok(trail_new(inside, &subject));
    check_ok(trail_stream_enter(inside, stream, 0, &by));
    core_set_failures("");
}

static void finish(void) {
    if (subject != NULL) {
        stream_gate_synchronize(stream);
        core_set_failures("");
        trail_stream_leave(&by);
        trail_unreference(subject, false);
        context_unreference(inside);
    }
    stream_gate_stream_end(stream);
    stream_gate_end();
    core_finish();
}

TestSuite(trail, .init = begin, .fini = finish, .timeout = 60);

static trail_turn begin_turn(void) {
    trail_turn turn;
    check_ok(trail_turn_begin(subject, TRAIL_WRITE, 0, &by, &turn));
    return turn;
}

static void make_turns(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        const trail_turn turn = begin_turn();
        trail_turn_end(&turn);
    }
}

/* An event whose CUDA context is gone may be another one by now. */
Test(trail, an_event_that_is_lost_is_not_asked_again) {
    make_turns(TRAIL_PERIOD);
    core_set_failures("cuEventQuery:1=700");
    cr_assert(trail_has_passed(subject, TRAIL_WRITE, 0));
    make_turns(TRAIL_PERIOD);
    core_set_failures("");
    cr_assert_not(
        trail_is_far_behind(subject)); /* which depends on the turn that ended the first period */
    cr_assert_eq(core_calls("cuEventQuery"), 0);
    make_turns(TRAIL_PERIOD); /* nor is it recorded again */
    stream_gate_synchronize(stream);
    cr_assert(trail_has_passed(subject, TRAIL_WRITE, 0));
}

Test(trail, a_stream_that_is_captured_has_not_passed) {
    stream_gate_close(stream);
    make_turns(1);
    stream_gate_open();
    stream_gate_synchronize(stream);
    core_set_failures("cuEventQuery:1=900");
    cr_assert_not(trail_has_passed(subject, TRAIL_WRITE, 0));
    cr_assert(trail_has_passed(subject, TRAIL_WRITE, 0));
}

/* Neither an event nor a word can be put on the stream: it is waited for, and the next turn is as any. */
Test(trail, a_stream_that_cannot_be_marked_at_all_is_waited_for) {
    make_turns(1);
    for (unsigned i = 0; i < 2; i++) {
        const trail_turn turn = begin_turn();
        core_set_failures("cuEventRecord:1=999;cuStreamWriteValue64:1=999;cuLaunchHostFunc:1=999");
        trail_turn_end(&turn);
        cr_assert_eq(core_calls("cuStreamSynchronize"), 1);
        core_set_failures("");
        cr_assert(trail_has_passed(subject, TRAIL_WRITE, 0));
    }
    make_turns(1);
    stream_gate_synchronize(stream);
    cr_assert(trail_has_passed(subject, TRAIL_WRITE, 0));
}

/* A turn that goes on has not passed; those before it may have. */
Test(trail, what_was_before_a_turn_is_known_while_it_goes_on) {
    cr_assert(trail_had_passed(subject, TRAIL_WRITE, 0));
    stream_gate_close(stream);
    make_turns(1);
    cr_assert_not(trail_had_passed(subject, TRAIL_WRITE, 0));
    const trail_turn turn = begin_turn();
    cr_assert_not(trail_had_passed(subject, TRAIL_WRITE, 0));
    stream_gate_open();
    stream_gate_synchronize(stream);
    cr_assert_not(trail_has_passed(subject, TRAIL_WRITE, 0));
    cr_assert(trail_had_passed(subject, TRAIL_WRITE, 0));
    trail_turn_cancel(&turn);
    cr_assert(trail_has_passed(subject, TRAIL_WRITE, 0));
}

Test(trail, what_has_passed_is_not_looked_at_again) {
    trail_set seen = {{0}};
    trail_turn turn;
    stream_gate_close(stream);
    check_ok(trail_turn_begin(subject, TRAIL_WAIT, 5, &by, &turn));
    trail_turn_end(&turn);
    for (unsigned i = 0; i < 2; i++) {
        core_set_failures("");
        cr_assert_not(trail_have_all_passed(subject, &seen));
        cr_assert_eq(core_calls("cuEventQuery"), 1);
        cr_assert_eq(seen.slots[TRAIL_WAIT], ~(UINT64_C(1) << 5));
        cr_assert_eq(seen.slots[TRAIL_WRITE], UINT64_MAX);
    }
    stream_gate_open();
    stream_gate_synchronize(stream);
    cr_assert(trail_have_all_passed(subject, &seen));
}

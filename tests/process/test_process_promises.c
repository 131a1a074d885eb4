/* SPDX-License-Identifier: MIT */
/** @file What the headers promise of time, by a clock, with a peer that is silent, slow, stopped or dead: a call with a
 *  time-out is back within it, and LATE_MS; a call that does not block, within LATE_MS. ci/check-errors knows which calls
 *  these are, and that none is missing.
 *
 *  A machine that is busy makes any call late now and then, and a call that waits for the wrong thing is late each time. So
 *  the best of some tries is judged. The full form judges the median, and says how late the latest was. A machine that stops
 *  the whole process again and again (a quota of processor time does) makes each try late: what beat.h saw it keep from this
 *  process after the call's time was over is not the call's. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "beat.h"
#include "check.h"
#include "form.h"
#include "os.h"
#include "partner.h"
#include "promise_peer.h"

#define NS_PER_MS UINT64_C(1000000)
/* What a call may take beyond its time-out. */
#define LATE_MS 10
/* What it never takes, on however busy a machine. */
#define NEVER_MS  20000
#define TRIES_MAX 200

TestSuite(promises, .timeout = 110);

/** A call of one public function. @return what it answered; its time is in promise_took_ns */
typedef struct promise {
    const char *function;
    gpuipc_status (*call)(int timeout_ms);
} promise;

#define PROMISE(function)                                                                          \
    { #function, promise_call_##function }

static const promise with_timeout[] = {
    PROMISE(gpuipc_buffer_await_loan),    PROMISE(gpuipc_buffer_await_loan_async),
    PROMISE(gpuipc_buffer_await_mark),    PROMISE(gpuipc_buffer_await_ready),
    PROMISE(gpuipc_buffer_await_returns), PROMISE(gpuipc_buffer_open),
    PROMISE(gpuipc_channel_loan),         PROMISE(gpuipc_connection_open),
    PROMISE(gpuipc_connection_receive),   PROMISE(gpuipc_connection_receive_contents),
    PROMISE(gpuipc_connection_send),      PROMISE(gpuipc_connection_send_contents),
    PROMISE(gpuipc_listener_accept),      PROMISE(gpuipc_server_poll),
    PROMISE(gpuipc_subscription_open),    PROMISE(gpuipc_subscription_open_named),
    PROMISE(gpuipc_subscription_take),    PROMISE(gpuipc_subscription_take_for_kernel),
};

static const promise without_blocking[] = {
    PROMISE(gpuipc_buffer_cancel_loan),
    PROMISE(gpuipc_buffer_copy_async),
    PROMISE(gpuipc_buffer_drop),
    PROMISE(gpuipc_buffer_drop_loan),
    PROMISE(gpuipc_buffer_fill_async),
    PROMISE(gpuipc_buffer_find),
    PROMISE(gpuipc_buffer_get_info),
    PROMISE(gpuipc_buffer_get_loan_states),
    PROMISE(gpuipc_buffer_get_returns_wait_handle),
    PROMISE(gpuipc_buffer_lend_ready),
    PROMISE(gpuipc_buffer_release_async),
    PROMISE(gpuipc_buffer_retain),
    PROMISE(gpuipc_buffer_return_async),
    PROMISE(gpuipc_buffer_return_loan),
    PROMISE(gpuipc_buffer_return_loan_async),
    PROMISE(gpuipc_buffer_take_loan),
    PROMISE(gpuipc_channel_create),
    PROMISE(gpuipc_channel_discard),
    PROMISE(gpuipc_channel_readers),
    PROMISE(gpuipc_connection_close),
    PROMISE(gpuipc_connection_get_peer),
    PROMISE(gpuipc_connection_get_wait_handle),
    PROMISE(gpuipc_context_get_info),
    PROMISE(gpuipc_context_wake),
    PROMISE(gpuipc_device_count),
    PROMISE(gpuipc_device_find),
    PROMISE(gpuipc_device_get_info),
    PROMISE(gpuipc_listener_close),
    PROMISE(gpuipc_listener_get_wait_handle),
    PROMISE(gpuipc_listener_open),
    PROMISE(gpuipc_native_export),
    PROMISE(gpuipc_native_export_dmabuf),
    PROMISE(gpuipc_server_get_wait_handle),
    PROMISE(gpuipc_server_holders),
    PROMISE(gpuipc_server_revoke),
    PROMISE(gpuipc_subscription_check),
    PROMISE(gpuipc_subscription_get_wait_handle),
    PROMISE(gpuipc_subscription_give_back),
};

/* ---- judging ----------------------------------------------------------------------------------- */

static int by_size(const void *one, const void *other) {
    const uint64_t a = *(const uint64_t *)one;
    const uint64_t b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

/* Was it back with nothing done before its time was over? */
static bool is_early(gpuipc_status status, int timeout_ms) {
    return (status == GPUIPC_ERR_TIMEOUT || status == GPUIPC_ERR_NOT_FOUND) &&
           promise_took_ns < (uint64_t)timeout_ms * NS_PER_MS;
}

/* How late it came back, beyond its time-out. */
static uint64_t lateness_ns(const promise *of, int timeout_ms) {
    const uint64_t allowed = (uint64_t)timeout_ms * NS_PER_MS;
    const gpuipc_status status = of->call(timeout_ms);
    cr_assert_not(is_early(status, timeout_ms), "%s was back after %llu ns of %d ms", of->function,
                  (unsigned long long)promise_took_ns, timeout_ms);
    cr_assert_lt(promise_took_ns, allowed + NEVER_MS * NS_PER_MS, "%s took %llu ms of %d",
                 of->function, (unsigned long long)(promise_took_ns / NS_PER_MS), timeout_ms);
    if (promise_took_ns <= allowed + LATE_MS * NS_PER_MS) {
        return promise_took_ns > allowed ? promise_took_ns - allowed : 0;
    }
    return promise_took_ns - allowed -
           beat_withheld_ns(promise_begun_ns + allowed, promise_begun_ns + promise_took_ns);
}

/* The full form: all tries, and their median. */
static void judge_all(const promise *of, int timeout_ms, size_t tries) {
    uint64_t late[TRIES_MAX];
    for (size_t i = 0; i < tries; i++) {
        late[i] = lateness_ns(of, timeout_ms);
    }
    qsort(late, tries, sizeof(late[0]), by_size);
    (void)fprintf(stderr, "%s with %d ms, %s: late by %.3f ms at the median, %.3f at most\n",
                  of->function, timeout_ms, promise_state_name(), (double)late[tries / 2] / 1e6,
                  (double)late[tries - 1] / 1e6);
    cr_assert_leq(late[tries / 2], LATE_MS * NS_PER_MS, "%s with %d ms, %s", of->function,
                  timeout_ms, promise_state_name());
}

/* Of tries until one is in time. */
static uint64_t best_lateness_ns(const promise *of, int timeout_ms, size_t tries) {
    uint64_t best = UINT64_MAX;
    for (size_t i = 0; i < tries && best > LATE_MS * NS_PER_MS; i++) {
        const uint64_t late = lateness_ns(of, timeout_ms);
        best = late < best ? late : best;
    }
    return best;
}

/* The short form. */
static void judge_best(const promise *of, int timeout_ms, size_t tries) {
    const uint64_t best = best_lateness_ns(of, timeout_ms, tries);
    cr_assert_leq(best, LATE_MS * NS_PER_MS, "%s with %d ms, %s: late by %llu us at best of %u",
                  of->function, timeout_ms, promise_state_name(), (unsigned long long)(best / 1000),
                  (unsigned)tries);
}

static void judge(const promise *of, int timeout_ms, size_t tries) {
    if (form_is_full()) {
        judge_all(of, timeout_ms, tries);
    } else {
        judge_best(of, timeout_ms, tries);
    }
}

static void judge_calls(promise_state state) {
    const size_t tries =
        (size_t)form_choose(TRIES_MAX, 50); /* of the short form, mostly one is enough */
    promise_begin(state);
    beat_begin();
    for (size_t i = 0; i < sizeof(without_blocking) / sizeof(without_blocking[0]); i++) {
        judge(&without_blocking[i], 0, PROMISE_ITEMS);
    }
    promise_fill();
    for (size_t i = 0; i < sizeof(with_timeout) / sizeof(with_timeout[0]); i++) {
        judge(&with_timeout[i], 0, tries);
        judge(&with_timeout[i], 30, tries);
    }
    beat_end();
    promise_end();
}

Test(promises, of_time_with_a_silent_peer) {
    judge_calls(PROMISE_SILENT);
}

Test(promises, of_time_with_a_slow_peer) {
    judge_calls(PROMISE_SLOW);
}

Test(promises, of_time_with_a_stopped_peer) {
    judge_calls(PROMISE_STOPPED);
}

Test(promises, of_time_with_a_dead_peer) {
    judge_calls(PROMISE_DEAD);
}

/* ---- the judgement itself ---------------------------------------------------------------------- */

static unsigned planted_calls;
/* When the planted call of now began, for what the machine is said to have kept. */
#define BEGUN_NS (UINT64_C(1000) * NS_PER_MS)

static gpuipc_status call_late(int timeout_ms) {
    planted_calls++;
    promise_begun_ns = BEGUN_NS;
    promise_took_ns = ((uint64_t)timeout_ms + LATE_MS) * NS_PER_MS + 1;
    return GPUIPC_ERR_TIMEOUT;
}

/* But for one that a busy machine has made late. */
static gpuipc_status call_late_once(int timeout_ms) {
    const gpuipc_status status = call_late(timeout_ms);
    promise_took_ns = planted_calls == 1 ? promise_took_ns : (uint64_t)timeout_ms * NS_PER_MS;
    return status;
}

static gpuipc_status call_early(int timeout_ms) {
    promise_took_ns = (uint64_t)timeout_ms * NS_PER_MS - 1;
    return GPUIPC_ERR_TIMEOUT;
}

/* It waits a second longer than it was told to. */
static gpuipc_status call_that_waits(int timeout_ms) {
    promise_begun_ns = os_clock_ns();
    os_sleep_ms((unsigned)timeout_ms + 1000);
    promise_took_ns = os_clock_ns() - promise_begun_ns;
    return GPUIPC_ERR_TIMEOUT;
}

Test(promises, that_are_broken_once_by_the_machine_are_kept) {
    const promise planted = {"planted", call_late_once};
    judge_best(&planted, 30, 5);
    cr_assert_eq(planted_calls, 2);
}

/* No assertion can be expected to fail in Criterion, so the lateness itself is looked at. */
Test(promises, that_are_broken_each_time_are_seen) {
    const promise late = {"planted", call_late};
    const promise early = {"planted", call_early};
    cr_assert_eq(best_lateness_ns(&late, 30, 5), LATE_MS * NS_PER_MS + 1);
    cr_assert_eq(planted_calls, 5);
    cr_assert(is_early(early.call(30), 30));
    cr_assert_not(is_early(late.call(30), 30));
}

/* The thread that looks what the machine keeps from this process finds no excuse for who only waits. */
Test(promises, that_are_broken_by_waiting_are_seen) {
    const promise planted = {"planted", call_that_waits};
    uint64_t most = 0;
    beat_begin();
    for (int i = 0; i < 40 && most <= LATE_MS * NS_PER_MS;
         i++) { /* a busy machine may excuse some */
        const uint64_t late = lateness_ns(&planted, 30);
        most = late > most ? late : most;
    }
    beat_end();
    cr_assert_gt(most, LATE_MS * NS_PER_MS);
}

/* Of what the machine keeps from the process counts what lies between the end of the call's time and its return. */
Test(promises, that_the_machine_breaks_each_time_are_kept) {
    const promise late = {"planted", call_late};
    const uint64_t over_ns = BEGUN_NS + 30 * NS_PER_MS;
    beat_note(BEGUN_NS - 5 * NS_PER_MS, over_ns);
    beat_note(over_ns + (LATE_MS + 1) * NS_PER_MS, over_ns + 50 * NS_PER_MS);
    cr_assert_eq(best_lateness_ns(&late, 30, 1), LATE_MS * NS_PER_MS + 1);
    beat_note(over_ns - NS_PER_MS, over_ns + 2 * NS_PER_MS);
    cr_assert_eq(best_lateness_ns(&late, 30, 1), (LATE_MS - 2) * NS_PER_MS + 1);
}

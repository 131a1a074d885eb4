/* SPDX-License-Identifier: MIT */
/** @file The monotonic clock and deadlines. */
#include <criterion/criterion.h>
#include <limits.h>
#include <time.h>

#include "check.h"
#include "os.h"

TestSuite(os_clock, .timeout = 30);

Test(os_clock, never_goes_back) {
    uint64_t before = os_clock_ns();
    for (int i = 0; i < 10000; i++) {
        uint64_t now = os_clock_ns();
        cr_assert(now >= before);
        before = now;
    }
}

/* By whole ticks of 16 ms at most, and a processor may be taken away in between. */
Test(os_clock, the_coarse_one_goes_on_as_the_fine_one_does) {
    const uint64_t apart_ns = UINT64_C(100000000);
    const uint64_t begun_ns = os_clock_ns();
    const uint64_t coarse_begun_ns = os_clock_coarse_ns();
    uint64_t coarse_ns = coarse_begun_ns;
    while (os_clock_ns() - begun_ns < 2 * apart_ns) {
        const uint64_t now_ns = os_clock_coarse_ns();
        cr_assert(now_ns >= coarse_ns);
        coarse_ns = now_ns;
    }
    coarse_ns = os_clock_coarse_ns();
    const uint64_t at_most_ns = os_clock_ns() - begun_ns + apart_ns;
    cr_assert(coarse_ns - coarse_begun_ns > apart_ns && coarse_ns - coarse_begun_ns <= at_most_ns);
}

Test(os_clock, zero_has_passed_at_once) {
    os_deadline deadline = os_deadline_after(0);
    cr_assert(os_deadline_passed(deadline));
    cr_assert_eq(os_deadline_left_ms(deadline), 0);
}

Test(os_clock, negative_never_passes) {
    static const int negative[] = {-1, -1000, INT_MIN};
    for (size_t i = 0; i < sizeof(negative) / sizeof(negative[0]); i++) {
        os_deadline deadline = os_deadline_after(negative[i]);
        cr_assert_not(os_deadline_passed(deadline));
        cr_assert_eq(os_deadline_left_ms(deadline), -1);
    }
}

Test(os_clock, what_is_left_is_rounded_up) {
    os_deadline deadline = {.at_ns = os_clock_ns() + 60000u * UINT64_C(1000000) + 1};
    int left = os_deadline_left_ms(deadline);
    cr_assert(left > 50000 && left <= 60001, "%d", left);
    /* One nanosecond is left: waiting for 0 milliseconds would be a try that spins. */
    uint64_t start = os_clock_ns();
    os_deadline soon = {.at_ns = start + 900000};
    left = os_deadline_left_ms(soon);
    cr_assert(left == 1 || os_clock_ns() >= soon.at_ns, "%d", left);
}

Test(os_clock, the_longest_deadline_is_no_overflow) {
    os_deadline deadline = os_deadline_after(INT_MAX);
    cr_assert_not(os_deadline_passed(deadline));
    cr_assert(os_deadline_left_ms(deadline) > INT_MAX - 10000);
    os_deadline beyond = {.at_ns = UINT64_MAX - 1};
    cr_assert_eq(os_deadline_left_ms(beyond), INT_MAX);
}

Test(os_clock, a_sleep_is_not_shorter_than_asked_for) {
    static const unsigned lengths[] = {0, 1, 30};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint64_t start = os_clock_ns();
        os_sleep_ms(lengths[i]);
        cr_assert(os_clock_ns() - start >= lengths[i] * UINT64_C(1000000));
        start = os_clock_ns();
        os_sleep_us(lengths[i]);
        cr_assert(os_clock_ns() - start >= lengths[i] * UINT64_C(1000));
    }
}

static uint64_t pause_after_us(unsigned waited_us, unsigned most_ms, os_deadline deadline) {
    const uint64_t start = os_clock_ns();
    os_pause(start - waited_us * UINT64_C(1000), most_ms, deadline);
    return os_clock_ns() - start;
}

/* Those that must not be long would be a minute. */
Test(os_clock, a_pause_is_half_of_what_was_waited) {
    const os_deadline never = os_deadline_after(-1);
    const unsigned long_us = 120u * 1000000u;
    const uint64_t short_ns = UINT64_C(30000000000);
    const uint64_t half_ns = pause_after_us(20000, 60000, never);
    cr_assert(half_ns >= UINT64_C(10000000) && half_ns < short_ns);
    cr_assert_geq(pause_after_us(long_us, 2, never), UINT64_C(2000000));
    cr_assert_lt(pause_after_us(long_us, 2, never), short_ns);
    cr_assert_lt(pause_after_us(long_us, 60000, os_deadline_after(0)), short_ns);
    const os_deadline soon = os_deadline_after(5);
    cr_assert_lt(pause_after_us(long_us, 60000, soon), short_ns);
    cr_assert(os_deadline_passed(soon));
}

/* The shortest of many, as a thread may lose its processor in any. */
Test(os_clock, who_has_just_begun_to_wait_does_not_sleep) {
    uint64_t shortest_ns = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        const uint64_t pause_ns = pause_after_us(0, 1000, os_deadline_after(-1));
        shortest_ns = pause_ns < shortest_ns ? pause_ns : shortest_ns;
    }
    cr_assert_lt(shortest_ns, 5000u); /* a sleep takes longer, however short it is to be */
}

Test(os_clock, the_time_of_day_is_the_c_librarys_in_milliseconds) {
    uint64_t before = (uint64_t)time(NULL);
    uint64_t now = os_time_unix_ms();
    uint64_t after = (uint64_t)time(NULL);
    /* time() may be read from a coarser clock, which is behind by a tick. */
    cr_assert(now / 1000 >= before && now / 1000 <= after + 1, "%llu", (unsigned long long)now);
}

/* ---- interrupts ---------------------------------------------------------------------------- */

Test(os_clock, a_wake_lets_a_deadline_pass) {
    atomic_uint wakes = 7;
    os_interrupt interrupt = {.wakes = &wakes, .seen = 7};
    os_deadline deadline = os_deadline_after(-1);
    os_signal_forget();
    cr_assert_eq(os_deadline_slice_ms(deadline), -1);
    deadline.interrupt = &interrupt;
    cr_assert_eq(os_deadline_slice_ms(deadline), 20);
    cr_assert_eq(os_deadline_slice_ms(os_deadline_inherit(os_deadline_after(60000), deadline)), 20);
    cr_assert_leq(os_deadline_slice_ms(os_deadline_inherit(os_deadline_after(15), deadline)), 15);
    cr_assert_eq(os_deadline_left_ms(deadline), -1);
    cr_assert_not(os_deadline_passed(deadline));
    cr_assert_not(interrupt.came);
    atomic_store(&wakes, 8);
    cr_assert(os_deadline_passed(deadline));
    cr_assert(interrupt.came);
    atomic_store(&wakes, 7);
    cr_assert(os_deadline_passed(deadline), "for good");
    os_deadline other = os_deadline_inherit(os_deadline_after(60000), deadline);
    cr_assert(os_deadline_passed(other));
    cr_assert_not(os_deadline_passed(os_deadline_inherit(other, os_deadline_after(0))));
}

/* A call that does not wait is not interrupted. */
Test(os_clock, a_deadline_that_has_passed_is_not_interrupted) {
    atomic_uint wakes = 1;
    os_interrupt interrupt = {.wakes = &wakes, .seen = 0};
    os_deadline deadline = os_deadline_after(0);
    deadline.interrupt = &interrupt;
    cr_assert(os_deadline_passed(deadline));
    cr_assert_not(interrupt.came);
}

Test(os_clock, a_condition_is_not_waited_for_beyond_a_wake) {
    atomic_uint wakes = 0;
    os_interrupt interrupt = {.wakes = &wakes, .seen = 0};
    os_deadline deadline = os_deadline_after(-1);
    os_mutex mutex = {0};
    os_condition condition;
    check_ok(os_condition_init(&condition));
    deadline.interrupt = &interrupt;
    os_mutex_lock(&mutex);
    cr_assert(os_condition_wait(&condition, &mutex, deadline), "it may wake for nothing");
    atomic_store(&wakes, 1);
    cr_assert_not(os_condition_wait(&condition, &mutex, deadline));
    os_mutex_unlock(&mutex);
    os_condition_destroy(&condition);
}

/* SPDX-License-Identifier: MIT */
/** @file Deadlines as the Wait functions take them, and the pauses between tries. */
#include <limits.h>

#include "check.h"
#include "win32.h"

TestSuite(win32_clock, .timeout = 30);

Test(win32_clock, what_is_left_for_the_wait_functions) {
    cr_assert_eq(win32_left_ms(os_deadline_after(-1)), INFINITE);
    cr_assert_eq(win32_left_ms(os_deadline_after(0)), 0);
    DWORD left = win32_left_ms(os_deadline_after(60000));
    cr_assert(left > 30000 && left <= 60000, "%lu", (unsigned long)left);
    /* The longest that ends is not taken for endless. */
    left = win32_left_ms((os_deadline){.at_ns = UINT64_MAX - 1});
    cr_assert_eq(left, INT_MAX);
    cr_assert_neq(left, INFINITE);
}

Test(win32_clock, pauses_double_up_to_a_bound) {
    static const unsigned expected[] = {1, 2, 4, 8, 16, 20, 20, 20};
    unsigned pause = 0;
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        cr_assert_eq(os_backoff_next(&pause, os_deadline_after(-1)), expected[i]);
    }
}

Test(win32_clock, no_pause_is_longer_than_what_is_left) {
    unsigned pause = 16;
    cr_assert_eq(os_backoff_next(&pause, os_deadline_after(0)), 0);
    pause = 16;
    cr_assert(os_backoff_next(&pause, os_deadline_after(3)) <= 3);
    /* The one after it goes on from what would have been its length. */
    cr_assert_eq(pause, 20);
}

Test(win32_clock, the_clock_agrees_with_the_systems_other_one) {
    /* GetTickCount64 counts milliseconds in steps of up to 16; both count the machine's own sleep. */
    uint64_t ticks = GetTickCount64();
    uint64_t start = os_clock_ns();
    os_sleep_ms(200);
    uint64_t passed_ms = (os_clock_ns() - start) / 1000000u;
    uint64_t ticked_ms = GetTickCount64() - ticks;
    cr_assert(passed_ms >= 200);
    cr_assert(passed_ms <= ticked_ms + 32, "%lu and %lu ms", (unsigned long)passed_ms,
              (unsigned long)ticked_ms);
}

static uint64_t counter_seconds(void) {
    LARGE_INTEGER count;
    LARGE_INTEGER frequency;
    cr_assert(QueryPerformanceCounter(&count));
    cr_assert(QueryPerformanceFrequency(&frequency));
    return (uint64_t)(count.QuadPart / frequency.QuadPart);
}

Test(win32_clock, a_machine_that_runs_for_long_is_no_overflow) {
    uint64_t before = counter_seconds();
    uint64_t seconds = os_clock_ns() / 1000000000u;
    cr_assert(seconds >= before && seconds <= counter_seconds());
}

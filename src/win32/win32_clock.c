/* SPDX-License-Identifier: MIT */
/** @file The monotonic clock, and waiting until a point on it. */
#include "win32.h"

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

#define UNITS_PER_MS  UINT64_C(10000)
#define MS_UNTIL_1970 (UINT64_C(134774) * 24 * 60 * 60 * 1000)

uint64_t os_clock_ns(void) {
    LARGE_INTEGER ticks;
    LARGE_INTEGER frequency;
    /* Neither can fail since Windows XP, and the frequency is that of the boot
     * (learn.microsoft.com, QueryPerformanceCounter and QueryPerformanceFrequency). */
    QueryPerformanceFrequency(&frequency);
    QueryPerformanceCounter(&ticks);
    uint64_t count = (uint64_t)ticks.QuadPart;
    uint64_t per_second = (uint64_t)frequency.QuadPart;
    /* Whole seconds apart: ticks times 10^9 would overflow after half an hour at 10 MHz. What is
     * left of a second does not, with a clock below 18 GHz. */
    return count / per_second * NS_PER_S + count % per_second * NS_PER_S / per_second;
}

/* A tick of the system: 10 to 16 ms (learn.microsoft.com, GetTickCount64). */
uint64_t os_clock_coarse_ns(void) {
    return GetTickCount64() * NS_PER_MS;
}

/* minwinbase.h, FILETIME: units of 100 ns since 1601, which was 134774 days before 1970. */
uint64_t os_time_unix_ms(void) {
    FILETIME now;
    GetSystemTimeAsFileTime(&now);
    uint64_t ms = ((uint64_t)now.dwHighDateTime << 32 | now.dwLowDateTime) / UNITS_PER_MS;
    return ms < MS_UNTIL_1970 ? 0 : ms - MS_UNTIL_1970;
}

bool os_signal_ran(void) {
    return false;
}

void os_signal_forget(void) {
}

void os_sleep_ms(unsigned milliseconds) {
    os_deadline until = {.at_ns = os_clock_ns() + milliseconds * NS_PER_MS};
    /* learn.microsoft.com, Sleep: may be shorter than asked for by up to a tick of the system. */
    for (int left; (left = os_deadline_left_ms(until)) > 0;) {
        Sleep((DWORD)left);
    }
}

void os_sleep_us(unsigned microseconds) {
    os_sleep_ms(microseconds / 1000 + (microseconds % 1000 != 0));
}

DWORD win32_left_ms(os_deadline deadline) {
    int left = os_deadline_slice_ms(deadline);
    return left < 0 ? INFINITE : (DWORD)left;
}

/* SPDX-License-Identifier: MIT */
/** @file Deadlines: arithmetic on the monotonic clock that each system has in its own way. */
#include <limits.h>

#include "os.h"

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)

static const uint64_t never = UINT64_MAX;

os_deadline os_deadline_after(int timeout_ms) {
    if (timeout_ms < 0) {
        return (os_deadline){.at_ns = never};
    }
    return (os_deadline){.at_ns = os_clock_ns() + (uint64_t)timeout_ms * NS_PER_MS};
}

static bool has_come(os_interrupt *self) {
    self->came = self->came || os_signal_ran() || atomic_load(self->wakes) != self->seen;
    return self->came;
}

/* The time first: a call that does not wait is not interrupted. */
bool os_deadline_passed(os_deadline deadline) {
    return (deadline.at_ns != never && os_clock_ns() >= deadline.at_ns) ||
           (deadline.interrupt != NULL && has_come(deadline.interrupt));
}

os_deadline os_deadline_inherit(os_deadline self, os_deadline from) {
    self.interrupt = from.interrupt;
    return self;
}

int os_deadline_left_ms(os_deadline deadline) {
    if (deadline.at_ns == never) {
        return -1;
    }
    uint64_t now = os_clock_ns();
    if (now >= deadline.at_ns) {
        return 0;
    }
    uint64_t left = deadline.at_ns - now;
    uint64_t milliseconds = left / NS_PER_MS + (left % NS_PER_MS != 0);
    return milliseconds > INT_MAX ? INT_MAX : (int)milliseconds;
}

/* The pause of every other wait for what only memory tells: a wake-up need not be quicker, and so needs no handle. */
int os_deadline_slice_ms(os_deadline deadline) {
    const int left = os_deadline_left_ms(deadline);
    return deadline.interrupt == NULL || (left >= 0 && left <= (int)OS_PAUSE_MS) ? left
                                                                                 : (int)OS_PAUSE_MS;
}

unsigned os_backoff_next(unsigned *milliseconds, os_deadline deadline) {
    *milliseconds = *milliseconds == 0 ? 1 : *milliseconds * 2;
    if (*milliseconds > OS_PAUSE_MS) {
        *milliseconds = OS_PAUSE_MS;
    }
    int left = os_deadline_left_ms(deadline);
    return left >= 0 && (unsigned)left < *milliseconds ? (unsigned)left : *milliseconds;
}

static uint64_t smaller(uint64_t one, uint64_t other) {
    return one < other ? one : other;
}

void os_pause(uint64_t begun_ns, unsigned most_ms, os_deadline deadline) {
    const uint64_t now_ns = os_clock_ns();
    const uint64_t waited_ns = now_ns - begun_ns;
    if (waited_ns <= OS_LOOK_NS || now_ns >= deadline.at_ns) {
        return;
    }
    const uint64_t most_ns = smaller(most_ms * NS_PER_MS, deadline.at_ns - now_ns);
    const uint64_t pause_ns = smaller(waited_ns / 2, most_ns);
    os_sleep_us((unsigned)((pause_ns + NS_PER_US - 1) / NS_PER_US));
}

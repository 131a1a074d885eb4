/* SPDX-License-Identifier: MIT */
/** @file See log_rate.h. */
#include "base/log_rate.h"

#define SECOND_NS UINT64_C(1000000000)

/* The word: the second, and in its low bits how many were said in it. */
#define SAID_BITS 5u
#define SAID_MASK ((UINT64_C(1) << SAID_BITS) - 1)

_Static_assert(LOG_RATE_MOST <= SAID_MASK, "the count has room for all that are said");

/* The second and its count change together, or who ends the count of one second would begin it for the next. Whoever begins
 * a second tells. */
bool log_rate_admit(log_rate *self, uint64_t now_ns, uint64_t *out_left_out) {
    const uint64_t now = now_ns / SECOND_NS;
    uint64_t before = atomic_load(&self->word);
    uint64_t after;
    bool begins;
    *out_left_out = 0;
    do {
        begins = now > before >> SAID_BITS;
        if (!begins && (before & SAID_MASK) == LOG_RATE_MOST) {
            atomic_fetch_add(&self->left_out, 1u);
            return false;
        }
        after = begins ? now << SAID_BITS | 1u : before + 1;
    } while (!atomic_compare_exchange_weak(&self->word, &before, after));
    if (begins) {
        *out_left_out = log_rate_settle(self);
    }
    return true;
}

uint64_t log_rate_settle(log_rate *self) {
    return atomic_exchange(&self->left_out, 0u);
}

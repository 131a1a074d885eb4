/* SPDX-License-Identifier: MIT */
/** @file See slab.h. */
#include "slab.h"

/* How many units from here on are like the first of them. */
static unsigned run_from(const slab *self, unsigned at, bool *out_taken) {
    const unsigned start = at;
    const bool taken = (self->taken[at / 64] >> (at % 64) & 1) != 0;
    while (at < SLAB_UNITS) {
        const uint64_t word = self->taken[at / 64];
        const uint64_t other = (taken ? ~word : word) >> (at % 64);
        if (other != 0) {
            at += (unsigned)__builtin_ctzll(other);
            break;
        }
        at += 64 - at % 64;
    }
    *out_taken = taken;
    return at - start;
}

static void mark(slab *self, unsigned first, unsigned count, bool taken) {
    while (count > 0) {
        const unsigned bit = first % 64;
        const unsigned here = count < 64 - bit ? count : 64 - bit;
        const uint64_t mask = (here == 64 ? UINT64_MAX : (UINT64_C(1) << here) - 1) << bit;
        if (taken) {
            self->taken[first / 64] |= mask;
        } else {
            self->taken[first / 64] &= ~mask;
        }
        first += here;
        count -= here;
    }
}

bool slab_take(slab *self, unsigned count, unsigned *out_first) {
    if (count > SLAB_UNITS - self->taken_count ||
        (self->too_many != 0 && count >= self->too_many)) {
        return false;
    }
    for (unsigned at = 0; at < SLAB_UNITS;) {
        bool taken;
        const unsigned run = run_from(self, at, &taken);
        if (!taken && run >= count) {
            mark(self, at, count, true);
            self->taken_count += count;
            *out_first = at;
            return true;
        }
        at += run;
    }
    self->too_many = count;
    return false;
}

void slab_give_back(slab *self, unsigned first, unsigned count) {
    mark(self, first, count, false);
    self->taken_count -= count;
    self->too_many = 0;
}

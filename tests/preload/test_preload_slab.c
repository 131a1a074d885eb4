/* SPDX-License-Identifier: MIT */
#include <criterion/criterion.h>
#include <string.h>

#include "../../src/preload/slab.h"
#include "base/hash.h"

TestSuite(slab, .timeout = 20);

Test(slab, all_of_it_is_had_once) {
    slab self = {0};
    unsigned first;
    cr_assert(slab_take(&self, SLAB_UNITS, &first));
    cr_assert_eq(first, 0u);
    cr_assert_not(slab_take(&self, 1, &first));
    slab_give_back(&self, 0, SLAB_UNITS);
    cr_assert_eq(self.taken_count, 0u);
    cr_assert(slab_take(&self, 1, &first));
}

Test(slab, units_side_by_side_or_none) {
    slab self = {0};
    unsigned first;
    for (unsigned i = 0; i < SLAB_UNITS; i++) {
        cr_assert(slab_take(&self, 1, &first));
        cr_assert_eq(first, i);
    }
    slab_give_back(&self, 10, 1);
    slab_give_back(&self, 12, 1);
    cr_assert_not(slab_take(&self, 2, &first), "two free units are not two in a row");
    slab_give_back(&self, 11, 1);
    cr_assert(slab_take(&self, 3, &first), "what was given back meanwhile counts");
    cr_assert_eq(first, 10u);
}

Test(slab, runs_across_words) {
    slab self = {0};
    unsigned first;
    cr_assert(slab_take(&self, 63, &first));
    cr_assert(slab_take(&self, 130, &first));
    cr_assert_eq(first, 63u);
    cr_assert(slab_take(&self, 64, &first));
    cr_assert_eq(first, 193u);
    slab_give_back(&self, 63, 130);
    cr_assert(slab_take(&self, 130, &first));
    cr_assert_eq(first, 63u);
}

/* Against a plain array of what is taken. */
Test(slab, as_an_array_says) {
    enum {
        HELD = 200,
        STEPS = 20000
    };
    static unsigned char taken[SLAB_UNITS];
    static struct { unsigned first, count; } held[HELD];
    slab self = {0};
    unsigned total = 0;
    uint64_t chance = 1;
    for (unsigned step = 0; step < STEPS; step++) {
        chance = hash_word(chance, step);
        const size_t at = chance % HELD;
        if (held[at].count > 0) {
            slab_give_back(&self, held[at].first, held[at].count);
            memset(&taken[held[at].first], 0, held[at].count);
            total -= held[at].count;
            held[at].count = 0;
            continue;
        }
        const unsigned count = 1 + (unsigned)(chance / HELD % 60);
        if (slab_take(&self, count, &held[at].first)) {
            for (unsigned i = 0; i < count; i++) {
                cr_assert_eq(taken[held[at].first + i], 0u, "unit given out twice");
                taken[held[at].first + i] = 1;
            }
            held[at].count = count;
            total += count;
        } else {
            unsigned run = 0;
            for (unsigned i = 0; i < SLAB_UNITS; i++) {
                run = taken[i] != 0 ? 0 : run + 1;
                cr_assert_lt(run, count, "there was room");
            }
        }
        cr_assert_eq(self.taken_count, total);
    }
}

/* SPDX-License-Identifier: MIT */
/** @file See block.h. */
#include "block.h"

#define FIRST_VALUE 0xC0DE0000u

block_plan block_plan_for(const bench_pair *pair, block_plan usual) {
    const uint32_t rounds = pair->options->rounds;
    if (rounds != 0) {
        const uint32_t blocks = rounds < usual.blocks ? rounds : usual.blocks;
        const uint32_t each = (rounds + blocks - 1) / blocks;
        return (block_plan){blocks, usual.warm < each ? usual.warm : each, each};
    }
    return pair->is_quick ? (block_plan){2, 0, 1} : usual;
}

void block_take(block_round *take, void *of, const block_plan *plan) {
    static uint32_t value = FIRST_VALUE;
    for (uint32_t i = 0; i < plan->warm; i++) {
        take(of, value++, false);
    }
    for (uint32_t i = 0; i < plan->rounds; i++) {
        take(of, value++, true);
    }
}

void block_take_each(block_round *const *take, size_t count, void *of, const block_plan *plan,
                     uint32_t number) {
    for (size_t i = 0; i < count; i++) {
        block_take(take[(i + number) % count], of, plan);
    }
}

/* SPDX-License-Identifier: MIT */
/** @file See rest.h. */
#include "rest.h"

#include "helper.h"
#include "pair.h"
#include "system.h"

bool rest_measure(uint32_t milliseconds, rest *out_rest) {
    uint64_t before;
    uint64_t after;
    if (!system_threads(&out_rest->threads, &before)) {
        return false;
    }
    os_sleep_ms(milliseconds);
    if (!system_threads(&out_rest->threads, &after)) {
        return false;
    }
    out_rest->switches = after > before ? after - before - 1 : 0;
    return true;
}

void rest_say(uint32_t milliseconds) {
    rest found = {0, 0};
    if (!rest_measure(milliseconds, &found)) {
        bench_fail("the threads of a process cannot be counted here");
    }
    helper_say("%u %llu", (unsigned)found.threads, (unsigned long long)found.switches);
}

void rest_hear(child_process *child, rest *out_rest) {
    uint64_t numbers[2];
    pair_hear(child, numbers, 2);
    *out_rest = (rest){(uint32_t)numbers[0], numbers[1]};
}

/* SPDX-License-Identifier: MIT */
/** @file Many buffers in one message. */
#include <stdlib.h>

#include "bench_row.h"
#include "packets.h"
#include "report.h"

#define BATCH        1000u
#define BATCH_ROUNDS 15u
#define WARM_UP      3u

/* What the emulated driver's memory, which is the host's, is enough for. */
static uint32_t how_many(const bench_pair *pair, uint32_t wanted) {
    if (pair->is_quick) {
        return 12;
    }
    return pair->is_emulated ? 300 : wanted;
}

void row_batch(bench_pair *pair, const bench_row *row) {
    samples gpuipc = {NULL, 0, 0};
    samples calls = {NULL, 0, 0};
    samples bare = {NULL, 0, 0};
    const uint32_t device = pair_device(pair, row->is_peer);
    const uint32_t rounds = pair_rounds(pair, BATCH_ROUNDS);
    const floor_plan plan = {how_many(pair, BATCH), row->bytes, 0};
    gpuipc_buffer **buffers = calloc(plan.count, sizeof(*buffers));
    uint64_t packets = 0;
    if (buffers == NULL) {
        bench_fail("no memory for %u buffers", (unsigned)plan.count);
    }
    const uint32_t warm = pair->is_quick ? 1 : WARM_UP;
    for (uint32_t i = 0; i < rounds + warm; i++) {
        for (uint32_t j = 0; j < plan.count; j++) {
            buffers[j] = pair_buffer(pair, row->bytes, device, i);
        }
        const uint64_t before = packets_sent();
        const pair_times took = pair_send(pair, buffers, plan.count, device, i, false);
        packets = packets_sent() - before;
        if (packets == 0) {
            bench_fail("what left was not counted");
        }
        for (uint32_t j = 0; j < plan.count; j++) {
            bench_check(gpuipc_buffer_release(buffers[j]), "releasing");
        }
        if (i >= warm) {
            samples_add(&gpuipc, (double)took.total_ns / 1000);
        }
        if (pair->courier == NULL) {
            continue;
        }
        const uint32_t value = ~i;
        floor_memory *memory = pair_memory(pair, &plan, &value);
        const pair_times by_hand = pair_bare(pair, memory, &plan, device, value, false);
        floor_end(memory, plan.count);
        if (i >= warm) {
            samples_add(&bare, (double)by_hand.total_ns / 1000);
            samples_add(&calls, (double)by_hand.calls_ns / 1000);
        }
    }
    bench_result found = result_make(pair, row->name, NULL, "us");
    found.bytes = row->bytes * plan.count;
    found.gpuipc = samples_figure(&gpuipc);
    found.bare = samples_figure(&calls);
    if (calls.count > 0) {
        result_check_most(&found, "gpuipc / sum of the bare calls",
                          found.gpuipc.median / found.bare.median, row->target);
        result_note(&found, "bare, end to end, us", samples_figure(&bare).median);
    }
    result_check_most(&found, "packets of the sender", (double)packets, 5);
    result_note(&found, "buffers", plan.count);
    report(&found);
    samples_clear(&gpuipc);
    samples_clear(&calls);
    samples_clear(&bare);
    free(buffers);
}

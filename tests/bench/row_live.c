/* SPDX-License-Identifier: MIT */
/**
 * @file What one more open buffer costs when many are open already: gpuipc and the driver's calls by hand, in
 * neighbouring blocks at each number of open buffers, all of them in the one opener.
 */
#include "bench_row.h"
#include "block.h"
#include "report.h"

#define LIVE          10000u
#define LIVE_EMULATED 300u /* whose memory is the host's */
#define LIVE_QUICK    24u
#define FIRST         10u /* open when it is measured first */
#define STEPS         3u
#define BLOCKS        4u
#define WARM_UP       20u
#define WINDOW        50u /* openings in each block */

typedef struct live {
    bench_pair *pair;
    uint64_t bytes;
    uint32_t device;
    bool keep;
    uint32_t open; /* of gpuipc, in the opener */
    samples gpuipc[STEPS];
    samples bare[STEPS];
    size_t step;
} live;

static void take_gpuipc(void *live_of, uint32_t value, bool counts) {
    live *of = live_of;
    gpuipc_buffer *buffer = pair_buffer(of->pair, of->bytes, of->device, value);
    const bool keep = of->keep || counts;
    const pair_times times = pair_send(of->pair, &buffer, 1, of->device, value, keep);
    bench_check(gpuipc_buffer_release(buffer), "releasing");
    of->open += keep;
    if (counts) {
        samples_add(&of->gpuipc[of->step], (double)times.total_ns / 1000);
    }
}

/* Those that count stay open, as gpuipc's do. */
static void take_bare(void *live_of, uint32_t value, bool counts) {
    live *of = live_of;
    const floor_plan plan = {1, of->bytes, 0};
    floor_memory *memory = pair_memory(of->pair, &plan, &value);
    const pair_times times = pair_bare(of->pair, memory, &plan, of->device, value, counts);
    floor_end(memory, plan.count);
    if (counts) {
        samples_add(&of->bare[of->step], (double)times.total_ns / 1000);
    }
}

/* Opens more, by gpuipc, until so many are open. */
static void fill_to(live *of, uint32_t count) {
    const block_plan one = {1, 1, 0};
    of->keep = true;
    while (of->open < count) {
        block_take(take_gpuipc, of, &one);
    }
    of->keep = false;
}

/* What it opens is released again. */
static void take_block(live *of, block_round *take, const block_plan *plan) {
    const uint32_t before = of->open;
    block_take(take, of, plan);
    pair_drop(of->pair, before);
    of->open = before;
}

/* Both at the number that are open now; which is first changes. */
static void take_step(live *of, size_t step, const block_plan *plan) {
    static block_round *const ways[] = {take_bare, take_gpuipc};
    of->step = step;
    for (uint32_t i = 0; i < plan->blocks; i++) {
        if (of->pair->courier != NULL) {
            take_block(of, ways[i % 2], plan);
            take_block(of, ways[(i + 1) % 2], plan);
        } else {
            take_block(of, take_gpuipc, plan);
        }
    }
}

static double median(const samples *of) {
    return samples_median(of, 0, of->count);
}

static void note_steps(bench_result *to, const live *of) {
    static const char *const gpuipc[STEPS] = {"with 10 open, us", "with a tenth of them open, us",
                                              "with all open, us"};
    static const char *const bare[STEPS] = {"by hand, with 10 open, us",
                                            "by hand, with a tenth of them open, us",
                                            "by hand, with all open, us"};
    for (size_t i = 0; i < STEPS; i++) {
        result_note(to, gpuipc[i], median(&of->gpuipc[i]));
        if (of->bare[i].count > 0) {
            result_note(to, bare[i], median(&of->bare[i]));
        }
    }
}

static void tell(live *of, const bench_row *row, uint32_t count) {
    uint64_t space[2];
    pair_tell(of->pair->partner, "space");
    pair_hear(of->pair->partner, space, 2);
    bench_result found = result_make(of->pair, row->name, NULL, "us");
    found.bytes = of->bytes;
    found.gpuipc = samples_figure(&of->gpuipc[STEPS - 1]);
    result_check_most(&found, "cost of the last / of the 10th",
                      median(&of->gpuipc[STEPS - 1]) / median(&of->gpuipc[0]), row->target);
    if (of->bare[0].count > 0) {
        result_note(&found, "likewise, the driver's calls by hand",
                    median(&of->bare[STEPS - 1]) / median(&of->bare[0]));
    }
    note_steps(&found, of);
    if (of->pair->is_emulated) { /* which lists it */
        result_check_most(&found, "addresses reserved / mapped",
                          (double)space[0] / (double)space[1], 1);
    }
    result_note(&found, "open at once", count);
    report(&found);
}

void row_live(bench_pair *pair, const bench_row *row) {
    const uint32_t count = pair->is_quick ? LIVE_QUICK : pair->is_emulated ? LIVE_EMULATED : LIVE;
    const uint32_t window = count / 4 < WINDOW ? count / 4 : WINDOW;
    const uint32_t open[STEPS] = {FIRST, count / 10, count - window};
    const block_plan plan =
        pair->is_quick ? (block_plan){2, 1, window} : (block_plan){BLOCKS, WARM_UP, window};
    live of = {.pair = pair, .bytes = row->bytes, .device = pair_device(pair, row->is_peer)};
    for (size_t i = 0; i < STEPS; i++) {
        fill_to(&of, open[i]);
        take_step(&of, i, &plan);
    }
    fill_to(&of, count);
    tell(&of, row, of.open);
    pair_drop(pair, 0);
    for (size_t i = 0; i < STEPS; i++) {
        samples_clear(&of.gpuipc[i]);
        samples_clear(&of.bare[i]);
    }
}

/* SPDX-License-Identifier: MIT */
/** @file What a call costs while other threads make calls, too: each thread's are on an object of its own. */
#include <stdatomic.h>

#include "bench_row.h"
#include "os.h"
#include "report.h"
#include "system.h"

#define THREADS 8u
#define CALLS   100000u
#define ROUNDS  20u

typedef struct caller {
    gpuipc_buffer *buffer;
    atomic_uint *await; /* so many have not begun yet */
    os_thread *thread;
    uint64_t took_ns;
} caller;

/* All of them begin at the same time. */
static void make_calls(void *argument) {
    caller *self = argument;
    atomic_fetch_sub(self->await, 1u);
    while (atomic_load(self->await) > 0) {
    }
    const uint64_t begin_ns = os_clock_ns();
    for (uint32_t i = 0; i < CALLS; i++) {
        bench_check(gpuipc_buffer_address(self->buffer) == 0 ? GPUIPC_ERR_RELEASED : GPUIPC_OK,
                    "gpuipc_buffer_address");
    }
    self->took_ns = os_clock_ns() - begin_ns;
}

static void take_round(caller *all, uint32_t count, samples *out) {
    atomic_uint await;
    atomic_init(&await, count);
    for (uint32_t i = 0; i < count; i++) {
        all[i].await = &await;
        bench_check(os_thread_start(make_calls, &all[i], &all[i].thread), "a thread");
    }
    for (uint32_t i = 0; i < count; i++) {
        os_thread_join(all[i].thread);
    }
    for (uint32_t i = 0; i < count; i++) {
        samples_add(out, (double)all[i].took_ns / CALLS);
    }
}

void row_threads(bench_pair *pair, const bench_row *row) {
    caller all[THREADS];
    samples alone = {NULL, 0, 0};
    samples together = {NULL, 0, 0};
    samples on_one = {NULL, 0, 0};
    caller alike[THREADS]; /* all of them on one object */
    const uint32_t rounds = pair_rounds(pair, ROUNDS);
    for (uint32_t i = 0; i < THREADS; i++) {
        all[i].buffer = pair_buffer(pair, row->bytes, pair_device(pair, row->is_peer), 9);
        alike[i].buffer = all[0].buffer;
    }
    for (uint32_t i = 0; i < rounds; i++) {
        take_round(all, 1, &alone);
        take_round(all, THREADS, &together);
        take_round(alike, THREADS, &on_one);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        bench_check(gpuipc_buffer_release(all[i].buffer), "releasing");
    }
    bench_result found = result_make(pair, row->name, NULL, "ns");
    found.gpuipc = samples_figure(&together);
    found.bare = samples_figure(&alone);
    const double ratio = found.gpuipc.median / found.bare.median;
    if (system_processors() >= THREADS) {
        result_check_most(&found, "one of eight threads' calls / those of one alone", ratio,
                          row->target);
    } else { /* they wait for each other's time */
        result_note(&found, "one of eight threads' calls / those of one alone", ratio);
    }
    result_note(&found, "the same, all on one object",
                samples_figure(&on_one).median / found.bare.median);
    report(&found);
    samples_clear(&alone);
    samples_clear(&together);
    samples_clear(&on_one);
}

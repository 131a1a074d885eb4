/* SPDX-License-Identifier: MIT */
/** @file What it costs the calling thread to give a buffer up: at once, in stream order, and dropped. */
#include "bench_row.h"
#include "report.h"

#define ROUNDS  20u
#define WARM_UP 2u
#define BUFFERS 32u /* of each way in a round */

typedef struct give_up {
    bench_pair *pair;
    uint32_t device;
    samples drop;
    samples in_stream_order;
    samples release;
    samples bare;
} give_up;

typedef gpuipc_status give_up_call(gpuipc_buffer *buffer);

static gpuipc_status release_async(gpuipc_buffer *buffer) {
    return gpuipc_buffer_release_async(buffer, NULL);
}

/* Buffers that are filled, so that nothing is pending. @return calls of the driver meanwhile */
static uint64_t take(give_up *of, give_up_call *call, const char *what, samples *out) {
    gpuipc_buffer *buffers[BUFFERS];
    for (uint32_t i = 0; i < BUFFERS; i++) {
        buffers[i] = pair_buffer(of->pair, 2 * MIB, of->device, i);
    }
    const uint64_t calls = bench_driver_calls(NULL);
    for (uint32_t i = 0; i < BUFFERS; i++) {
        const uint64_t begin = os_clock_ns();
        bench_check(call(buffers[i]), what);
        const uint64_t end = os_clock_ns();
        if (out != NULL) {
            samples_add(out, (double)(end - begin) / 1000);
        }
    }
    return bench_driver_calls(NULL) - calls;
}

/* The thread that works off what was dropped waits meanwhile. */
static uint64_t take_dropped(give_up *of, samples *out) {
    bench_check(gpuipc_drops_pause(), "gpuipc_drops_pause");
    const uint64_t calls = take(of, gpuipc_buffer_drop, "gpuipc_buffer_drop", out);
    bench_check(gpuipc_drops_resume(), "gpuipc_drops_resume");
    return calls;
}

/* Unmapping, the end of the addresses, and the release. */
static void take_bare(give_up *of, samples *out) {
    const floor_plan plan = {1, 2 * MIB, 0};
    floor_memory *memory[BUFFERS];
    for (uint32_t i = 0; i < BUFFERS; i++) {
        memory[i] = pair_memory(of->pair, &plan, &i);
    }
    for (uint32_t i = 0; i < BUFFERS; i++) {
        const uint64_t begin = os_clock_ns();
        floor_end(memory[i], 1);
        const uint64_t end = os_clock_ns();
        if (out != NULL) {
            samples_add(out, (double)(end - begin) / 1000);
        }
    }
}

void row_give_up(bench_pair *pair, const bench_row *row) {
    give_up of = {.pair = pair, .device = pair_device(pair, row->is_peer)};
    const uint32_t rounds = pair_rounds(pair, ROUNDS);
    const uint64_t calls =
        take_dropped(&of, NULL); /* before there is anything for the thread to do */
    for (uint32_t i = 0; i < rounds + WARM_UP; i++) {
        const bool counts = i >= WARM_UP;
        (void)take_dropped(&of, counts ? &of.drop : NULL);
        (void)take(&of, release_async, "gpuipc_buffer_release_async",
                   counts ? &of.in_stream_order : NULL);
        (void)take(&of, gpuipc_buffer_release, "gpuipc_buffer_release",
                   counts ? &of.release : NULL);
        take_bare(&of, counts ? &of.bare : NULL);
    }
    bench_result found = result_make(pair, row->name, NULL, "us");
    found.bytes = row->bytes;
    found.gpuipc = samples_figure(&of.drop);
    found.bare = samples_figure(&of.bare);
    result_check_most(&found, "dropping / the bare calls", found.gpuipc.median / found.bare.median,
                      row->target);
    if (pair->is_emulated) { /* which counts them */
        result_check_most(&found, "driver calls in drop", (double)calls, 0);
    }
    result_note(&found, "gpuipc_buffer_release_async, us",
                samples_figure(&of.in_stream_order).median);
    result_note(&found, "gpuipc_buffer_release, us", samples_figure(&of.release).median);
    report(&found);
    samples_clear(&of.drop);
    samples_clear(&of.in_stream_order);
    samples_clear(&of.release);
    samples_clear(&of.bare);
}

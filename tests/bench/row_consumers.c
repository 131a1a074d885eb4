/* SPDX-License-Identifier: MIT */
/**
 * @file One buffer for many consumers: what each further one costs its owner. A consumer is a connection; that
 * they end in one process makes no difference to the owner.
 */
#include "bench_row.h"
#include "report.h"

#define CONSUMERS 64u
#define ROUNDS    50u
#define EDGE      8u /* consumers of the beginning and of the end that are compared */

typedef struct consumers {
    gpuipc_connection *connections[CONSUMERS];
    uint32_t count;
} consumers;

static void connect_all(bench_pair *pair, consumers *out) {
    uint64_t count;
    out->count = pair->is_quick ? 2 * EDGE + 1 : CONSUMERS;
    pair_tell(pair->partner, "connect %s %u", pair->name, (unsigned)out->count);
    for (uint32_t i = 0; i < out->count; i++) {
        bench_check(gpuipc_listener_accept(pair->listener, PATIENCE_MS, &out->connections[i]),
                    "a connection");
    }
    pair_hear(pair->partner, &count, 1);
}

typedef struct consumers_found {
    samples first;
    samples further;
    samples begin; /* of the further ones */
    samples end;
    double exports;
    double calls; /* of the driver, for each further one */
} consumers_found;

static void take_round(bench_pair *pair, const consumers *all, uint32_t device, uint32_t value,
                       consumers_found *out) {
    uint64_t collected;
    gpuipc_buffer *buffer = pair_buffer(pair, 2 * MIB, device, value);
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &buffer,
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_READY};
    const uint64_t exports = bench_driver_calls("cuMemExportToShareableHandle");
    uint64_t before = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        const uint64_t begin = os_clock_ns();
        bench_check(gpuipc_connection_send(all->connections[i], &message, PATIENCE_MS), "sending");
        const double took = (double)(os_clock_ns() - begin) / 1000;
        samples_add(i == 0 ? &out->first : &out->further, took);
        if (i >= 1 && i <= EDGE) {
            samples_add(&out->begin, took);
        }
        if (i >= all->count - EDGE) {
            samples_add(&out->end, took);
        }
        before = i == 0 ? bench_driver_calls(NULL) : before;
    }
    out->calls = (double)(bench_driver_calls(NULL) - before) / (all->count - 1);
    out->exports = (double)(bench_driver_calls("cuMemExportToShareableHandle") - exports);
    pair_tell(pair->partner, "collect %u %u", (unsigned)device, (unsigned)value);
    pair_hear(pair->partner, &collected, 1);
    bench_check(gpuipc_buffer_release(buffer), "releasing");
    if (collected != all->count) {
        bench_fail("%u consumers in place of %u", (unsigned)collected, (unsigned)all->count);
    }
}

static void clear(consumers_found *of) {
    samples_clear(&of->first);
    samples_clear(&of->further);
    samples_clear(&of->begin);
    samples_clear(&of->end);
}

void row_consumers(bench_pair *pair, const bench_row *row) {
    consumers all;
    consumers_found found = {.exports = 0};
    const uint32_t device = pair_device(pair, row->is_peer);
    const uint32_t rounds = pair_rounds(pair, ROUNDS);
    connect_all(pair, &all);
    take_round(pair, &all, device, 1, &found);
    clear(&found);
    for (uint32_t i = 0; i < rounds; i++) {
        take_round(pair, &all, device, i + 2, &found);
    }
    bench_result made = result_make(pair, row->name, NULL, "us");
    made.bytes = 2 * MIB;
    made.gpuipc = samples_figure(&found.further);
    result_check_most(&made, "cost of the last / of the second",
                      samples_figure(&found.end).median / samples_figure(&found.begin).median,
                      row->target);
    result_note(&made, "the first, us", samples_figure(&found.first).median);
    result_note(&made, "consumers", all.count);
    if (pair->is_emulated) { /* which counts the calls */
        result_check_most(&made, "exports", found.exports, 1);
        result_note(&made, "driver calls of a further one", found.calls);
    }
    report(&made);
    clear(&found);
    for (uint32_t i = 0; i < all.count; i++) {
        bench_check(gpuipc_connection_close(all.connections[i]), "a connection");
    }
}

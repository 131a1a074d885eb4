/* SPDX-License-Identifier: MIT */
/** @file Copies through the mapping of another process's memory, beside the same copies inside one process. */
#include <stdio.h>

#include "bench_row.h"
#include "partner_copy.h"
#include "report.h"

#define ROUNDS 25u

/* GB/s of nanoseconds; so the slow ones are beyond the 99th part. */
static figure rate(const samples *of, uint64_t bytes) {
    figure made = samples_figure(of);
    made.median = (double)bytes / made.median;
    made.p99 = (double)bytes / made.p99;
    return made;
}

static void check_contents(gpuipc_buffer *buffer, uint64_t bytes, uint32_t value) {
    uint32_t found = ~value;
    bench_check(gpuipc_buffer_read(buffer, bytes - sizeof(found), &found, sizeof(found)),
                "reading");
    if (found != value) {
        bench_fail("the owner reads %u in place of %u", (unsigned)found, (unsigned)value);
    }
}

static void measure(bench_pair *pair, const bench_row *row, uint64_t bytes) {
    static const char *const ways[COPY_WAYS] = {"in", "out", "both"};
    samples alone[COPY_WAYS] = {{NULL, 0, 0}};
    samples mapped[COPY_WAYS] = {{NULL, 0, 0}};
    char part[48];
    const uint32_t device = pair_device(pair, row->is_peer);
    const uint32_t rounds = pair_rounds(pair, ROUNDS);
    const uint64_t actual = pair_bytes(pair, bytes);
    gpuipc_buffer *buffer = pair_buffer(pair, actual, device, 1);
    (void)pair_send(pair, &buffer, 1, device, 1, true);
    pair_tell(pair->partner, "copy %u %u %u", (unsigned)pair->owner, (unsigned)device,
              (unsigned)rounds);
    for (uint32_t i = 0; i < (rounds + 1) * COPY_WAYS; i++) {
        uint64_t numbers[2];
        pair_hear(pair->partner, numbers, 2);
        if (i >= COPY_WAYS) { /* the first round warms up */
            samples_add(&alone[i % COPY_WAYS], (double)numbers[0]);
            samples_add(&mapped[i % COPY_WAYS], (double)numbers[1]);
        }
    }
    check_contents(buffer, actual, copy_value(rounds));
    pair_drop(pair, 0);
    bench_check(gpuipc_buffer_release(buffer), "releasing");
    for (size_t i = 0; i < COPY_WAYS; i++) {
        (void)snprintf(part, sizeof(part), "%lluMiB %s", (unsigned long long)(bytes / MIB),
                       ways[i]);
        bench_result found = result_make(pair, row->name, part, "GB/s");
        found.bytes = actual;
        found.gpuipc = rate(&mapped[i], actual * COPY_REPEAT);
        found.floor = rate(&alone[i], actual * COPY_REPEAT);
        result_check_least(&found, "gpuipc / one process", found.gpuipc.median / found.floor.median,
                           row->target);
        report(&found);
        samples_clear(&alone[i]);
        samples_clear(&mapped[i]);
    }
}

void row_copy(bench_pair *pair, const bench_row *row) {
    static const uint64_t sizes[] = {64 * MIB, 256 * MIB, GIB, 4 * GIB};
    if (row->is_peer && pair->owner == pair->opener) {
        report_refusal(pair, row->name, "needs two devices");
        return;
    }
    for (size_t i = 0; i < (pair->is_quick ? 1 : sizeof(sizes) / sizeof(*sizes)); i++) {
        measure(pair, row, sizes[i]);
    }
}

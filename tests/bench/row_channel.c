/* SPDX-License-Identifier: MIT */
/** @file Frames through a channel on the host: how long from publish to take, what a size and a reader more cost. No call of
 *  the driver is in what is measured, so that the figures of any driver are as good. */
#include <stdio.h>

#include "bench_row.h"
#include "lane.h"
#include "report.h"
#include "system.h"

#define BLOCKS         50u
#define LOOKING        2000u /* of each thing in a block */
#define ASLEEP         200u
#define SIZES          500u
#define READERS        2000u
#define COUNTED        1000u
#define QUICK_BLOCKS   2u
#define QUICK          8u
#define SLOT_BYTES     UINT64_C(4096)
#define SLOTS          4u
#define NAME_MAX_BYTES 32u

/* What the command line makes of so many for each block. */
static uint32_t block_count(const bench_pair *pair) {
    return pair->is_quick ? QUICK_BLOCKS : BLOCKS;
}

static uint32_t for_block(const bench_pair *pair, uint32_t usual) {
    const uint32_t rounds = pair->options->rounds;
    return pair->is_quick ? QUICK : rounds != 0 ? (rounds + BLOCKS - 1) / BLOCKS : usual;
}

static bench_result make_result(const bench_pair *pair, const bench_row *row, const char *part) {
    bench_result made = result_make(pair, row->name, part, "us");
    made.is_emulated = false; /* no call of a driver is in it */
    return made;
}

/* ---- system calls and calls of the driver ------------------------------------------------------ */

static void go_round(const lane *of, gpuipc_subscription *reader) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    lane_publish(of, GPUIPC_NO_STREAM);
    bench_check(gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 0, &frame),
                "gpuipc_subscription_take");
    bench_check(gpuipc_subscription_give_back(reader, &frame, GPUIPC_NO_STREAM),
                "gpuipc_subscription_give_back");
}

/* Both ends in this thread, so that neither waits: the kernel ends the program at a system call.
 * @return calls of the driver */
static uint64_t count_calls(const lanes *all, const lane *of, bool *out_is_forbidden) {
    gpuipc_subscription *reader = NULL;
    gpuipc_ticket ticket;
    bench_check(gpuipc_ticket_from_text(of->text, &ticket), "gpuipc_ticket_from_text");
    bench_check(gpuipc_subscription_open(all->pair->context, &ticket, NULL, &reader),
                "gpuipc_subscription_open");
    go_round(of, reader);
    const uint64_t before = bench_driver_calls(NULL);
    *out_is_forbidden = system_calls_forbid();
    for (uint32_t i = 0; i < COUNTED; i++) {
        go_round(of, reader);
    }
    system_calls_allow();
    const uint64_t calls = bench_driver_calls(NULL) - before;
    bench_check(gpuipc_subscription_close(reader), "gpuipc_subscription_close");
    return calls;
}

/* ---- publish to take --------------------------------------------------------------------------- */

void row_channel_looking(bench_pair *pair, const bench_row *row) {
    static const lane_way ways[] = {LANE_CHANNEL, LANE_WORD};
    samples took[LANE_WAYS] = {{NULL, 0, 0}};
    lanes all;
    bool is_forbidden = false;
    lanes_begin(&all, pair, pair_device(pair, row->is_peer));
    const lane *of = lanes_add(&all, SLOTS, SLOT_BYTES);
    const uint64_t calls = count_calls(&all, of, &is_forbidden);
    lanes_subscribe(&all, of, 1);
    for (uint32_t i = 0; i < block_count(pair); i++) {
        for (uint32_t way = 0; way < 2; way++) {
            const lane_way now = ways[(way + i) % 2];
            lanes_stamp(&all, now, 0, for_block(pair, LOOKING), false, &took[now]);
        }
    }
    lanes_end(&all);
    bench_result found = make_result(pair, row, NULL);
    found.gpuipc = samples_figure(&took[LANE_CHANNEL]);
    found.bare = samples_figure(&took[LANE_WORD]);
    result_check_most(&found, "p50, us", found.gpuipc.median, row->target);
    result_check_most(&found, "p99, us", found.gpuipc.p99, 2 * row->target);
    if (is_forbidden) {
        result_check_most(&found, "system calls", 0, 0);
    }
    if (pair->is_emulated) { /* which counts them */
        result_check_most(&found, "driver calls", (double)calls, 0);
    }
    report(&found);
    samples_clear(&took[LANE_CHANNEL]);
    samples_clear(&took[LANE_WORD]);
}

void row_channel_asleep(bench_pair *pair, const bench_row *row) {
    static const lane_way ways[] = {LANE_CHANNEL, LANE_BELL, LANE_MESSAGE, LANE_SOCKET};
    samples took[LANE_WAYS] = {{NULL, 0, 0}};
    const uint32_t count = pair->courier != NULL ? 4 : 3;
    lanes all;
    lanes_begin(&all, pair, pair_device(pair, row->is_peer));
    lanes_subscribe(&all, lanes_add(&all, SLOTS, SLOT_BYTES), 1);
    for (uint32_t i = 0; i < block_count(pair); i++) {
        for (uint32_t way = 0; way < count; way++) {
            const lane_way now = ways[(way + i) % count];
            lanes_stamp(&all, now, 0, for_block(pair, ASLEEP), true, &took[now]);
        }
    }
    lanes_end(&all);
    bench_result found = make_result(pair, row, NULL);
    const figure message = samples_figure(&took[LANE_MESSAGE]);
    const figure socket = samples_figure(&took[LANE_SOCKET]);
    found.gpuipc = samples_figure(&took[LANE_CHANNEL]);
    found.bare = samples_figure(&took[LANE_BELL]);
    result_check_most(&found, "channel / a sleeper's word by hand",
                      found.gpuipc.median / found.bare.median, row->target);
    result_note(&found, "a message of gpuipc's, us", message.median);
    result_note(&found, "a message of gpuipc's, p99", message.p99);
    if (socket.rounds > 0) {
        result_note(&found, "a Unix socket, us", socket.median);
        result_note(&found, "a Unix socket, p99", socket.p99);
    }
    report(&found);
    for (size_t i = 0; i < LANE_WAYS; i++) {
        samples_clear(&took[i]);
    }
}

/* ---- sizes ------------------------------------------------------------------------------------- */

/* "4 KiB", "1 GiB" */
static void name_size(uint64_t bytes, char text[NAME_MAX_BYTES]) {
    const bool is_small = bytes < MIB;
    (void)snprintf(text, NAME_MAX_BYTES, "%llu%s",
                   (unsigned long long)(is_small ? bytes / 1024 : bytes / MIB),
                   is_small ? "KiB" : "MiB");
}

void row_channel_sizes(bench_pair *pair, const bench_row *row) {
    static const uint64_t sizes[] = {4096,     64 * UINT64_C(1024), MIB, 8 * MIB,
                                     64 * MIB, 256 * MIB,           GIB};
    const size_t count = pair->is_quick ? 3 : pair->is_emulated ? 5 : 7;
    samples took[sizeof(sizes) / sizeof(*sizes)] = {{NULL, 0, 0}};
    lanes all;
    lanes_begin(&all, pair, pair_device(pair, row->is_peer));
    for (size_t i = 0; i < count; i++) {
        lanes_subscribe(&all, lanes_add(&all, 2, sizes[i]), 1);
    }
    for (uint32_t block = 0; block < block_count(pair); block++) {
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t which = (i + block) % (uint32_t)count;
            lanes_stamp(&all, LANE_CHANNEL, which, for_block(pair, SIZES), false, &took[which]);
        }
    }
    lanes_end(&all);
    const double smallest = samples_median(&took[0], 0, took[0].count);
    for (size_t i = 0; i < count; i++) {
        char part[NAME_MAX_BYTES];
        name_size(sizes[i], part);
        bench_result found = make_result(pair, row, part);
        found.bytes = sizes[i];
        found.gpuipc = samples_figure(&took[i]);
        result_check_most(&found, "to the smallest", found.gpuipc.median / smallest, row->target);
        report(&found);
        samples_clear(&took[i]);
    }
}

/* ---- readers ----------------------------------------------------------------------------------- */

/* A loan and a publication, when all have given back what they had. */
static void take_writes(lanes *all, const lane *of, uint32_t rounds, samples *out_us) {
    board_set(&all->board, BOARD_ANSWER, 0);
    pair_tell(all->pair->partner, "take_all %u", (unsigned)rounds + 1);
    pair_hear_ready(all->pair->partner);
    for (uint32_t i = 0; i <= rounds; i++) {
        const uint64_t begin_ns = os_clock_ns();
        lane_publish(of, GPUIPC_NO_STREAM);
        const uint64_t end_ns = os_clock_ns();
        board_await(&all->board, BOARD_ANSWER, i + 1);
        if (i > 0) {
            samples_add(out_us, (double)(end_ns - begin_ns) / 1000);
        }
    }
    pair_hear_ready(all->pair->partner);
}

void row_channel_readers(bench_pair *pair, const bench_row *row) {
    static const uint32_t readers[] = {0, 1, 2, 4, 8, 16, 32};
    static const char *const notes[] = {
        "without a reader, us", "1, us", "2, us", "4, us", "8, us", "16, us", "32, us"};
    enum {
        STEPS = sizeof(readers) / sizeof(*readers)
    };
    samples took[STEPS] = {{NULL, 0, 0}};
    lanes all;
    lanes_begin(&all, pair, pair_device(pair, row->is_peer));
    const lane *of = lanes_add(&all, SLOTS, SLOT_BYTES);
    for (uint32_t step = 0, open = 0; step < STEPS; step++) {
        for (; open < readers[step]; open++) {
            lanes_subscribe(&all, of, 1);
        }
        take_writes(&all, of, for_block(pair, READERS) * (pair->is_quick ? 1 : 10), &took[step]);
    }
    lanes_end(&all);
    bench_result found = make_result(pair, row, NULL);
    found.gpuipc = samples_figure(&took[STEPS - 1]);
    result_check_most(&found, "each further reader, ns",
                      (found.gpuipc.median - samples_figure(&took[0]).median) * 1000 /
                          readers[STEPS - 1],
                      row->target);
    for (uint32_t step = 0; step < STEPS; step++) {
        result_note(&found, notes[step], samples_figure(&took[step]).median);
        samples_clear(&took[step]);
    }
    report(&found);
}

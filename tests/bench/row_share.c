/* SPDX-License-Identifier: MIT */
/**
 * @file A buffer that exists, until the other process can use it: gpuipc and, in neighbouring blocks, the driver's
 * calls by hand; then the same calls in processes that keep nothing alive, while nobody else does.
 */
#include <stdio.h>

#include "bench_row.h"
#include "block.h"
#include "report.h"

/* ---- how much of each ------------------------------------------------------------------------- */

/* A row takes a few seconds on a GPU. The blocks are a multiple of six: each order as often as the other, and
 * whole blocks in each third that a drift is told by. */
static const struct {
    uint64_t bytes_max;
    block_plan block;
    block_plan floor;
} plans[] = {{128 * MIB, {12, 8, 60}, {12, 3, 30}},
             {GIB, {12, 3, 16}, {12, 2, 8}},
             {2 * GIB, {12, 2, 8}, {12, 1, 6}},
             {UINT64_MAX, {6, 1, 4}, {6, 1, 4}}};

static void choose_plans(const bench_pair *pair, uint64_t bytes, block_plan *out_block,
                         block_plan *out_floor) {
    size_t i = 0;
    while (bytes > plans[i].bytes_max) {
        i++;
    }
    *out_block = block_plan_for(pair, plans[i].block);
    *out_floor = block_plan_for(pair, plans[i].floor);
}

/* ---- what is measured -------------------------------------------------------------------------- */

typedef struct way {
    stock stock;
    uint32_t left; /* rounds of this block that are still to come */
    samples total;
    samples send;
    samples come;
    samples open;
} way;

typedef struct share {
    bench_pair *pair;
    uint64_t bytes;
    uint64_t segment_bytes; /* 0: as the library lays it out */
    uint32_t device;
    bool is_new;   /* each made the moment before; else in advance, and filled: stock.h */
    uint32_t room; /* how many there can be at once */
    way gpuipc;
    way bare;
    samples floor;
    uint32_t floor_left;
    samples create;      /* making the buffer, which the table does not count */
    uint32_t segments;   /* as it was laid out */
    uint64_t alike_each; /* of the same layout by hand, bytes; 0: whole */
} share;

static double microseconds(uint64_t nanoseconds) {
    return (double)nanoseconds / 1000;
}

static void add(way *to, const pair_times *times) {
    samples_add(&to->total, microseconds(times->total_ns));
    samples_add(&to->send, microseconds(times->send_ns));
    samples_add(&to->come, microseconds(times->come_ns));
    samples_add(&to->open, microseconds(times->open_ns));
}

static void clear(way *of) {
    samples_clear(&of->total);
    samples_clear(&of->send);
    samples_clear(&of->come);
    samples_clear(&of->open);
}

/* How many to make when there are none, if the block has as many rounds left; one round less is left. */
static uint32_t take_ahead(const share *of, uint32_t *left) {
    const uint32_t ahead = of->is_new || *left == 0 ? 1 : *left < of->room ? *left : of->room;
    *left -= *left > 0;
    return ahead;
}

static void *make_gpuipc(void *share_of, uint32_t value) {
    share *of = share_of;
    uint64_t create_ns = 0;
    gpuipc_buffer *made = pair_buffer_make(of->pair, of->bytes, of->segment_bytes, of->device,
                                           of->is_new ? NULL : &value, &create_ns);
    samples_add(&of->create, microseconds(create_ns));
    return made;
}

static void end_gpuipc(void *share_of, void *made) {
    (void)share_of;
    bench_check(gpuipc_buffer_release(made), "releasing");
}

static void take_gpuipc(void *share_of, uint32_t value, bool counts) {
    share *of = share_of;
    const uint32_t ahead = take_ahead(of, &of->gpuipc.left);
    gpuipc_buffer *buffer = stock_take(&of->gpuipc.stock, ahead, make_gpuipc, of, value);
    const pair_times times =
        pair_send(of->pair, &buffer, 1, of->device, of->is_new ? 0 : value, false);
    const gpuipc_buffer_info info = pair_info(buffer);
    const uint64_t each = info.allocated_bytes / info.segment_count;
    of->segments = info.segment_count;
    of->alike_each = of->segments == 1 ? 0 : (each + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    stock_settle(&of->gpuipc.stock, end_gpuipc, of);
    if (counts) {
        add(&of->gpuipc, &times);
    }
}

static void *make_bare(void *share_of, uint32_t value) {
    share *of = share_of;
    const floor_plan plan = {1, of->bytes, of->alike_each};
    return pair_memory(of->pair, &plan, of->is_new ? NULL : &value);
}

static void end_bare(void *share_of, void *made) {
    const share *of = share_of;
    bench_enter((int)of->pair->owner);
    floor_end(made, 1);
}

static void take_bare(void *share_of, uint32_t value, bool counts) {
    share *of = share_of;
    const floor_plan plan = {1, of->bytes, of->alike_each};
    const uint32_t ahead = take_ahead(of, &of->bare.left);
    floor_memory *memory = stock_take(&of->bare.stock, ahead, make_bare, of, value);
    const pair_times times =
        pair_bare(of->pair, memory, &plan, of->device, of->is_new ? 0 : value, false);
    stock_settle(&of->bare.stock, end_bare, of);
    if (counts) {
        add(&of->bare, &times);
    }
}

static void take_floor(void *share_of, uint32_t value, bool counts) {
    share *of = share_of;
    const floor_plan plan = {1, of->bytes, 0};
    const uint32_t ahead = take_ahead(of, &of->floor_left);
    const uint64_t nanoseconds =
        pair_floor(of->pair, &plan, of->device, of->is_new ? 0 : value, of->is_new ? 0 : ahead);
    if (counts) {
        samples_add(&of->floor, microseconds(nanoseconds));
    }
}

static void take_all(share *of, bool with_floor) {
    static block_round *const ways[] = {take_gpuipc, take_bare};
    const size_t count = of->pair->courier != NULL ? 2 : 1;
    block_plan block;
    block_plan floor;
    choose_plans(of->pair, of->bytes, &block, &floor);
    of->room = stock_room(of->pair->owner, of->bytes);
    for (uint32_t i = 0; i < block.blocks; i++) {
        pair_wake(of->pair);
        take_gpuipc(of, i, false); /* what it keeps alive is there for the bare calls too */
        of->gpuipc.left = of->bare.left = block.warm + block.rounds;
        block_take_each(ways, count, of, &block, i);
        if (with_floor) {
            pair_quiet(of->pair);
            of->floor_left = floor.warm + floor.rounds;
            block_take(take_floor, of, &floor);
        }
    }
}

static void note_parts(bench_result *to, const share *of) {
    result_note(to, "gpuipc, in send, us", samples_figure(&of->gpuipc.send).median);
    result_note(to, "gpuipc, until the message came, us", samples_figure(&of->gpuipc.come).median);
    result_note(to, "gpuipc, from then on, us", samples_figure(&of->gpuipc.open).median);
    if (of->bare.total.count > 0) {
        result_note(to, "bare, exports and sendmsg, us", samples_figure(&of->bare.send).median);
        result_note(to, "bare, until the message came, us", samples_figure(&of->bare.come).median);
        result_note(to, "bare, from then on, us", samples_figure(&of->bare.open).median);
    }
}

static bench_result measure(share *of, bool with_floor, const char *row, const char *part) {
    take_all(of, with_floor);
    bench_result made = result_make(of->pair, row, part, "us");
    made.bytes = of->bytes;
    made.gpuipc = samples_figure(&of->gpuipc.total);
    made.floor = samples_figure(&of->floor);
    made.bare = samples_figure(&of->bare.total);
    result_note(&made, "segments", of->segments);
    result_note(&made, "making the buffer, us", samples_figure(&of->create).median);
    note_parts(&made, of);
    clear(&of->gpuipc);
    clear(&of->bare);
    samples_clear(&of->floor);
    samples_clear(&of->create);
    return made;
}

/* The target for a row with a floor, and whether its own calls alone are above it already. */
static void check_floor(bench_result *of, double target) {
    result_check_least(of, "floor / gpuipc", of->floor.median / of->gpuipc.median, target);
    if (of->floor.median / of->bare.median < target) {
        result_note(of, "the bare calls miss the target too: floor / bare",
                    of->floor.median / of->bare.median);
    }
}

/* ---- rows --------------------------------------------------------------------------------------- */

static bool is_refused(const bench_pair *pair, const bench_row *row) {
    if (row->is_peer && pair->owner == pair->opener) {
        report_refusal(pair, row->name, "needs two devices");
        return true;
    }
    if (row->wants_floor && courier_why_not() != NULL) {
        report_refusal(pair, row->name, courier_why_not());
        return true;
    }
    return false;
}

static const char *size_text(char text[32], uint64_t bytes) {
    const bool is_gib = bytes >= GIB && bytes % GIB == 0;
    (void)snprintf(text, 32, "%llu%s", (unsigned long long)(bytes / (is_gib ? GIB : MIB)),
                   is_gib ? "GiB" : "MiB");
    return text;
}

void row_share(bench_pair *pair, const bench_row *row) {
    if (is_refused(pair, row)) {
        return;
    }
    share of = {.pair = pair,
                .bytes = pair_bytes(pair, row->bytes),
                .device = pair_device(pair, row->is_peer),
                .is_new = row->is_new};
    bench_result found = measure(&of, true, row->name, NULL);
    check_floor(&found, row->target);
    if (row->is_peer && row->bytes == 2 * MIB) {
        result_check_most(&found, "gpuipc - bare, us", found.gpuipc.median - found.bare.median, 20);
    } else {
        result_note(&found, "gpuipc - bare, us", found.gpuipc.median - found.bare.median);
    }
    report(&found);
}

void row_sizes(bench_pair *pair, const bench_row *row) {
    static const uint64_t sizes[] = {2 * MIB,   8 * MIB, 32 * MIB, 128 * MIB,
                                     512 * MIB, 2 * GIB, 8 * GIB,  16 * GIB};
    char text[32];
    if (is_refused(pair, row)) {
        return;
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        if (pair->is_quick && sizes[i] != 2 * MIB && sizes[i] != 512 * MIB) {
            continue;
        }
        share of = {.pair = pair,
                    .bytes = pair_bytes(pair, sizes[i]),
                    .device = pair_device(pair, row->is_peer)};
        bench_result found = measure(&of, true, row->name, size_text(text, sizes[i]));
        check_floor(&found, row->target);
        report(&found);
    }
}

void row_segments(bench_pair *pair, const bench_row *row) {
    static const uint64_t sizes[] = {GIB, 8 * GIB};
    static const uint64_t segments[] = {64 * MIB, 128 * MIB, 256 * MIB, 384 * MIB, 510 * MIB, 0};
    char size[32];
    char segment[32];
    char part[72];
    if (is_refused(pair, row)) {
        return;
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        const size_t first = pair->is_quick ? sizeof(segments) / sizeof(*segments) - 2 : 0;
        for (size_t j = first; j < sizeof(segments) / sizeof(*segments); j++) {
            const uint64_t bytes = pair_bytes(pair, sizes[i]);
            share of = {.pair = pair,
                        .bytes = bytes,
                        .segment_bytes = segments[j] == 0 ? bytes : pair_bytes(pair, segments[j]),
                        .device = pair_device(pair, row->is_peer)};
            (void)snprintf(part, sizeof(part), "%s in %s", size_text(size, sizes[i]),
                           segments[j] == 0 ? "one" : size_text(segment, segments[j]));
            const bench_result found = measure(&of, false, row->name, part);
            report(&found);
        }
        if (pair->is_quick) {
            break;
        }
    }
}

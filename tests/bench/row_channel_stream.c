/* SPDX-License-Identifier: MIT */
/** @file Frames through a channel in the order of streams: a hop from stream to stream, the host's time in calls, and how
 *  fast contents flow. */
#include "bench_row.h"
#include "lane.h"
#include "report.h"

#define SLOTS      64u
#define SLOT_BYTES UINT64_C(4096)
#define TRIPS      32u /* there and back, in one go */
#define FRAMES     256u
#define DEEP       4u /* slots of frames with contents */
#define ROUNDS     50u

static const char needs_two[] = "needs two devices";

static void synchronize(const lanes *all) {
    bench_check_cuda(bench_driver.cuStreamSynchronize(all->stream), "waiting");
}

/* What comes on the stream waits until the gate is opened; the host is ahead. */
static void close_gate(lanes *all) {
    board_wait_async(&all->board, all->stream, BOARD_GATE, ++all->board.gates);
}

static void open_gate(const lanes *all) {
    board_set(&all->board, BOARD_GATE, all->board.gates);
}

/* ---- hops -------------------------------------------------------------------------------------- */

typedef struct hops {
    lanes lanes;
    const lane *there;
    gpuipc_subscription *back;
    CUevent begin;
    CUevent end;
    uint64_t number; /* of the words by hand */
    samples channel;
    samples by_hand;
    samples words_alone; /* likewise, and nothing is given back */
} hops;

/* Of the events, in microseconds for each hop. */
static void add_hops(const hops *of, samples *to, uint32_t trips) {
    float milliseconds = 0;
    synchronize(&of->lanes);
    bench_check_cuda(bench_driver.cuEventElapsedTime(&milliseconds, of->begin, of->end), "a time");
    samples_add(to, (double)milliseconds * 1000 / (2 * trips));
}

static void record(const hops *of, CUevent event) {
    bench_check_cuda(bench_driver.cuEventRecord(event, of->lanes.stream), "an event");
}

static void take_channel(hops *of, uint32_t trips, samples *to) {
    lanes *all = &of->lanes;
    pair_tell(all->pair->partner, "hops %u", (unsigned)trips);
    pair_hear_ready(all->pair->partner);
    close_gate(all);
    record(of, of->begin);
    for (uint32_t i = 0; i < trips; i++) {
        gpuipc_frame frame = GPUIPC_FRAME_INIT;
        lane_publish(of->there, all->stream);
        bench_check(gpuipc_subscription_take(of->back, all->stream, PATIENCE_MS, &frame),
                    "gpuipc_subscription_take");
        bench_check(gpuipc_subscription_give_back(of->back, &frame, all->stream),
                    "gpuipc_subscription_give_back");
    }
    record(of, of->end);
    open_gate(all);
    add_hops(of, to, trips);
    pair_hear_ready(all->pair->partner);
}

/* As in any ring, a word says that there is a frame, and another one that its slot is free again. */
static void take_by_hand(hops *of, uint32_t trips, bool gives_back, samples *to) {
    lanes *all = &of->lanes;
    pair_tell(all->pair->partner, "hops_by_hand %llu %u %u %u", (unsigned long long)of->number + 1,
              (unsigned)trips, (unsigned)all->device, (unsigned)gives_back);
    pair_hear_ready(all->pair->partner);
    close_gate(all);
    record(of, of->begin);
    for (uint32_t i = 0; i < trips; i++) {
        of->number++;
        board_write_async(&all->board, all->stream, BOARD_TURN, of->number);
        board_wait_async(&all->board, all->stream, BOARD_ANSWER, of->number);
        if (gives_back) {
            board_write_async(&all->board, all->stream, BOARD_OWNER_RETURNS, of->number);
        }
    }
    record(of, of->end);
    open_gate(all);
    add_hops(of, to, trips);
    pair_hear_ready(all->pair->partner);
}

/* The channel back is the partner's. */
static void open_back(hops *of) {
    const bench_pair *pair = of->lanes.pair;
    const gpuipc_subscription_config config = {.struct_size = sizeof(config),
                                               .device = GPUIPC_DEVICE(pair->owner)};
    char text[CHILD_LINE_MAX];
    gpuipc_ticket ticket;
    pair_tell(pair->partner, "channel_back %u", SLOTS);
    bench_check(child_read_line(pair->partner, text, sizeof(text), PATIENCE_MS), "a ticket");
    bench_check(gpuipc_ticket_from_text(text, &ticket), "gpuipc_ticket_from_text");
    bench_check(gpuipc_subscription_open(pair->context, &ticket, &config, &of->back),
                "gpuipc_subscription_open");
}

static void close_back(hops *of) {
    const bench_pair *pair = of->lanes.pair;
    synchronize(&of->lanes);
    bench_check(gpuipc_subscription_close(of->back), "gpuipc_subscription_close");
    pair_tell(pair->partner, "channel_back 0");
    pair_hear_ready(pair->partner);
}

void row_channel_hops(bench_pair *pair, const bench_row *row) {
    hops of = {.number = 0};
    const uint32_t rounds = pair_rounds(pair, ROUNDS);
    const uint32_t trips = pair->is_quick ? 2 : TRIPS;
    if (row->is_peer && pair->owner == pair->opener) {
        report_refusal(pair, row->name, needs_two);
        return;
    }
    lanes_begin(&of.lanes, pair, pair_device(pair, row->is_peer));
    of.there = lanes_add(&of.lanes, SLOTS, SLOT_BYTES);
    lanes_subscribe(&of.lanes, of.there, 1);
    open_back(&of);
    bench_check_cuda(bench_driver.cuEventCreate(&of.begin, CU_EVENT_DEFAULT), "an event");
    bench_check_cuda(bench_driver.cuEventCreate(&of.end, CU_EVENT_DEFAULT), "an event");
    for (uint32_t i = 0; i <= rounds; i++) { /* the first one warms up */
        samples unused = {NULL, 0, 0};
        take_channel(&of, trips, i == 0 ? &unused : &of.channel);
        take_by_hand(&of, trips, true, i == 0 ? &unused : &of.by_hand);
        take_by_hand(&of, trips, false, i == 0 ? &unused : &of.words_alone);
        samples_clear(&unused);
    }
    bench_check_cuda(bench_driver.cuEventDestroy(of.begin), "an event");
    bench_check_cuda(bench_driver.cuEventDestroy(of.end), "an event");
    close_back(&of);
    lanes_end(&of.lanes);
    bench_result found = result_make(pair, row->name, NULL, "us");
    found.gpuipc = samples_figure(&of.channel);
    found.bare = samples_figure(&of.by_hand);
    result_check_most(&found, "a hop / stream memory operations by hand",
                      found.gpuipc.median / found.bare.median, row->target);
    result_note(&found, "by hand, and nothing given back, us",
                samples_figure(&of.words_alone).median);
    report(&found);
    samples_clear(&of.channel);
    samples_clear(&of.by_hand);
    samples_clear(&of.words_alone);
}

/* ---- the host's time in calls ------------------------------------------------------------------ */

typedef struct by_hand {
    samples wait;
    samples write;
    samples
        record; /* of an event behind it: it says that the stream has passed, and cannot go along in the same call */
    samples whole_wait; /* with what has to be known of a stream first, and the event */
    samples whole_write;
} by_hand;

/* Each end's beside the same words by hand of that end: two processors are not equally fast. */
typedef struct calls {
    samples loan;
    samples publish;
    samples take;
    samples give_back;
    by_hand owner;
    by_hand partner;
} calls;

static double microseconds(uint64_t begin_ns, uint64_t end_ns) {
    return (double)(end_ns - begin_ns) / 1000;
}

/* All of them wait or write: the slots were given back behind a gate, and what is published is not ready. */
static void time_loans(const lanes *all, calls *of) {
    for (uint32_t i = 0; i < LANE_CALLS; i++) {
        gpuipc_frame frame = GPUIPC_FRAME_INIT;
        const uint64_t begin_ns = os_clock_ns();
        bench_check(gpuipc_channel_loan(all->all[0].channel, all->stream, PATIENCE_MS, &frame),
                    "gpuipc_channel_loan");
        const uint64_t loaned_ns = os_clock_ns();
        bench_check(gpuipc_channel_publish(all->all[0].channel, &frame, all->stream),
                    "gpuipc_channel_publish");
        const uint64_t end_ns = os_clock_ns();
        if (of != NULL) {
            samples_add(&of->loan, microseconds(begin_ns, loaned_ns));
            samples_add(&of->publish, microseconds(loaned_ns, end_ns));
        }
    }
}

static void take_calls(lanes *all, calls *of) {
    const board *at = &all->board;
    const uint64_t gate = ++all->board.gates;
    board_set(at, BOARD_TURN, 0);
    board_set(at, BOARD_ANSWER, 0);
    pair_tell(all->pair->partner, "calls %u %llu", LANE_CALLS, (unsigned long long)gate);
    pair_hear_ready(all->pair->partner);
    time_loans(all, NULL);
    synchronize(all);
    board_set(at, BOARD_TURN, 1);
    board_await(at, BOARD_ANSWER, 1);
    time_loans(all, of);
    board_set(at, BOARD_TURN, 2);
    board_await(at, BOARD_ANSWER, 2);
    open_gate(all);
    pair_hear_ready(all->pair->partner);
    synchronize(all);
    for (uint32_t i = 0; of != NULL && i < LANE_CALLS; i++) {
        samples_add(&of->take, (double)at->words[BOARD_SAMPLES + i] / 1000);
        samples_add(&of->give_back, (double)at->words[BOARD_SAMPLES + LANE_CALLS + i] / 1000);
    }
}

static void add_by_hand(by_hand *of, const uint64_t took[LANE_CALLS_KINDS * LANE_CALLS]) {
    for (uint32_t i = 0; i < LANE_CALLS; i++) {
        samples_add(&of->wait, (double)took[i] / 1000);
        samples_add(&of->write, (double)took[LANE_CALLS + i] / 1000);
        samples_add(&of->record, (double)took[2 * LANE_CALLS + i] / 1000);
        samples_add(&of->whole_wait, (double)took[3 * LANE_CALLS + i] / 1000);
        samples_add(&of->whole_write, (double)took[4 * LANE_CALLS + i] / 1000);
    }
}

/* Behind a gate as well, one end after the other, which looks out for the other one meanwhile, as it does in a channel's
 * calls: a processor whose other half, or whose neighbours, have nothing to do is a faster one. */
static void take_calls_by_hand(lanes *all, const CUevent *events, calls *of) {
    const board *at = &all->board;
    uint64_t took[LANE_CALLS_KINDS * LANE_CALLS];
    board_set(at, BOARD_TURN, 0);
    board_set(at, BOARD_ANSWER, 0);
    close_gate(all);
    pair_tell(all->pair->partner, "calls_by_hand %llu", (unsigned long long)at->gates);
    pair_hear_ready(all->pair->partner);
    lane_time_calls(at, all->stream, events, at->gates, BOARD_OWNER_RETURNS, took);
    add_by_hand(&of->owner, took);
    board_set(at, BOARD_TURN, 1);
    board_await(at, BOARD_ANSWER, 1);
    for (uint32_t i = 0; i < LANE_CALLS_KINDS * LANE_CALLS; i++) {
        took[i] = at->words[BOARD_SAMPLES + i];
    }
    add_by_hand(&of->partner, took);
    open_gate(all);
    pair_hear_ready(all->pair->partner);
    synchronize(all);
}

/* Of one round, in us. */
static double in_round(const samples *of, uint32_t round) {
    return samples_median(of, round * (size_t)LANE_CALLS, LANE_CALLS);
}

/* The processors' clocks go up and down in steps, from one round to the next: what is compared is of one round. */
static double compare_rounds(const calls *of, uint32_t rounds) {
    samples ratios = {NULL, 0, 0};
    for (uint32_t i = 0; i < rounds; i++) {
        const double mine = in_round(&of->loan, i) + in_round(&of->publish, i) +
                            in_round(&of->take, i) + in_round(&of->give_back, i);
        const double driver_calls =
            in_round(&of->owner.whole_wait, i) + in_round(&of->owner.whole_write, i) +
            in_round(&of->partner.whole_wait, i) + in_round(&of->partner.whole_write, i);
        samples_add(&ratios, mine / driver_calls);
    }
    const double found = samples_figure(&ratios).median;
    samples_clear(&ratios);
    return found;
}

/* Of both ends. */
static double of_both(const samples *first, const samples *second) {
    return samples_figure(first).median + samples_figure(second).median;
}

/* What they take, beside the same calls of the driver: what each asks, a wait or a write, and an event. */
static void report_calls(const bench_pair *pair, const bench_row *row, const calls *of,
                         uint32_t rounds) {
    const samples *const mine[] = {&of->loan, &of->publish, &of->take, &of->give_back};
    static const char *const notes[] = {"loan, us", "publish, us", "take, us", "give back, us"};
    const double wait = of_both(&of->owner.wait, &of->partner.wait);
    const double write = of_both(&of->owner.write, &of->partner.write);
    const double record = of_both(&of->owner.record, &of->partner.record);
    const double whole = of_both(&of->owner.whole_wait, &of->partner.whole_wait) +
                         of_both(&of->owner.whole_write, &of->partner.whole_write);
    bench_result found = result_make(pair, row->name, NULL, "us");
    double sum = 0;
    for (size_t i = 0; i < sizeof(mine) / sizeof(*mine); i++) {
        const double median = samples_figure(mine[i]).median;
        sum += median;
        result_note(&found, notes[i], median);
    }
    result_check_most(&found, "the four calls / the driver's calls that they make",
                      compare_rounds(of, rounds), row->target);
    result_note(&found, "the four calls / the driver's calls, of all rounds together", sum / whole);
    result_note(&found, "the four calls / two waits, two writes, and an event behind each",
                sum / (wait + write + 2 * record));
    result_note(&found, "the four calls / two waits and two writes", sum / (wait + write));
    result_note(&found, "a wait by hand, us", wait / 2);
    result_note(&found, "a write by hand, us", write / 2);
    result_note(&found, "an event by hand, us", record / 2);
    result_note(&found, "a question, a word and an event by hand, us", whole / 4);
    result_note(
        &found, "the partner's words by hand / the owner's",
        (samples_figure(&of->partner.wait).median + samples_figure(&of->partner.write).median) /
            (samples_figure(&of->owner.wait).median + samples_figure(&of->owner.write).median));
    report(&found);
}

static void clear_calls(calls *of) {
    samples *const all[] = {&of->loan,
                            &of->publish,
                            &of->take,
                            &of->give_back,
                            &of->owner.wait,
                            &of->owner.write,
                            &of->owner.record,
                            &of->owner.whole_wait,
                            &of->owner.whole_write,
                            &of->partner.wait,
                            &of->partner.write,
                            &of->partner.record,
                            &of->partner.whole_wait,
                            &of->partner.whole_write};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        samples_clear(all[i]);
    }
}

void row_channel_calls(bench_pair *pair, const bench_row *row) {
    calls of = {.loan = {NULL, 0, 0}};
    lanes all;
    CUevent events[LANE_CALLS];
    const uint32_t rounds = pair_rounds(pair, ROUNDS);
    lanes_begin(&all, pair, pair_device(pair, row->is_peer));
    lanes_subscribe(&all, lanes_add(&all, LANE_CALLS, SLOT_BYTES), LANE_CALLS);
    pair_tell(pair->partner, "calls_begin");
    pair_hear_ready(pair->partner);
    lane_events_begin(events);
    take_calls(&all, NULL);
    for (uint32_t i = 0; i < rounds; i++) {
        take_calls(&all, &of);
        take_calls_by_hand(&all, events, &of);
    }
    lane_events_end(events);
    pair_tell(pair->partner, "calls_end");
    pair_hear_ready(pair->partner);
    lanes_end(&all);
    report_calls(pair, row, &of, rounds);
    clear_calls(&of);
}

/* ---- contents ---------------------------------------------------------------------------------- */

static void publish_frames(const lanes *all, uint64_t bytes, uint32_t count, uint32_t value) {
    for (uint32_t i = 0; i < count; i++) {
        gpuipc_frame frame = GPUIPC_FRAME_INIT;
        bench_check(gpuipc_channel_loan(all->all[0].channel, all->stream, PATIENCE_MS, &frame),
                    "gpuipc_channel_loan");
        bench_check_cuda(bench_driver.cuMemsetD32Async(frame.address, value + i,
                                                       (size_t)(bytes / sizeof(value)),
                                                       all->stream),
                         "filling");
        bench_check(gpuipc_channel_publish(all->all[0].channel, &frame, all->stream),
                    "gpuipc_channel_publish");
    }
}

/* Through the channel, or the copies alone. @return GB/s */
static double take_contents(const lanes *all, uint64_t bytes, uint32_t count, uint32_t value,
                            bool is_alone) {
    uint64_t took = 0;
    if (is_alone) {
        pair_tell(all->pair->partner, "copies %u %llu %u", (unsigned)count,
                  (unsigned long long)bytes, DEEP);
    } else {
        pair_tell(all->pair->partner, "frames %u %llu %u", (unsigned)count,
                  (unsigned long long)bytes, (unsigned)value);
    }
    pair_hear_ready(all->pair->partner);
    publish_frames(all, bytes, is_alone ? 1 : count, value);
    pair_hear(all->pair->partner, &took, 1);
    return (double)bytes * (count - 1) / (double)took;
}

void row_channel_frames(bench_pair *pair, const bench_row *row) {
    samples channel = {NULL, 0, 0};
    samples alone = {NULL, 0, 0};
    lanes all;
    const uint64_t bytes = pair_bytes(pair, row->bytes);
    const uint32_t rounds = pair_rounds(pair, ROUNDS);
    const uint32_t count = pair->is_quick ? 4 : FRAMES;
    if (row->is_peer && pair->owner == pair->opener) {
        report_refusal(pair, row->name, needs_two);
        return;
    }
    lanes_begin(&all, pair, pair_device(pair, row->is_peer));
    lanes_subscribe(&all, lanes_add(&all, DEEP, bytes), 2);
    (void)take_contents(&all, bytes, count, 1, false);
    for (uint32_t i = 0; i < rounds; i++) {
        samples_add(&alone, take_contents(&all, bytes, count, i, true));
        samples_add(&channel, take_contents(&all, bytes, count, i, false));
    }
    lanes_end(&all);
    bench_result found = result_make(pair, row->name, NULL, "GB/s");
    found.bytes = bytes;
    found.gpuipc = samples_figure(&channel);
    found.floor = samples_figure(&alone);
    result_check_least(&found, "frames / the copies alone",
                       found.gpuipc.median / found.floor.median, row->target);
    report(&found);
    samples_clear(&channel);
    samples_clear(&alone);
}

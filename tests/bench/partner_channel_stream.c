/* SPDX-License-Identifier: MIT */
/** @file See lane.h: what the partner does on its stream, with the readers that it has. */
#include "lane.h"

#include "helper.h"

/* The channel back to the owner, as long as it is wanted. */
static struct {
    gpuipc_server *server;
    gpuipc_buffer *slots;
    gpuipc_channel *channel;
} back;

static CUstream begin_stream(uint32_t device) {
    CUstream made;
    bench_enter((int)device);
    bench_check_cuda(bench_driver.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), "a stream");
    return made;
}

/* All that it was given is done. */
static void end_stream(CUstream stream) {
    bench_check_cuda(bench_driver.cuStreamSynchronize(stream), "waiting");
    bench_check_cuda(bench_driver.cuStreamDestroy(stream), "a stream");
}

static void take(const lane_reader *from, CUstream stream, gpuipc_frame *out_frame) {
    *out_frame = (gpuipc_frame)GPUIPC_FRAME_INIT;
    bench_check(gpuipc_subscription_take(from->subscription, stream, PATIENCE_MS, out_frame),
                "gpuipc_subscription_take");
}

static void give_back(const lane_reader *from, CUstream stream, const gpuipc_frame *frame) {
    bench_check(gpuipc_subscription_give_back(from->subscription, frame, stream),
                "gpuipc_subscription_give_back");
}

/* ---- hops -------------------------------------------------------------------------------------- */

/* channel_back SLOTS: makes a channel of its own; answers the ticket's text. SLOTS 0: ends it */
void partner_channel_back(partner *self, const partner_words *words) {
    const uint32_t slots = (uint32_t)partner_number(words, 0);
    const gpuipc_buffer_config memory = {.struct_size = sizeof(memory),
                                         .device = GPUIPC_DEVICE(lane_here.readers[0].device),
                                         .bytes = slots * UINT64_C(4096)};
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_ticket ticket;
    if (slots == 0) {
        bench_check(gpuipc_channel_destroy(back.channel), "gpuipc_channel_destroy");
        bench_check(gpuipc_buffer_release(back.slots), "releasing");
        bench_check(gpuipc_server_destroy(back.server), "gpuipc_server_destroy");
        helper_say("ready");
        return;
    }
    bench_check(gpuipc_server_create(self->context, NULL, &back.server), "gpuipc_server_create");
    bench_check(gpuipc_buffer_create(self->context, &memory, &back.slots), "memory");
    const gpuipc_channel_config config = {
        .struct_size = sizeof(config), .buffer = back.slots, .slots = slots, .slot_bytes = 4096};
    bench_check(gpuipc_channel_create(back.server, &config, &back.channel, &ticket),
                "gpuipc_channel_create");
    bench_check(gpuipc_ticket_to_text(&ticket, text), "gpuipc_ticket_to_text");
    helper_say("%s", text);
}

/* hops COUNT: answers each frame with one of its own, in the order of its stream */
void partner_hops(partner *self, const partner_words *words) {
    const uint64_t count = partner_number(words, 0);
    const lane_reader *from = &lane_here.readers[0];
    const lane to = {.channel = back.channel};
    CUstream stream = begin_stream(from->device);
    (void)self;
    helper_say("ready");
    for (uint64_t i = 0; i < count; i++) {
        gpuipc_frame frame;
        take(from, stream, &frame);
        give_back(from, stream, &frame);
        lane_publish(&to, stream);
    }
    end_stream(stream);
    helper_say("ready");
}

/* hops_by_hand FIRST COUNT DEVICE GIVES_BACK */
void partner_hops_by_hand(partner *self, const partner_words *words) {
    const uint64_t first = partner_number(words, 0);
    const uint64_t count = partner_number(words, 1);
    const bool gives_back = partner_number(words, 3) != 0;
    CUstream stream = begin_stream((uint32_t)partner_number(words, 2));
    (void)self;
    for (uint64_t i = first; i < first + count; i++) {
        board_wait_async(&lane_here.board, stream, BOARD_TURN, i);
        if (gives_back) {
            board_write_async(&lane_here.board, stream, BOARD_PARTNER_RETURNS, i);
        }
        board_write_async(&lane_here.board, stream, BOARD_ANSWER, i);
    }
    helper_say("ready");
    end_stream(stream);
    helper_say("ready");
}

/* ---- the host's time in calls ------------------------------------------------------------------ */

/* As programs do, it is the same one all the time. */
static CUstream calls_stream;
static CUevent calls_events[LANE_CALLS];

/* calls_begin; and calls_end */
void partner_calls_begin(partner *self, const partner_words *words) {
    (void)self;
    (void)words;
    calls_stream = begin_stream(lane_here.readers[0].device);
    lane_events_begin(calls_events);
    helper_say("ready");
}

void partner_calls_end(partner *self, const partner_words *words) {
    (void)self;
    (void)words;
    lane_events_end(calls_events);
    end_stream(calls_stream);
    helper_say("ready");
}

/* calls_by_hand GATE: the same words without a channel, behind the gate, when it is this end's turn. What they took is in
 * the samples. */
void partner_calls_by_hand(partner *self, const partner_words *words) {
    const uint64_t gate = partner_number(words, 0);
    const board *at = &lane_here.board;
    uint64_t took[LANE_CALLS_KINDS * LANE_CALLS];
    (void)self;
    bench_enter((int)lane_here.readers[0].device);
    board_wait_async(at, calls_stream, BOARD_GATE, gate);
    helper_say("ready");
    board_await(at, BOARD_TURN, 1);
    lane_time_calls(at, calls_stream, calls_events, gate, BOARD_PARTNER_RETURNS, took);
    for (uint32_t i = 0; i < LANE_CALLS_KINDS * LANE_CALLS; i++) {
        board_set(at, BOARD_SAMPLES + i, took[i]);
    }
    board_set(at, BOARD_ANSWER, 1);
    bench_check_cuda(bench_driver.cuStreamSynchronize(calls_stream), "waiting");
    helper_say("ready");
}

/* calls COUNT GATE: gives back so many frames behind the gate; and when the owner has published them again behind those,
 * takes them. What taking needs of the host's time is in samples 0 to COUNT - 1, giving back behind them. (What was given
 * back behind the gate cannot be given back once more before it opens.) */
void partner_calls(partner *self, const partner_words *words) {
    const uint32_t count = (uint32_t)partner_number(words, 0);
    const uint64_t gate = partner_number(words, 1);
    const lane_reader *from = &lane_here.readers[0];
    const board *at = &lane_here.board;
    gpuipc_frame frames[GPUIPC_CHANNEL_SLOTS_MAX];
    CUstream stream = calls_stream;
    (void)self;
    bench_enter((int)from->device);
    board_wait_async(at, stream, BOARD_GATE, gate);
    helper_say("ready");
    board_await(at, BOARD_TURN, 1);
    for (uint32_t i = 0; i < count; i++) {
        take(from, stream, &frames[0]);
        const uint64_t begin_ns = os_clock_ns();
        give_back(from, stream, &frames[0]);
        board_set(at, BOARD_SAMPLES + count + i, os_clock_ns() - begin_ns);
    }
    board_set(at, BOARD_ANSWER, 1);
    board_await(at, BOARD_TURN, 2);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t begin_ns = os_clock_ns();
        take(from, stream, &frames[i]);
        board_set(at, BOARD_SAMPLES + i, os_clock_ns() - begin_ns);
    }
    board_set(at, BOARD_ANSWER, 2);
    board_await(at, BOARD_GATE, gate);
    for (uint32_t i = 0; i < count; i++) {
        give_back(from, stream, &frames[i]);
    }
    bench_check_cuda(bench_driver.cuStreamSynchronize(stream), "waiting");
    helper_say("ready");
}

/* ---- contents ---------------------------------------------------------------------------------- */

/* Three streams: one that takes, one that copies, and one that gives back. So the one that copies does nothing else, and what
 * words take is hidden. Events lead from one to the next. */
typedef struct copier {
    CUstream takes;
    CUstream copies;
    CUstream gives;
    CUevent came;
    CUevent copied;
    CUdeviceptr own;
    uint64_t bytes;
} copier;

static copier begin_copies(uint32_t device, uint64_t bytes) {
    copier made = {.takes = begin_stream(device),
                   .copies = begin_stream(device),
                   .gives = begin_stream(device),
                   .bytes = bytes};
    bench_check_cuda(bench_driver.cuEventCreate(&made.came, CU_EVENT_DISABLE_TIMING), "an event");
    bench_check_cuda(bench_driver.cuEventCreate(&made.copied, CU_EVENT_DISABLE_TIMING), "an event");
    bench_check_cuda(bench_driver.cuMemAlloc(&made.own, (size_t)bytes), "memory");
    return made;
}

static void end_copies(const copier *self) {
    end_stream(self->takes);
    end_stream(self->copies);
    end_stream(self->gives);
    bench_check_cuda(bench_driver.cuEventDestroy(self->came), "an event");
    bench_check_cuda(bench_driver.cuEventDestroy(self->copied), "an event");
    bench_check_cuda(bench_driver.cuMemFree(self->own), "memory");
}

/* What the later stream is given next comes behind what the earlier one has. */
static void lead(CUstream earlier, CUevent by, CUstream later) {
    bench_check_cuda(bench_driver.cuEventRecord(by, earlier), "an event");
    bench_check_cuda(bench_driver.cuStreamWaitEvent(later, by, 0), "an event");
}

static void copy(const copier *self, CUdeviceptr from) {
    bench_check_cuda(bench_driver.cuMemcpyAsync(self->own, from, (size_t)self->bytes, self->copies),
                     "copying");
}

static void await_copies(const copier *self) {
    bench_check_cuda(bench_driver.cuStreamSynchronize(self->copies), "waiting");
}

/* frames COUNT BYTES FIRST: copies each frame, in the order of streams; the first is full of FIRST. Answers
 * nanoseconds from the second to the last */
void partner_frames(partner *self, const partner_words *words) {
    const uint64_t count = partner_number(words, 0);
    const uint64_t first = partner_number(words, 2);
    const lane_reader *from = &lane_here.readers[0];
    const copier by = begin_copies(from->device, partner_number(words, 1));
    uint64_t begin_ns = 0;
    (void)self;
    helper_say("ready");
    for (uint64_t i = 0; i < count; i++) {
        gpuipc_frame frame;
        take(from, by.takes, &frame);
        lead(by.takes, by.came, by.copies);
        copy(&by, frame.address);
        lead(by.copies, by.copied, by.gives);
        give_back(from, by.gives, &frame);
        if (i == 0) {
            await_copies(&by);
            begin_ns = os_clock_ns();
        }
    }
    await_copies(&by);
    const uint64_t took = os_clock_ns() - begin_ns;
    partner_verify(by.own, by.bytes, (uint32_t)(first + count - 1), from->device);
    end_copies(&by);
    helper_say("%llu", (unsigned long long)took);
}

/* copies COUNT BYTES SLOTS: copies that alone, out of the slots in turn; the owner has published a frame, of which it knows
 * where they are. Answers nanoseconds, likewise */
void partner_copies(partner *self, const partner_words *words) {
    const uint64_t count = partner_number(words, 0);
    const uint64_t slots = partner_number(words, 2);
    const lane_reader *from = &lane_here.readers[0];
    const copier by = begin_copies(from->device, partner_number(words, 1));
    uint64_t begin_ns = 0;
    gpuipc_buffer *memory = NULL;
    uint64_t offset;
    gpuipc_frame frame;
    helper_say("ready");
    take(from, by.copies, &frame);
    bench_check(gpuipc_buffer_find(self->context, frame.address, &memory, &offset),
                "gpuipc_buffer_find");
    for (uint64_t i = 0; i < count; i++) {
        copy(&by, gpuipc_buffer_address(memory) + i % slots * by.bytes);
        if (i == 0) {
            await_copies(&by);
            begin_ns = os_clock_ns();
        }
    }
    await_copies(&by);
    const uint64_t took = os_clock_ns() - begin_ns;
    give_back(from, by.copies, &frame);
    bench_check(gpuipc_buffer_release(memory), "releasing");
    end_copies(&by);
    helper_say("%llu", (unsigned long long)took);
}

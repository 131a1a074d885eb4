/* SPDX-License-Identifier: MIT */
/** @file See lane.h: the owner's side. */
#include "lane.h"

#include "courier.h"

/* Stamps of a block that do not count. */
#define WARM_UP 16u
/* Until the partner looks again. */
#define LOOK_NS UINT64_C(4000)
/* Until it sleeps: it looks for 50 us before. */
#define SLEEP_MS 1u

void lanes_begin(lanes *self, bench_pair *pair, uint32_t device) {
    *self = (lanes){.pair = pair, .device = device};
    bench_check(gpuipc_server_create(pair->context, NULL, &self->server), "gpuipc_server_create");
    board_begin(&self->board, pair, device);
    bench_enter((int)pair->owner);
    bench_check_cuda(bench_driver.cuStreamCreate(&self->stream, CU_STREAM_NON_BLOCKING),
                     "a stream");
}

void lanes_end(lanes *self) {
    lanes_unsubscribe(self);
    bench_check_cuda(bench_driver.cuStreamSynchronize(self->stream), "waiting");
    for (size_t i = 0; i < self->count; i++) {
        bench_check(gpuipc_channel_destroy(self->all[i].channel), "gpuipc_channel_destroy");
        bench_check(gpuipc_buffer_release(self->all[i].slots), "releasing");
    }
    bench_check_cuda(bench_driver.cuStreamDestroy(self->stream), "a stream");
    board_end(&self->board, self->pair);
    bench_check(gpuipc_server_destroy(self->server), "gpuipc_server_destroy");
}

lane *lanes_add(lanes *self, uint32_t slots, uint64_t slot_bytes) {
    lane *made = &self->all[self->count++];
    gpuipc_ticket ticket;
    made->slots = pair_buffer(self->pair, slots * slot_bytes, self->device, 0);
    const gpuipc_channel_config config = {.struct_size = sizeof(config),
                                          .buffer = made->slots,
                                          .slots = slots,
                                          .slot_bytes = slot_bytes,
                                          .header_bytes = sizeof(lane_stamp),
                                          .max_held = slots};
    bench_check(gpuipc_channel_create(self->server, &config, &made->channel, &ticket),
                "gpuipc_channel_create");
    bench_check(gpuipc_ticket_to_text(&ticket, made->text), "gpuipc_ticket_to_text");
    return made;
}

void lanes_subscribe(lanes *self, const lane *of, uint32_t held) {
    pair_tell(self->pair->partner, "subscribe %s %u %u", of->text, (unsigned)self->device,
              (unsigned)held);
    pair_hear_ready(self->pair->partner);
}

void lanes_unsubscribe(lanes *self) {
    pair_tell(self->pair->partner, "unsubscribe");
    pair_hear_ready(self->pair->partner);
}

static void publish(const lane *self, gpuipc_stream stream, const lane_stamp *stamp) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    bench_check(gpuipc_channel_loan(self->channel, stream, PATIENCE_MS, &frame),
                "gpuipc_channel_loan");
    frame.header = stamp;
    frame.header_bytes = stamp == NULL ? 0 : sizeof(*stamp);
    bench_check(gpuipc_channel_publish(self->channel, &frame, stream), "gpuipc_channel_publish");
}

void lane_events_begin(CUevent events[LANE_CALLS]) {
    for (uint32_t i = 0; i < LANE_CALLS; i++) {
        bench_check_cuda(bench_driver.cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING),
                         "an event");
    }
}

void lane_events_end(const CUevent events[LANE_CALLS]) {
    for (uint32_t i = 0; i < LANE_CALLS; i++) {
        bench_check_cuda(bench_driver.cuEventDestroy(events[i]), "an event");
    }
}

static void ask(CUstream stream) {
    CUstreamCaptureStatus capture;
    unsigned long long id = 0;
    CUcontext current;
    bench_check_cuda(bench_driver.cuStreamIsCapturing(stream, &capture), "asking a stream");
    if (bench_driver.has_streamid) {
        bench_check_cuda(bench_driver.cuStreamGetId(stream, &id), "asking a stream");
    }
    bench_check_cuda(bench_driver.cuCtxGetCurrent(&current), "asking for the CUDA context");
}

/* Each span has one look at the clock in it, as those of the channel's calls have. */
void lane_time_calls(const board *at, CUstream stream, const CUevent events[LANE_CALLS],
                     uint64_t gate, uint32_t word, uint64_t *out_ns) {
    uint64_t now_ns = os_clock_ns();
    for (uint32_t i = 0; i < LANE_CALLS; i++) {
        for (uint32_t kind = 0; kind < LANE_CALLS_KINDS; kind++) {
            const uint64_t begin_ns = now_ns;
            const bool is_whole = kind > 2;
            if (is_whole) {
                ask(stream);
            }
            if (kind == 0 || kind == 3) {
                board_wait_async(at, stream, BOARD_GATE, gate);
            } else if (kind != 2) {
                board_write_async(at, stream, word, i);
            }
            if (kind == 2 || is_whole) {
                bench_check_cuda(bench_driver.cuEventRecord(events[i], stream), "an event");
            }
            now_ns = os_clock_ns();
            out_ns[kind * LANE_CALLS + i] = now_ns - begin_ns;
        }
    }
}

void lane_publish(const lane *self, gpuipc_stream stream) {
    publish(self, stream, NULL);
}

/* The loan is made before: what is measured is from the call of publish until take has returned. */
static void publish_stamp(const lane *self) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    lane_stamp stamp;
    bench_check(gpuipc_channel_loan(self->channel, GPUIPC_NO_STREAM, PATIENCE_MS, &frame),
                "gpuipc_channel_loan");
    frame.header = &stamp;
    frame.header_bytes = sizeof(stamp);
    stamp.begin_ns = os_clock_ns();
    bench_check(gpuipc_channel_publish(self->channel, &frame, GPUIPC_NO_STREAM),
                "gpuipc_channel_publish");
}

static void ring(const board *at) {
    board_set(at, BOARD_TURN, os_clock_ns());
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load(&at->words[BOARD_SLEEPS]) == 1) {
        atomic_store(&at->words[BOARD_SLEEPS], 0);
        os_bell_ring(&at->bell, &at->words[BOARD_SLEEPS]);
    }
}

static void send_stamp(gpuipc_connection *connection) {
    const lane_stamp stamp = {os_clock_ns()};
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .bytes = &stamp, .bytes_size = sizeof(stamp)};
    bench_check(gpuipc_connection_send(connection, &message, PATIENCE_MS), "sending");
}

static void send_one(lanes *self, lane_way way, uint32_t reader) {
    switch (way) {
    case LANE_CHANNEL:
        publish_stamp(&self->all[reader]);
        break;
    case LANE_WORD:
        board_set(&self->board, BOARD_TURN, os_clock_ns());
        break;
    case LANE_BELL:
        ring(&self->board);
        break;
    case LANE_MESSAGE:
        send_stamp(self->pair->connection);
        break;
    default:
        courier_say(self->pair->courier, os_clock_ns());
    }
}

void lanes_stamp(lanes *self, lane_way way, uint32_t reader, uint32_t count, bool sleeps,
                 samples *out_us) {
    const board *at = &self->board;
    const uint32_t all = count + WARM_UP;
    if (all > BOARD_SAMPLES_MAX) {
        bench_fail("there is no room for %u samples", (unsigned)count);
    }
    board_set(at, BOARD_ANSWER, 0);
    pair_tell(self->pair->partner, "stamps %d %u %u", (int)way, (unsigned)reader, (unsigned)all);
    pair_hear_ready(self->pair->partner);
    for (uint32_t i = 0; i < all; i++) {
        board_await(at, BOARD_ANSWER, i);
        if (sleeps) {
            os_sleep_ms(SLEEP_MS);
        }
        const uint64_t seen_ns = os_clock_ns();
        while (os_clock_ns() - seen_ns < LOOK_NS) {
        }
        send_one(self, way, reader);
    }
    pair_hear_ready(self->pair->partner);
    for (uint32_t i = WARM_UP; i < all; i++) {
        samples_add(out_us, (double)at->words[BOARD_SAMPLES + i] / 1000);
    }
}

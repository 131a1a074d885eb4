/* SPDX-License-Identifier: MIT */
/** @file See lane.h: what the partner does on the host. */
#include "lane.h"

#include <string.h>

#include "courier.h"
#include "helper.h"

/* A sleeper looks again after that, in case something is wrong. */
#define BELL_MS 1000u

lane_partner lane_here;

/* board DEVICE NAME: the memory comes over the connection */
void partner_board(partner *self, const partner_words *words) {
    const uint32_t device = (uint32_t)partner_number(words, 0);
    gpuipc_buffer *buffer = partner_receive_one(self->connection, device);
    board_take(&lane_here.board, buffer, device, words->word[1]);
    helper_say("ready");
}

void partner_board_end(partner *self, const partner_words *words) {
    (void)self;
    (void)words;
    board_release(&lane_here.board);
    helper_say("ready");
}

/* subscribe TICKET DEVICE HELD */
void partner_subscribe(partner *self, const partner_words *words) {
    lane_reader *made = &lane_here.readers[lane_here.count++];
    gpuipc_ticket ticket;
    made->device = (uint32_t)partner_number(words, 1);
    const gpuipc_subscription_config config = {.struct_size = sizeof(config),
                                               .device = GPUIPC_DEVICE(made->device),
                                               .max_held = (uint32_t)partner_number(words, 2)};
    bench_check(gpuipc_ticket_from_text(words->word[0], &ticket), "gpuipc_ticket_from_text");
    bench_check(gpuipc_subscription_open(self->context, &ticket, &config, &made->subscription),
                "gpuipc_subscription_open");
    helper_say("ready");
}

void partner_unsubscribe(partner *self, const partner_words *words) {
    (void)self;
    (void)words;
    while (lane_here.count > 0) {
        bench_check(gpuipc_subscription_close(lane_here.readers[--lane_here.count].subscription),
                    "gpuipc_subscription_close");
    }
    helper_say("ready");
}

/* ---- time stamps ------------------------------------------------------------------------------- */

static void take(const lane_reader *from, gpuipc_frame *out_frame) {
    *out_frame = (gpuipc_frame)GPUIPC_FRAME_INIT;
    bench_check(
        gpuipc_subscription_take(from->subscription, GPUIPC_NO_STREAM, PATIENCE_MS, out_frame),
        "gpuipc_subscription_take");
}

static void give_back(const lane_reader *from, const gpuipc_frame *frame) {
    bench_check(gpuipc_subscription_give_back(from->subscription, frame, GPUIPC_NO_STREAM),
                "gpuipc_subscription_give_back");
}

static uint64_t by_channel(const lane_reader *from) {
    gpuipc_frame frame;
    lane_stamp stamp;
    take(from, &frame);
    const uint64_t end_ns = os_clock_ns();
    if (frame.header_bytes != sizeof(stamp) || frame.missed != 0) {
        bench_fail("a frame without its stamp, or behind %llu that were missed",
                   (unsigned long long)frame.missed);
    }
    memcpy(&stamp, frame.header, sizeof(stamp));
    give_back(from, &frame);
    return end_ns - stamp.begin_ns;
}

static uint64_t by_word(const board *at, uint64_t *last) {
    uint64_t begin_ns;
    do {
        begin_ns = atomic_load_explicit(&at->words[BOARD_TURN], memory_order_acquire);
    } while (begin_ns == *last);
    *last = begin_ns;
    return os_clock_ns() - begin_ns;
}

static uint64_t by_bell(const board *at, uint64_t *last) {
    uint64_t begin_ns;
    while ((begin_ns = atomic_load(&at->words[BOARD_TURN])) == *last) {
        atomic_store(&at->words[BOARD_SLEEPS], 1);
        if (atomic_load(&at->words[BOARD_TURN]) == *last) {
            os_bell_wait(&at->bell, &at->words[BOARD_SLEEPS], BELL_MS);
        }
    }
    *last = begin_ns;
    return os_clock_ns() - begin_ns;
}

static uint64_t by_message(gpuipc_connection *connection) {
    lane_stamp stamp = {0};
    gpuipc_incoming message = {
        .struct_size = sizeof(message), .bytes = &stamp, .bytes_capacity = sizeof(stamp)};
    bench_check(gpuipc_connection_receive(connection, &message, PATIENCE_MS), "receiving");
    return os_clock_ns() - stamp.begin_ns;
}

static uint64_t by_socket(courier *socket) {
    const uint64_t begin_ns = courier_hear(socket);
    return os_clock_ns() - begin_ns;
}

/* stamps WAY READER COUNT: nanoseconds of each go onto the board */
void partner_stamps(partner *self, const partner_words *words) {
    const lane_way way = (lane_way)partner_number(words, 0);
    const lane_reader *from = &lane_here.readers[partner_number(words, 1)];
    const uint64_t count = partner_number(words, 2);
    const board *at = &lane_here.board;
    uint64_t last = atomic_load(&at->words[BOARD_TURN]);
    helper_say("ready");
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t took = way == LANE_CHANNEL   ? by_channel(from)
                              : way == LANE_WORD    ? by_word(at, &last)
                              : way == LANE_BELL    ? by_bell(at, &last)
                              : way == LANE_MESSAGE ? by_message(self->connection)
                                                    : by_socket(self->courier);
        board_set(at, BOARD_SAMPLES + (uint32_t)i, took);
        board_set(at, BOARD_ANSWER, i + 1);
    }
    helper_say("ready");
}

/* take_all COUNT: each reader takes each of so many frames and gives it back */
void partner_take_all(partner *self, const partner_words *words) {
    const uint64_t count = partner_number(words, 0);
    (void)self;
    helper_say("ready");
    for (uint64_t i = 0; i < count; i++) {
        for (size_t which = 0; which < lane_here.count; which++) {
            gpuipc_frame frame;
            take(&lane_here.readers[which], &frame);
            give_back(&lane_here.readers[which], &frame);
        }
        board_set(&lane_here.board, BOARD_ANSWER, i + 1);
    }
    helper_say("ready");
}

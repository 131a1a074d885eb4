/* SPDX-License-Identifier: MIT */
/** @file Channels from the owner to its partner, and what the partner does with them: partner_channel.c,
 *  partner_channel_stream.c. */
#ifndef GPUIPC_BENCH_LANE_H
#define GPUIPC_BENCH_LANE_H

#include "board.h"
#include "partner.h"
#include "samples.h"

/** The most channels that a row has at a time. */
#define LANES_MAX 8u

/** How a time stamp reaches the partner. */
typedef enum lane_way {
    LANE_CHANNEL,
    LANE_WORD,    /**< a word, which the partner looks at again and again */
    LANE_BELL,    /**< a word, at which the partner sleeps: a futex, on Windows an event */
    LANE_MESSAGE, /**< gpuipc's own */
    LANE_SOCKET,  /**< a Unix socket */
    LANE_WAYS
} lane_way;

/** In the header of each frame, or alone. */
typedef struct lane_stamp {
    uint64_t begin_ns;
} lane_stamp;

typedef struct lane {
    gpuipc_buffer *slots;
    gpuipc_channel *channel;
    char text[GPUIPC_TICKET_TEXT_SIZE];
} lane;

/** The owner's. */
typedef struct lanes {
    bench_pair *pair;
    gpuipc_server *server;
    board board;
    lane all[LANES_MAX];
    size_t count;
    uint32_t device; /**< the partner's */
    CUstream stream; /**< of the owner's device */
} lanes;

void lanes_begin(lanes *self, bench_pair *pair, uint32_t device);
void lanes_end(lanes *self);

/** Makes a channel. The partner has nothing of it yet. */
lane *lanes_add(lanes *self, uint32_t slots, uint64_t slot_bytes);
/** The partner opens it once more: the readers have one row of numbers, over all channels. */
void lanes_subscribe(lanes *self, const lane *of, uint32_t held);
/** The partner closes all that it reads. */
void lanes_unsubscribe(lanes *self);

/** A frame, at once. */
void lane_publish(const lane *self, gpuipc_stream stream);

/** Sends @p count stamps, each when the partner has the one before and has then had time to look, or to fall asleep, and
 *  adds what all but the first few took. @param reader which one, for ::LANE_CHANNEL; over the lane of that number */
void lanes_stamp(lanes *self, lane_way way, uint32_t reader, uint32_t count, bool sleeps,
                 samples *out_us);

/* ---- what calls take: either end's ------------------------------------------------------------- */

/** So many of each kind at a time. */
#define LANE_CALLS 16u
/** A wait, a write, an event; and each of the two words with an event behind it and what is asked of the stream before:
 *  whether it is being captured, its id, and the current CUDA context. */
#define LANE_CALLS_KINDS 5u

/** With the device's context current. */
void lane_events_begin(CUevent events[LANE_CALLS]);
void lane_events_end(const CUevent events[LANE_CALLS]);
/** What the words of a channel take of this process's time without one, on a stream that waits for the gate.
 *  @param word to be written  @param out_ns all of each kind after the other */
void lane_time_calls(const board *at, CUstream stream, const CUevent events[LANE_CALLS],
                     uint64_t gate, uint32_t word, uint64_t *out_ns);

/* ---- the partner's: partner_channel.c, partner_channel_stream.c ---------------------------------- */

/** What it has open. */
typedef struct lane_reader {
    gpuipc_subscription *subscription;
    uint32_t device;
} lane_reader;

typedef struct lane_partner {
    board board;
    lane_reader readers[GPUIPC_CHANNEL_READERS_MAX];
    size_t count;
} lane_partner;

extern lane_partner lane_here;

void partner_board(partner *self, const partner_words *words);
void partner_board_end(partner *self, const partner_words *words);
void partner_subscribe(partner *self, const partner_words *words);
void partner_unsubscribe(partner *self, const partner_words *words);
void partner_stamps(partner *self, const partner_words *words);
void partner_take_all(partner *self, const partner_words *words);
void partner_channel_back(partner *self, const partner_words *words);
void partner_hops(partner *self, const partner_words *words);
void partner_hops_by_hand(partner *self, const partner_words *words);
void partner_calls_begin(partner *self, const partner_words *words);
void partner_calls(partner *self, const partner_words *words);
void partner_calls_by_hand(partner *self, const partner_words *words);
void partner_calls_end(partner *self, const partner_words *words);
void partner_frames(partner *self, const partner_words *words);
void partner_copies(partner *self, const partner_words *words);

#endif

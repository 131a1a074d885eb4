/* SPDX-License-Identifier: MIT */
/**
 * @file The page that a channel's writer shares with one reader: docs/channels.md has the layout, and the order of words.
 * It is a page of points, so that streams can write its words and wait for them. Each word is read once and checked.
 */
#ifndef GPUIPC_CHANNEL_PAGE_H
#define GPUIPC_CHANNEL_PAGE_H

#include "base/compiler.h"
#include "sync/point.h"

#define CHANNEL_MAGIC UINT64_C(0x316c656e6e616863) /* "channel1" */
/** Of a channel of turns (turn.h), whose slot has but the two words. */
#define CHANNEL_TURNS_MAGIC UINT64_C(0x312020736e727574) /* "turns  1" */

/** Who waits looks for so long before it sleeps. */
#define CHANNEL_SPIN_NS UINT64_C(50000)
/** Who waits for a stream sleeps at most so long at a time: streams wake nobody. */
#define CHANNEL_PAUSE_US 1000u

/** The numbers of words. */
enum {
    CHANNEL_MAGIC_WORD = 0,
    CHANNEL_SLOTS = 1,
    CHANNEL_SLOT_BYTES = 2,
    CHANNEL_HEADER_BYTES = 3,
    CHANNEL_BEFORE = 4,          /**< number of the last frame that this reader does not get */
    CHANNEL_BEFORE_SEQUENCE = 5, /**< its sequence number */
    CHANNEL_READER_BELL = 8,     /**< two words: a name */
    CHANNEL_WRITER_BELL = 10,    /**< likewise */
    CHANNEL_END = 16,
    CHANNEL_TAIL = 24,
    CHANNEL_READER_SLEEPS = 32,
    CHANNEL_WRITER_SLEEPS = 40,
    CHANNEL_LEFT = 48, /**< 0, 1, or POINT_FAREWELL */
    CHANNEL_RING = 64,
    CHANNEL_ENTRIES = 128,
    CHANNEL_HEADERS = 2048
};
#define CHANNEL_RING_SIZE    64u
#define CHANNEL_ENTRY_WORDS  16u
#define CHANNEL_HEADER_WORDS 64u
/** Of an entry: */
enum {
    CHANNEL_STATE = 0,
    CHANNEL_SEQUENCE = 1,
    CHANNEL_USED = 2,
    CHANNEL_HEADER = 3,
    CHANNEL_READY = 4,
    CHANNEL_RETURNED = 8 /**< on a line of its own: the reader's */
};

/** What the end word says. */
enum {
    CHANNEL_IS_ON = 0,
    CHANNEL_HAS_ENDED = 1,
    CHANNEL_DROPPED = 2
};

/** What the state of a slot says, beside the frame's number. */
typedef enum channel_state {
    CHANNEL_OFFERED = 0,
    CHANNEL_TAKEN = 1,
    CHANNEL_GIVEN = 2, /**< the returned word says so by now, or when a stream comes to it */
    CHANNEL_WITHDRAWN = 3
} channel_state;

_Static_assert(CHANNEL_ENTRIES + GPUIPC_CHANNEL_SLOTS_MAX * CHANNEL_ENTRY_WORDS <= CHANNEL_HEADERS,
               "the entries fit");
/* Beyond, points have words that say something: point.h. */
_Static_assert(CHANNEL_HEADERS + GPUIPC_CHANNEL_SLOTS_MAX * CHANNEL_HEADER_WORDS <
                   POINT_WORDS_END - 2u,
               "the headers fit");
_Static_assert(CHANNEL_HEADER_WORDS * 8u == GPUIPC_FRAME_HEADER_MAX, "a header fits");
_Static_assert(CHANNEL_RING_SIZE >= GPUIPC_CHANNEL_SLOTS_MAX, "what waits is not overwritten");

static inline uint64_t channel_read(const point_page *page, uint32_t at) {
    return atomic_load_explicit(&page->words[at], memory_order_acquire);
}

static inline void channel_write(const point_page *page, uint32_t at, uint64_t value) {
    atomic_store_explicit(&page->words[at], value, memory_order_release);
}

/** The number of a word of a slot's entry. */
static inline uint32_t channel_entry(uint32_t slot, uint32_t word) {
    return CHANNEL_ENTRIES + slot * CHANNEL_ENTRY_WORDS + word;
}

/** What the ring and the tail say of a frame. */
static inline uint64_t channel_place(uint64_t number, uint32_t slot) {
    return number << 8 | slot;
}

static inline uint64_t channel_state_of(uint64_t number, channel_state state) {
    return number << 2 | (uint64_t)state;
}

static inline void channel_prefetch(const point_page *page, uint32_t at) {
    GPUIPC_PREFETCH((const void *)&page->words[at]);
}

/** Its entry comes by itself, at the first change of its state, and all that is read later would come after it. */
static inline void channel_prefetch_header(const point_page *page, uint32_t slot) {
    channel_prefetch(page, CHANNEL_HEADERS + slot * CHANNEL_HEADER_WORDS);
}

/** What the writer looks at of a slot that a reader has had. */
static inline void channel_prefetch_entry(const point_page *page, uint32_t slot) {
    channel_prefetch(page, channel_entry(slot, CHANNEL_STATE));
    channel_prefetch(page, channel_entry(slot, CHANNEL_RETURNED));
}

/** From one state to another: false when it is not in the first. */
static inline bool channel_change(const point_page *page, uint32_t slot, uint64_t number,
                                  channel_state from, channel_state to) {
    uint64_t now = channel_state_of(number, from);
    return atomic_compare_exchange_strong(&page->words[channel_entry(slot, CHANNEL_STATE)], &now,
                                          channel_state_of(number, to));
}

/** That a stream waits for, until the contents are there or the watch lets it go; and that the writer writes. */
static inline point_word channel_awaited_word(point_page *page, uint32_t slot, uint64_t number) {
    return (point_word){page, channel_entry(slot, CHANNEL_READY), number << 1};
}
static inline point_word channel_ready_word(point_page *page, uint32_t slot, uint64_t number) {
    return (point_word){page, channel_entry(slot, CHANNEL_READY), number << 1 | 1u};
}

static inline point_word channel_returned_word(point_page *page, uint32_t slot, uint64_t number) {
    return (point_word){page, channel_entry(slot, CHANNEL_RETURNED), number};
}

/** Between two looks of who waits for a stream: it begins with looking again and again, and sleeps for half of the time that
 *  has gone by. So it is late by half at most, and a stream that was behind by twice what is awaited is never without work. (On
 *  Windows a sleep takes a tick of the system.) A deadline may be passed by as much. */
static inline void channel_pause(uint64_t begun_ns) {
    const uint64_t waited_ns = os_clock_ns() - begun_ns;
    if (waited_ns > CHANNEL_SPIN_NS) {
        const uint64_t half_us = waited_ns / 2000u;
        os_sleep_us(half_us < CHANNEL_PAUSE_US ? (unsigned)half_us : CHANNEL_PAUSE_US);
    }
}

/** Behind news for the other side, which may be asleep, and a fence. */
static inline void channel_wake(const point_page *page, uint32_t at, const os_bell *bell) {
    if (atomic_load_explicit(&page->words[at], memory_order_relaxed) == 1) {
        atomic_store_explicit(&page->words[at], 0, memory_order_seq_cst);
        os_bell_ring(bell, &page->words[at]);
    }
}

/** About to sleep: who then finds no news may do so. */
static inline void channel_will_sleep(const point_page *page, uint32_t at) {
    atomic_store_explicit(&page->words[at], 1, memory_order_seq_cst);
    GPUIPC_FULL_FENCE();
}

#endif

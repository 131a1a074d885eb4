/* SPDX-License-Identifier: MIT */
/**
 * @file The page that a channel's writer shares with one reader: docs/channels.md has the layout, and the order of words.
 * It is a page of points, so that streams can write its words and wait for them. Each word is read once and checked.
 */
#ifndef GPUIPC_CHANNEL_PAGE_H
#define GPUIPC_CHANNEL_PAGE_H

#include "base/compiler.h"
#include "sync/point.h"

#define CHANNEL_MAGIC UINT64_C(0x326c656e6e616863) /* "channel2" */
/** Of a channel of turns (turn.h), whose slot has but the two words. */
#define CHANNEL_TURNS_MAGIC UINT64_C(0x322020736e727574) /* "turns  2" */

/** Who waits for a stream sleeps at most so long at a time: streams wake nobody. And as os_pause() sleeps for half of the time
 *  that has gone by, a stream that was behind by twice what is awaited is never without work. */
#define CHANNEL_PAUSE_MS 1u

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
    CHANNEL_ENTRIES = 128,
    CHANNEL_RING = 1152,
    CHANNEL_HAVING = 1664, /**< a word for each slot: what the reader has of it */
    CHANNEL_HEADERS = 2048
};
#define CHANNEL_RING_SIZE    64u
#define CHANNEL_OFFER_WORDS  8u
#define CHANNEL_ENTRY_WORDS  16u
#define CHANNEL_HEADER_WORDS 64u
/** Of an offer in the ring, which is one line of a processor's memory: who looks for a frame has all of it at once. */
enum {
    CHANNEL_PLACE = 0, /**< 0: it was withdrawn, or is being written */
    CHANNEL_SEQUENCE = 1,
    CHANNEL_USED = 2,
    CHANNEL_HEADER = 3,
    CHANNEL_WAS_READY = 4, /**< 1: the ready word need not be looked at */
    CHANNEL_BEGINS = 5     /**< the first words of the header, which mostly are all of it */
};
#define CHANNEL_BEGINS_WORDS 3u
/** Of a slot's entry: a line that the reader never writes, and one that the writer never does but to let go who waits. */
enum {
    CHANNEL_READY = 0,
    CHANNEL_RETURNED = 8
};

/** What the end word says. */
enum {
    CHANNEL_IS_ON = 0,
    CHANNEL_HAS_ENDED = 1,
    CHANNEL_DROPPED = 2
};

/** What a reader says of a frame that it was offered, beside the frame's number. */
typedef enum channel_having {
    CHANNEL_TAKEN = 1,
    CHANNEL_GIVEN = 2,   /**< the returned word says so by now, or when a stream comes to it */
    CHANNEL_DECLINED = 3 /**< it was withdrawn meanwhile */
} channel_having;

_Static_assert(CHANNEL_ENTRIES + GPUIPC_CHANNEL_SLOTS_MAX * CHANNEL_ENTRY_WORDS <= CHANNEL_RING,
               "the entries fit");
_Static_assert(CHANNEL_RING + CHANNEL_RING_SIZE * CHANNEL_OFFER_WORDS <= CHANNEL_HAVING,
               "the ring fits");
_Static_assert(CHANNEL_HAVING + GPUIPC_CHANNEL_SLOTS_MAX <= CHANNEL_HEADERS,
               "what readers say fits");
/* Beyond, points have words that say something: point.h. */
_Static_assert(CHANNEL_HEADERS + GPUIPC_CHANNEL_SLOTS_MAX * CHANNEL_HEADER_WORDS <
                   POINT_WORDS_END - 2u,
               "the headers fit");
_Static_assert(CHANNEL_BEGINS + CHANNEL_BEGINS_WORDS == CHANNEL_OFFER_WORDS, "an offer is full");
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

/** What an offer says first. */
static inline uint64_t channel_place(uint64_t number, uint32_t slot) {
    return number << 8 | slot;
}

static inline uint64_t channel_having_of(uint64_t number, channel_having having) {
    return number << 2 | (uint64_t)having;
}

/** The number of a word of a frame's offer. */
static inline uint32_t channel_offered_at(uint64_t number, uint32_t word) {
    return CHANNEL_RING + (uint32_t)(number % CHANNEL_RING_SIZE) * CHANNEL_OFFER_WORDS + word;
}

static inline void channel_prefetch(const point_page *page, uint32_t at) {
    GPUIPC_PREFETCH((const void *)&page->words[at]);
}

/** What is about to be written, and the other end may have looked at: while the driver is called, or with those of others. */
static inline void channel_prefetch_to_write(const point_page *page, uint32_t at) {
    GPUIPC_PREFETCH_WRITE((const void *)&page->words[at]);
}

/** The number of a word of a frame's header, behind those that are in its offer. */
static inline uint32_t channel_header_at(uint32_t slot, uint32_t word) {
    return CHANNEL_HEADERS + slot * CHANNEL_HEADER_WORDS + word - CHANNEL_BEGINS_WORDS;
}

/** What the writer looks at of a slot that a reader has had. @param can_wait a stream may: then what was said counts mostly */
static inline void channel_prefetch_returned(const point_page *page, uint32_t slot, bool can_wait) {
    channel_prefetch(page, channel_entry(slot, CHANNEL_RETURNED));
    if (can_wait) {
        channel_prefetch(page, CHANNEL_HAVING + slot);
    }
}

/** What a reader says that it does with a frame. */
static inline void channel_say(const point_page *page, uint32_t slot, uint64_t number,
                               channel_having having) {
    channel_write(page, CHANNEL_HAVING + slot, channel_having_of(number, having));
}

/** What was said, which its writer looks at only where the slot was not returned: so the reader mostly has that line for
 *  itself, and says it without waiting for another processor. */
static inline uint64_t channel_said(const point_page *page, uint32_t slot) {
    return channel_read(page, CHANNEL_HAVING + slot);
}

/** Whether it was that of this frame. */
static inline bool channel_says(const point_page *page, uint32_t slot, uint64_t number,
                                channel_having having) {
    return channel_said(page, slot) == channel_having_of(number, having);
}

/** Whether an offer still stands, behind what the reader said of it: of a withdrawal and that, one sees the other. */
bool channel_still_stands(const point_page *page, uint32_t slot, uint64_t number);
/** The reader does not find it any more. @return false when it has said something of it, so that what it says counts */
bool channel_withdraw(const point_page *page, uint32_t slot, uint64_t number);

/** What a slot's word says when the contents of a frame are there, and when there are none and will be none. */
static inline uint64_t channel_ready_value(uint64_t number) {
    return number << 1 | 1u;
}
static inline uint64_t channel_awaited_value(uint64_t number) {
    return number << 1;
}

/** That a stream waits for, until the contents are there or it is let go; and that the writer writes. */
static inline point_word channel_awaited_word(point_page *page, uint32_t slot, uint64_t number) {
    return (point_word){page, channel_entry(slot, CHANNEL_READY), channel_awaited_value(number)};
}
static inline point_word channel_ready_word(point_page *page, uint32_t slot, uint64_t number) {
    return (point_word){page, channel_entry(slot, CHANNEL_READY), channel_ready_value(number)};
}

static inline point_word channel_returned_word(point_page *page, uint32_t slot, uint64_t number) {
    return (point_word){page, channel_entry(slot, CHANNEL_RETURNED), number};
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

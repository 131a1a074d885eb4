/* SPDX-License-Identifier: MIT */
/**
 * @file What streams of a channel's writer wait for, in their order: of which readers, and behind which publication. Where those
 * streams are far behind the host, it says who keeps them (channel_slot.c).
 */
#ifndef GPUIPC_AWAITED_H
#define GPUIPC_AWAITED_H

#include <stdbool.h>
#include <stdint.h>

/** As many as streams may be behind, and those of the frames that the host has in hand. */
#define AWAITED_MAX 128u

/** A wait that was put on a stream. */
typedef struct awaited_wait {
    uint64_t number; /**< of the frame that was in the slot, and is to be returned */
    uint32_t slot;
    uint32_t readers;     /**< a bit for each that has not returned it */
    uint64_t behind;      /**< the number of the frame that was published last before it */
    uint32_t behind_slot; /**< its slot */
} awaited_wait;

/** A ring. All zero: nothing. */
typedef struct awaited_ring {
    uint32_t first;
    uint32_t count;
    uint64_t since_ns; /**< when somebody was first found to keep the first one; 0: nobody was */
    awaited_wait waits[AWAITED_MAX];
} awaited_ring;

typedef struct channel channel;

/** What have been returned meanwhile go first. Without room it is forgotten: then nobody is found for it. */
void awaited_add(channel *of, const awaited_wait *wait);
/** The reader ends: nobody waits for it any more. */
void awaited_forget(awaited_ring *self, uint32_t reader);
/** Who keeps a stream of the writer's waiting now: it has come to a wait, and they have not returned the frame. A reader that
 *  writes what it likes over its ready words is not found.
 *  @param out_since_ns since when the oldest of them has been seen to
 *  @return a bit for each reader; 0: it is the writer's own work */
uint32_t awaited_find(channel *of, uint64_t now_ns, uint64_t *out_since_ns);

#endif

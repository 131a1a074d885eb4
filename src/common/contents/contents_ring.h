/* SPDX-License-Identifier: MIT */
/**
 * @file One direction of a connection's way through pinned host memory: slots that the sender's device
 * writes and the receiver's reads, each on streams of their own, told by words how far the other is. The
 * pieces of all contents have one row of numbers, from 0; piece n lies in slot n % STAGING_SLOTS. What the
 * peer has written is a number to compare with: slots, sizes and numbers are this side's own.
 */
#ifndef GPUIPC_CONTENTS_RING_H
#define GPUIPC_CONTENTS_RING_H

#include "contents/contents_pace.h"
#include "copy/staging.h"
#include "sync/deferred.h"
#include "sync/import_record.h"
#include "sync/point.h"

#define CONTENTS_RING_BYTES (STAGING_SLOTS * STAGING_SLOT_BYTES)

struct context;

typedef struct contents_lane contents_lane;

typedef struct contents_ring {
    deferred deferred; /**< the first: streams may still use it although its connection is gone */
    struct context *context; /**< no reference: it ends with it at the latest */
    bool sends;
    point_page *words;   /**< a reference */
    void *slots;         /**< CONTENTS_RING_BYTES, shared with the peer */
    os_handle handle;    /**< of the slots, in the sender until it has been sent */
    quota_charge charge; /**< of the peer's process, for the slots that it sent */
    uint32_t
        device;    /**< in whose primary context the slots are registered; or GPUIPC_DEVICE_NONE */
    uint64_t next; /**< number of the next piece */
    contents_pace pace;    /**< of the lanes' streams: each piece counts */
    contents_lane **lanes; /**< one for each device of the context; NULL until used */
    contents_lane *last;   /**< whose streams have what came last */
} contents_ring;

/** Contents on their way, on this side. */
typedef struct contents_flow {
    CUdeviceptr address; /**< where the range is for the device */
    uint8_t *host;       /**< where it is for the host, if that is where it lies; else NULL */
    uint64_t bytes;
    gpuipc_stream stream;
    uint32_t device;
    import_record *lost;            /**< receiving: marked when the sender ends first */
    const atomic_bool *interrupted; /**< for waits on the host */
    os_deadline deadline;           /**< for waits on the host that streams could have done */
    CUevent left;                   /**< contents_ring_leave() */
} contents_flow;

/** Makes slots and words, for sending to a peer. */
gpuipc_status contents_ring_create(struct context *ctx, point_peer *peer, contents_ring **out_ring);
/** Of a peer's slots and words, for receiving. Takes over both, on success only. */
gpuipc_status contents_ring_open(struct context *ctx, void *slots, point_page *words,
                                 contents_ring **out_ring);
/** What is on its streams goes on. What a peer still sends into a ring that is opened goes nowhere.
 *  NULL does nothing. */
void contents_ring_destroy(contents_ring *self, bool forked);

/** The same for words whose slots have not come. */
void contents_words_destroy(point_page *words);

/** Makes what a device needs for it, so that little can fail later. */
gpuipc_status contents_ring_prepare(contents_ring *self, uint32_t device);

/** How many pieces a range has. */
uint64_t contents_piece_count(uint64_t bytes);

/** Waits on the host until contents find room on the lanes' streams, so far as they can before they have begun themselves: of a
 *  range of more than CONTENTS_PACE_MOST pieces the rest waits in contents_ring_put(). As contents_pace_await(). */
gpuipc_status contents_ring_await_room(const contents_ring *self, uint64_t bytes,
                                       const atomic_bool *interrupted, os_deadline deadline);

/** Marks the place of the caller's stream after which the contents go: all that can be wrong with the
 *  caller's wishes is found here, before the peer has heard of them. */
gpuipc_status contents_ring_leave(const contents_ring *self, contents_flow *flow);
/** It did not come to it. */
void contents_ring_stay(const contents_ring *self, const contents_flow *flow);

/**
 * Puts the next contents on streams, or takes them from the ring, in the order of the caller's stream.
 * Prepared for that device, and after contents_ring_leave(), whose mark it uses up. The numbers of their
 * pieces are used up, also by a failure: the peer's stream goes on then, and in a receiver they are lost.
 * ERR_TIMEOUT and ERR_RELEASED: of a large range, whose pieces did not pass in time.
 */
gpuipc_status contents_ring_put(contents_ring *self, const contents_flow *flow);

/** Receiving: drops the next contents. @p bytes as the sender says. The sender's stream goes on. */
void contents_ring_skip(contents_ring *self, uint64_t bytes);

/** Receiving: notes in a record the words that tell whether contents that end before piece @p end were given up by the
 *  sender. */
void contents_ring_note(const contents_ring *self, uint64_t end, import_record *of);

#endif

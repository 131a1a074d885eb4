/* SPDX-License-Identifier: MIT */
/** @file A reader's end of a channel. docs/channels.md */
#ifndef GPUIPC_SUBSCRIPTION_H
#define GPUIPC_SUBSCRIPTION_H

#include "channel/channel_page.h"
#include "memory/buffer.h"

/** What this reader has of a slot. */
typedef struct subscription_frame {
    bool is_taken;
    uint64_t take;    /**< the latest: part of a frame's id */
    uint64_t number;  /**< of the frame */
    point_word given; /**< the stream that gave the slot back last has come to that */
    gpuipc_frame public_part;
    uint64_t header[CHANNEL_HEADER_WORDS];
} subscription_frame;

typedef struct subscription {
    object object;
    context *context;
    gpuipc_buffer *handle; /**< of the slots, its own */
    buffer *buffer;        /**< behind it, a reference */
    point_page *page;      /**< a reference */
    os_bell reader_bell;
    os_bell writer_bell;
    gpuipc_delivery delivery;
    uint32_t max_held;
    uint32_t slots;
    uint64_t slot_bytes;
    uint32_t header_bytes;
    atomic_bool is_over; /**< closed, while a thread may be waiting in it */
    os_mutex taking; /**< held by the one thread that takes; guards the members to the next mutex */
    uint64_t number; /**< of the last frame that was taken, or found to be withdrawn */
    uint64_t sequence;  /**< of the last that was taken */
    bool has_pending;   /**< one was taken whose contents its taker did not await to the end */
    uint32_t pending;   /**< its slot */
    uint64_t looked_ns; /**< when it was last looked whether the writer lives */
    bool is_writer_gone;
    os_mutex mutex; /**< guards the rest; may be taken inside the other */
    uint64_t takes;
    uint32_t held;
    subscription_frame frames[GPUIPC_CHANNEL_SLOTS_MAX];
} subscription;

gpuipc_status subscription_acquire(gpuipc_subscription *handle, subscription **out_subscription);
/** The caller has closed it, or could not be given it: all is given back, and the writer learns of it. */
void subscription_end(subscription *self);

#endif

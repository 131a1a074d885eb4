/* SPDX-License-Identifier: MIT */
/** @file What point.c and point_stream.c share: the inside of a page. */
#ifndef GPUIPC_POINT_INTERNAL_H
#define GPUIPC_POINT_INTERNAL_H

#include "deferred.h"
#include "point.h"

/** "Passed" from the start. */
#define POINT_PASSED ((point_word){0, 0})

typedef struct point_slot {
    uint64_t value;       /**< given out last; 0: never */
    point_word passage;   /**< where its ready word is written */
    const point_page *of; /**< in the context's own page: whose words the stream touches */
} point_slot;

struct point_page {
    deferred deferred; /**< the first: nothing holds it but streams that may still touch it */
    atomic_uint references;
    struct context *context; /**< no reference: whoever holds a page holds the context */
    atomic_uint_least64_t *words;
    point_slot *slots;         /**< of an own one; else NULL */
    uint8_t *borrowed;         /**< of a peer's: whether each point is in use here; else NULL */
    uint32_t next;             /**< the slot to look at first */
    uint32_t spent;            /**< so many more slots were looked at than each taking may */
    os_handle handle;          /**< of an own one, until it has been sent */
    os_peer peer;              /**< with a process handle of its own */
    os_connection *connection; /**< NULL: it has come to its end */
    bool is_stranded;          /**< the peer has closed its end and never took the page in */
    bool is_gone;              /**< the peer is; found out once, for good */
    point_page *orphan_next;   /**< point_collect.c */
    point_page **orphan_link;  /**< NULL: in no list */
    uint32_t
        device; /**< in whose primary context the memory is registered; or GPUIPC_DEVICE_NONE */
};

/** The next free slot of an own page; the mutex is held. */
bool point_slot_take(point_page *self, bool (*is_free)(const point_page *self, uint32_t index),
                     uint32_t *out_index);

/** The page ends: it is no longer asked about. The mutex is held. */
void point_page_forget(point_page *self);

/** Undoes the registration with the driver, if there is one. */
void point_page_unregister(point_page *self);

#endif

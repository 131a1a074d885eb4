/* SPDX-License-Identifier: MIT */
/**
 * @file Two small things that a context keeps alive because their end costs the next hand-over dearly
 * (docs/measurements.md): one exported handle of memory, and for each pair of devices in use one mapping
 * of memory of the one for the other. Of memory made for the purpose, never a user's.
 */
#ifndef GPUIPC_KEEP_ALIVE_H
#define GPUIPC_KEEP_ALIVE_H

#include <gpuipc/gpuipc.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "memory/mapping.h"

struct context;

/** When to try: a time of os_clock_ns(). 0: it was never tried. UINT64_MAX: it is there, or can never be made. */
typedef atomic_uint_least64_t keep_alive_try;

/** One mapping of memory of its owner for another device. */
typedef struct keep_alive_peer {
    keep_alive_try next; /**< to make it */
    segment memory;
    mapping mapping;
} keep_alive_peer;

typedef struct keep_alive {
    os_mutex mutex; /**< of those who make one, and of those who wait for it */
    bool is_wanted;
    keep_alive_try next_export; /**< likewise */
    segment exported;           /**< with its handle, kept */
    atomic_bool has_peers;      /**< the next member is set, for good */
    keep_alive_peer *peers;     /**< owner * device_count + device */
} keep_alive;

extern const struct context_part keep_alive_part;

/** Before memory of virtual memory management is exported. Where it cannot be had, exports are only slower:
 *  the log says so, once, and the thread's error record is as before. Where memory or handles are short, it is
 *  tried again, but not within a second. */
void keep_alive_for_export(struct context *ctx, uint32_t device);

/** Before memory of @p owner is given to @p device. Likewise. An owner that this process does not see
 *  (GPUIPC_DEVICE_NONE) and the device itself need none. */
void keep_alive_for_peer(struct context *ctx, uint32_t owner, uint32_t device);

#endif

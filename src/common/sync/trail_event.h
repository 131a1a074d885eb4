/* SPDX-License-Identifier: MIT */
/**
 * @file The events of a trail (trail.h): each stands behind what a stream was given for a slot. They are made, kept by who
 * needs them, asked, and used again. Where none can be recorded, one that is a passage stands in its place.
 */
#ifndef GPUIPC_TRAIL_EVENT_H
#define GPUIPC_TRAIL_EVENT_H

#include <gpuipc/gpuipc.h>

#include "cuda/device.h"
#include "sync/passage.h"

typedef struct trail_event {
    list_link link;
    uint32_t device; /**< GPUIPC_DEVICE_NONE: it is no event, but what stands for one */
    CUevent event;
    point_word passage; /**< in its place, guarded by the mutex */
    unsigned
        keepers; /**< a turn, a mark, a milestone: without any it is parked. Guarded likewise */
    atomic_bool
        is_over; /**< its CUDA context was reset, or is dead, and it is never recorded again */
} trail_event;

/** Those of one trail. All zero but for the context is empty. */
typedef struct trail_events {
    struct context *context; /**< no reference */
    os_mutex mutex;          /**< guards the list, and who keeps what of it */
    linked_list all;         /**< until the end */
} trail_events;

/** Destroys them, so no lock is held unless there are none. */
void trail_events_end(trail_events *self, bool forked);
bool trail_events_are_none(trail_events *self);

/** One that is parked, or a new one; kept once. @param index of the device; GPUIPC_DEVICE_NONE: for a passage */
gpuipc_status trail_event_take(trail_events *self, uint32_t index, trail_event **out_event);
void trail_event_keep(trail_events *self, trail_event *event);
/** NULL does nothing. */
void trail_event_let_go(trail_events *self, trail_event *event);

/** Whether streams have come to it. False where the driver does not say. */
bool trail_event_has_come(trail_events *self, trail_event *event);

static inline bool trail_event_is_passage(const trail_event *event) {
    return event->device == GPUIPC_DEVICE_NONE;
}

point_word trail_event_passage(trail_events *self, const trail_event *event);
void trail_event_set_passage(trail_events *self, trail_event *event, const point_word *passage);

#endif

/* SPDX-License-Identifier: MIT */
/** @file See trail_event.h. */
#include "sync/trail_event.h"

#include <stdlib.h>

#include "cuda/context.h"
#include "cuda/device_event.h"
#include "sync/point.h"

void trail_events_end(trail_events *self, bool forked) {
    trail_event *event;
    while ((event = LIST_ITEM(list_take(&self->all), trail_event, link)) != NULL) {
        if (!forked && !trail_event_is_passage(event)) {
            /* Fails where its CUDA context is gone, and the event with it. */
            (void)self->context->driver.cuEventDestroy(event->event);
        }
        free(event);
    }
}

bool trail_events_are_none(trail_events *self) {
    os_mutex_lock(&self->mutex);
    const bool are_none = self->all.first == NULL;
    os_mutex_unlock(&self->mutex);
    return are_none;
}

/* ---- who keeps one ----------------------------------------------------------------------------- */

void trail_event_keep(trail_events *self, trail_event *event) {
    os_mutex_lock(&self->mutex);
    event->keepers++;
    os_mutex_unlock(&self->mutex);
}

void trail_event_let_go(trail_events *self, trail_event *event) {
    if (event != NULL) {
        os_mutex_lock(&self->mutex);
        event->keepers--;
        os_mutex_unlock(&self->mutex);
    }
}

GPUIPC_COLD static trail_event *take_parked(trail_events *self, uint32_t index) {
    os_mutex_lock(&self->mutex);
    trail_event *found = NULL;
    for (list_link *at = self->all.first; at != NULL && found == NULL; at = at->next) {
        trail_event *event = LIST_ITEM(at, trail_event, link);
        if (event->keepers == 0 && event->device == index && !atomic_load(&event->is_over)) {
            event->keepers = 1;
            found = event;
        }
    }
    os_mutex_unlock(&self->mutex);
    return found;
}

/* @param index of no device: for a passage */
GPUIPC_COLD static gpuipc_status make_event(trail_events *self, uint32_t index,
                                            trail_event **out_event) {
    trail_event *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return status_out_of_memory(sizeof(*made));
    }
    made->device = index;
    made->keepers = 1;
    gpuipc_status status =
        index == GPUIPC_DEVICE_NONE
            ? GPUIPC_OK
            : device_event_new(self->context, CU_EVENT_DISABLE_TIMING, &made->event, &made->device);
    if (status != GPUIPC_OK) {
        free(made);
        return status;
    }
    os_mutex_lock(&self->mutex);
    list_prepend(&self->all, &made->link);
    os_mutex_unlock(&self->mutex);
    *out_event = made;
    return GPUIPC_OK;
}

gpuipc_status trail_event_take(trail_events *self, uint32_t index, trail_event **out_event) {
    *out_event = take_parked(self, index);
    return *out_event != NULL ? GPUIPC_OK : make_event(self, index, out_event);
}

/* ---- asking ------------------------------------------------------------------------------------ */

point_word trail_event_passage(trail_events *self, const trail_event *event) {
    os_mutex_lock(&self->mutex);
    const point_word passage = event->passage;
    os_mutex_unlock(&self->mutex);
    return passage;
}

void trail_event_set_passage(trail_events *self, trail_event *event, const point_word *passage) {
    os_mutex_lock(&self->mutex);
    event->passage = *passage;
    os_mutex_unlock(&self->mutex);
}

/* What else the driver answers says that the CUDA context was reset or is dead, and nothing runs there (drop.c). */
static bool may_pass_later(CUresult result) {
    return result == CUDA_ERROR_NOT_READY || device_is_capture_error(result);
}

/* Relaxed: else it would end a capture of another thread's in global mode (measured on an H100, driver 580). */
static bool ask_event(const driver *drv, trail_event *event) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (atomic_load(&event->is_over)) {
        return true;
    }
    const bool is_relaxed = drv->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    const CUresult result = drv->cuEventQuery(event->event);
    if (is_relaxed) {
        (void)drv->cuThreadExchangeStreamCaptureMode(&mode);
    }
    if (result != CUDA_SUCCESS && !may_pass_later(result)) {
        atomic_store(&event->is_over, true);
    }
    return !may_pass_later(result);
}

bool trail_event_has_come(trail_events *self, trail_event *event) {
    if (!trail_event_is_passage(event)) {
        return ask_event(&self->context->driver, event);
    }
    const point_word passage = trail_event_passage(self, event);
    return point_is_reached(&passage);
}

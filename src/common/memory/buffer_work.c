/* SPDX-License-Identifier: MIT */
/** @file See buffer_work.h. */
#include "memory/buffer_work.h"

#include <stdlib.h>

#include "cuda/device_event.h"
#include "memory/buffer.h"

/* A new stream asks so many events at most whether they are free. */
#define LOOKED_AT 4u

struct work_place {
    list_link link;
    uint64_t stream; /* stream_key() */
    uint32_t device; /* of the event */
    CUevent event;
    unsigned users;    /* calls between begin and end */
    uint64_t recorded; /* how often */
    uint64_t passed;   /* it stood behind this many, and they are done */
    bool is_behind;    /* the event does not stand behind the latest call */
};

/* A view's memory is another buffer's. */
static buffer *root_of(buffer *of) {
    of = of->is_view ? of->over : of;
    return of->original != NULL ? of->original : of;
}

static work_place *place_at(list_link *at) {
    return LIST_ITEM(at, work_place, link);
}

/* ---- places: the mutex is held ------------------------------------------------------------------ */

static work_place *find(const buffer_work *self, uint64_t stream, uint32_t index) {
    work_place *found = place_at(self->places.first);
    while (found != NULL && (found->stream != stream || found->device != index)) {
        found = place_at(found->link.next);
    }
    return found;
}

/* Whether its stream has come there. An answer does not wait (measured on an H200, driver 580). */
static bool is_free(const driver *drv, work_place *self) {
    if (self->users > 0 || self->is_behind) {
        return false;
    }
    if (self->passed != self->recorded && drv->cuEventQuery(self->event) == CUDA_SUCCESS) {
        self->passed = self->recorded;
    }
    return self->passed == self->recorded;
}

static work_place *find_free(const driver *drv, const buffer_work *self, uint32_t index) {
    unsigned left = LOOKED_AT;
    work_place *found = place_at(self->places.first);
    for (; found != NULL && left > 0; left--) {
        if (found->device == index && is_free(drv, found)) {
            return found;
        }
        found = place_at(found->link.next);
    }
    return NULL;
}

/* What tells the streams of a device apart. Before CUDA 12.0 the driver gives them no ids. Then it is the handle, but threads
 * have one handle for default streams of their own: there it is what only one thread has. */
static uint64_t stream_key(const context *ctx, gpuipc_stream stream) {
    const uint64_t id = device_stream_id(ctx, stream);
    if (id != 0) {
        return id;
    }
    return stream == CU_STREAM_PER_THREAD ? (uintptr_t)status_thread_scope() : (uintptr_t)stream;
}

/* ---- calls --------------------------------------------------------------------------------------- */

/* No lock is held. */
static gpuipc_status add(buffer *root, uint64_t stream, work_place **out_place) {
    work_place *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return status_out_of_memory(sizeof(*made));
    }
    const gpuipc_status status =
        device_event_new(root->context, CU_EVENT_DISABLE_TIMING, &made->event, &made->device);
    if (status != GPUIPC_OK) {
        free(made);
        return status;
    }
    made->stream = stream;
    made->users = 1;
    os_mutex_lock(&root->work.mutex);
    list_append(&root->work.places, &made->link);
    os_mutex_unlock(&root->work.mutex);
    *out_place = made;
    return GPUIPC_OK;
}

gpuipc_status buffer_work_begin(struct buffer *of, gpuipc_stream stream, work_place **out_place) {
    buffer *root = root_of(of);
    const context *ctx = root->context;
    uint32_t index;
    CUstreamCaptureStatus capture;
    gpuipc_status status = DRIVER_CALL(&ctx->driver, cuStreamIsCapturing, (stream, &capture),
                                       "asking whether a stream is being captured");
    *out_place = NULL;
    if (status != GPUIPC_OK || capture != CU_STREAM_CAPTURE_STATUS_NONE ||
        (status = device_current(ctx, &index)) != GPUIPC_OK) {
        return status;
    }
    const uint64_t key = stream_key(ctx, stream);
    os_mutex_lock(&root->work.mutex);
    work_place *found = find(&root->work, key, index);
    if (found == NULL && (found = find_free(&ctx->driver, &root->work, index)) != NULL) {
        found->stream = key;
    }
    if (found != NULL) {
        found->users++;
    }
    os_mutex_unlock(&root->work.mutex);
    *out_place = found;
    return found != NULL ? GPUIPC_OK : add(root, key, out_place);
}

/* Keeps the error record. */
static bool record(context *ctx, const work_place *place, gpuipc_stream stream) {
    if (place->device == device_entered(ctx)) {
        return ctx->driver.cuEventRecord(place->event, stream) == CUDA_SUCCESS;
    }
    const gpuipc_error why = status_save();
    const bool is_recorded =
        device_event_record(ctx, place->event, place->device, stream) == GPUIPC_OK;
    status_restore(&why);
    return is_recorded;
}

/* Not waited for here where the driver records no event: the stream may wait for a call of this thread. */
void buffer_work_end(struct buffer *of, work_place *place, gpuipc_stream stream) {
    buffer *root = root_of(of);
    if (place == NULL) {
        return;
    }
    const bool is_recorded = record(root->context, place, stream);
    os_mutex_lock(&root->work.mutex);
    place->is_behind = !is_recorded;
    place->users--;
    place->recorded++;
    os_mutex_unlock(&root->work.mutex);
}

/* Without an event: for all that the device was given. */
static gpuipc_status await_device(context *ctx, uint32_t index) {
    device_scope scope;
    gpuipc_status status = device_enter(ctx, index, &scope);
    if (status == GPUIPC_OK) {
        status = DRIVER_CALL(&ctx->driver, cuCtxSynchronize, (), "waiting for work on a buffer");
        device_leave(&scope);
    }
    return status;
}

static gpuipc_status await_place(context *ctx, const work_place *place, bool is_behind) {
    return is_behind ? await_device(ctx, place->device)
                     : DRIVER_CALL(&ctx->driver, cuEventSynchronize, (place->event),
                                   "waiting for work on a buffer");
}

/* A call that has returned before is waited for: places are not taken out, and are recorded again only behind later work. */
gpuipc_status buffer_work_await(struct buffer *of) {
    buffer *root = root_of(of);
    buffer_work *self = &root->work;
    gpuipc_status status = GPUIPC_OK;
    os_mutex_lock(&self->mutex);
    for (work_place *at = place_at(self->places.first); at != NULL && status == GPUIPC_OK;
         at = place_at(at->link.next)) {
        const uint64_t recorded = at->recorded;
        if (at->passed != recorded) {
            const bool is_behind = at->is_behind;
            os_mutex_unlock(&self->mutex);
            status = await_place(root->context, at, is_behind);
            os_mutex_lock(&self->mutex);
            if (status == GPUIPC_OK) {
                at->passed = at->passed < recorded ? recorded : at->passed;
                at->is_behind = at->is_behind && at->passed != at->recorded;
            }
        }
    }
    os_mutex_unlock(&self->mutex);
    return status;
}

void buffer_work_clear(struct buffer *self, bool forked) {
    work_place *place;
    while ((place = place_at(list_take(&self->work.places))) != NULL) {
        if (!forked) {
            (void)self->context->driver.cuEventDestroy(place->event);
        }
        free(place);
    }
}

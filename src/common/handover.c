/* SPDX-License-Identifier: MIT */
/** @file See handover.h. */
#include "handover.h"

#include <stdlib.h>
#include <string.h>

#include "ready_event.h"

gpuipc_status handover_check_flags(uint32_t flags, const char *operation) {
    if ((flags & GPUIPC_SEND_READY) != 0 &&
        (flags & (GPUIPC_SEND_ASYNC | GPUIPC_SEND_EVENT)) != 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, operation,
                           "flags says that the contents are ready and that a stream will say so");
    }
    return GPUIPC_OK;
}

/* ---- lending ------------------------------------------------------------------------------- */

static void take_back(const handover *self, uint32_t index) {
    const point *at = &self->points[index];
    lend_remove(self->buffers[index], self->to->points_out, at);
    if (at->index != 0) {
        const point_word released = point_released_word(at);
        point_store(self->to->points_out, &released);
    }
}

static gpuipc_status lend_all(handover *self) {
    connection *to = self->to;
    gpuipc_status status = GPUIPC_OK;
    if (to->points_out == NULL) {
        status = point_page_create(to->context, &to->peer, &to->points_out);
        if (status != GPUIPC_OK) {
            return status;
        }
        point_page_set_connection(to->points_out, to->os);
    }
    self->points = calloc(self->count, sizeof(*self->points));
    if (self->points == NULL) {
        return status_out_of_memory("handover", self->count * sizeof(*self->points));
    }
    bool has_more = true;
    for (uint32_t i = 0; i < self->count && status == GPUIPC_OK; i++) {
        has_more = has_more && point_take(to->points_out, &self->points[i]);
        status = lend_add(self->buffers[i], to->points_out, &self->points[i]);
        if (status == GPUIPC_OK) {
            self->lent++;
        } else if (self->points[i].index != 0) {
            const point_word released = point_released_word(&self->points[i]);
            point_store(to->points_out, &released);
        }
    }
    return status;
}

static bool all_have_points(const handover *self) {
    bool all = true;
    for (uint32_t i = 0; i < self->count; i++) {
        all = all && self->points[i].index != 0;
    }
    return all;
}

/* ---- contents ------------------------------------------------------------------------------ */

/* Whether a default stream of this device may have work for the contents. Where the primary context was
 * never made there is none. */
static bool is_used(const context *ctx, buffer *const *buffers, uint32_t count, uint32_t index) {
    for (uint32_t i = 0; i < count; i++) {
        if (buffers[i]->access_device == index) {
            return device_is_active(ctx, index);
        }
    }
    return false;
}

static gpuipc_status wait_for_stream(context *ctx, gpuipc_stream stream, uint32_t index) {
    device_scope scope;
    gpuipc_status status = device_enter_stream(ctx, stream, index, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = driver_status(&ctx->driver, ctx->driver.cuStreamSynchronize(stream),
                           "cuStreamSynchronize", "waiting for the contents of the buffers");
    device_leave(&scope);
    return status;
}

gpuipc_status handover_wait(context *ctx, buffer *const *buffers, uint32_t count,
                            gpuipc_stream stream) {
    if (!device_is_default_stream(stream)) {
        return wait_for_stream(ctx, stream, buffers[0]->access_device);
    }
    gpuipc_status status = GPUIPC_OK;
    for (uint32_t i = 0; i < ctx->device_count && status == GPUIPC_OK; i++) {
        if (is_used(ctx, buffers, count, i)) {
            status = wait_for_stream(ctx, stream, i);
        }
    }
    return status;
}

static gpuipc_status write_ready_words(const handover *self, gpuipc_stream stream) {
    point_page *page = self->to->points_out;
    point_word passage;
    point_word *words = malloc(self->count * sizeof(*words));
    if (words == NULL) {
        return status_out_of_memory("handover", self->count * sizeof(*words));
    }
    for (uint32_t i = 0; i < self->count; i++) {
        words[i] = point_ready_word(&self->points[i]);
    }
    gpuipc_status status = point_write_async(page, words, self->count, stream, &passage);
    for (uint32_t i = 0; i < self->count && status == GPUIPC_OK; i++) {
        point_set_passage(page, &self->points[i], &passage);
    }
    free(words);
    return status;
}

/* In the stream's CUDA context. */
static gpuipc_status mark(handover *self, uint32_t flags, gpuipc_stream stream) {
    const bool by_event = (flags & GPUIPC_SEND_EVENT) != 0;
    gpuipc_status status = by_event ? ready_event_record(self->to->points_out, self->points,
                                                         self->count, stream, self->event_name)
                                    : write_ready_words(self, stream);
    if (status == GPUIPC_OK) {
        self->ready = by_event ? WIRE_READY_EVENT : WIRE_READY_WORD;
    }
    return status;
}

/* Lets @p joined wait for what a device's default stream has so far. */
static gpuipc_status join_one(context *ctx, gpuipc_stream joined, gpuipc_stream stream,
                              uint32_t index) {
    const driver *drv = &ctx->driver;
    device_scope scope;
    CUevent event;
    gpuipc_status status = device_enter(ctx, index, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = device_check_capture(ctx, stream);
    if (status == GPUIPC_OK) {
        status = driver_status(drv, drv->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING),
                               "cuEventCreate", "joining the default streams of several devices");
    }
    if (status == GPUIPC_OK) {
        status = driver_status(drv, drv->cuEventRecord(event, stream), "cuEventRecord",
                               "joining the default streams of several devices");
        if (status == GPUIPC_OK) {
            status =
                driver_status(drv, drv->cuStreamWaitEvent(joined, event, 0), "cuStreamWaitEvent",
                              "joining the default streams of several devices");
        }
        /* what waits for it goes on waiting: cuda.h, cuEventDestroy */
        (void)drv->cuEventDestroy(event);
    }
    device_leave(&scope);
    return status;
}

/* One word stands for the default streams of several devices: a stream of its own waits for all of them
 * and writes it, so that none of the caller's waits for another. It ends when it has done so (cuda.h,
 * cuStreamDestroy). */
static gpuipc_status mark_joined(handover *self, uint32_t flags, gpuipc_stream stream,
                                 uint32_t first) {
    context *ctx = self->to->context;
    gpuipc_stream joined;
    device_scope scope;
    gpuipc_status status = device_enter(ctx, first, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status =
        driver_status(&ctx->driver, ctx->driver.cuStreamCreate(&joined, CU_STREAM_NON_BLOCKING),
                      "cuStreamCreate", "joining the default streams of several devices");
    if (status == GPUIPC_OK) {
        for (uint32_t i = first; i < ctx->device_count && status == GPUIPC_OK; i++) {
            status = is_used(ctx, self->buffers, self->count, i) ? join_one(ctx, joined, stream, i)
                                                                 : GPUIPC_OK;
        }
        if (status == GPUIPC_OK) {
            status = mark(self, flags, joined);
        }
        (void)ctx->driver.cuStreamDestroy(joined);
    }
    device_leave(&scope);
    return status;
}

static gpuipc_status mark_on_streams(handover *self, uint32_t flags, gpuipc_stream stream) {
    context *ctx = self->to->context;
    uint32_t first = GPUIPC_DEVICE_NONE;
    uint32_t used = 0;
    device_scope scope;
    for (uint32_t i = ctx->device_count; i > 0 && device_is_default_stream(stream); i--) {
        if (is_used(ctx, self->buffers, self->count, i - 1)) {
            first = i - 1;
            used++;
        }
    }
    if (device_is_default_stream(stream) && used == 0) {
        return GPUIPC_OK; /* there is no work that could be waited for */
    }
    if (used > 1) {
        return mark_joined(self, flags, stream, first);
    }
    gpuipc_status status = device_enter_stream(ctx, stream, first, &scope);
    if (status == GPUIPC_OK) {
        status = device_check_capture(ctx, stream);
        if (status == GPUIPC_OK) {
            status = mark(self, flags, stream);
        }
        device_leave(&scope);
    }
    return status;
}

static gpuipc_status make_ready(handover *self, uint32_t flags, gpuipc_stream stream) {
    self->ready = WIRE_READY_NOW;
    if ((flags & GPUIPC_SEND_READY) != 0) {
        return GPUIPC_OK;
    }
    if ((flags & (GPUIPC_SEND_ASYNC | GPUIPC_SEND_EVENT)) != 0 && all_have_points(self)) {
        return mark_on_streams(self, flags, stream);
    }
    if (self->to->is_served) { /* whom all other clients would wait with */
        return status_fail(GPUIPC_ERR_LIMIT, "gpuipc_server",
                           "no point is left that says when the contents are ready");
    }
    return handover_wait(self->to->context, self->buffers, self->count, stream);
}

/* ---- the whole ----------------------------------------------------------------------------- */

gpuipc_status handover_begin(handover *self, connection *to, buffer *const *buffers, uint32_t count,
                             uint32_t flags, gpuipc_stream stream) {
    *self = (handover){.to = to, .buffers = buffers, .count = count};
    if (count == 0) {
        return GPUIPC_OK;
    }
    point_collect_some(to->context);
    gpuipc_status status = lend_all(self);
    if (status == GPUIPC_OK) {
        status = make_ready(self, flags, stream);
    }
    if (status != GPUIPC_OK) {
        handover_end(self, 0);
    }
    return status;
}

gpuipc_status handover_send_page(const handover *self, os_deadline deadline) {
    const wire_header header = {.kind = WIRE_POINTS};
    uint8_t packet[WIRE_HEADER_BYTES];
    if (self->count == 0) {
        return GPUIPC_OK;
    }
    const os_handle handle = point_page_handle(self->to->points_out);
    if (!os_handle_is_valid(handle)) {
        return GPUIPC_OK; /* the peer has it */
    }
    wire_encode_header(&header, packet);
    gpuipc_status status =
        os_connection_send(self->to->os, packet, sizeof(packet), &handle, 1, deadline);
    if (status == GPUIPC_OK) {
        point_page_sent(self->to->points_out);
    }
    return status == GPUIPC_ERR_RELEASED && atomic_load(&self->to->broken)
               ? connection_check(self->to, "gpuipc_connection_send")
               : status; /* the receiving side broke it off */
}

void handover_describe(const handover *self, uint32_t index, wire_buffer *record) {
    record->ready = (uint16_t)self->ready;
    record->point_index = self->points[index].index;
    record->point_value = self->points[index].value;
    memcpy(record->event_name, self->event_name, sizeof(record->event_name));
}

void handover_end(handover *self, uint32_t sent) {
    gpuipc_error why = status_save();
    for (uint32_t i = self->lent; i > sent; i--) { /* the last noted is the first found */
        take_back(self, i - 1);
    }
    free(self->points);
    self->points = NULL;
    status_restore(&why);
}

/* SPDX-License-Identifier: MIT */
/** @file See handover.h. */
#include "message/handover.h"

#include <stdlib.h>
#include <string.h>

#include "copy/detour.h"
#include "sync/deferred.h"
#include "sync/export_record.h"
#include "sync/mark.h"

/* Waiting for a stream that waits for another process begins with looking again and again. */
#define SPIN_NS UINT64_C(200000)

gpuipc_status handover_check_flags(uint32_t flags) {
    if ((flags & GPUIPC_SEND_READY) != 0 && (flags & GPUIPC_SEND_ASYNC) != 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "flags says that the contents are ready and that a stream will say so");
    }
    return GPUIPC_OK;
}

/* ---- exporting ------------------------------------------------------------------------------- */

struct handed {
    export_record *record;
    point at;
};

static gpuipc_status export_all(handover *self) {
    connection *to = self->to;
    gpuipc_status status = GPUIPC_OK;
    if (to->exports == NULL) {
        status = export_table_new(to->context, to->other_end, &to->exports);
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    self->handed = calloc(self->count, sizeof(*self->handed));
    if (self->handed == NULL) {
        return status_out_of_memory(self->count * sizeof(*self->handed));
    }
    for (uint32_t i = 0; i < self->count && status == GPUIPC_OK; i++) {
        struct handed *one = &self->handed[i];
        status = export_begin(to->exports, &self->buffers[i]->exports, &one->record, &one->at);
        self->exported += status == GPUIPC_OK;
    }
    return status;
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

/* Mostly it is done. While no stream waits for another process this takes as long as what the device has been given. */
static gpuipc_status synchronize(const driver *drv, gpuipc_stream stream,
                                 const handover_patience *patience) {
    const uint64_t begun = os_clock_ns();
    CUresult result;
    while ((result = drv->cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY && !deferred_is_quiet()) {
        if (atomic_load(patience->is_over)) {
            return status_fail(GPUIPC_ERR_RELEASED, "the %s meanwhile", patience->what);
        }
        if (os_deadline_passed(patience->deadline)) {
            return status_fail(GPUIPC_ERR_TIMEOUT,
                               "the contents were not ready in time: streams of this process wait "
                               "for other processes");
        }
        if (os_clock_ns() - begun > SPIN_NS) {
            os_sleep_ms(1);
        }
    }
    return driver_status(drv,
                         result == CUDA_ERROR_NOT_READY ? drv->cuStreamSynchronize(stream) : result,
                         "cuStreamSynchronize", "waiting for the contents of the buffers");
}

static gpuipc_status wait_for_stream(context *ctx, gpuipc_stream stream, uint32_t index,
                                     const handover_patience *patience) {
    device_scope scope;
    gpuipc_status status = device_enter_stream(ctx, stream, index, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = synchronize(&ctx->driver, stream, patience);
    device_leave(&scope);
    return status;
}

gpuipc_status handover_wait(context *ctx, buffer *const *buffers, uint32_t count,
                            gpuipc_stream stream, const handover_patience *patience) {
    if (!device_is_default_stream(stream)) {
        return wait_for_stream(ctx, stream, buffers[0]->access_device, patience);
    }
    gpuipc_status status = GPUIPC_OK;
    for (uint32_t i = 0; i < ctx->device_count && status == GPUIPC_OK; i++) {
        if (is_used(ctx, buffers, count, i)) {
            status = wait_for_stream(ctx, stream, i, patience);
        }
    }
    return status;
}

/* In the stream's CUDA context. All words of a page have one passage. */
static gpuipc_status write_ready_words(const handover *self, gpuipc_stream stream) {
    gpuipc_status status = GPUIPC_OK;
    point_word *words = malloc(self->count * sizeof(*words));
    if (words == NULL) {
        return status_out_of_memory(self->count * sizeof(*words));
    }
    for (uint32_t i = 0; i < self->count; i++) {
        words[i] = point_ready_word(&self->handed[i].at);
    }
    for (uint32_t first = 0, end; first < self->count && status == GPUIPC_OK; first = end) {
        point_word passage;
        for (end = first; end < self->count && words[end].page == words[first].page;) {
            end++;
        }
        status = point_write_async(&words[first], end - first, stream, &passage);
        for (uint32_t i = first; i < end && status == GPUIPC_OK; i++) {
            export_set_written(self->handed[i].record, &self->handed[i].at, &passage);
        }
    }
    free(words);
    return status;
}

/* In the stream's CUDA context. An idle stream writes nothing: the contents are ready. */
static gpuipc_status mark_ready(handover *self, gpuipc_stream stream) {
    if (device_stream_is_idle(self->to->context, stream)) {
        return GPUIPC_OK;
    }
    gpuipc_status status = write_ready_words(self, stream);
    if (status == GPUIPC_OK) {
        self->ready = WIRE_READY_WORD;
    }
    return status;
}

/* Lets @p joined wait for what a device's default stream has so far. */
static gpuipc_status join_one(context *ctx, gpuipc_stream joined, gpuipc_stream stream,
                              uint32_t index) {
    const driver *drv = &ctx->driver;
    device_scope scope;
    CUevent left;
    gpuipc_status status = device_enter_uncaptured(ctx, stream, index, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    if ((status = detour_leave(drv, stream, &left)) == GPUIPC_OK) {
        status = detour_enter(drv, left, joined);
        detour_event_destroy(drv, left);
    }
    device_leave(&scope);
    return status;
}

/* One word stands for the default streams of several devices: a stream of its own waits for all of them
 * and writes it, so that none of the caller's waits for another. It ends when it has done so (cuda.h,
 * cuStreamDestroy). */
static gpuipc_status mark_joined(handover *self, gpuipc_stream stream, uint32_t first) {
    context *ctx = self->to->context;
    gpuipc_stream joined;
    device_scope scope;
    gpuipc_status status = device_enter(ctx, first, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = detour_stream_new(&ctx->driver, &joined);
    if (status == GPUIPC_OK) {
        for (uint32_t i = first; i < ctx->device_count && status == GPUIPC_OK; i++) {
            status = is_used(ctx, self->buffers, self->count, i) ? join_one(ctx, joined, stream, i)
                                                                 : GPUIPC_OK;
        }
        if (status == GPUIPC_OK) {
            status = mark_ready(self, joined);
        }
        detour_stream_destroy(&ctx->driver, joined);
    }
    device_leave(&scope);
    return status;
}

static gpuipc_status mark_on_streams(handover *self, gpuipc_stream stream) {
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
        return mark_joined(self, stream, first);
    }
    gpuipc_status status = device_enter_uncaptured(ctx, stream, first, &scope);
    if (status == GPUIPC_OK) {
        status = mark_ready(self, stream);
        device_leave(&scope);
    }
    return status;
}

static gpuipc_status make_ready(handover *self, uint32_t flags, gpuipc_stream stream) {
    self->ready = WIRE_READY_NOW;
    if ((flags & GPUIPC_SEND_READY) != 0) {
        return GPUIPC_OK;
    }
    if ((flags & GPUIPC_SEND_ASYNC) != 0) {
        return mark_on_streams(self, stream);
    }
    const handover_patience patience = {&self->to->ended, "connection was closed",
                                        os_deadline_after(-1)};
    return handover_wait(self->to->context, self->buffers, self->count, stream, &patience);
}

/* ---- the whole ----------------------------------------------------------------------------- */

gpuipc_status handover_begin(handover *self, connection *to, buffer *const *buffers, uint32_t count,
                             uint32_t flags, gpuipc_stream stream) {
    *self = (handover){.to = to, .buffers = buffers, .count = count};
    if (count == 0) {
        return GPUIPC_OK;
    }
    gpuipc_status status = export_all(self);
    if (status == GPUIPC_OK) {
        status = make_ready(self, flags, stream);
    }
    if (status != GPUIPC_OK) {
        handover_end(self, 0, NULL);
    }
    return status;
}

gpuipc_status handover_send_pages(const handover *self, os_deadline deadline) {
    gpuipc_status status = GPUIPC_OK;
    point_page *page;
    while (self->count > 0 && status == GPUIPC_OK &&
           (page = export_table_unsent(self->to->exports)) != NULL) {
        const point first = {page, 0, 0};
        if (export_table_number(self->to->exports, &first) == 0) {
            status = mark_page_begin(self->to->context, page);
        }
        if (status == GPUIPC_OK) {
            status = connection_send_page(self->to, WIRE_POINTS, page, deadline);
        }
    }
    return status;
}

void handover_describe(const handover *self, uint32_t index, wire_buffer *record) {
    record->ready = (uint16_t)self->ready;
    record->point_index = 1 + export_table_number(self->to->exports, &self->handed[index].at);
    record->point_value = self->handed[index].at.value;
}

void handover_end(handover *self, uint32_t sent, point *out_first) {
    gpuipc_error why = status_save();
    if (out_first != NULL && sent > 0) {
        *out_first = self->handed[0].at;
        point_page_reference(out_first->page);
    }
    for (uint32_t i = sent; i < self->exported; i++) {
        export_cancel(self->handed[i].record, &self->handed[i].at);
    }
    free(self->handed);
    self->handed = NULL;
    status_restore(&why);
}

/* SPDX-License-Identifier: MIT */
/** @file Waiting until a buffer that was handed over is returned. */
#include "memory/buffer.h"
#include "memory/registry.h"
#include "sync/point_wait.h"

static gpuipc_status await_on_host(buffer *self, os_deadline deadline) {
    unsigned pause = 0;
    while (export_has_unreturned(&self->exports)) {
        if (os_deadline_passed(deadline)) {
            return status_fail(GPUIPC_ERR_TIMEOUT,
                               "%u of the hand-overs of the buffer are not returned",
                               export_count(&self->exports));
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
    return GPUIPC_OK;
}

/* Only for what it does not wait for already. */
static gpuipc_status await_words(buffer *self, const point_waiter *by, uint64_t stream_id) {
    point_words words = {0};
    point_word passage;
    uint64_t serial = 0;
    gpuipc_status status = export_copy_awaited(&self->exports, stream_id, &words, &serial);
    if (status == GPUIPC_OK && words.count > 0) {
        status = point_wait(by, words.words, words.count, &passage);
        if (status == GPUIPC_OK) {
            export_awaited(&self->exports, stream_id, serial, &passage);
        }
    }
    point_words_destroy(&words, false);
    return status;
}

static gpuipc_status await_on_stream(buffer *self, gpuipc_stream stream) {
    const point_waiter by = {
        .context = self->context, .stream = stream, .device = self->access_device};
    uint64_t stream_id = 0;
    bool can = false;
    if (!export_has_unreturned(&self->exports)) {
        return GPUIPC_OK;
    }
    gpuipc_status status = point_can_wait(&by, &can, &stream_id);
    if (status != GPUIPC_OK) {
        return status;
    }
    return can ? await_words(self, &by, stream_id) : await_on_host(self, os_deadline_after(-1));
}

gpuipc_status gpuipc_buffer_await_returns(gpuipc_buffer *handle, int timeout_ms) {
    status_enter(__func__);
    if (timeout_ms < -1) {
        return status_bad_timeout(timeout_ms);
    }
    const os_deadline deadline = os_deadline_after(timeout_ms);
    os_interrupt interrupt;
    buffer *self;
    gpuipc_status status = buffer_acquire(handle, &self);
    if (status == GPUIPC_OK) {
        status = await_on_host(self, context_interruptible(self->context, deadline, &interrupt));
        status = context_answer(self->context, &interrupt, status);
        if (status == GPUIPC_OK) {
            registry_sweep_some(self->context, true);
            (void)deferred_work_off(self->context);
        }
        buffer_unreference(self);
    }
    return status;
}

static bool is_back(object *base) {
    return !export_has_unreturned(&((buffer *)base)->exports);
}

/* There is but a word in shared memory to tell of a return, so somebody has to look. */
static gpuipc_status look_for_returns(buffer *self) {
    wait_handle_tell(&self->returned, false);
    if (is_back(&self->object)) {
        wait_handle_tell(&self->returned, true);
        return GPUIPC_OK;
    }
    return monitor_begin(&self->returns, MONITOR_FREES, &self->object, is_back, &self->returned);
}

gpuipc_status gpuipc_buffer_get_returns_wait_handle(gpuipc_buffer *handle, intptr_t *out_handle) {
    status_enter(__func__);
    buffer *self;
    intptr_t native = 0;
    if (out_handle == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_handle is NULL");
    }
    gpuipc_status status = buffer_acquire(handle, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = wait_handle_get(&self->returned, NULL, NULL, &native);
    if (status == GPUIPC_OK && (status = look_for_returns(self)) == GPUIPC_OK) {
        *out_handle = native;
    }
    buffer_unreference(self);
    return status;
}

gpuipc_status gpuipc_buffer_await_returns_async(gpuipc_buffer *handle, gpuipc_stream stream) {
    status_enter(__func__);
    buffer *self;
    gpuipc_status status = buffer_acquire(handle, &self);
    if (status == GPUIPC_OK) {
        status = await_on_stream(self, stream);
        buffer_unreference(self);
    }
    return status;
}

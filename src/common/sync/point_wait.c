/* SPDX-License-Identifier: MIT */
/** @file See point_wait.h. */
#include "sync/point_wait.h"

#include <stdlib.h>

#include "cuda/context.h"
#include "sync/deferred.h"
#include "sync/watch.h"

gpuipc_status point_can_wait(const point_waiter *self, bool *out_can, uint64_t *out_stream_id) {
    device_scope scope;
    gpuipc_status status =
        device_enter_uncaptured_briefly(self->context, self->stream, self->device, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    *out_can = point_has_stream_waits(self->context);
    if (out_stream_id != NULL) {
        *out_stream_id = scope.stream_id;
    }
    device_leave(&scope);
    return GPUIPC_OK;
}

/* Those before the failure are over when the passage is reached. A word of this process alone is written like anything
 * else that a stream waits for. */
static gpuipc_status watch_all(const point_waiter *self, const point_word *words, size_t count,
                               const point_word *passage) {
    gpuipc_status status = GPUIPC_OK;
    for (size_t i = 0; i < count && status == GPUIPC_OK; i++) {
        if (words[i].page->peer == NULL) {
            continue;
        }
        deferred_wait_begins();
        status = watch_add(self->context, &words[i], passage, self->of);
        if (status != GPUIPC_OK) {
            deferred_wait_ends();
        }
    }
    return status;
}

gpuipc_status point_wait_begin(const point_waiter *self, point_page *page, const point_word *words,
                               size_t count, point_word *out_passage) {
    point_word passage = POINT_PASSED;
    gpuipc_status status = passage_take(self->context, page, &passage);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = watch_all(self, words, count, &passage);
    if (status != GPUIPC_OK) {
        passage_cancel(&passage);
        return status;
    }
    *out_passage = passage;
    return GPUIPC_OK;
}

static gpuipc_status wait_for(const point_waiter *self, const point_word *words, size_t count,
                              point_word *out_passage) {
    device_scope scope;
    point_word passage;
    gpuipc_status status =
        device_enter_stream_briefly(self->context, self->stream, self->device, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = point_wait_begin(self, NULL, words, count, &passage);
    if (status == GPUIPC_OK) {
        status =
            point_submit_waits(self->context, words, count, self->stream, &passage, self->is_alone);
    }
    if (status == GPUIPC_OK) {
        *out_passage = passage;
    }
    device_leave(&scope);
    return status;
}

/* One that has passed costs the stream a microsecond to see, and the host nothing. One that goes back may have done so
 * when the stream comes to it. */
static size_t copy_awaited(const point_waiter *self, const point_word *words, size_t count,
                           point_word *out) {
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        if (self->goes_back || !point_is_reached(&words[i])) {
            out[left++] = words[i];
        }
    }
    return left;
}

gpuipc_status point_wait(const point_waiter *self, const point_word *words, size_t count,
                         point_word *out_passage) {
    point_word one;
    point_word *left = &one;
    gpuipc_status status = GPUIPC_OK;
    if (count > 1 && (left = malloc(count * sizeof(*left))) == NULL) {
        return status_out_of_memory(count * sizeof(*left));
    }
    const size_t awaited = copy_awaited(self, words, count, left);
    if (awaited > 0) {
        status = wait_for(self, left, awaited, out_passage);
    } else {
        *out_passage = POINT_PASSED;
    }
    if (left != &one) {
        free(left);
    }
    return status;
}

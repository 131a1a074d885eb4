/* SPDX-License-Identifier: MIT */
/** @file See pace.h. */
#include "sync/pace.h"

#include "cuda/context.h"
#include "sync/point.h"

gpuipc_status pace_await(const pace *self, uint64_t count, const atomic_bool *interrupted,
                         os_deadline deadline) {
    gpuipc_status status = GPUIPC_OK;
    for (uint64_t i = 0; i < count && i < PACE_MOST && status == GPUIPC_OK; i++) {
        const point_word *before = &self->passages[(self->next + i) % PACE_MOST];
        if (!point_is_reached(before)) {
            status = point_await(before, 1, interrupted, deadline);
        }
    }
    return status == GPUIPC_ERR_TIMEOUT
               ? status_fail(status,
                             "streams of this process have not passed what they were given for "
                             "this connection before, up to %u pieces",
                             PACE_MOST)
               : status;
}

void pace_add(pace *self, const point_word *passage) {
    self->passages[self->next] = *passage;
    self->next = (self->next + 1) % PACE_MOST;
}

gpuipc_status pace_add_place(pace *self, struct context *ctx, gpuipc_stream stream,
                             uint32_t index) {
    point_word passage;
    device_scope scope;
    gpuipc_status status = device_enter_stream(ctx, stream, index, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = point_write_begin(ctx, NULL, 0, &passage);
    if (status == GPUIPC_OK) {
        status = point_submit_writes(ctx, NULL, 0, stream, &passage);
    }
    if (status == GPUIPC_OK) {
        pace_add(self, &passage);
    }
    device_leave(&scope);
    return status;
}

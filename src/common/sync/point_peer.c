/* SPDX-License-Identifier: MIT */
/** @file See point_peer.h. */
#include "sync/point_peer.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "cuda/context.h"
#include "sync/point.h"

gpuipc_status point_peer_new(struct context *ctx, const os_peer *process, os_connection *connection,
                             point_peer **out_peer) {
    point_peer *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    self->process = *process;
    gpuipc_status status = quota_open(process, &self->quota);
    if (status == GPUIPC_OK) {
        status = shared_process_get(&self->process, self->quota, &self->shared);
    }
    if (status != GPUIPC_OK) {
        quota_unreference(self->quota);
        free(self);
        return status;
    }
    atomic_init(&self->references, 1u);
    self->context = ctx;
    self->connection = connection;
    *out_peer = self;
    return GPUIPC_OK;
}

void point_peer_reference(point_peer *self) {
    atomic_fetch_add_explicit(&self->references, 1u, memory_order_relaxed);
}

void point_peer_unreference(point_peer *self, bool forked) {
    if (self == NULL ||
        atomic_fetch_sub_explicit(&self->references, 1u, memory_order_acq_rel) != 1u) {
        return;
    }
    shared_process_unreference(self->shared, forked);
    quota_unreference(self->quota);
    free(self);
}

bool point_peer_has_closed(point_peer *self) {
    if (!self->has_closed && self->connection != NULL) {
        self->has_closed = os_connection_has_ended(self->connection);
    }
    return self->has_closed;
}

bool point_peer_is_gone(point_peer *self) {
    if (!self->is_gone) {
        const int running = os_peer_is_running(&self->process);
        self->is_gone = running == 0 ||
                        (running < 0 && (self->connection == NULL || point_peer_has_closed(self)));
    }
    return self->is_gone;
}

void point_peer_leave(point_peer *self) {
    os_mutex_lock(&self->context->points->mutex);
    (void)point_peer_has_closed(self);
    self->connection = NULL;
    os_mutex_unlock(&self->context->points->mutex);
}

void point_peer_left(point_peer *self, bool was_closed) {
    os_mutex_lock(&self->context->points->mutex);
    self->has_closed = self->has_closed || was_closed;
    os_mutex_unlock(&self->context->points->mutex);
}

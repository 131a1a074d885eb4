/* SPDX-License-Identifier: MIT */
/** @file See point_peer.h. */
#include "sync/point_peer.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "cuda/context.h"
#include "sync/point.h"

/* execve(2) closes descriptors before the driver has ended the work of a context, which the end of a process awaits. */
#define EXEC_NS UINT64_C(200000000)

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
    for (int side = 0; side < LIFELINE_SIDES; side++) {
        lifeline_end(&self->lifelines[side], forked);
    }
    shared_process_unreference(self->shared, forked);
    quota_unreference(self->quota);
    free(self);
}

/* A process does not see its own locks: fcntl(2). */
static bool is_this_process(const point_peer *self) {
    return self->process.process_id == os_process_id();
}

/* The lock is taken without the mutex: the peer may make that take long. */
void point_peer_keep(point_peer *self, lifeline_side side, os_handle *page) {
    os_mutex *mutex = &self->context->points->mutex;
    lifeline *kept = &self->lifelines[side];
    lifeline made = {0};
    os_mutex_lock(mutex);
    const bool is_first = kept->words == NULL && !kept->is_given_up;
    os_mutex_unlock(mutex);
    if (!is_first || is_this_process(self)) {
        os_handle_close(page);
        return;
    }
    lifeline_begin(&made, page, side, self->quota);
    os_mutex_lock(mutex);
    if (kept->words == NULL) {
        *kept = made;
        made = (lifeline){0};
    }
    os_mutex_unlock(mutex);
    lifeline_end(&made, false);
}

/* The mutex is held. */
static bool has_ended(point_peer *self) {
    for (int side = 0; self->ended_ns == 0 && side < LIFELINE_SIDES; side++) {
        if (lifeline_has_ended(&self->lifelines[side])) {
            self->ended_ns = os_clock_ns();
        }
    }
    return self->ended_ns != 0;
}

int point_peer_is_running(point_peer *self) {
    int running = os_peer_is_running(&self->process);
    if (running != 0) {
        os_mutex_lock(&self->context->points->mutex);
        running = has_ended(self) ? 0 : running;
        os_mutex_unlock(&self->context->points->mutex);
    }
    return running;
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
                        (has_ended(self) && os_clock_ns() - self->ended_ns >= EXEC_NS) ||
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

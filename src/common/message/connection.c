/* SPDX-License-Identifier: MIT */
/** @file See connection.h: opening, closing, the peer. Sending and receiving have files of their own. */
#include "message/connection.h"

#include <stdlib.h>

#include "base/struct_size.h"
#include "memory/registry.h"
#include "message/peer.h"
#include "message/receipt.h"
#include "sync/watch.h"

/* Both packets of a connection: pages, of which only those are there that were written, and none after its end. */
#define PACKETS_BYTES (2 * (size_t)OS_PACKET_BYTES_MAX)

/* ---- the end of what comes ------------------------------------------------------------------ */

/* A page that had come is taken in like any other, so that what it is of can be returned. The handles are closed. */
static void take_in_rest(connection *self, size_t size, os_handle *handles, size_t handle_count) {
    wire_packet packet;
    if (wire_decode_packet(self->packet_in, size, handle_count, &packet) == GPUIPC_OK &&
        wire_is_page(packet.header.kind) && !self->is_served) {
        (void)connection_take_page(self, packet.header.kind, &handles[0]);
    }
    for (size_t i = 0; i < handle_count; i++) {
        os_handle_close(&handles[i]);
    }
}

static void take_in_all_rest(connection *self) {
    os_handle handles[OS_PACKET_HANDLES_MAX];
    size_t handle_count;
    size_t size;
    while (os_connection_take_rest(self->os, self->packet_in, OS_PACKET_BYTES_MAX, &size, handles,
                                   &handle_count) == GPUIPC_OK) {
        take_in_rest(self, size, handles, handle_count);
    }
}

static void return_rest(connection *self, bool again) {
    for (uint32_t i = 0; i < self->points_in_count; i++) {
        point_page_return_rest(self->points_in[i], again);
    }
}

/* Nothing more comes: what had come and was not read is looked through, and what the peer exported and nobody here has opened
 * is returned, before the peer can see that this end is closed. The receive mutex is held. */
static void settle(connection *self) {
    bool peer_closed;
    if (self->is_settled) {
        return;
    }
    const gpuipc_error why = status_save();
    self->is_settled = true;
    os_connection_stop(self->os);
    incoming_clear(&self->in, self->context, false);
    do {
        take_in_all_rest(self);
        return_rest(self, false);
        self->context->contents->end_receiving(self, false);
    } while (!os_connection_end(self->os, &peer_closed));
    /* Of what was lost with the end (Windows); also over points that were open at the first look, and were released and
     * given out again before the end. */
    return_rest(self, true);
    point_peer_left(self->other_end, peer_closed);
    status_restore(&why);
}

/* Where another thread receives, it does so when it gives the mutex back. */
static void try_settle(connection *self) {
    if (os_mutex_try_lock(&self->receive_mutex)) {
        settle(self);
        os_mutex_unlock(&self->receive_mutex);
    }
}

gpuipc_status connection_lock_receiving(connection *self) {
    if (os_mutex_try_lock(&self->receive_mutex)) {
        return GPUIPC_OK;
    }
    if (atomic_load(&self->ended)) { /* whose thread settles it, with the mutex */
        return connection_answer(
            self,
            status_fail(GPUIPC_ERR_RELEASED, "another thread closed the connection meanwhile"));
    }
    return status_fail(GPUIPC_ERR_BUSY, "another thread is receiving on it");
}

void connection_unlock_receiving(connection *self) {
    if (self->waited.poller != NULL) { /* which is made under the same mutex */
        wait_handle_tell(&self->waited, self->in.complete);
    }
    os_mutex_unlock(&self->receive_mutex);
    if (atomic_load(&self->ended)) {
        try_settle(self);
    }
}

/* ---- making and ending ---------------------------------------------------------------------- */

static void destroy(object *base) {
    connection *self = (connection *)base;
    const bool forked = object_is_forked(base);
    if (!forked) {
        point_peer_leave(self->other_end);
        settle(self);
        import_forget_connection(self->context, self->number);
    }
    self->context->contents->end(self, forked);
    incoming_clear(&self->in, self->context, forked);
    import_source_release(&self->from, forked);
    group_set_clear(&self->sent_groups);
    for (uint32_t i = 0; i < self->points_in_count; i++) {
        point_page_unreference(self->points_in[i], forked);
    }
    if (!forked) { /* in a child it is closed already */
        os_handle_close(&self->channel_page);
    }
    export_table_leave(self->exports, self->is_served, forked);
    wait_handle_destroy(&self->waited);
    os_connection_destroy(self->os);
    quota_return(&self->charge);
    point_peer_unreference(self->other_end, forked);
    if (!forked) {
        watch_tidy(self->context);
    }
    os_pages_free(self->packet_in, PACKETS_BYTES);
    context_unreference(self->context);
    free(self);
}

/* For the handle of the connection itself. */
static gpuipc_status charge_handle(const os_peer *peer, quota_charge *charge) {
    quota *of;
    gpuipc_status status = quota_open(peer, &of);
    if (status == GPUIPC_OK) {
        status = quota_take(of, &(quota_amount){{[QUOTA_HANDLES] = 1}}, charge);
        quota_unreference(of);
    }
    return status;
}

gpuipc_status connection_new(context *ctx, os_connection *os, const os_peer *peer,
                             connection **out_connection) {
    gpuipc_status status;
    void *packets;
    connection *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    self->channel_page = OS_HANDLE_NONE;
    status = os_pages_allocate(PACKETS_BYTES, &packets);
    if (status != GPUIPC_OK) {
        goto free_self;
    }
    self->packet_in = packets;
    self->packet_out = self->packet_in + OS_PACKET_BYTES_MAX;
    status = charge_handle(peer, &self->charge);
    if (status != GPUIPC_OK) {
        goto free_packets;
    }
    status = point_peer_new(ctx, peer, os, &self->other_end);
    if (status != GPUIPC_OK) {
        goto return_charge;
    }
    object_init(&self->object, OBJECT_CONNECTION, destroy);
    object_reference(&ctx->object);
    self->context = ctx;
    self->number = atomic_fetch_add(&ctx->next_connection, 1u);
    self->os = os;
    self->peer = self->other_end->process;
    self->from = (import_source){.context = ctx,
                                 .connection = self->number,
                                 .peer = &self->peer,
                                 .other_end = self->other_end,
                                 .quota = self->other_end->quota};
    atomic_init(&self->broken, false);
    atomic_init(&self->ended, false);
    *out_connection = self;
    return GPUIPC_OK;

return_charge:
    quota_return(&self->charge);
free_packets:
    os_pages_free(packets, PACKETS_BYTES);
free_self:
    free(self);
    return status;
}

gpuipc_status connection_adopt(context *ctx, os_connection *os, const gpuipc_endpoint_config *whom,
                               connection **out_connection) {
    os_peer peer;
    gpuipc_status status = os_connection_get_peer(os, &peer);
    if (status != GPUIPC_OK) {
        goto destroy_os;
    }
    if ((whom != NULL && (status = peer_check(&peer, whom)) != GPUIPC_OK) ||
        (status = connection_new(ctx, os, &peer, out_connection)) != GPUIPC_OK) {
        goto close_peer;
    }
    return GPUIPC_OK;

close_peer:
    os_peer_close(&peer);
destroy_os:
    os_connection_destroy(os);
    return status;
}

gpuipc_status connection_publish(connection *self, gpuipc_connection **out_handle) {
    void *handle;
    gpuipc_status status = object_publish(&self->object, &handle);
    if (status != GPUIPC_OK) {
        connection_unreference(self);
        return status;
    }
    *out_handle = handle;
    return GPUIPC_OK;
}

gpuipc_status connection_acquire(gpuipc_connection *handle, connection **out_connection) {
    object *base;
    gpuipc_status status = object_acquire(OBJECT_CONNECTION, handle, &base);
    if (status == GPUIPC_OK) {
        *out_connection = (connection *)base;
    }
    return status;
}

void connection_unreference(connection *self) {
    if (self != NULL) {
        object_unreference(&self->object);
    }
}

void connection_make_room(context *ctx, gpuipc_status status) {
    if (status == GPUIPC_ERR_LIMIT) {
        (void)deferred_make_room(ctx);
    }
}

gpuipc_status connection_check(const connection *self) {
    if (atomic_load(&self->broken)) {
        return status_fail(GPUIPC_ERR_CONNECTION_BROKEN,
                           "the connection ended after an earlier error; open another");
    }
    return GPUIPC_OK;
}

gpuipc_status connection_answer(const connection *self, gpuipc_status status) {
    return status == GPUIPC_ERR_RELEASED && atomic_load(&self->broken) ? connection_check(self)
                                                                       : status;
}

void connection_break(connection *self) {
    gpuipc_error why = status_save();
    atomic_store(&self->broken, true);
    atomic_store(&self->ended, true);
    os_connection_stop(self->os);
    try_settle(self); /* fails in the thread that receives, which does so later */
    status_restore(&why);
}

static gpuipc_status open_connection(context *ctx, const char *name,
                                     const gpuipc_endpoint_config *config, os_deadline deadline,
                                     gpuipc_connection **out_handle) {
    const os_directory directory = context_directory(ctx);
    os_connection *os;
    connection *self;
    gpuipc_status status = os_connection_open(&directory, name, deadline, &os);
    if (status == GPUIPC_OK) {
        status = connection_adopt(ctx, os, config, &self);
    }
    return status == GPUIPC_OK ? connection_publish(self, out_handle) : status;
}

gpuipc_status gpuipc_connection_open(gpuipc_context *handle, const char *name,
                                     const gpuipc_endpoint_config *config, int timeout_ms,
                                     gpuipc_connection **out_connection) {
    status_enter(__func__);
    if (timeout_ms < -1) {
        return status_bad_timeout(timeout_ms);
    }
    const os_deadline deadline = os_deadline_after(timeout_ms);
    os_interrupt interrupt;
    gpuipc_endpoint_config known;
    context *ctx;
    gpuipc_status status;
    if (out_connection == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_connection is NULL");
    }
    if ((status = peer_check_name(name)) != GPUIPC_OK ||
        (status = peer_read_config(config, &known)) != GPUIPC_OK ||
        (status = context_acquire(handle, &ctx)) != GPUIPC_OK) {
        return status;
    }
    status = open_connection(ctx, name, &known, context_interruptible(ctx, deadline, &interrupt),
                             out_connection);
    status = context_answer(ctx, &interrupt, status);
    context_unreference(ctx);
    return status;
}

gpuipc_status gpuipc_connection_get_wait_handle(gpuipc_connection *handle, intptr_t *out_handle) {
    status_enter(__func__);
    connection *self;
    if (out_handle == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_handle is NULL");
    }
    gpuipc_status status = connection_acquire(handle, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = connection_lock_receiving(self);
    if (status == GPUIPC_OK) {
        status = wait_handle_get(&self->waited, NULL, self->os, out_handle);
        connection_unlock_receiving(self);
    }
    connection_unreference(self);
    return status;
}

gpuipc_status gpuipc_connection_get_peer(gpuipc_connection *handle, gpuipc_peer_info *out_peer) {
    status_enter(__func__);
    connection *self;
    gpuipc_status status =
        struct_size_check(out_peer, STRUCT_SIZE_UP_TO(gpuipc_peer_info, is_running));
    if (status != GPUIPC_OK || (status = connection_acquire(handle, &self)) != GPUIPC_OK) {
        return status;
    }
    gpuipc_peer_info info = peer_describe(&self->peer);
    info.is_running = point_peer_is_running(self->other_end);
    struct_size_write(out_peer, &info, sizeof(info));
    connection_unreference(self);
    return GPUIPC_OK;
}

/* Before this end is closed, after which nobody can tell whether the other one was first. */
void connection_leave(connection *self) {
    point_peer_leave(self->other_end);
    atomic_store(&self->ended, true);
    os_connection_stop(self->os);
    try_settle(self);
}

gpuipc_status gpuipc_connection_close(gpuipc_connection *handle) {
    status_enter(__func__);
    object *last = NULL;
    context *ctx = NULL;
    if (handle == NULL) {
        return GPUIPC_OK;
    }
    gpuipc_status status = object_remove_hold(OBJECT_CONNECTION, handle, &last);
    if (last != NULL && !object_is_forked(last)) {
        /* In a child this would end the parent's conversation. */
        connection_leave((connection *)last);
        ctx = ((connection *)last)->context;
        object_reference(&ctx->object);
    }
    object_unreference(last);
    if (ctx != NULL) {
        registry_sweep_some(
            ctx, true); /* what was released and exported only to this peer, or by it to here */
        deferred_tidy(ctx);
        context_unreference(ctx);
    }
    return status;
}

/* SPDX-License-Identifier: MIT */
/** @file See connection.h: opening, closing, the peer. Sending and receiving have files of their own. */
#include "connection.h"

#include <stdlib.h>

#include "contents.h"
#include "peer.h"
#include "registry.h"
#include "struct_size.h"

/* What the peer lent and nobody has opened is returned with the connection. */
static void end_points(connection *self, bool forked) {
    const bool had_pages = self->points_in != NULL || self->points_out != NULL;
    if (self->points_in != NULL && !forked) {
        point_page_return_rest(self->points_in);
        point_page_set_connection(self->points_in, NULL);
    }
    if (self->points_out != NULL && !forked) {
        point_page_leave(self->points_out);
    }
    point_page_unreference(self->points_in, forked);
    point_page_unreference(self->points_out, forked);
    if (had_pages && !forked) {
        point_collect_more(self->context);
    }
}

/* Before this end is closed, after which nobody can tell whether the other one was first. */
static void look_at_peer(connection *self) {
    if (os_mutex_try_lock(&self->send_mutex)) {
        if (self->points_out != NULL) {
            (void)point_page_peer_is_gone(self->points_out);
        }
        os_mutex_unlock(&self->send_mutex);
    }
}

static void destroy(object *base) {
    connection *self = (connection *)base;
    contents_end(self, object_is_forked(base));
    incoming_clear(&self->in, self->context, object_is_forked(base));
    if (!object_is_forked(base)) {
        import_forget_connection(self->context, self->number);
    }
    sender_end(&self->from, object_is_forked(base));
    group_set_clear(&self->sent_groups);
    end_points(self, object_is_forked(base));
    os_connection_destroy(self->os);
    if (!object_is_forked(base)) { /* in a child it is closed already */
        os_peer_close(&self->peer);
    }
    if (!object_is_forked(base)) { /* else another thread of the parent may have had them */
        os_mutex_destroy(&self->receive_mutex);
        os_mutex_destroy(&self->send_mutex);
    }
    free(self->packet_in);
    free(self->packet_out);
    context_unreference(self->context);
    free(self);
}

gpuipc_status connection_new(context *ctx, os_connection *os, const os_peer *peer,
                             connection **out_connection) {
    gpuipc_status status;
    connection *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory("connection_new", sizeof(*self));
    }
    self->packet_in = malloc(OS_PACKET_BYTES_MAX);
    self->packet_out = malloc(OS_PACKET_BYTES_MAX);
    if (self->packet_in == NULL || self->packet_out == NULL) {
        status = status_out_of_memory("connection_new", OS_PACKET_BYTES_MAX);
        goto free_packets;
    }
    status = os_mutex_init(&self->send_mutex);
    if (status != GPUIPC_OK) {
        goto free_packets;
    }
    status = os_mutex_init(&self->receive_mutex);
    if (status != GPUIPC_OK) {
        goto destroy_send_mutex;
    }
    object_init(&self->object, OBJECT_CONNECTION, destroy);
    object_reference(&ctx->object);
    self->context = ctx;
    self->number = atomic_fetch_add(&ctx->next_connection, 1u);
    self->os = os;
    self->peer = *peer;
    self->from = (sender){.context = ctx, .connection = self->number, .peer = &self->peer};
    atomic_init(&self->broken, false);
    atomic_init(&self->closed, false);
    *out_connection = self;
    return GPUIPC_OK;

destroy_send_mutex:
    os_mutex_destroy(&self->send_mutex);
free_packets:
    free(self->packet_in);
    free(self->packet_out);
    free(self);
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

gpuipc_status connection_acquire(gpuipc_connection *handle, const char *operation,
                                 connection **out_connection) {
    object *base;
    gpuipc_status status = object_acquire(OBJECT_CONNECTION, handle, operation, &base);
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

gpuipc_status connection_check(const connection *self, const char *operation) {
    if (atomic_load(&self->broken)) {
        return status_fail(GPUIPC_ERR_CONNECTION_BROKEN, operation,
                           "the connection ended after an earlier error; open another");
    }
    return GPUIPC_OK;
}

void connection_break(connection *self) {
    gpuipc_error why = status_save();
    atomic_store(&self->broken, true);
    os_connection_interrupt(self->os);
    status_restore(&why);
}

static gpuipc_status open_connection(context *ctx, const char *name,
                                     const gpuipc_endpoint_config *config, os_deadline deadline,
                                     gpuipc_connection **out_handle) {
    const char *const operation = "gpuipc_connection_open";
    const os_directory directory = context_directory(ctx);
    os_connection *os;
    os_peer peer;
    connection *self;
    gpuipc_status status = os_connection_open(&directory, name, deadline, &os);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = os_connection_get_peer(os, &peer);
    if (status != GPUIPC_OK) {
        goto destroy_os;
    }
    if ((status = peer_check(&peer, config, operation)) != GPUIPC_OK ||
        (status = connection_new(ctx, os, &peer, &self)) != GPUIPC_OK) {
        goto close_peer;
    }
    return connection_publish(self, out_handle);

close_peer:
    os_peer_close(&peer);
destroy_os:
    os_connection_destroy(os);
    return status;
}

gpuipc_status gpuipc_connection_open(gpuipc_context *handle, const char *name,
                                     const gpuipc_endpoint_config *config, int timeout_ms,
                                     gpuipc_connection **out_connection) {
    const char *const operation = "gpuipc_connection_open";
    const os_deadline deadline = os_deadline_after(timeout_ms);
    gpuipc_endpoint_config known;
    context *ctx;
    gpuipc_status status;
    if (out_connection == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, operation, "out_connection is NULL");
    }
    if ((status = peer_check_name(name, operation)) != GPUIPC_OK ||
        (status = peer_read_config(config, &known, operation)) != GPUIPC_OK ||
        (status = context_acquire(handle, operation, &ctx)) != GPUIPC_OK) {
        return status;
    }
    status = open_connection(ctx, name, &known, deadline, out_connection);
    context_unreference(ctx);
    return status;
}

gpuipc_status gpuipc_connection_get_peer(gpuipc_connection *handle, gpuipc_peer_info *out_peer) {
    const char *const operation = "gpuipc_connection_get_peer";
    connection *self;
    gpuipc_status status =
        struct_size_check(out_peer, STRUCT_SIZE_UP_TO(gpuipc_peer_info, is_running), operation);
    if (status != GPUIPC_OK ||
        (status = connection_acquire(handle, operation, &self)) != GPUIPC_OK) {
        return status;
    }
    gpuipc_peer_info info = peer_describe(&self->peer);
    struct_size_write(out_peer, &info, sizeof(info));
    connection_unreference(self);
    return GPUIPC_OK;
}

/* What was sent may still be read by the peer: the end that this side makes is not the peer's. */
static bool leave_pages(connection *self) {
    bool may_have_lent = true;
    if (os_mutex_try_lock(&self->send_mutex)) { /* else a sender is just noticing the end */
        may_have_lent = self->points_out != NULL;
        if (self->points_out != NULL) {
            point_page_set_connection(self->points_out, NULL);
        }
        if (self->ring_out != NULL) {
            point_page_set_connection(self->ring_out->words, NULL);
        }
        os_mutex_unlock(&self->send_mutex);
    }
    return may_have_lent;
}

/* What this end gives back may have been lent by this very process. */
static bool may_have_borrowed(connection *self) {
    bool may_have = true;
    if (os_mutex_try_lock(&self->receive_mutex)) { /* else a receiver is just noticing the end */
        may_have = self->points_in != NULL;
        os_mutex_unlock(&self->receive_mutex);
    }
    return may_have;
}

bool connection_leave(connection *self) {
    atomic_store(&self->closed, true);
    look_at_peer(self);
    const bool may_have_lent = leave_pages(self);
    const bool may_have_returned = may_have_borrowed(self);
    os_connection_interrupt(self->os);
    return may_have_lent || may_have_returned;
}

gpuipc_status gpuipc_connection_close(gpuipc_connection *handle) {
    object *last = NULL;
    context *ctx = NULL;
    if (handle == NULL) {
        return GPUIPC_OK;
    }
    gpuipc_status status =
        object_drop_hold(OBJECT_CONNECTION, handle, "gpuipc_connection_close", &last);
    if (last != NULL && !object_is_forked(last)) {
        /* In a child this would end the parent's conversation. */
        (void)connection_leave((connection *)last);
        ctx = ((connection *)last)->context;
        object_reference(&ctx->object);
    }
    object_unreference(last);
    if (ctx != NULL) {
        (void)registry_sweep(
            true); /* what was released and lent only to this peer, or by it to here */
        if (deferred_are_many(&ctx->deferred)) {
            (void)context_run_deferred(ctx);
        }
        context_unreference(ctx);
    }
    return status;
}

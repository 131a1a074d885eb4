/* SPDX-License-Identifier: MIT */
/** @file Named endpoints. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/wait_handle.h"
#include "message/connection.h"
#include "message/peer.h"

typedef struct listener {
    object object;
    context *context;
    os_listener *os;
    gpuipc_endpoint_config config;
    wait_handle waited; /**< for a client */
} listener;

static void destroy(object *base) {
    listener *self = (listener *)base;
    wait_handle_end(&self->waited);
    os_listener_destroy(self->os);
    context_unreference(self->context);
    free(self);
}

static void log_sentence(void *user_data, const char *sentence) {
    context_log(user_data, GPUIPC_LOG_INFO, "%s", sentence);
}

static gpuipc_status open_listener(context *ctx, const char *name,
                                   const gpuipc_endpoint_config *config,
                                   gpuipc_listener **out_listener) {
    const os_directory directory = context_directory(ctx);
    const os_log log = {.write = log_sentence, .user_data = ctx};
    void *handle;
    listener *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    gpuipc_status status = os_listener_open(&directory, name, &log, &self->os);
    if (status != GPUIPC_OK) {
        free(self);
        return status;
    }
    object_init(&self->object, OBJECT_LISTENER, destroy);
    object_reference(&ctx->object);
    self->context = ctx;
    self->config = *config;
    status = object_publish(&self->object, &handle);
    if (status != GPUIPC_OK) {
        object_unreference(&self->object);
        return status;
    }
    *out_listener = handle;
    return GPUIPC_OK;
}

gpuipc_status gpuipc_listener_open(gpuipc_context *handle, const char *name,
                                   const gpuipc_endpoint_config *config,
                                   gpuipc_listener **out_listener) {
    status_enter(__func__);
    gpuipc_endpoint_config known;
    context *ctx;
    gpuipc_status status;
    if (out_listener == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_listener is NULL");
    }
    if ((status = peer_check_name(name)) != GPUIPC_OK ||
        (status = peer_read_config(config, &known)) != GPUIPC_OK ||
        (status = context_acquire(handle, &ctx)) != GPUIPC_OK) {
        return status;
    }
    status = open_listener(ctx, name, &known, out_listener);
    context_unreference(ctx);
    return status;
}

/* Makes a connection of one that the system accepted. *out_refused: this one costs only itself. */
static gpuipc_status admit(const listener *self, os_connection *os, bool *out_refused,
                           gpuipc_connection **out_connection) {
    os_peer peer;
    connection *made;
    gpuipc_status status = os_connection_get_peer(os, &peer);
    if (status != GPUIPC_OK) {
        /* A client that is gone before it was looked at, or of a kind that cannot be served, or that
         * cannot be looked at, is nobody's failure; having no room to look is ours. */
        *out_refused = status != GPUIPC_ERR_OUT_OF_MEMORY && status != GPUIPC_ERR_TOO_MANY_HANDLES;
        if (*out_refused) {
            context_log(self->context, GPUIPC_LOG_WARNING, "refused a connection: %s",
                        gpuipc_error_get()->sentence);
        }
        goto destroy_os;
    }
    status = peer_check(&peer, &self->config);
    if (status != GPUIPC_OK) {
        *out_refused = true;
        context_log(self->context, GPUIPC_LOG_WARNING,
                    "refused a connection of process %" PRIu64 ", user %s", peer.process_id,
                    peer.user);
        goto close_peer;
    }
    status = connection_new(self->context, os, &peer, &made);
    if (status != GPUIPC_OK) {
        goto close_peer;
    }
    return connection_publish(made, out_connection);

close_peer:
    os_peer_close(&peer);
destroy_os:
    os_connection_destroy(os);
    return status;
}

gpuipc_status gpuipc_listener_accept(gpuipc_listener *handle, int timeout_ms,
                                     gpuipc_connection **out_connection) {
    status_enter(__func__);
    if (timeout_ms < -1) {
        return status_bad_timeout(timeout_ms);
    }
    os_deadline deadline = os_deadline_after(timeout_ms);
    os_interrupt interrupt;
    object *base;
    bool refused;
    gpuipc_status status;
    if (out_connection == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_connection is NULL");
    }
    status = object_acquire(OBJECT_LISTENER, handle, &base);
    if (status != GPUIPC_OK) {
        return status;
    }
    listener *self = (listener *)base;
    deadline = context_interruptible(self->context, deadline, &interrupt);
    do {
        os_connection *os;
        refused = false;
        status = os_listener_accept(self->os, deadline, &os);
        if (status == GPUIPC_OK) {
            status = admit(self, os, &refused, out_connection);
        }
    } while (refused && !os_deadline_passed(deadline));
    if (refused) {
        status = status_fail(GPUIPC_ERR_TIMEOUT,
                             "only processes that were refused connected before the time ran out");
    }
    status = context_answer(self->context, &interrupt, status);
    wait_handle_tell(&self->waited, false);
    object_unreference(base);
    return status;
}

gpuipc_status gpuipc_listener_get_wait_handle(gpuipc_listener *handle, intptr_t *out_handle) {
    status_enter(__func__);
    object *base;
    if (out_handle == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_handle is NULL");
    }
    gpuipc_status status = object_acquire(OBJECT_LISTENER, handle, &base);
    if (status == GPUIPC_OK) {
        listener *self = (listener *)base;
        status = wait_handle_get(&self->waited, self->os, NULL, out_handle);
        object_unreference(base);
    }
    return status;
}

gpuipc_status gpuipc_listener_close(gpuipc_listener *handle) {
    status_enter(__func__);
    object *last = NULL;
    if (handle == NULL) {
        return GPUIPC_OK;
    }
    gpuipc_status status = object_drop_hold(OBJECT_LISTENER, handle, &last);
    if (last != NULL && !object_is_forked(last)) {
        os_listener_interrupt(((listener *)last)->os);
    }
    object_unreference(last);
    return status;
}

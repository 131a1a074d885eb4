/* SPDX-License-Identifier: MIT */
/** @file Named endpoints. */
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
    wait_handle_destroy(&self->waited);
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

/* Makes a connection of one that the system accepted. *out_refused: this one costs only itself. A client that is gone
 * before it was looked at, or of a kind that cannot be served, or that cannot be looked at, is nobody's failure; having no
 * room to look is ours. */
static gpuipc_status admit(const listener *self, os_connection *os, bool *out_refused,
                           gpuipc_connection **out_connection) {
    connection *made;
    gpuipc_status status = connection_adopt(self->context, os, &self->config, &made);
    if (status == GPUIPC_OK) {
        return connection_publish(made, out_connection);
    }
    connection_make_room(self->context, status);
    *out_refused = status != GPUIPC_ERR_OUT_OF_MEMORY && status != GPUIPC_ERR_TOO_MANY_HANDLES;
    if (*out_refused) {
        context_log_peer(self->context, "refused a connection: %s", gpuipc_error_get()->sentence);
    }
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
    gpuipc_status status = object_remove_hold(OBJECT_LISTENER, handle, &last);
    if (last != NULL && !object_is_forked(last)) {
        os_listener_interrupt(((listener *)last)->os);
    }
    object_unreference(last);
    return status;
}

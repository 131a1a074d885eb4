/* SPDX-License-Identifier: MIT */
/** @file See wait_handle.h. */
#include "base/wait_handle.h"

#include "base/status.h"

/* For all of them, since none is held long: a poller is for one thread at a time. */
static os_static_mutex mutex;

static gpuipc_status make(os_listener *listener, os_connection *connection,
                          os_poller **out_poller) {
    os_poller *made;
    gpuipc_status status = os_poller_create(&made);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (listener != NULL) {
        status = os_poller_add_listener(made, listener, made);
    } else if (connection != NULL) {
        status = os_poller_add_connection(made, connection, made);
    }
    if (status != GPUIPC_OK) {
        os_poller_destroy(made);
        return status;
    }
    *out_poller = made;
    return GPUIPC_OK;
}

/* Waiting for no time sets right what is ready for nothing, and takes what was told back. That itself may leave it ready
 * for nothing (win32_poller.c), so there is a second time. */
static void settle(os_poller *poller) {
    void *tags[2];
    size_t count = 0;
    gpuipc_status status = os_poller_wait(poller, os_deadline_after(0), tags, 2, &count);
    if (status == GPUIPC_OK && count == 1 && tags[0] == OS_POLLER_WOKEN) {
        (void)os_poller_wait(poller, os_deadline_after(0), tags, 2, &count);
    }
}

gpuipc_status wait_handle_get(wait_handle *self, os_listener *listener, os_connection *connection,
                              intptr_t *out_native) {
    os_static_mutex_lock(&mutex);
    gpuipc_status status =
        self->poller == NULL ? make(listener, connection, &self->poller) : GPUIPC_OK;
    if (status == GPUIPC_OK) {
        settle(self->poller);
        *out_native = os_poller_native(self->poller);
    }
    os_static_mutex_unlock(&mutex);
    return status;
}

void wait_handle_destroy(wait_handle *self) {
    os_poller_destroy(self->poller);
    self->poller = NULL;
}

void wait_handle_tell(wait_handle *self, bool is_ready) {
    os_static_mutex_lock(&mutex);
    if (self->poller != NULL) {
        const gpuipc_error why = status_save();
        if (is_ready) {
            os_poller_wake(self->poller);
        } else {
            settle(self->poller);
        }
        status_restore(&why);
    }
    os_static_mutex_unlock(&mutex);
}

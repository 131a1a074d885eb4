/* SPDX-License-Identifier: MIT */
/** @file What a caller's event loop waits for, of one object: a descriptor or an event, made when it is asked for. */
#ifndef GPUIPC_WAIT_HANDLE_H
#define GPUIPC_WAIT_HANDLE_H

#include "os.h"

/** All zero: nobody has asked for it. */
typedef struct wait_handle {
    os_poller *poller;
} wait_handle;

/** Makes it unless it is there: ready when the listener or the connection is, which may be NULL, or when it is told. */
gpuipc_status wait_handle_get(wait_handle *self, os_listener *listener, os_connection *connection,
                              intptr_t *out_native);
/** Before the connection ends. */
void wait_handle_destroy(wait_handle *self);

/** It is ready (true) until it is told otherwise, or ready only if what it looks at is. Nothing where nobody has asked
 *  for it. The error record stays. */
void wait_handle_tell(wait_handle *self, bool is_ready);

#endif

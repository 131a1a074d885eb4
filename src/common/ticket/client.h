/* SPDX-License-Identifier: MIT */
/** @file The clients of a server: who is let in, and what each is answered. All by the one thread that serves. */
#ifndef GPUIPC_CLIENT_H
#define GPUIPC_CLIENT_H

#include "base/list.h"
#include "message/connection.h"
#include "ticket/share.h"

typedef struct client client;

typedef struct client_table {
    context *context;
    os_poller *poller;
    share_table *shares;
    const uint8_t *server_id;
    gpuipc_endpoint_config admission;
    linked_list served;
    linked_list refused; /**< told that they are, until they have asked */
    linked_list ended;   /**< until client_table_tidy() */
} client_table;

/** Lets one in that waits at the listener, and answers it, or refuses it: each failure is that client's alone, and
 *  logged. */
void client_accept(client_table *self, os_listener *listener);

/** Answers one request, or takes notice of the end. @param of what the poller gave */
void client_serve(client_table *self, client *of);

/** Frees those that have ended: what the poller gave before must not be used any more. */
void client_table_tidy(client_table *self);

/** Ends all conversations. @param forked in a child, after the shares have ended: frees only */
void client_table_clear(client_table *self, bool forked);

#endif

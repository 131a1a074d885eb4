/* SPDX-License-Identifier: MIT */
/** @file Answers tickets: shares, the clients that ask for them, and who holds what. */
#ifndef GPUIPC_SERVER_H
#define GPUIPC_SERVER_H

#include "base/table.h"
#include "ticket/client.h"

typedef struct server {
    object object;
    context *context;
    uint8_t id[16];
    uint16_t boot; /**< what its tickets say of this machine's start and this process's user */
    uint32_t user;
    os_listener *listener;
    os_poller *poller;
    os_deadline next_renewal; /**< of whom serves: when it looks at its names */
    atomic_bool is_nameless;  /**< no new client can find it, which was logged */
    bool has_thread;          /**< else the program polls */
    os_thread *thread;        /**< NULL: it has not started, or has ended */
    atomic_bool is_over;
    os_mutex serving; /**< held by the one thread that serves; its own thread waits without it */
    size_t exports_to_look; /**< of whom serves: export_look_on() */
    share_table shares;
    client_table clients;
    table_link in_all; /**< of this process's */
    linked_list names; /**< of its tickets: ticket_name.h */
} server;

/** The server behind a public handle, with a reference for the caller. */
gpuipc_status server_acquire(gpuipc_server *handle, server **out_server);

/** Before a ticket is given out: makes the server's names again where another program removed them. While clients are
 *  connected a failure is logged alone, since theirs are the tickets then. ERR_NOT_FOUND, ERR_RELEASED,
 *  ERR_TOO_MANY_HANDLES, ERR_OUT_OF_MEMORY */
gpuipc_status server_renew_names(server *self);

/** As gpuipc_server_poll(), of one that the caller has a reference on. */
gpuipc_status server_poll(server *self, os_deadline deadline);

/** A server of this process, with a reference for the caller; NULL: there is none with this number. */
server *server_find(const uint8_t id[16]);

#endif

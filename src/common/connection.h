/* SPDX-License-Identifier: MIT */
/** @file A conversation with one process: messages of bytes and buffers. */
#ifndef GPUIPC_CONNECTION_H
#define GPUIPC_CONNECTION_H

#include "context.h"
#include "incoming.h"

typedef struct connection {
    object object;
    context *context;
    os_connection *os;
    os_peer peer;
    atomic_bool broken;     /**< ended by an error of the protocol or a half-sent message */
    os_mutex send_mutex;    /**< held by the one sender; guards the members to the next mutex */
    uint8_t *packet_out;    /**< OS_PACKET_BYTES_MAX */
    uint64_t next_out;      /**< number of the next message */
    os_mutex receive_mutex; /**< held by the one receiver; guards the rest */
    uint8_t *packet_in;     /**< OS_PACKET_BYTES_MAX */
    uint64_t next_in;
    incoming in;
} connection;

/** Makes a connection of what the system has connected. On success it takes over @p os and
 *  @p peer. The caller publishes it. */
gpuipc_status connection_new(context *ctx, os_connection *os, const os_peer *peer,
                             connection **out_connection);

/** Hands out the public handle, which takes over the caller's reference, also when it fails. */
gpuipc_status connection_publish(connection *self, gpuipc_connection **out_handle);

gpuipc_status connection_acquire(gpuipc_connection *handle, const char *operation,
                                 connection **out_connection);
void connection_unreference(connection *self);

/** ERR_CONNECTION_BROKEN when an earlier error ended it. */
gpuipc_status connection_check(const connection *self, const char *operation);

/** Ends it for good: both sides notice. The caller's status stays in the record. */
void connection_break(connection *self);

#endif

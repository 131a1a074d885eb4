/* SPDX-License-Identifier: MIT */
/** @file A conversation with one process: messages of bytes and buffers. */
#ifndef GPUIPC_CONNECTION_H
#define GPUIPC_CONNECTION_H

#include "contents_ring.h"
#include "context.h"
#include "group_set.h"
#include "incoming.h"
#include "sender.h"

typedef struct connection {
    object object;
    context *context;
    uint64_t number; /**< of its own in the context, above 0 */
    os_connection *os;
    os_peer peer;
    bool is_served;          /**< by a server: nothing but requests may come */
    atomic_bool broken;      /**< ended by an error of the protocol or a half-sent message */
    atomic_bool closed;      /**< by its owner, while calls may be waiting in it */
    os_mutex send_mutex;     /**< held by the one sender; guards the members to the next mutex */
    uint8_t *packet_out;     /**< OS_PACKET_BYTES_MAX */
    uint64_t next_out;       /**< number of the next message */
    point_page *points_out;  /**< of this side's points; NULL until a buffer is sent */
    contents_ring *ring_out; /**< NULL until contents are sent through host memory */
    group_set sent_groups;   /**< pools whose handles the peer has */
    os_mutex receive_mutex;  /**< held by the one receiver; guards the rest */
    uint8_t *packet_in;      /**< OS_PACKET_BYTES_MAX */
    uint64_t next_in;
    point_page *points_in;          /**< of the peer's points; NULL until it has come */
    point_page *ring_words;         /**< of the peer's ring; NULL before it has come, and after */
    contents_ring *ring_in;         /**< likewise, of the ring with its words */
    struct contents_opened *opened; /**< the peer's memory that contents are just copied out of */
    sender from;                    /**< the peer, as the memory that it sends is concerned */
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

/** What closing does before the last reference goes: the peer sees the end, threads that wait in it return.
 *  @return whether memory of this process may have come back by it, or will */
bool connection_leave(connection *self);

/** ERR_CONNECTION_BROKEN when an earlier error ended it. */
gpuipc_status connection_check(const connection *self, const char *operation);

/** What a message is beside what the caller of gpuipc_connection_send() says. */
typedef struct letter {
    wire_kind kind;
    bool is_range; /**< of its one buffer, only the range below is described */
    uint64_t offset;
    uint64_t bytes;
} letter;

/** Sends a message, or something in the form of one. The send mutex is held. */
gpuipc_status connection_send_message(connection *to, const gpuipc_outgoing *message,
                                      const letter *as, int timeout_ms);

/** Until the next message is whole, in @c in. The receive mutex is held in this and the next two.
 *  ERR_OTHER_KIND when it is of another kind, for which it waits. */
gpuipc_status connection_receive_whole(connection *from, wire_kind kind, bool keep_handles,
                                       os_deadline deadline);
/** Gives it to the caller. It is used up unless there is too little room, or its contents are not ready
 *  in time.  @param message gets what came; as @p wanted */
gpuipc_status connection_deliver(connection *from, const gpuipc_incoming *wanted,
                                 gpuipc_incoming *message, os_deadline deadline);
/** It is used up. @param is_refused what it brought is returned */
void connection_drop(connection *from, bool is_refused);

/** Ends it for good: both sides notice. The caller's status stays in the record. */
void connection_break(connection *self);

#endif

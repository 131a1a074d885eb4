/* SPDX-License-Identifier: MIT */
/** @file A conversation with one process: messages of bytes and buffers. */
#ifndef GPUIPC_CONNECTION_H
#define GPUIPC_CONNECTION_H

#include "base/wait_handle.h"
#include "cuda/context.h"
#include "memory/import_source.h"
#include "message/group_set.h"
#include "message/incoming.h"
#include "sync/export_record.h"

typedef struct connection {
    object object;
    context *context;
    uint64_t number; /**< of its own in the context, above 0 */
    os_connection *os;
    os_peer peer;          /**< its handle is other_end's */
    quota_charge charge;   /**< of the peer's process, for the handle of the connection */
    point_peer *other_end; /**< a reference: the same, as the points see it */
    bool is_served;        /**< by a server: nothing but requests may come */
    atomic_bool broken;    /**< ended by an error of the protocol or a half-sent message */
    atomic_bool ended;     /**< closed by its owner or broken, while calls may be waiting in it */
    os_interrupt *send_interrupt; /**< of the call that holds the next; NULL: it has none */
    os_mutex send_mutex;   /**< held by the one sender; guards the members to the next mutex */
    uint8_t *packet_out;   /**< OS_PACKET_BYTES_MAX */
    uint64_t next_out;     /**< number of the next message */
    export_table *exports; /**< what was handed over; NULL until a buffer is sent */
    struct contents_ring *ring_out; /**< NULL until contents are sent through host memory */
    group_set sent_groups;          /**< pools whose handles the peer has */
    os_mutex receive_mutex;         /**< held by the one receiver; guards the rest */
    uint8_t *packet_in;             /**< OS_PACKET_BYTES_MAX */
    uint64_t next_in;
    point_page *points_in[POINT_PAGES_MAX]; /**< the peer's */
    uint32_t points_in_count;
    bool is_settled;               /**< connection_settle() has been here */
    bool is_cut;                   /**< the peer has closed it after a part of a message */
    point_page *ring_words;        /**< of the peer's ring; NULL before it has come, and after */
    struct contents_ring *ring_in; /**< likewise, of the ring with its words */
    bool awaits_channel;           /**< a page of a channel may come */
    os_handle channel_page;        /**< which has come, until it is taken; or none */
    import_source from;            /**< the peer, as the memory that it sends is concerned */
    incoming in;
    wait_handle waited; /**< for something to be received */
} connection;

/** What contents that go over a connection ask of it: contents.h, of a floor above, which the context knows. The receive
 *  mutex is held. */
typedef struct connection_contents {
    /** Takes in a packet with the words of the peer's ring. ERR_PROTOCOL for a second one, one inside a message, or what is
     *  no such page.  @param handle stays the caller's */
    gpuipc_status (*take_words)(connection *from, os_handle handle);
    /** Nothing more is received: what the peer sends goes nowhere, and its streams go on. */
    void (*end_receiving)(connection *self, bool forked);
    /** At the end of a connection, without the mutex. */
    void (*end)(connection *self, bool forked);
} connection_contents;

/** Makes a connection of what the system has connected. On success it takes over @p os and
 *  @p peer. The caller publishes it. */
gpuipc_status connection_new(context *ctx, os_connection *os, const os_peer *peer,
                             connection **out_connection);

/** The same of one that the system has connected, if its peer may be there. Takes over @p os in any case.
 *  @param whom NULL: anybody */
gpuipc_status connection_adopt(context *ctx, os_connection *os, const gpuipc_endpoint_config *whom,
                               connection **out_connection);
/** Hands out the public handle, which takes over the caller's reference, also when it fails. */
gpuipc_status connection_publish(connection *self, gpuipc_connection **out_handle);

gpuipc_status connection_acquire(gpuipc_connection *handle, connection **out_connection);
void connection_unreference(connection *self);

/** After ERR_LIMIT, since a process or its user has too much here: ends memory that nothing uses any more (deferred.h), for
 *  the next call. The error record stays. No lock is held.  @param status the call's result */
void connection_make_room(context *ctx, gpuipc_status status);

/** What closing does before the last reference goes: threads that wait in it return, what the peer exported and nobody here
 *  has opened is returned, also what had come and was not read, and the peer sees the end. The second half is done by the
 *  thread that receives, if there is one. */
void connection_leave(connection *self);

/** For one thread at a time. ERR_BUSY: another receives; ERR_RELEASED, ERR_CONNECTION_BROKEN: another is just ending it */
gpuipc_status connection_lock_receiving(connection *self);
/** Tells who waits by the handle, gives the receive mutex back, and settles what connection_leave() and connection_break() could not meanwhile. */
void connection_unlock_receiving(connection *self);

/** The same for one that sends, where the user may end its waits. ERR_BUSY */
gpuipc_status connection_lock_sending(connection *self, os_interrupt *interrupt);
/** @param status what the call has come to  @return what it answers */
gpuipc_status connection_unlock_sending(connection *self, const os_interrupt *interrupt,
                                        gpuipc_status status);

/** ERR_CONNECTION_BROKEN when an earlier error ended it. */
gpuipc_status connection_check(const connection *self);
/** What a call answers that met with @p status: ERR_RELEASED is ERR_CONNECTION_BROKEN where another thread broke it off. */
gpuipc_status connection_answer(const connection *self, gpuipc_status status);

/** What a message is beside what the caller of gpuipc_connection_send() says. */
typedef struct letter {
    wire_kind kind;
    struct buffer *const *
        buffers; /**< as many as the message says, of the connection's context, the caller's reference
                                        on each; message->buffers are not looked at */
    bool is_range; /**< of its one buffer, only the range below is described */
    uint64_t offset;
    uint64_t bytes;
    point *
        handed_over; /**< gets the point of its one buffer, with a reference on the page, when the record has left; NULL:
                             nobody asks */
} letter;

/** Sends a message, or something in the form of one. The send mutex is held. */
gpuipc_status connection_send_message(connection *to, const gpuipc_outgoing *message,
                                      const letter *as, int timeout_ms);

/** Sends a page of its own in a packet of this kind, which says whose words it has. The send mutex is held. */
gpuipc_status connection_send_page(connection *to, wire_kind kind, point_page *page,
                                   os_deadline deadline);

/** Until the next message is whole, in @c in. The receive mutex is held in this and the next two.
 *  ERR_OTHER_KIND when it is of another kind, for which it waits. */
gpuipc_status connection_receive_whole(connection *from, wire_kind kind, bool keep_handles,
                                       os_deadline deadline);
/** Gives it to the caller. It is used up unless there is too little room, or its contents are not ready
 *  in time.  @param wanted bytes NULL: they are not copied; the caller has read them in @c in  @param out_opened room for wanted->buffer_capacity: its buffers, with a reference for the caller each, of
 *         which nobody knows yet
 *  @param message gets how much came; as @p wanted */
gpuipc_status connection_deliver(connection *from, const gpuipc_incoming *wanted,
                                 struct buffer **out_opened, gpuipc_incoming *message,
                                 os_deadline deadline);
/** Takes in the page of a packet. A handle that is not kept stays the caller's. */
gpuipc_status connection_take_page(connection *from, wire_kind kind, os_handle *handle);
/** Takes the page of a channel that has come out of it. ERR_PROTOCOL: none has */
gpuipc_status connection_take_channel_page(connection *from, os_handle *out_handle);
/** It is used up. @param is_refused what it brought is returned */
void connection_clear_message(connection *from, bool is_refused);

/** Ends it for good: both sides notice. The caller's status stays in the record. */
void connection_break(connection *self);

#endif

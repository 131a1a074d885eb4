/* SPDX-License-Identifier: MIT */
/** @file What a ticket stands for: a range of a buffer, when its contents are ready, and the reply that carries it
 *  to whoever may have it. */
#ifndef GPUIPC_OFFER_H
#define GPUIPC_OFFER_H

#include "memory/buffer.h"
#include "message/connection.h"

struct offer;

/** What takes readers in, where what is offered are the slots of a channel: channel/channel.h, of a floor above. */
typedef struct offer_channel {
    /** A reader comes. *out_answer GRANTED: its page is to be sent to it.
     *  @param page with a reference for the caller */
    gpuipc_status (*attach)(struct offer_channel *self, const wire_request *wish, point_peer *peer,
                            wire_answer *out_answer, point_page **out_page);
    /** It could not be sent. */
    void (*detach)(struct offer_channel *self, point_page *page);
    /** The offer is given up. @param forked in a child */
    void (*leave)(struct offer_channel *self, bool forked);
} offer_channel;

typedef struct offer {
    atomic_uint references;
    offer_channel *channel; /**< NULL: the buffer is what is offered */
    buffer *of;             /**< held: the caller's handle may be released */
    uint64_t offset;        /**< of the range, in the buffer */
    uint64_t bytes;
    gpuipc_access access; /**< the most that those who open it may do */
    atomic_bool is_ready; /**< the contents are there */
    CUevent event;        /**< reached when they are; NULL: they were there from the start */
    uint8_t *reply;       /**< the bytes of the message: the record and the attachment */
    size_t reply_bytes;
    uint8_t reply_of_part[WIRE_REPLY_BYTES]; /**< likewise, for who opens a part: without it */
    list_link given_up;                      /**< in a list of those that a share gave up */
} offer;

/** Makes an offer of a buffer, which gets a reference; waits for its contents, or records the place of the stream
 *  behind which they are there. As gpuipc_buffer_share(). @param config with all of its values settled
 *  @param is_over becomes true when the server ends: ERR_RELEASED */
gpuipc_status offer_new(buffer *of, const gpuipc_share_config *config, const atomic_bool *is_over,
                        offer **out_offer);
void offer_reference(offer *self);
/** Gives the buffer up with the last reference, without waiting for devices. NULL does nothing.
 *  @param forked no driver calls */
void offer_unreference(offer *self, bool forked);

/** Whether a range of the buffer lies in the range that is offered. */
bool offer_has(const offer *self, uint64_t offset, uint64_t bytes);

/** Sends it, and the range of the buffer that was asked for. The peer waits for contents that are not ready yet. The
 *  connection's send mutex is held.
 *  @param out_point of the hand-over, with a reference on its page; written when it has left, also in part */
gpuipc_status offer_send(offer *self, connection *to, uint64_t offset, uint64_t bytes,
                         int timeout_ms, point *out_point);

/** A word that is reached when the contents are there, as long as the buffer's context lives. */
gpuipc_status offer_promise(offer *self, point_word *out_ready);
/** Until the contents are there, for a view of the buffer in this process; with GPUIPC_RECEIVE_ASYNC the stream
 *  waits instead.  @param is_over becomes true when the server ends
 *  ERR_TIMEOUT, ERR_CUDA, ERR_RELEASED (the context of the view ends), ERR_EXPORTER_GONE (the server does) */
gpuipc_status offer_await(offer *self, const buffer *opened, const atomic_bool *is_over,
                          const gpuipc_open_config *how, os_deadline deadline);

/** Whether something is attached that who opens this range of the buffer does not get: it is not all that is offered. */
bool offer_withholds(const offer *self, uint64_t offset, uint64_t bytes);
/** What is attached, for who opens this range of the buffer; NULL and 0: nothing. */
const void *offer_attachment(const offer *self, uint64_t offset, uint64_t bytes, size_t *out_size);

#endif

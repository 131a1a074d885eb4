/* SPDX-License-Identifier: MIT */
/** @file One question to a server, over a link that this thread has for itself, and what the answer means. */
#ifndef GPUIPC_TICKET_REQUEST_H
#define GPUIPC_TICKET_REQUEST_H

#include "message/connection.h"
#include "message/wire.h"
#include "ticket/ticket.h"

/** What a server has given. */
typedef struct ticket_given {
    struct buffer *buffer; /**< as connection_deliver() gives it */
    void *attachment;      /**< malloc; NULL: there is none */
    size_t attachment_bytes;
    bool is_attachment_withheld; /**< there is one, for who opens all that is shared */
    bool is_one_shot;            /**< nobody gets it again after ticket_request_confirm() */
    uint32_t
        later_ms; /**< with ERR_SERVER_BUSY: the server asks to be asked again after so long; 0: it does not */
} ticket_given;

/** @param bytes the ticket as it came  @param wish but for the ticket */
gpuipc_status ticket_request_send(connection *to, const gpuipc_ticket *bytes,
                                  const wire_request *wish, os_deadline deadline);
/** What a one-shot ticket gave is open. Where the server cannot be told at once, it gives its hold up by itself later. The
 *  error record stays. */
void ticket_request_confirm(connection *to, const gpuipc_ticket *bytes);
/** The reply to it. Contents that are not ready are nobody's to wait for in here.
 *  @param bytes the length of the range that was asked for
 *  @param out_is_usable whether the next reply would be the next request's */
gpuipc_status ticket_request_receive(connection *from, const gpuipc_open_config *config,
                                     uint64_t bytes, os_deadline deadline, ticket_given *out,
                                     bool *out_is_usable);

/** What a server's answer, any but GRANTED, is for the caller. */
gpuipc_status ticket_answer_status(wire_answer answer);
/** The same of a reply, of which WIRE_BUSY has more to say. */
gpuipc_status ticket_reply_status(const wire_reply *reply);

#endif

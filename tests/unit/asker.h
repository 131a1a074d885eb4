/* SPDX-License-Identifier: MIT */
/** @file A client of a server, by the protocol: what it asks and what it is answered, packet by packet. */
#ifndef GPUIPC_TEST_ASKER_H
#define GPUIPC_TEST_ASKER_H

#include "core_fixture.h"
#include "message/connection.h"
#include "ticket/offer.h"
#include "ticket/ticket.h"

typedef struct asker {
    gpuipc_connection *handle;
    connection *connection;
} asker;

/** What came. */
typedef struct asker_reply {
    wire_answer answer;
    uint16_t flags;        /**< WIRE_REPLY_*, wire_busy */
    uint32_t limit;        /**< with WIRE_BUSY */
    char attachment[64];   /**< as text */
    uint16_t ready;        /**< wire_ready of the buffer */
    gpuipc_buffer *buffer; /**< NULL: none came */
} asker_reply;

/** A server of core_context; no thread: the test polls it. */
gpuipc_server *asker_server(uint32_t flags);
gpuipc_ticket asker_share(gpuipc_server *server, gpuipc_buffer *of);

ticket asker_decode(const gpuipc_ticket *of);
/** The same ticket with another secret. */
gpuipc_ticket asker_forge(const gpuipc_ticket *of);

/** Whether a server of this process gave it out. */
bool asker_is_here(const gpuipc_ticket *of);
/** What a server of this process says to this process. *out_offer, unless NULL: a reference when that is GRANTED. */
wire_answer asker_answer_here(const gpuipc_ticket *of, offer **out_offer);

/** How long one-shot shares of a server of this process wait for a word of those who got them. */
void asker_set_patience(const gpuipc_ticket *of, uint64_t ns);

/** What a thread is answered that was in gpuipc_server_poll() when the server's end began, and comes to its turn when
 *  another has taken the one wake of the end, and left. Ends the server. */
gpuipc_status asker_poll_late(gpuipc_server *of);

/** Connects to the server of a ticket. */
void asker_begin(asker *self, gpuipc_context *from, const gpuipc_ticket *of);
/** Closes it, if it was begun. */
void asker_end(asker *self);

gpuipc_status asker_send(asker *self, const gpuipc_ticket *of);
/** Says that a one-shot ticket's buffer is open, which has no reply. */
gpuipc_status asker_confirm(asker *self, const gpuipc_ticket *of);
/** Any bytes, as a message of any kind. */
gpuipc_status asker_send_bytes(asker *self, wire_kind kind, const void *bytes, size_t size);

/** What the server answers; its buffer, if there is one, is open. */
gpuipc_status asker_receive(asker *self, asker_reply *out_reply);
/** The same, without waiting for contents: the reply is kept for asker_receive(). */
wire_ready asker_peek(asker *self);

/** Asks a server that has a thread. */
asker_reply asker_ask(asker *self, const gpuipc_ticket *of);
/** The same; a buffer that comes is released at once. */
wire_answer asker_answer(asker *self, const gpuipc_ticket *of);

/** Returns when the server is through with what was asked before: a reply is there a moment earlier. */
void asker_settle(asker *self, const gpuipc_ticket *of);

/** The server closes the connection. */
void asker_check_ended(asker *self);

#endif

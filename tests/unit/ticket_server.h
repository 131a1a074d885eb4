/* SPDX-License-Identifier: MIT */
/** @file A server made by hand, in a thread of the test: it answers tickets by a script, well or badly. */
#ifndef GPUIPC_TEST_TICKET_SERVER_H
#define GPUIPC_TEST_TICKET_SERVER_H

#include "core_fixture.h"
#include "message/wire.h"
#include "ticket/ticket.h"

/** What it does next. */
typedef enum ticket_act {
    TICKET_END,     /**< nothing more */
    TICKET_ACCEPT,  /**< lets a connection in, in place of the one that it had */
    TICKET_HANG_UP, /**< closes the connection */
    TICKET_HEAR,    /**< takes a request in and answers nothing */
    TICKET_GRANT,   /**< takes a request in and answers with the range that its ticket names */
    TICKET_CONFIRM, /**< takes in that what it granted is open */
    TICKET_ANSWER,  /**< takes a request in and answers so, without a buffer */
    TICKET_SAY,     /**< answers so, unasked */
    TICKET_WRONG,   /**< takes a request in; answers so, with a buffer */
    TICKET_PART,    /**< takes a request in and sends the first packet of a reply of two */
    TICKET_MESSAGE  /**< takes a request in and sends a message that is no reply */
} ticket_act;

typedef struct ticket_step {
    ticket_act act;
    wire_answer answer;
} ticket_step;

typedef struct ticket_server {
    gpuipc_context *context;
    gpuipc_listener *listener;
    gpuipc_buffer *buffer; /**< what all its tickets stand for */
    const char *attachment;
    uint32_t flags;       /**< of sending */
    uint16_t reply_flags; /**< of what is granted */
    wire_busy busy;       /**< with WIRE_BUSY, and its limit */
    uint32_t limit;
    gpuipc_stream stream;
    ticket names; /**< its tickets are like this one */
    const ticket_step *steps;
    uint64_t requests; /**< for a buffer */
    gpuipc_connection *connection;
    core_waiter thread;
} ticket_server;

/** Listens; nobody answers yet. */
void ticket_server_open(ticket_server *self, gpuipc_context *within, gpuipc_buffer *of);
/** Nobody listens any more. */
void ticket_server_close(ticket_server *self);

/** Works the steps off, which end with TICKET_END, in a thread of its own. */
void ticket_server_begin(ticket_server *self, const ticket_step *steps);
/** They are done, and have worked. */
void ticket_server_end(ticket_server *self);

/** A ticket of it for a range of the buffer. */
gpuipc_ticket ticket_server_ticket(const ticket_server *self, uint64_t offset, uint64_t bytes);

#endif

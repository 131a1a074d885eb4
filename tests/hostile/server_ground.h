/* SPDX-License-Identifier: MIT */
/** @file A server of the library's, and clients of it that do not keep to docs/wire-format.md, "Requests and replies". */
#ifndef GPUIPC_TEST_HOSTILE_SERVER_H
#define GPUIPC_TEST_HOSTILE_SERVER_H

#include <stdatomic.h>

#include "hostile.h"
#include "os.h"
#include "ticket/ticket.h"

/** Clients that one user may have at it. */
#define SERVER_PLACES 24u
#define SERVER_SHARED MEBIBYTES_2

typedef struct server_ground {
    process_case at;
    gpuipc_buffer *buffer;
    gpuipc_server *server;
    gpuipc_ticket ticket;  /**< of all of the buffer */
    gpuipc_ticket revoked; /**< another one of it, which is no more */
    gpuipc_ticket channel; /**< of a channel with one slot */
    gpuipc_channel *frames;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    char endpoint[TICKET_ENDPOINT_SIZE];
    honest_client honest;
    os_thread *thread;     /**< which polls the server */
    atomic_uint seen[128]; /**< how often a client came to its end with this status */
} server_ground;

/** A hostile client. */
typedef struct server_peer {
    raw_peer *raw; /**< NULL when the act has closed it */
    const server_ground *on;
    const struct server_case *of;
    unsigned round;
    uint64_t next;                       /**< number of its next message */
    raw_peer *others[4 * SERVER_PLACES]; /**< NULL: none */
} server_peer;

typedef enum server_end {
    SERVER_ANSWERS, /**< and goes on to serve this client */
    SERVER_HANGS_UP,
    SERVER_WAITS /**< nothing comes; it goes on to serve this client, unless that has gone */
} server_end;

typedef struct server_case {
    const char *name;
    const char *rule;
    void (*act)(server_peer *self);
    server_end end;
    wire_answer answer;   /**< where it answers */
    gpuipc_status status; /**< of the client's end, where it hangs up */
    unsigned variants;    /**< rounds that differ; 0: none does */
} server_case;

/** A case after which the server hangs up. */
#define SERVER_HANGS_UP_CASE(called, breaks, how, by, count)                                       \
    {                                                                                              \
        .name = (called), .rule = (breaks), .act = (how), .end = SERVER_HANGS_UP,                  \
        .status = GPUIPC_ERR_##by, .variants = (count)                                             \
    }

extern const server_case server_cases[];
extern const size_t server_case_count;

/** All rounds of these cases, asserted, each with an honest process that opens the ticket; on a ground of their own. */
void server_run(const server_case *cases, size_t count);

raw_peer *server_connect(const server_ground *on);
/** Sends any bytes as one message of any kind. */
void server_send(server_peer *self, wire_kind kind, const void *bytes, size_t size);
void server_ask(server_peer *self, wire_wish wish, const gpuipc_ticket *ticket);
/** The next reply; false when the server has hung up, or nothing came in so long. */
bool server_hear(raw_peer *from, int timeout_ms, wire_reply *out_reply);

#endif

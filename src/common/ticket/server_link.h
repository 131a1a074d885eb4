/* SPDX-License-Identifier: MIT */
/** @file A context's one connection to a server, for all the tickets of that server. It is the link: when it
 *  ends, nothing more is handed out over it, and what came over it and was never opened counts as returned. What a
 *  process has open stays its own until it releases it, or ends. */
#ifndef GPUIPC_SERVER_LINK_H
#define GPUIPC_SERVER_LINK_H

#include <gpuipc/gpuipc.h>

#include "base/table.h"
#include "message/wire.h"
#include "os.h"
#include "ticket/ticket.h"

struct buffer;
struct point_page;
struct context;

/** The links of a context. */
typedef struct server_links {
    os_mutex mutex;
    os_condition is_free; /**< a request was answered, or the context was given up */
    uint64_t seed;        /**< random: a server's place in the table */
    hash_table by_server;
    linked_list in_turn; /**< the one that was not looked at for the longest time first */
    bool is_over;        /**< there are no new ones */
} server_links;

/** At its end it has no links, each of which holds a reference on the context. */
extern const struct context_part server_links_part;

/** The user gives the context up: all end, one that somebody is just asking over when he sees it. What was
 *  opened over them stays usable.
 *  @param forked in a child, which only frees */
void server_links_close(struct context *ctx, bool forked);

/** Connects to an endpoint. Whether there is somebody is known at once (ERR_NOT_FOUND); that he has no time yet may pass,
 *  and is waited for. */
gpuipc_status server_link_endpoint(struct context *ctx, const char *name, os_deadline deadline,
                                   os_connection **out_os);

/** Asks the server of a ticket for its buffer, over the link on it, which is made where there is none. What comes is
 *  found by its ticket from then on.
 *  @param bytes the ticket as it came  @param config never NULL; its stream, device and flags are for the
 *         opening
 *  @param out_opened as ticket_cache_find(), also where another thread has opened it meanwhile */
gpuipc_status server_link_open(struct context *ctx, const gpuipc_ticket *bytes,
                               const ticket *decoded, const gpuipc_open_config *config,
                               os_deadline deadline, struct buffer **out_opened);

/** Likewise for a channel: asks for its slots, which are held, and the page of a new reader. No ticket finds them again.
 *  @param wish the subscription's part of the request
 *  @param out_page of points, opened */
gpuipc_status server_link_subscribe(struct context *ctx, const gpuipc_ticket *bytes,
                                    const ticket *decoded, const gpuipc_open_config *config,
                                    const wire_request *wish, os_deadline deadline,
                                    struct buffer **out_opened, struct point_page **out_page);

#endif

/* SPDX-License-Identifier: MIT */
/** @file A context's one connection to a server, for all the tickets of that server. It is the lease: when it
 *  ends, nothing more is handed out over it, and what came over it and was never opened counts as returned. What a
 *  process has open stays its own until it releases it, or ends. */
#ifndef GPUIPC_LEASE_H
#define GPUIPC_LEASE_H

#include <gpuipc/gpuipc.h>

#include "os.h"
#include "ticket.h"
#include "wire.h"

struct buffer;
struct context;

typedef struct lease lease;

/** The leases of a context. */
typedef struct lease_table {
    os_mutex mutex;
    os_condition is_free; /**< a request was answered, or the context was given up */
    lease *first;
    bool is_over; /**< there are no new ones */
} lease_table;

gpuipc_status lease_table_init(lease_table *self);
/** Of a context that is no more: it has no leases, each of which holds a reference on it. */
void lease_table_end(struct context *ctx, bool forked);

/** The user gives the context up: all end, one that somebody is just asking over when he sees it. What was
 *  opened over them stays usable.
 *  @param forked in a child, which only frees */
void lease_close_all(struct context *ctx, bool forked);

/** Asks the server of a ticket for its buffer, over the lease on it, which is made where there is none. What comes is
 *  found by its ticket from then on.
 *  @param bytes the ticket as it came  @param config never NULL; its stream, device and flags are for the
 *         opening
 *  @param out_found as opening_find(): another thread has opened it meanwhile; else NULL, and *out_opened is written */
gpuipc_status lease_request(struct context *ctx, const gpuipc_ticket *bytes, const ticket *decoded,
                            const gpuipc_open_config *config, os_deadline deadline,
                            struct buffer **out_found, gpuipc_buffer **out_opened);

#endif

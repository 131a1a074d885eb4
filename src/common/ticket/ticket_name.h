/* SPDX-License-Identifier: MIT */
/** @file Names in the runtime directory under which a ticket is found. A name is a second one of its server's endpoint, so
 * that it lives as long as the server does, and the server says which ticket it stands for. */
#ifndef GPUIPC_TICKET_NAME_H
#define GPUIPC_TICKET_NAME_H

#include "ticket/server.h"
#include "ticket/ticket.h"

typedef struct ticket_name ticket_name;

/** Whether a channel can have it.
 *  ERR_NAME_INVALID, ERR_NAME_TOO_LONG */
gpuipc_status ticket_name_check(const char *name);

/** Gives a ticket of the server's a name.
 *  @param of has a reference of the caller's until the name is removed
 *  ERR_NAME_IN_USE, ERR_RELEASED (the server has ended) */
gpuipc_status ticket_name_add(server *of, const char *name, const gpuipc_ticket *bytes,
                              ticket_name **out_name);
/** The name is free. NULL does nothing. The error record stays. */
void ticket_name_remove(ticket_name *self);
/** The server ends, and its names are free. What was added stays to be removed. */
void ticket_names_end(server *of);

/** What a server of this process says of a name. False: it has no such name. */
bool ticket_name_find(const uint8_t server_id[16], const char *name, gpuipc_ticket *out_ticket);

/** Asks for the ticket that a name stands for now, in the context's runtime directory; tries once.
 *  @param how whose server it may be
 *  ERR_NOT_FOUND (nobody has the name), ERR_ACCESS_DENIED, ERR_PROTOCOL, ERR_TIMEOUT, ERR_SERVER_BUSY */
gpuipc_status ticket_name_ask(context *ctx, const char *name, const gpuipc_endpoint_config *how,
                              os_deadline deadline, gpuipc_ticket *out_ticket);

#endif

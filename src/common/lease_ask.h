/* SPDX-License-Identifier: MIT */
/** @file One question to a server, over a lease that this thread has for itself, and what the answer means. */
#ifndef GPUIPC_LEASE_ASK_H
#define GPUIPC_LEASE_ASK_H

#include "connection.h"
#include "ticket.h"
#include "wire.h"

/** What a server has given. */
typedef struct lease_given {
    gpuipc_buffer *buffer;
    void *attachment; /**< malloc; NULL: there is none */
    size_t attachment_bytes;
} lease_given;

/** A request and its reply.
 *  @param bytes the ticket as it came
 *  @param out_is_usable whether the next reply would be the next request's */
gpuipc_status lease_ask(connection *of, const gpuipc_ticket *bytes,
                        const gpuipc_open_config *config, os_deadline deadline, lease_given *out,
                        bool *out_is_usable);

/** What a server's answer, any but GRANTED, is for the caller. */
gpuipc_status lease_status_of(wire_answer answer);

#endif

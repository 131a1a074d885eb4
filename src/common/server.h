/* SPDX-License-Identifier: MIT */
/** @file Answers tickets: shares, the clients that ask for them, and who holds what. */
#ifndef GPUIPC_SERVER_H
#define GPUIPC_SERVER_H

#include "buffer.h"
#include "share.h"
#include "ticket.h"
#include "wire.h"

/** What a server of this process says of a ticket that this process itself opens. */
typedef struct server_local {
    bool is_here;       /**< the server is one of this process: else the rest is not written */
    wire_answer answer; /**< GRANTED: the rest is written, and server_local_settle() must follow */
    buffer *original;   /**< a reference for the caller */
    gpuipc_access access;
    void *attachment; /**< malloc, the caller's; NULL: none */
    size_t attachment_bytes;
    struct server *server; /**< a reference, which server_local_settle() gives up */
    share_grant grant;
} server_local;

/** Asks the servers of this process; waits for nothing. GRANTED: the process counts as one that opens it.
 *  ERR_OUT_OF_MEMORY */
gpuipc_status server_ask_local(const ticket *decoded, server_local *out_local);

/** Between a grant and its settling: until the contents are there that a stream still makes. With
 *  GPUIPC_RECEIVE_ASYNC the stream waits instead.
 *  @param opened the view: whose device a default stream is of  ERR_TIMEOUT, ERR_CUDA */
gpuipc_status server_local_await(const server_local *self, const buffer *opened, uint32_t flags,
                                 gpuipc_stream stream, os_deadline deadline);

/** It has been opened, or it came to nothing: then the process does not count for it. The error record stays. */
void server_local_settle(server_local *self, bool is_opened);

#endif

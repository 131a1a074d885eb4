/* SPDX-License-Identifier: MIT */
/** @file What is asked about transports: pairs as calls name them, and the answers. */
#ifndef GPUIPC_TRANSPORT_QUERY_H
#define GPUIPC_TRANSPORT_QUERY_H

#include "cuda/context.h"

/** A caller's pair, looked up. */
typedef struct query_pair {
    uint32_t owner; /**< or GPUIPC_DEVICE_NONE: this process does not see it */
    uint32_t user;
    gpuipc_uuid owner_uuid;
    bool has_peer;           /**< there is a connection, so the process at the other end is known */
    bool is_own_process;     /**< and it is this one */
    bool is_other_namespace; /**< and it is in another PID namespace */
} query_pair;

/** ERR_DEVICE_NOT_FOUND, ERR_STRUCT_SIZE, ERR_RELEASED (the connection). */
gpuipc_status query_read_pair(const context *ctx, const gpuipc_transport_pair *pair,
                              query_pair *out_pair);

/** The transport with this number, ::GPUIPC_TRANSPORT_VMM for the default. ERR_INVALID_ARGUMENT. */
gpuipc_status query_read_transport(gpuipc_transport given, gpuipc_transport *out_transport);

/** The answer that it does not work. @param particulars what the reason's own sentence cannot know; may be empty */
gpuipc_transport_info query_refusal(gpuipc_transport which, gpuipc_reason reason,
                                    const char *particulars);

/** gpuipc_transport_query() in a context. */
gpuipc_status query_context(context *ctx, gpuipc_transport which,
                            const gpuipc_transport_pair *given, gpuipc_transport_info *out_info);

/** The same of a pair that was looked up. */
gpuipc_status query_answer(context *ctx, gpuipc_transport which, const query_pair *pair,
                           gpuipc_transport_info *out_info);

/** The sentence of GPUIPC_REASON_LIST; reason.c. */
const char *reason_sentence(gpuipc_reason reason);

#endif

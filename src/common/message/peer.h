/* SPDX-License-Identifier: MIT */
/** @file Who is at the other end, whether we talk to it, and which names an endpoint may have. */
#ifndef GPUIPC_PEER_H
#define GPUIPC_PEER_H

#include <gpuipc/gpuipc.h>

#include "os.h"

/** What the public struct says of a peer; struct_size is set. */
gpuipc_peer_info peer_describe(const os_peer *peer);

/** ERR_ACCESS_DENIED unless the policy (NULL: same user) lets it in. */
gpuipc_status peer_check(const os_peer *peer, const gpuipc_endpoint_config *config);

/** Reads the caller's config; NULL gives the default. */
gpuipc_status peer_read_config(const gpuipc_endpoint_config *config,
                               gpuipc_endpoint_config *out_known);

/** ERR_NAME_INVALID, ERR_NAME_TOO_LONG */
gpuipc_status peer_check_name(const char *name);

#endif

/* SPDX-License-Identifier: MIT */
/** @file See peer.h. */
#include "message/peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/struct_size.h"

gpuipc_peer_info peer_describe(const os_peer *peer) {
    gpuipc_peer_info info = {.struct_size = sizeof(info),
                             .process_id = peer->process_id,
                             .same_user = peer->same_user ? 1 : 0,
                             .is_running = os_peer_is_running(peer)};
    (void)snprintf(info.user, sizeof(info.user), "%s", peer->user);
    return info;
}

gpuipc_status peer_check(const os_peer *peer, const gpuipc_endpoint_config *config) {
    if (config->policy == NULL && peer->same_user) {
        return GPUIPC_OK;
    }
    if (config->policy == NULL) {
        return status_fail(GPUIPC_ERR_ACCESS_DENIED,
                           "process %" PRIu64 " runs as user %s, which is not this process's user",
                           peer->process_id, peer->user);
    }
    gpuipc_peer_info info = peer_describe(peer);
    const char *const call = status_call();
    const bool is_welcome = config->policy(config->policy_user_data, &info) != 0;
    status_enter(call); /* the policy may have called the library */
    if (!is_welcome) {
        return status_fail(GPUIPC_ERR_ACCESS_DENIED,
                           "the policy refused process %" PRIu64 " of user %s", peer->process_id,
                           peer->user);
    }
    return GPUIPC_OK;
}

gpuipc_status peer_read_config(const gpuipc_endpoint_config *config,
                               gpuipc_endpoint_config *out_known) {
    if (config == NULL) {
        *out_known = (gpuipc_endpoint_config){0};
        return GPUIPC_OK;
    }
    return struct_size_read(config, STRUCT_SIZE_UP_TO(gpuipc_endpoint_config, policy_user_data),
                            out_known, sizeof(*out_known));
}

gpuipc_status peer_check_name(const char *name) {
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    if (name == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "name is NULL");
    }
    if (name[0] == '@') {
        name++;
    }
    size_t good = strspn(name, allowed);
    if (name[0] == '\0') {
        return status_fail(GPUIPC_ERR_NAME_INVALID, "the name is empty");
    }
    if (good == 0 || name[good] != '\0' || name[0] == '.') {
        return status_fail(GPUIPC_ERR_NAME_INVALID,
                           "a name is made of A-Z a-z 0-9 . _ - and does not begin with a dot; "
                           "character %zu is not allowed",
                           name[0] == '.' ? 1 : good + 1);
    }
    if (good > GPUIPC_NAME_MAX) {
        return status_fail(GPUIPC_ERR_NAME_TOO_LONG, "the name has %zu characters; the most is %d",
                           good, GPUIPC_NAME_MAX);
    }
    return GPUIPC_OK;
}

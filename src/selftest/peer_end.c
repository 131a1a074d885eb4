/* SPDX-License-Identifier: MIT */
/** @file See peer.h: the leader's second program, which hands memory over and is killed. */
#include <inttypes.h>
#include <stdio.h>

#include "admit.h"
#include "peer.h"

static bool hand_over(role *at) {
    char line[ROLE_LINE_MAX];
    gpuipc_buffer *buffer;
    gpuipc_endpoint_config room;
    if (!role_check(at,
                    gpuipc_connection_open(at->session.context, at->options->name,
                                           admit_config(at->options, &room),
                                           at->options->timeout_ms, &at->connection),
                    "connecting") ||
        !peer_make(at, peer_device(at), GPUIPC_TRANSPORT_VMM, pattern_consumer, &buffer)) {
        return false;
    }
    bool is_handed = role_say(at, buffer, "lend %" PRIu64, PEER_BYTES) &&
                     role_hear(at, "taken", line, NULL) != NULL;
    if (is_handed) {
        puts(PEER_SAYS_HANDED);
        (void)fflush(stdout);
        (void)role_hear(at, NULL, line, NULL); /* nothing comes */
        is_handed = role_fail(at, "this program was not killed in time");
    }
    (void)gpuipc_buffer_release(buffer);
    return is_handed;
}

int peer_end(const options *wanted) {
    role at;
    int code = role_begin(&at, wanted, "other end");
    if (code == EXIT_PASS) {
        (void)hand_over(&at);
        puts(at.failure);
        role_end(&at);
        code = EXIT_FAIL;
    }
    return code;
}

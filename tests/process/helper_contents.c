/* SPDX-License-Identifier: MIT */
/** @file The helper's commands about contents, on the default stream. */
#include <inttypes.h>
#include <stdio.h>

#include "helper.h"
#include "helper_commands.h"

typedef gpuipc_status (*contents_call)(gpuipc_connection *connection,
                                       const gpuipc_contents *contents, int timeout_ms);

static void call(const helper_state *self, const char *arguments, contents_call how) {
    gpuipc_contents contents = {.struct_size = sizeof(contents)};
    size_t index = 0;
    unsigned transport = 0;
    int timeout_ms = 0;
    (void)sscanf(arguments, " %zu %" SCNu64 " %" SCNu64 " %u %d", &index, &contents.offset,
                 &contents.bytes, &transport, &timeout_ms);
    contents.transport = (gpuipc_transport)transport;
    contents.buffer = index < self->buffer_count ? self->buffers[index] : NULL;
    helper_say_status(how(self->connection, &contents, timeout_ms));
}

/* contents_send INDEX OFFSET BYTES TRANSPORT TIMEOUT */
static void send_contents(helper_state *self, const char *arguments) {
    call(self, arguments, gpuipc_connection_send_contents);
}

/* contents_receive INDEX OFFSET BYTES TRANSPORT TIMEOUT */
static void receive_contents(helper_state *self, const char *arguments) {
    call(self, arguments, gpuipc_connection_receive_contents);
}

/* lost INDEX: whether its contents were lost */
static void say_lost(helper_state *self, const char *arguments) {
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    size_t index = 0;
    (void)sscanf(arguments, " %zu", &index);
    gpuipc_status status = index < self->buffer_count
                               ? gpuipc_buffer_get_info(self->buffers[index], &info)
                               : GPUIPC_ERR_OUT_OF_RANGE;
    if (status == GPUIPC_OK) {
        helper_say("GPUIPC_OK %d", (int)info.is_lost);
    } else {
        helper_say_status(status);
    }
}

const helper_command helper_contents_commands[] = {{"contents_send", send_contents},
                                                   {"contents_receive", receive_contents},
                                                   {"lost", say_lost},
                                                   {NULL, NULL}};

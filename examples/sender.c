/* SPDX-License-Identifier: MIT */
/** @file Makes 64 MiB of GPU memory and sends it to the process that connects. */
#include <gpuipc/gpuipc.h>
#include <stdio.h>
#include <stdlib.h>

static void must(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        fprintf(stderr, "%s\n", gpuipc_error_text());
        exit(1);
    }
}

int main(void) {
    gpuipc_context *context;
    gpuipc_buffer *buffer;
    gpuipc_listener *listener;
    gpuipc_connection *connection;
    gpuipc_buffer_config config = {.struct_size = sizeof config, .bytes = 64 << 20};
    gpuipc_outgoing message = {.struct_size = sizeof message, .buffer_count = 1};
    gpuipc_incoming answer = {.struct_size = sizeof answer};
    uint32_t word;

    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_buffer_create(context, &config, &buffer));
    must(gpuipc_buffer_fill_async(buffer, 0, config.bytes, 1337, sizeof word, NULL));

    must(gpuipc_listener_open(context, "demo", NULL, &listener));
    must(gpuipc_listener_accept(listener, 60000, &connection));
    message.buffers = &buffer;
    must(gpuipc_connection_send(connection, &message, 10000));

    must(gpuipc_connection_receive(connection, &answer, 10000));
    must(gpuipc_buffer_read(buffer, 0, &word, sizeof word));
    printf("the receiver wrote %u\n", (unsigned)word);

    must(gpuipc_connection_close(connection));
    must(gpuipc_listener_close(listener));
    must(gpuipc_buffer_release(buffer));
    must(gpuipc_context_destroy(context));
    return 0;
}

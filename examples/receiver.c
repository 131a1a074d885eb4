/* SPDX-License-Identifier: MIT */
/** @file Receives the sender's GPU memory, reads a word of it and writes another. */
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
    gpuipc_connection *connection;
    gpuipc_buffer *buffer = NULL;
    gpuipc_incoming message = {.struct_size = sizeof message, .buffer_capacity = 1};
    gpuipc_outgoing answer = {.struct_size = sizeof answer};
    uint32_t word;

    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_connection_open(context, "demo", NULL, 60000, &connection));
    message.buffers = &buffer;
    must(gpuipc_connection_receive(connection, &message, 10000));

    must(gpuipc_buffer_read(buffer, 0, &word, sizeof word));
    printf("the sender wrote %u\n", (unsigned)word);
    word = 42;
    must(gpuipc_buffer_write(buffer, 0, &word, sizeof word));
    must(gpuipc_connection_send(connection, &answer, 10000));

    must(gpuipc_connection_close(connection));
    must(gpuipc_buffer_release(buffer));
    must(gpuipc_context_destroy(context));
    return 0;
}

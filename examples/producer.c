/* SPDX-License-Identifier: MIT */
/** @file Makes 64 MiB of GPU memory and prints a ticket, by which another process opens it. */
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
    gpuipc_server *server;
    gpuipc_ticket ticket;
    gpuipc_buffer_config config = {.struct_size = sizeof config, .bytes = 64 << 20};
    char text[GPUIPC_TICKET_TEXT_SIZE];
    uint32_t word;

    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_buffer_create(context, &config, &buffer));
    must(gpuipc_buffer_fill_async(buffer, 0, config.bytes, 1337, sizeof word, NULL));

    must(gpuipc_server_create(context, NULL, &server));
    must(gpuipc_buffer_share(server, buffer, NULL, &ticket));
    must(gpuipc_ticket_to_text(&ticket, text));
    printf("%s\n", text);
    fflush(stdout);

    getchar(); /* until Enter is pressed: the server answers on a thread of its own */
    must(gpuipc_buffer_read(buffer, 0, &word, sizeof word));
    printf("the consumer wrote %u\n", (unsigned)word);

    must(gpuipc_server_destroy(server));
    must(gpuipc_buffer_release(buffer));
    must(gpuipc_context_destroy(context));
    return 0;
}

/* SPDX-License-Identifier: MIT */
/** @file Alone: makes GPU memory, and prints a ticket for it. With that ticket, in another process: reads the memory. */
#include <gpuipc/gpuipc.h>
#include <stdio.h>
#include <stdlib.h>

static void must(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        fprintf(stderr, "%s\n", gpuipc_error_text());
        exit(1);
    }
}

int main(int count, char **words) {
    gpuipc_buffer_config config = {.struct_size = sizeof config, .bytes = 64 << 20};
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_context *context;
    gpuipc_buffer *buffer;
    gpuipc_server *server;
    gpuipc_ticket ticket;
    uint32_t word = 0;

    must(gpuipc_context_create(NULL, &context));
    if (count == 2) { /* the other process */
        must(gpuipc_ticket_from_text(words[1], &ticket));
        must(gpuipc_buffer_open(context, &ticket, NULL, &buffer));
        must(gpuipc_buffer_read(buffer, 0, &word, sizeof word));
        return printf("%u\n", (unsigned)word) < 0;
    }
    must(gpuipc_buffer_create(context, &config, &buffer));
    must(gpuipc_buffer_fill_async(buffer, 0, config.bytes, 1337, sizeof word, NULL));
    must(gpuipc_server_create(context, NULL, &server));
    must(gpuipc_buffer_share(server, buffer, NULL, &ticket));
    must(gpuipc_ticket_to_text(&ticket, text));
    printf("%s\n", text);
    fflush(stdout);
    return getchar() == EOF; /* until Enter is pressed: a thread of the server answers */
}

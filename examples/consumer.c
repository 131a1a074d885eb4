/* SPDX-License-Identifier: MIT */
/** @file Opens the producer's GPU memory by its ticket, reads a word of it and writes another. */
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
    gpuipc_context *context;
    gpuipc_buffer *buffer;
    gpuipc_ticket ticket;
    uint32_t word;

    if (count != 2) {
        fprintf(stderr, "usage: %s TICKET (the line that the producer prints)\n", words[0]);
        return 2;
    }
    must(gpuipc_ticket_from_text(words[1], &ticket));
    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_buffer_open(context, &ticket, NULL, &buffer));

    must(gpuipc_buffer_read(buffer, 0, &word, sizeof word));
    printf("the producer wrote %u\n", (unsigned)word);
    word = 42;
    must(gpuipc_buffer_write(buffer, 0, &word, sizeof word));

    must(gpuipc_buffer_release(buffer));
    must(gpuipc_context_destroy(context));
    return 0;
}

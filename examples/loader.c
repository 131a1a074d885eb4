/* SPDX-License-Identifier: MIT */
/**
 * @file A loader that hands parts of one buffer to the trainer (trainer.c) through a pipe, again and again:
 *   ./loader | ./trainer
 * It says a ticket for the whole first, and then a line for each batch. The trainer says nothing: that a part is back,
 * the loader's stream learns from its loan.
 */
#include <gpuipc/gpuipc.h>
#include <stdio.h>
#include <stdlib.h>

#include "batch.h"

static void must(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        fprintf(stderr, "%s\n", gpuipc_error_text());
        exit(1);
    }
}

/* Which part it is, and its loan. */
static void say(unsigned part, const gpuipc_mark *loan) {
    printf("%u ", part);
    for (size_t i = 0; i < sizeof loan->bytes; i++) {
        printf("%02x", loan->bytes[i]);
    }
    printf("\n");
    fflush(stdout);
}

int main(void) {
    gpuipc_context *context;
    gpuipc_buffer *arena;
    gpuipc_server *server;
    gpuipc_ticket ticket;
    gpuipc_buffer_config config = {.struct_size = sizeof config, .bytes = PARTS * PART_BYTES};
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_mark loans[PARTS];

    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_buffer_create(context, &config, &arena));
    must(gpuipc_server_create(context, NULL, &server));
    must(gpuipc_buffer_share(server, arena, NULL, &ticket));
    must(gpuipc_ticket_to_text(&ticket, text));
    printf("%s\n", text);

    for (unsigned number = 0; number < BATCHES; number++) {
        unsigned part = number % PARTS;
        /* On one stream, here the default one: the part is back, it is filled, and it is lent anew. The host waits only
         * for a trainer that is PARTS lines behind. */
        if (number >= PARTS) {
            must(gpuipc_buffer_await_loan_async(arena, &loans[part], NULL, 10000));
        }
        must(gpuipc_buffer_fill_async(arena, part * PART_BYTES, PART_BYTES, CONTENTS(number), 4,
                                      NULL));
        must(gpuipc_buffer_lend(arena, NULL, &loans[part]));
        say(part, &loans[part]);
    }

    for (unsigned part = 0; part < PARTS; part++) {
        must(gpuipc_buffer_await_loan(arena, &loans[part], 10000));
    }
    fprintf(stderr, "the trainer returned all %d batches\n", BATCHES);
    must(gpuipc_server_destroy(server));
    must(gpuipc_buffer_release(arena));
    must(gpuipc_context_destroy(context));
    return 0;
}

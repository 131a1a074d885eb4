/* SPDX-License-Identifier: MIT */
/** @file A trainer that uses the loader's batches (loader.c) on its stream, and returns each on it. */
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

static void hear_ticket(gpuipc_ticket *ticket) {
    char text[GPUIPC_TICKET_TEXT_SIZE];
    if (scanf("%94s", text) != 1) { /* as long as a ticket is */
        exit(1);
    }
    must(gpuipc_ticket_from_text(text, ticket));
}

static unsigned hear_batch(gpuipc_mark *loan) {
    unsigned part;
    unsigned byte;
    int heard = scanf("%u ", &part);
    for (size_t i = 0; i < sizeof loan->bytes && heard == 1; i++) {
        heard = scanf("%2x", &byte);
        loan->bytes[i] = (uint8_t)byte;
    }
    if (heard != 1) {
        exit(1);
    }
    return part;
}

int main(void) {
    gpuipc_context *context;
    gpuipc_buffer *arena;
    gpuipc_buffer *results;
    gpuipc_ticket ticket;
    gpuipc_buffer_config config = {.struct_size = sizeof config,
                                   .bytes = BATCHES * sizeof(uint32_t)};
    uint32_t words[BATCHES];

    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_buffer_create(context, &config, &results));
    hear_ticket(&ticket);
    must(gpuipc_buffer_open(context, &ticket, NULL, &arena));

    for (unsigned number = 0; number < BATCHES; number++) {
        gpuipc_mark loan;
        unsigned part = hear_batch(&loan);
        must(gpuipc_buffer_take_loan(arena, &loan));
        /* On one stream, here the default one: the batch is ready, it is used (your kernels), and it goes back. */
        must(gpuipc_buffer_await_mark_async(arena, &loan, NULL));
        must(gpuipc_buffer_copy_async(results, number * sizeof *words, arena, part * PART_BYTES,
                                      sizeof *words, NULL));
        must(gpuipc_buffer_return_loan_async(arena, &loan, NULL));
    }

    must(gpuipc_buffer_read(results, 0, words, sizeof words)); /* waits for the stream */
    for (unsigned i = 0; i < BATCHES; i++) {
        if (words[i] != CONTENTS(i)) {
            fprintf(stderr, "batch %u held %u\n", i, (unsigned)words[i]);
            return 1;
        }
    }
    printf("all %d batches of the loader were right\n", BATCHES);

    must(gpuipc_buffer_release(arena));
    must(gpuipc_buffer_release(results));
    must(gpuipc_context_destroy(context));
    return 0;
}

/* SPDX-License-Identifier: MIT */
/**
 * @file A camera that hands its frames to the model (channel_model.c) through a channel:
 *   ./channel_camera | ./channel_model
 * The pipe carries one line, the channel's ticket. From then on neither message nor handle travels.
 */
#include <gpuipc/gpuipc.h>
#include <stdio.h>
#include <stdlib.h>

#include "channel_frame.h"

static void must(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        fprintf(stderr, "%s\n", gpuipc_error_text());
        exit(1);
    }
}

int main(void) {
    gpuipc_context *context;
    gpuipc_server *server;
    gpuipc_channel *channel;
    gpuipc_ticket ticket;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    size_t models;
    gpuipc_buffer_config memory = {.struct_size = sizeof memory, .bytes = SLOTS * SLOT_BYTES};
    gpuipc_server_config by_poll = GPUIPC_SERVER_CONFIG_INIT; /* without a thread of its own */
    gpuipc_channel_config config = {.struct_size = sizeof config,
                                    .slots = SLOTS,
                                    .slot_bytes = SLOT_BYTES,
                                    .header_bytes = sizeof(frame_header)};

    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_buffer_create(context, &memory, &config.buffer));
    must(gpuipc_server_create(context, &by_poll, &server));
    must(gpuipc_channel_create(server, &config, &channel, &ticket));
    must(gpuipc_ticket_to_text(&ticket, text));
    printf("%s\n", text);
    fflush(stdout);

    /* A reader gets what is published after it came, so this camera waits for one. Others need not. */
    while (gpuipc_channel_readers(channel, NULL, 0, &models) == GPUIPC_OK) { /* there are none */
        must(gpuipc_server_poll(server, 60000));
    }

    for (uint32_t number = 0; number < FRAMES; number++) {
        frame_header header = {number, 128, 128};
        gpuipc_frame frame = GPUIPC_FRAME_INIT;
        /* On one stream, here the default one: the model has given a slot back, it is filled (as your capture does), and
         * it is ready. The host waits only for a model that has all slots in its hands. */
        must(gpuipc_channel_loan(channel, NULL, 10000, &frame));
        must(gpuipc_buffer_fill_async(config.buffer,
                                      frame.address - gpuipc_buffer_address(config.buffer),
                                      SLOT_BYTES, CONTENTS(number), 4, NULL));
        frame.header = &header;
        frame.header_bytes = sizeof header;
        must(gpuipc_channel_publish(channel, &frame, NULL));
    }

    /* Who has all slots on loan knows that readers have given all back. */
    for (unsigned i = 0; i < SLOTS; i++) {
        gpuipc_frame unused = GPUIPC_FRAME_INIT;
        must(gpuipc_channel_loan(channel, GPUIPC_NO_STREAM, 10000, &unused));
    }
    fprintf(stderr, "the model gave back all %d frames\n", FRAMES);
    must(gpuipc_channel_destroy(channel));
    must(gpuipc_server_destroy(server));
    must(gpuipc_buffer_release(config.buffer));
    must(gpuipc_context_destroy(context));
    return 0;
}

/* SPDX-License-Identifier: MIT */
/**
 * @file A camera whose kernel says by itself that a frame is ready, to a model whose kernel waits for that
 * (posix_kernel_model.c):
 *   ./posix_kernel_camera [DEVICE] | ./posix_kernel_model [DEVICE]
 * Between two GPUs this is faster than streams that wait. On one GPU it is slower by far, since kernels of two
 * processes take turns there.
 */
#include <gpuipc/gpuipc.h>
#include <gpuipc/gpuipc_channel.h>

#include "channel_frame.h"
#include "posix_kernel.h"

static void must(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        fprintf(stderr, "%s\n", gpuipc_error_text());
        exit(1);
    }
}

int main(int argc, char **argv) {
    const int device = argc > 1 ? atoi(argv[1]) : 0;
    const kernel fill = kernel_load(device, "fill");
    gpuipc_context *context;
    gpuipc_server *server;
    gpuipc_channel *channel;
    gpuipc_ticket ticket;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    size_t models;
    gpuipc_buffer_config memory = {
        .struct_size = sizeof memory, .device = GPUIPC_DEVICE(device), .bytes = SLOTS * SLOT_BYTES};
    gpuipc_server_config by_poll = GPUIPC_SERVER_CONFIG_INIT; /* without a thread of its own */
    gpuipc_channel_config config = {.struct_size = sizeof config,
                                    .slots = SLOTS,
                                    .slot_bytes = SLOT_BYTES,
                                    .header_bytes = sizeof(frame_header),
                                    .max_readers = 1};

    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_buffer_create(context, &memory, &config.buffer));
    must(gpuipc_server_create(context, &by_poll, &server));
    must(gpuipc_channel_create(server, &config, &channel, &ticket));
    must(gpuipc_ticket_to_text(&ticket, text));
    printf("%s\n", text);
    fflush(stdout);
    while (gpuipc_channel_readers(channel, NULL, 0, &models) == GPUIPC_OK) { /* there are none */
        must(gpuipc_server_poll(server, 60000));
    }

    for (uint32_t number = 0; number < FRAMES; number++) {
        frame_header header = {number, 128, 128};
        gpuipc_frame frame = GPUIPC_FRAME_INIT;
        gpuipc_word ready;
        uint32_t count = SLOT_BYTES / 4;
        uint32_t word = CONTENTS(number);
        must(gpuipc_channel_loan(channel, NULL, 10000, &frame));
        frame.header = &header;
        frame.header_bytes = sizeof header;
        /* The word is known now, and the kernel is launched with it. The model sees the frame when we say that the kernel was
         * launched, and its kernel waits for ours. */
        must(gpuipc_channel_publish_by_kernel(channel, &frame, NULL, &ready, 1, &models));
        if (models == 0) {
            fprintf(stderr, "the model has gone\n");
            return 1;
        }
        void *parameters[] = {&frame.address, &count, &word, &ready.address, &ready.value};
        kernel_launch(fill, parameters);
        must(gpuipc_channel_kernel_launched(channel, &frame, NULL));
    }

    /* Who has all slots on loan knows that readers have given all back. */
    for (unsigned i = 0; i < SLOTS; i++) {
        gpuipc_frame unused = GPUIPC_FRAME_INIT;
        must(gpuipc_channel_loan(channel, GPUIPC_NO_STREAM, 10000, &unused));
    }
    fprintf(stderr, "the model's kernels gave back all %d frames\n", FRAMES);
    must(gpuipc_channel_destroy(channel));
    must(gpuipc_server_destroy(server));
    must(gpuipc_buffer_release(config.buffer));
    must(gpuipc_context_destroy(context));
    return 0;
}

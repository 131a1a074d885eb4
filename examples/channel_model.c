/* SPDX-License-Identifier: MIT */
/**
 * @file A model that takes the camera's frames (channel_camera.c) from a channel and gives each back, in the order of its
 * stream:
 *   ./channel_camera | ./channel_model
 *
 * The trap: a model that keeps as many frames as the channel has slots gets no other, since the camera has no slot left
 * to fill. So a reader says how many it keeps at a time (max_held, here 2), and the library refuses more. A channel
 * allows one less than it has slots, unless the camera says otherwise. A model that looks at several frames at once
 * needs a channel with more slots, or keeps copies.
 */
#include <gpuipc/gpuipc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "channel_frame.h"

static void must(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        fprintf(stderr, "%s\n", gpuipc_error_text());
        exit(1);
    }
}

int main(void) {
    gpuipc_context *context;
    gpuipc_subscription *frames;
    gpuipc_buffer *results;
    gpuipc_ticket ticket;
    char text[GPUIPC_TICKET_TEXT_SIZE] = "";
    uint32_t words[FRAMES];
    gpuipc_buffer_config memory = {.struct_size = sizeof memory, .bytes = sizeof words};
    gpuipc_subscription_config config = {.struct_size = sizeof config,
                                         .delivery = GPUIPC_DELIVERY_ALL, /* or _NEWEST */
                                         .max_held = 2};

    if (scanf("%94s", text) != 1) {
        fprintf(stderr, "usage: ./channel_camera | ./channel_model\n");
        return 2;
    }
    must(gpuipc_ticket_from_text(text, &ticket));
    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_buffer_create(context, &memory, &results));
    must(gpuipc_subscription_open(context, &ticket, &config, &frames));

    for (uint64_t next = 1; next <= FRAMES; next++) {
        gpuipc_frame frame = GPUIPC_FRAME_INIT;
        frame_header header;
        gpuipc_buffer *slots;
        uint64_t offset;
        must(gpuipc_subscription_take(frames, NULL, 10000, &frame));
        if (frame.sequence != next || frame.header_bytes != sizeof header) {
            fprintf(stderr, "frame %u came in place of %u\n", (unsigned)frame.sequence,
                    (unsigned)next);
            return 1;
        }
        memcpy(&header, frame.header, sizeof header);
        /* On one stream, here the default one: the frame is ready, the model reads it (your kernels get
         * frame.address), and its slot goes back to the camera. */
        must(gpuipc_buffer_find(context, frame.address, &slots, &offset));
        must(gpuipc_buffer_copy_async(results, header.number * sizeof *words, slots, offset,
                                      sizeof *words, NULL));
        must(gpuipc_subscription_give_back(frames, &frame, NULL));
        must(gpuipc_buffer_release(slots));
    }

    must(gpuipc_buffer_read(results, 0, words, sizeof words)); /* waits for the stream */
    for (unsigned i = 0; i < FRAMES; i++) {
        if (words[i] != CONTENTS(i)) {
            fprintf(stderr, "frame %u held %u\n", i, (unsigned)words[i]);
            return 1;
        }
    }
    printf("all %d frames of the camera were right\n", FRAMES);

    must(gpuipc_subscription_close(frames));
    must(gpuipc_buffer_release(results));
    must(gpuipc_context_destroy(context));
    return 0;
}

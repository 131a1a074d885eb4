/* SPDX-License-Identifier: MIT */
/**
 * @file A model that uses the camera's frames (camera.c) on its stream and gives each back on it. The host waits for
 * messages, and for no work of a GPU until it wants the results.
 *
 * The trap: the camera has POOL frames. Who has taken POOL of them, returned none, and takes one more, waits for
 * ever: its message comes, but its contents never do, because the camera cannot fill a frame that was not returned.
 * A model that looks at several frames at once needs a camera with more of them, or keeps copies.
 */
#include <gpuipc/gpuipc.h>
#include <stdio.h>
#include <stdlib.h>

#include "frame.h"

static void must(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        fprintf(stderr, "%s\n", gpuipc_error_text());
        exit(1);
    }
}

int main(void) {
    gpuipc_context *context;
    gpuipc_connection *connection;
    gpuipc_buffer *results;
    gpuipc_buffer_config config = {.struct_size = sizeof config,
                                   .bytes = FRAMES * sizeof(uint32_t)};
    uint32_t words[FRAMES];

    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_buffer_create(context, &config, &results));
    must(gpuipc_connection_open(context, "camera", NULL, 60000, &connection));

    for (unsigned i = 0; i < FRAMES; i++) {
        gpuipc_buffer *frame = NULL;
        uint32_t number = 0;
        gpuipc_incoming message = {.struct_size = sizeof message,
                                   .bytes = &number,
                                   .bytes_capacity = sizeof number,
                                   .buffers = &frame,
                                   .buffer_capacity = 1,
                                   .flags = GPUIPC_RECEIVE_ASYNC};
        must(gpuipc_connection_receive(connection, &message, 10000));
        /* On one stream, here the default one: the frame is ready, the model reads it (your kernels), and it goes
         * back to the camera. */
        must(gpuipc_buffer_copy_async(results, number * sizeof number, frame, 0, sizeof number,
                                      NULL));
        must(gpuipc_buffer_release_async(frame, NULL));
    }

    must(gpuipc_buffer_read(results, 0, words, sizeof words)); /* waits for the stream */
    for (unsigned i = 0; i < FRAMES; i++) {
        if (words[i] != CONTENTS(i)) {
            fprintf(stderr, "frame %u held %u\n", i, (unsigned)words[i]);
            return 1;
        }
    }
    printf("all %d frames of the camera were right\n", FRAMES);

    must(gpuipc_buffer_release(results));
    must(gpuipc_connection_close(connection));
    must(gpuipc_context_destroy(context));
    return 0;
}

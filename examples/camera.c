/* SPDX-License-Identifier: MIT */
/**
 * @file A camera that fills a few frames of GPU memory again and again, and hands each to the model (model.c). The
 * streams of the two processes wait for each other; this process waits for the model's once, at the end.
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
    gpuipc_listener *listener;
    gpuipc_connection *connection;
    gpuipc_buffer *pool[POOL];
    gpuipc_buffer_config config = {.struct_size = sizeof config, .bytes = 4 << 20};

    must(gpuipc_context_create(NULL, &context));
    for (unsigned i = 0; i < POOL; i++) {
        must(gpuipc_buffer_create(context, &config, &pool[i]));
    }
    must(gpuipc_listener_open(context, "camera", NULL, &listener));
    must(gpuipc_listener_accept(listener, 60000, &connection));

    for (uint32_t number = 0; number < FRAMES; number++) {
        gpuipc_buffer *frame = pool[number % POOL];
        gpuipc_outgoing message = {.struct_size = sizeof message,
                                   .bytes = &number,
                                   .bytes_size = sizeof number,
                                   .buffers = &frame,
                                   .buffer_count = 1,
                                   .flags = GPUIPC_SEND_ASYNC};
        /* Three things on one stream, here the default one, none of which the host waits for: the model has
         * returned this frame, it is filled (as your capture does), and it is ready. */
        must(gpuipc_buffer_await_returns_async(frame, NULL));
        must(gpuipc_buffer_fill_async(frame, 0, config.bytes, CONTENTS(number), sizeof number,
                                      NULL));
        must(gpuipc_connection_send(connection, &message, 10000));
    }

    for (unsigned i = 0; i < POOL; i++) {
        must(gpuipc_buffer_await_returns(pool[i], 10000));
        must(gpuipc_buffer_release(pool[i]));
    }
    printf("the model returned all %d frames\n", FRAMES);
    must(gpuipc_connection_close(connection));
    must(gpuipc_listener_close(listener));
    must(gpuipc_context_destroy(context));
    return 0;
}

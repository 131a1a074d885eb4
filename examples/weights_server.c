/* SPDX-License-Identifier: MIT */
/** @file Three named tensors in one buffer, and one ticket for all of them: what a weights server gives out. */
#include <gpuipc/gpuipc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS 3

static void must(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        fprintf(stderr, "%s\n", gpuipc_error_text());
        exit(1);
    }
}

int main(void) {
    const char *names[TENSORS] = {"embedding", "layer.0.weight", "layer.0.bias"};
    const int64_t rows[TENSORS] = {1000, 64, 1};
    gpuipc_range ranges[TENSORS] = {{NULL}};
    gpuipc_context *context;
    gpuipc_buffer *weights;
    gpuipc_server *server;
    gpuipc_ticket ticket;
    gpuipc_buffer_config config = GPUIPC_BUFFER_CONFIG_INIT;
    gpuipc_share_config share = GPUIPC_SHARE_CONFIG_INIT;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    unsigned char manifest[1024];

    for (int i = 0; i < TENSORS; i++) {
        ranges[i].name = names[i];
        ranges[i].offset = config.bytes;
        ranges[i].bytes = (uint64_t)rows[i] * 64 * sizeof(float);
        ranges[i].element_type = GPUIPC_ELEMENT_TYPE(GPUIPC_ELEMENT_FLOAT, 32, 1);
        ranges[i].dimensions = 2;
        ranges[i].shape[0] = rows[i];
        ranges[i].shape[1] = ranges[i].strides[0] = 64;
        ranges[i].strides[1] = 1;
        config.bytes += (ranges[i].bytes + 255) / 256 * 256;
    }
    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_buffer_create(context, &config, &weights));
    for (int i = 0; i < TENSORS; i++) {
        const float value = (float)i + 1;
        uint32_t word;
        memcpy(&word, &value, sizeof word);
        must(gpuipc_buffer_fill_async(weights, ranges[i].offset, ranges[i].bytes, word, sizeof word,
                                      NULL));
    }

    /* Who opens the ticket gets the manifest with it, and may only read. */
    must(
        gpuipc_manifest_write(ranges, TENSORS, manifest, sizeof manifest, &share.attachment_bytes));
    share.attachment = manifest;
    share.access = GPUIPC_ACCESS_READ;
    must(gpuipc_server_create(context, NULL, &server));
    must(gpuipc_buffer_share(server, weights, &share, &ticket));
    must(gpuipc_ticket_to_text(&ticket, text));
    printf("%s\n", text);
    fflush(stdout);
    getchar(); /* until Enter is pressed, any number of readers come and go */

    must(gpuipc_server_destroy(server));
    must(gpuipc_buffer_release(weights));
    must(gpuipc_context_destroy(context));
    printf("the weights were served\n");
    return 0;
}

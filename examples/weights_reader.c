/* SPDX-License-Identifier: MIT */
/** @file Opens the weights by their ticket, and finds one tensor by its name. */
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
    gpuipc_buffer *weights;
    gpuipc_ticket ticket;
    gpuipc_range tensor;
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    gpuipc_open_config config = GPUIPC_OPEN_CONFIG_INIT;
    float first;

    if (count != 3) {
        fprintf(stderr, "usage: %s TICKET NAME\n", words[0]);
        return 2;
    }
    must(gpuipc_ticket_from_text(words[1], &ticket));
    must(gpuipc_context_create(NULL, &context));
    config.info = &info;
    config.access = GPUIPC_ACCESS_READ;
    must(gpuipc_buffer_open(context, &ticket, &config, &weights));

    must(gpuipc_manifest_find(info.attachment, info.attachment_bytes, info.bytes, words[2],
                              &tensor));
    must(gpuipc_buffer_read(weights, tensor.offset, &first, sizeof first));
    printf("%s is %d x %d and begins with %.1f\n", tensor.name, (int)tensor.shape[0],
           (int)tensor.shape[1], first);
    /* A kernel takes it from info.address + tensor.offset. */

    must(gpuipc_buffer_release(weights));
    must(gpuipc_context_destroy(context));
    return 0;
}

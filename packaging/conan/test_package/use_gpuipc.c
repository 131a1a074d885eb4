/* SPDX-License-Identifier: MIT */
/** @file Makes memory, writes a word into it, and reads it by its ticket, in one process. */
#include <gpuipc/gpuipc.h>
#include <stdio.h>

static int check(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        fprintf(stderr, "%s\n", gpuipc_error_text());
    }
    return status == GPUIPC_OK;
}

int main(int count, char **words) {
    gpuipc_context_config wanted = GPUIPC_CONTEXT_CONFIG_INIT;
    gpuipc_buffer_config config = GPUIPC_BUFFER_CONFIG_INIT;
    gpuipc_context *context;
    gpuipc_buffer *made;
    gpuipc_buffer *opened;
    gpuipc_server *server;
    gpuipc_ticket ticket;
    uint32_t word = 1337;
    config.bytes = 1 << 20;
    wanted.driver = count == 2 ? words[1] : NULL;
    if (!check(gpuipc_context_create(&wanted, &context)) ||
        !check(gpuipc_buffer_create(context, &config, &made)) ||
        !check(gpuipc_buffer_write(made, 0, &word, sizeof word)) ||
        !check(gpuipc_server_create(context, NULL, &server)) ||
        !check(gpuipc_buffer_share(server, made, NULL, &ticket)) ||
        !check(gpuipc_buffer_open(context, &ticket, NULL, &opened))) {
        return 1;
    }
    word = 0;
    if (!check(gpuipc_buffer_read(opened, 0, &word, sizeof word)) ||
        !check(gpuipc_buffer_release(opened)) || !check(gpuipc_server_destroy(server)) ||
        !check(gpuipc_buffer_release(made)) || !check(gpuipc_context_destroy(context))) {
        return 1;
    }
    printf("gpuipc %d.%d.%d: %u\n", GPUIPC_VERSION_MAJOR, GPUIPC_VERSION_MINOR,
           GPUIPC_VERSION_PATCH, (unsigned)word);
    return word == 1337 ? 0 : 1;
}

/* SPDX-License-Identifier: MIT */
/** @file A program of a project that contains gpuipc. Exit code 0: a word of GPU memory came back. */
#include <gpuipc/gpuipc.h>
#include <stdio.h>

int main(void) {
    gpuipc_context *context;
    gpuipc_buffer *buffer;
    gpuipc_buffer_config config = {.struct_size = sizeof config, .bytes = 4096};
    uint32_t word = 1337;
    uint32_t found = 0;
    if (gpuipc_context_create(NULL, &context) != GPUIPC_OK ||
        gpuipc_buffer_create(context, &config, &buffer) != GPUIPC_OK ||
        gpuipc_buffer_write(buffer, 0, &word, sizeof word) != GPUIPC_OK ||
        gpuipc_buffer_read(buffer, 0, &found, sizeof found) != GPUIPC_OK ||
        gpuipc_buffer_release(buffer) != GPUIPC_OK ||
        gpuipc_context_destroy(context) != GPUIPC_OK) {
        fprintf(stderr, "%s\n", gpuipc_error_get()->sentence);
        return 1;
    }
    return found == word ? 0 : 1;
}

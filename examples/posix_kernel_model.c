/* SPDX-License-Identifier: MIT */
/**
 * @file A model whose kernel waits by itself for the frames of a camera (posix_kernel_camera.c), and gives them back:
 *   ./posix_kernel_camera [DEVICE] | ./posix_kernel_model [DEVICE]
 *
 * The trap: a kernel that waits holds its place on the GPU. So no call that waits for the whole device may come before
 * what it waits for, and no more of them may wait at a time than the GPU has room for beside the work that they wait for.
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
    const kernel check = kernel_load(device, "check");
    gpuipc_context *context;
    gpuipc_subscription *frames;
    gpuipc_buffer *result;
    gpuipc_ticket ticket;
    char text[GPUIPC_TICKET_TEXT_SIZE] = "";
    uint32_t wrong = 0;
    gpuipc_buffer_config memory = {
        .struct_size = sizeof memory, .device = GPUIPC_DEVICE(device), .bytes = sizeof wrong};
    gpuipc_subscription_config config = {
        .struct_size = sizeof config, .device = GPUIPC_DEVICE(device), .max_held = 2};

    if (scanf("%94s", text) != 1) {
        fprintf(stderr, "usage: ./posix_kernel_camera [DEVICE] | ./posix_kernel_model [DEVICE]\n");
        return 2;
    }
    must(gpuipc_ticket_from_text(text, &ticket));
    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_buffer_create(context, &memory, &result));
    must(gpuipc_buffer_write(result, 0, &wrong, sizeof wrong));
    uint64_t address = gpuipc_buffer_address(result);
    must(gpuipc_subscription_open(context, &ticket, &config, &frames));

    for (uint64_t next = 1; next <= FRAMES; next++) {
        gpuipc_frame frame = GPUIPC_FRAME_INIT;
        gpuipc_word ready, returned;
        uint32_t count = SLOT_BYTES / 4;
        uint32_t word = CONTENTS((uint32_t)next - 1);
        must(gpuipc_subscription_take_for_kernel(frames, NULL, 10000, &frame, &ready, &returned));
        if (frame.sequence != next) {
            fprintf(stderr, "frame %u came in place of %u\n", (unsigned)frame.sequence,
                    (unsigned)next);
            return 1;
        }
        void *parameters[] = {&frame.address,  &count,       &word,
                              &ready.address,  &ready.value, &returned.address,
                              &returned.value, &address};
        kernel_launch(check, parameters);
        must(gpuipc_subscription_kernel_launched(frames, &frame, NULL));
    }

    must(gpuipc_buffer_read(result, 0, &wrong, sizeof wrong)); /* waits for the stream */
    if (wrong != 0) {
        fprintf(stderr, "%u words were wrong\n", (unsigned)wrong);
        return 1;
    }
    printf("all %d frames of the camera were right\n", FRAMES);
    must(gpuipc_subscription_close(frames));
    must(gpuipc_buffer_release(result));
    must(gpuipc_context_destroy(context));
    return 0;
}

/* SPDX-License-Identifier: MIT */
/** @file The helper's commands about the tensors of tensors.h. */
#include <inttypes.h>
#include <stdio.h>

#include "helper.h"
#include "helper_commands.h"
#include "tensors.h"

static uint8_t manifest[GPUIPC_MESSAGE_BYTES_MAX];

/* tensors SEED TIMEOUT: a message with the buffer, and the manifest as its bytes */
static void receive_tensors(helper_state *self, const char *arguments) {
    uint32_t seed = 0;
    int timeout_ms = 0;
    gpuipc_buffer *buffer;
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .bytes = manifest,
                               .bytes_capacity = sizeof(manifest),
                               .buffers = &buffer,
                               .buffer_capacity = 1};
    (void)sscanf(arguments, " %" SCNu32 " %d", &seed, &timeout_ms);
    gpuipc_status status = gpuipc_connection_receive(self->connection, &message, timeout_ms);
    if (status == GPUIPC_OK && message.buffer_count == 1) {
        status = tensors_check(manifest, message.bytes_size, buffer, seed);
        helper_say_status(status);
        (void)gpuipc_buffer_release(buffer);
    } else {
        helper_say_status(status == GPUIPC_OK ? GPUIPC_ERR_PROTOCOL : status);
    }
}

/* open-tensors SEED TICKET: the manifest is attached to it */
static void open_tensors(helper_state *self, const char *arguments) {
    uint32_t seed = 0;
    char text[GPUIPC_TICKET_TEXT_SIZE] = "";
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    const gpuipc_open_config config = {.struct_size = sizeof(config), .info = &info};
    gpuipc_ticket ticket;
    gpuipc_buffer *buffer;
    (void)sscanf(arguments, " %" SCNu32 " %94s", &seed, text);
    gpuipc_status status = gpuipc_ticket_from_text(text, &ticket);
    if (status != GPUIPC_OK ||
        (status = gpuipc_buffer_open(self->context, &ticket, &config, &buffer)) != GPUIPC_OK) {
        helper_say_status(status);
        return;
    }
    status = tensors_check(info.attachment, info.attachment_bytes, buffer, seed);
    helper_say_status(status);
    (void)gpuipc_buffer_release(buffer);
}

const helper_command helper_manifest_commands[] = {
    {"tensors", receive_tensors}, {"open-tensors", open_tensors}, {NULL, NULL}};

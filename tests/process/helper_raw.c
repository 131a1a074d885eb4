/* SPDX-License-Identifier: MIT */
/** @file The helper's commands in which it does not speak for gpuipc. */
#include <gpuipc/gpuipc_native.h>
#include <stdio.h>
#include <string.h>

#include "helper.h"
#include "helper_commands.h"
#include "raw_handle.h"
#include "raw_packet.h"

/* half NAME: connects and sends the first half of a message that brings the first buffer twice */
static void send_half(helper_state *self, const char *arguments) {
    char name[GPUIPC_NAME_MAX + 1] = "";
    raw_packet packet;
    (void)sscanf(arguments, " %64s", name);
    self->raw = raw_connect(self->directory, name);
    if (self->raw == NULL || !raw_packet_make(self->buffers[0], &packet)) {
        helper_say("no connection or no packet");
        return;
    }
    packet.header.total_buffers = 2;
    packet.header.total_segments = 2;
    bool sent = raw_packet_send(&packet, self->raw);
    raw_packet_close(&packet);
    helper_say(sent ? "GPUIPC_OK" : "the packet did not leave");
}

/* courier NAME: takes a buffer from a courier that knows nothing of gpuipc, and holds it */
static void take_from_courier(helper_state *self, const char *arguments) {
    char name[GPUIPC_NAME_MAX + 1] = "";
    unsigned char bytes[sizeof(gpuipc_native_layout) + sizeof(uint64_t)];
    gpuipc_native_layout layout;
    gpuipc_native_segment segment = {{-1}, 0};
    intptr_t handle = RAW_HANDLE_NONE;
    size_t count = 1;
    (void)sscanf(arguments, " %64s", name);
    raw_peer *courier = raw_connect(self->directory, name);
    long size =
        courier == NULL ? -1 : raw_receive(courier, bytes, sizeof(bytes), &handle, &count, 20000);
    raw_close(courier);
    if (size != (long)sizeof(bytes) || count != 1) {
        helper_say("the courier brought %ld bytes and %zu handles", size, count);
        return;
    }
    memcpy(&layout, bytes, sizeof(layout));
    memcpy(&segment.bytes, bytes + sizeof(layout), sizeof(segment.bytes));
    segment.handle.value = handle;
    gpuipc_status status =
        gpuipc_native_import(self->context, &segment, 1, &layout, GPUIPC_DEVICE_OWNER,
                             GPUIPC_ACCESS_DEFAULT, &self->buffers[self->buffer_count]);
    raw_handle_close(handle);
    self->buffer_count += status == GPUIPC_OK;
    helper_say_status(status);
}

const helper_command helper_raw_commands[] = {
    {"half", send_half}, {"courier", take_from_courier}, {NULL, NULL}};

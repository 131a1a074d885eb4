/* SPDX-License-Identifier: MIT */
/** @file See raw_packet.h. */
#include "raw_packet.h"

#include <gpuipc/gpuipc_native.h>
#include <string.h>

#include "os.h"
#include "raw_handle.h"

bool raw_packet_make(gpuipc_buffer *of, raw_packet *out_packet) {
    gpuipc_native_segment segment;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count = 0;
    if (gpuipc_native_export(of, &segment, 1, &layout, &count) != GPUIPC_OK) {
        return false;
    }
    *out_packet = (raw_packet){.header = {.kind = WIRE_MESSAGE,
                                          .total_bytes = sizeof(RAW_PACKET_TEXT) - 1,
                                          .total_buffers = 1,
                                          .total_segments = 1,
                                          .bytes = sizeof(RAW_PACKET_TEXT) - 1,
                                          .buffers = 1,
                                          .segments = 1},
                               .buffer = {.buffer_id = 1,
                                          .offset = layout.offset,
                                          .bytes = layout.bytes,
                                          .segment_count = 1,
                                          .memory = SEGMENT_MEMORY_VMM,
                                          .handle_type = (uint16_t)os_shareable_handle_type,
                                          .access = GPUIPC_ACCESS_READ_WRITE},
                               .segment = {.bytes = segment.bytes},
                               .handles = {segment.handle.value},
                               .handle_count = 1};
    memcpy(out_packet->buffer.device_uuid, layout.device_uuid.bytes,
           sizeof(out_packet->buffer.device_uuid));
    raw_packet_encode(out_packet);
    return true;
}

void raw_packet_encode(raw_packet *self) {
    wire_encode_header(&self->header, self->bytes);
    memcpy(self->bytes + RAW_BYTES, RAW_PACKET_TEXT, sizeof(RAW_PACKET_TEXT) - 1);
    wire_encode_buffer(&self->buffer, self->bytes + RAW_BUFFER);
    wire_encode_segment(&self->segment, self->bytes + RAW_SEGMENT);
}

bool raw_packet_send(raw_packet *self, raw_peer *to) {
    raw_packet_encode(self);
    return raw_send(to, self->bytes, sizeof(self->bytes), self->handles, self->handle_count);
}

void raw_packet_repeat_handle(raw_packet *self, size_t count) {
    for (size_t i = 1; i < count; i++) {
        self->handles[i] = self->handles[0];
    }
    self->handle_count = count;
}

void raw_packet_replace_handle(raw_packet *self, intptr_t handle) {
    raw_handle_close(self->handles[0]);
    self->handles[0] = handle;
}

void raw_packet_close(raw_packet *self) {
    raw_handle_close(self->handles[0]); /* the others are the same one */
    self->handle_count = 0;
}

/* SPDX-License-Identifier: MIT */
/** @file A packet of the wire format with one buffer in it, to be spoiled and sent by a raw peer. */
#ifndef GPUIPC_TEST_RAW_PACKET_H
#define GPUIPC_TEST_RAW_PACKET_H

#include <gpuipc/gpuipc.h>
#include <stdbool.h>

#include "message/wire.h"
#include "raw_peer.h"

#define RAW_PACKET_HANDLES_MAX 253
#define RAW_PACKET_TEXT        "raw"

/** Where the parts of an encoded packet begin: docs/wire-format.md. */
enum {
    RAW_MAGIC = 0,
    RAW_MAJOR = 4,
    RAW_LENGTH = 8,
    RAW_KIND = 12,
    RAW_FLAGS = 14,
    RAW_TOTAL_BYTES = 24,
    RAW_BUFFER_RECORD = 44,
    RAW_SEGMENT_RECORD = 46,
    RAW_BYTES = WIRE_HEADER_BYTES,
    RAW_BUFFER = RAW_BYTES + sizeof(RAW_PACKET_TEXT) - 1,
    RAW_BUFFER_RESERVED = RAW_BUFFER + 88,
    RAW_SEGMENT = RAW_BUFFER + WIRE_BUFFER_BYTES,
    RAW_SEGMENT_RESERVED = RAW_SEGMENT + 10,
    RAW_END = RAW_SEGMENT + WIRE_SEGMENT_BYTES
};

/** The parts, which a test may change; then the bytes are made of them. */
typedef struct raw_packet {
    wire_header header;
    wire_buffer buffer;
    segment_record segment;
    intptr_t handles[RAW_PACKET_HANDLES_MAX]; /**< the first is closed by raw_packet_close */
    size_t handle_count;
    uint8_t bytes[RAW_END];
} raw_packet;

/** A valid first message with one buffer of one segment and a few bytes. */
bool raw_packet_make(gpuipc_buffer *of, raw_packet *out_packet);

/** Makes the bytes of the parts. */
void raw_packet_encode(raw_packet *self);

/** Encodes and sends. */
bool raw_packet_send(raw_packet *self, raw_peer *to);

/** Puts the same handle in so many times. */
void raw_packet_repeat_handle(raw_packet *self, size_t count);

/** Puts another handle, which becomes the packet's, in place of its own. */
void raw_packet_replace_handle(raw_packet *self, intptr_t handle);

void raw_packet_close(raw_packet *self);

#endif
